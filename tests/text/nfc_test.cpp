/// Tests of normalisation form C.
#include "text/nfc.h"

#include <gtest/gtest.h>

#include "text/nfc_tables.h"
#include "text/unicode.h"

namespace baton::unicode {
namespace {

TEST(Nfc, composes_letters_and_marks) {
  EXPECT_EQ(to_nfc("e\u0301a\u030A"), "éå");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307") << "marks stand in the order of their classes";
  EXPECT_EQ(to_nfc("\u1E0B\u0323"), "\u1E0D\u0307");
  EXPECT_EQ(to_nfc("a\u0301\u0300"), "á\u0300") << "a mark is not joined across another of its class";
  EXPECT_EQ(to_nfc("a\u05AE\u0300b"), "à\u05AEb");
}

TEST(Nfc, replaces_characters_that_are_only_other_spellings) {
  EXPECT_EQ(to_nfc("\u212B\u2126\uF900"), "ÅΩ\u8C48");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C") << "an excluded composition";
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");
}

TEST(Nfc, composes_hangul_by_arithmetic) {
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB\u1100\u1173\u11AF"), "한글");
  EXPECT_EQ(to_nfc("\uAC00\u11A8"), "각");
  EXPECT_EQ(to_nfc("\uAC01\u11A8"), "\uAC01\u11A8");
}

TEST(Nfc, leaves_other_text_alone) {
  for (const char* text : {"", "plain", "Zürich", "日本語 🦙 नमस्ते", "\u0301"}) EXPECT_EQ(to_nfc(text), text);
}

TEST(Nfc, every_composition_is_found_and_every_result_stays) {
  for (const Decomposition& each : kComposing)
    EXPECT_EQ(to_nfc(to_utf8(each.first) + to_utf8(each.second)), to_utf8(each.whole));
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string once = to_nfc(to_utf8(c));
    ASSERT_EQ(to_nfc(once), once) << std::hex << static_cast<unsigned>(c);
  }
}

}  // namespace
}  // namespace baton::unicode
