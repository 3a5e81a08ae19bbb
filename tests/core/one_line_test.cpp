/// Messages with text of strangers stay one line that a terminal shows as it is.
#include "core/one_line.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string escaped(std::string_view text) { return one_line(text, kMaxMessageBytes); }

TEST(OneLine, keeps_what_is_printable) {
  for (const char* text : {"", "a \\ 'b'", "é", "Ġthe ▁x", "😀", "\u00a0"}) EXPECT_EQ(escaped(text), text);
}

TEST(OneLine, escapes_control_characters_and_what_is_not_utf8) {
  EXPECT_EQ(escaped("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(escaped(std::string_view("\0\x1b[2J\x7f", 6)), "\\x00\\x1b[2J\\x7f");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\xc2\\x9b") << "a terminal reads U+009B as an escape";
  EXPECT_EQ(escaped("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(escaped("\xc0\xaf"), "\\xc0\\xaf") << "longer than needed";
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
  EXPECT_EQ(escaped("\xe2\x82"), "\\xe2\\x82") << "cut off";
}

TEST(OneLine, a_value_of_the_log_is_a_word_or_stands_in_quotation_marks) {
  for (const char* word : {"shop", "/tmp/a.txt", "demo:shop", "é-1_2"}) EXPECT_EQ(log_value(word), word);
  EXPECT_EQ(log_value(""), R"("")");
  EXPECT_EQ(log_value("two words"), R"("two words")");
  EXPECT_EQ(log_value("a=b"), R"("a=b")");
  EXPECT_EQ(log_value(R"(x" status=200 reason="y)"), R"("x\" status=200 reason=\"y")");
  EXPECT_EQ(log_value(R"(ends with \)"), R"("ends with \\")");
  EXPECT_EQ(log_value("a\nevent=forged\x1b[2J"), R"("a\nevent=forged\x1b[2J")");
  EXPECT_LE(log_value(std::string(100'000, '"')).size(), 2 * kMaxMessageBytes);
}

TEST(OneLine, a_long_text_keeps_its_beginning_and_its_end) {
  EXPECT_EQ(escaped(std::string(2000, 'a')).size(), 2000u);
  const std::string line = escaped("begin " + std::string(100'000, 'a') + " end");
  EXPECT_LE(line.size(), 2000u);
  EXPECT_GE(line.size(), 1990u);
  EXPECT_TRUE(line.starts_with("begin aaa") && line.ends_with("aaa end"));
  for (std::size_t n = 100; n < 110; ++n) {  // never within a character
    std::string text;
    while (text.size() < 300) text += "😀";
    const std::string cut = one_line(text, n);
    EXPECT_LE(cut.size(), n);
    EXPECT_EQ(escaped(cut), cut);
  }
}

TEST(OneLine, one_thing_has_no_s) {
  EXPECT_EQ(counted(1, "snapshot"), "1 snapshot");
  EXPECT_EQ(counted(0, "snapshot"), "0 snapshots");
  EXPECT_EQ(counted(2, "snapshot"), "2 snapshots");
  EXPECT_EQ(plural(1, "KV head"), "KV head");
  EXPECT_EQ(plural(21, "KV head"), "KV heads");
}

}  // namespace
}  // namespace baton
