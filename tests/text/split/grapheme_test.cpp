/// Tests of grapheme clusters. Goldens of the `tokenizers` library's clusters are those of the normalizer Precompiled.
#include "text/split/unicode.h"

#include <string>

#include <gtest/gtest.h>

namespace baton::unicode {
namespace {

/// The text with a bar between its clusters.
std::string cut(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = length_of_cluster(text);
    if (!out.empty()) out += '|';
    out += text.substr(0, length);
    text.remove_prefix(length);
  }
  return out;
}

TEST(Grapheme, cuts_texts_as_the_rules_of_unicode_say) {
  EXPECT_EQ(cut("ab"), "a|b");
  EXPECT_EQ(cut("\r\n\n\r"), "\r\n|\n|\r");
  EXPECT_EQ(cut("e\u0301\u0302a"), "e\u0301\u0302|a");
  EXPECT_EQ(cut("\n\u0301a"), "\n|\u0301|a");
  EXPECT_EQ(cut("\u0600a\u0903b"), "\u0600a\u0903|b");
  EXPECT_EQ(cut("\u1100\u1161\u11A8\u1100"), "\u1100\u1161\u11A8|\u1100");
  EXPECT_EQ(cut("\uAC00\u11A8\uAC01\u1161"), "\uAC00\u11A8|\uAC01|\u1161");
  EXPECT_EQ(cut("\U0001F1E9\U0001F1EA\U0001F1EB\U0001F1F7\U0001F1E9"), "\U0001F1E9\U0001F1EA|\U0001F1EB\U0001F1F7|\U0001F1E9");
  EXPECT_EQ(cut("\U0001F469\u200D\U0001F467\u200D\u200D\U0001F467"), "\U0001F469\u200D\U0001F467\u200D\u200D|\U0001F467");
  EXPECT_EQ(cut("\u00A9\u0308\u200D\u2600"), "\u00A9\u0308\u200D\u2600");
  EXPECT_EQ(cut("a\u200D\u2600"), "a\u200D|\u2600");
  EXPECT_EQ(cut("\u0915\u094D\u0915\u0308\u0915"), "\u0915\u094D\u0915\u0308|\u0915");
  EXPECT_EQ(cut("\u0915\u0308\u0915"), "\u0915\u0308|\u0915");
}

}  // namespace
}  // namespace baton::unicode
