/// Tests of the normalisation forms: a few cases by hand, and Unicode's own test file.

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "text/split/unicode.h"

namespace baton::unicode {
namespace {

using enum NormalForm;

TEST(NormalForm, composes_letters_and_marks) {
  EXPECT_EQ(normalized("e\u0301a\u030A", c), "éå");
  EXPECT_EQ(normalized("q\u0307\u0323", c), "q\u0323\u0307") << "marks stand in the order of their classes";
  EXPECT_EQ(normalized("a\u0301\u0300", c), "á\u0300") << "a mark is not joined across another of its class";
  EXPECT_EQ(normalized("\uAC00\u11A8", c), "각");
}

TEST(NormalForm, replaces_characters_that_are_only_other_spellings) {
  EXPECT_EQ(normalized("\u212B\u2126\uF900", c), "ÅΩ\u8C48");
  EXPECT_EQ(normalized("\u0958", c), "\u0915\u093C") << "an excluded composition";
  EXPECT_EQ(normalized("ﬁ Ａ１ ①", c), "ﬁ Ａ１ ①") << "compatibility characters stay";
  EXPECT_EQ(normalized("ﬁ Ａ１ ①", kc), "fi A1 1");
  EXPECT_EQ(normalized("é", d), "e\u0301");
}

TEST(NormalForm, makes_room_for_characters_of_many_parts) {
  const std::string many = normalized("\uFDFA", kd);  // 18 characters from three bytes
  EXPECT_GT(many.size(), 30u);
  std::string text;
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    text += "\uFDFA";
    expected += many;
  }
  EXPECT_EQ(normalized(text, kd), expected);
}

TEST(NormalForm, leaves_other_text_alone) {
  for (const NormalForm form : {c, d, kc, kd})
    for (const char* text : {"", "plain", "日本語 🦙", "\u0301"}) EXPECT_EQ(normalized(text, form), text);
}

TEST(NormalForm, keeps_zero_bytes) { EXPECT_EQ(normalized(std::string("\0e\u0301\0", 5), c), std::string("\0é\0", 4)); }

/// The lines of Debian's copy of NormalizationTest.txt; empty if the package unicode-data is not installed.
std::vector<std::string> read_vectors() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("bzip2 -dc /usr/share/unicode/NormalizationTest.txt.bz2", "r"),
                                                   pclose);
  std::vector<std::string> lines;
  std::array<char, 4096> line;
  while (pipe && std::fgets(line.data(), static_cast<int>(line.size()), pipe.get()) != nullptr) lines.emplace_back(line.data());
  return lines;
}

/// The five columns of a line: source, NFC, NFD, NFKC, NFKD.
std::array<std::string, 5> columns_of(const std::string& line) {
  std::array<std::string, 5> columns;
  const char* at = line.c_str();
  for (std::string& column : columns) {
    for (; *at != ';'; ++at) {
      char* end = nullptr;
      append_utf8(column, static_cast<char32_t>(std::strtoul(at, &end, 16)));
      if (at = end; *at == ';') break;
    }
    ++at;
  }
  return columns;
}

/// Conformance as NormalizationTest.txt defines it: 1. for each line; 2. a character that Part 1 does not list is
/// unchanged.
TEST(NormalForm, conforms_to_unicodes_vectors) {
  const std::vector<std::string> lines = read_vectors();
  if (lines.empty()) GTEST_SKIP() << "Debian's packages unicode-data and bzip2 are not installed";
  std::set<std::string> listed;
  bool is_part1 = false;
  int n_cases = 0;
  for (const std::string& line : lines) {
    if (line.starts_with("@")) is_part1 = line.starts_with("@Part1 ");
    if (line.starts_with("@") || line.starts_with("#")) continue;
    const auto [source, nfc, nfd, nfkc, nfkd] = columns_of(line);
    for (const std::string& text : {source, nfc, nfd}) {
      ASSERT_EQ(normalized(text, c), nfc) << line;
      ASSERT_EQ(normalized(text, d), nfd) << line;
    }
    for (const std::string& text : {nfkc, nfkd}) {
      ASSERT_EQ(normalized(text, c), nfkc) << line;
      ASSERT_EQ(normalized(text, d), nfkd) << line;
    }
    for (const std::string& text : {source, nfc, nfd, nfkc, nfkd}) {
      ASSERT_EQ(normalized(text, kc), nfkc) << line;
      ASSERT_EQ(normalized(text, kd), nfkd) << line;
    }
    if (is_part1) listed.insert(source);
    ++n_cases;
  }
  EXPECT_GT(n_cases, 18'000);
  EXPECT_GT(listed.size(), 16'000u);
  if (lines[0].find(utf8proc_unicode_version()) == std::string::npos)
    GTEST_SKIP() << "utf8proc has another version than " << lines[0];
  for (char32_t character = 0; character <= 0x10FFFF; ++character) {
    if (character >= 0xD800 && character <= 0xDFFF) continue;
    const std::string text = to_utf8(character);
    if (listed.contains(text)) continue;
    for (const NormalForm form : {c, d, kc, kd})
      ASSERT_EQ(normalized(text, form), text) << std::hex << std::uint32_t{character};
  }
}

}  // namespace
}  // namespace baton::unicode
