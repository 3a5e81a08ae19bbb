#include "cli/help_text.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(HelpText, lines_are_broken_at_spaces_and_indented) {
  EXPECT_EQ(wrapped("one two three", 80, 2, 0), "one two three");
  EXPECT_EQ(wrapped("one two three", 9, 2, 0), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 9, 2, 6), "one\n  two\n  three");
  EXPECT_EQ(wrapped("", 9, 2, 0), "");
}

TEST(HelpText, line_feeds_and_spaces_at_the_beginning_of_a_line_stay) {
  EXPECT_EQ(wrapped("a\n\n  b c", 80, 0, 0), "a\n\n  b c");
  EXPECT_EQ(wrapped("a\nb", 80, 4, 0), "a\n    b");
}

TEST(HelpText, a_word_longer_than_a_line_stays_whole) { EXPECT_EQ(wrapped("a bcdefghijkl m", 6, 1, 0), "a\n bcdefghijkl\n m"); }

TEST(HelpText, the_nearest_name_takes_the_fewest_edits) {
  const std::vector<std::string> names = {"serve", "chat", "generate"};
  EXPECT_EQ(nearest_name("serv", names), "serve");
  EXPECT_EQ(nearest_name("cath", names), "chat");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

}  // namespace
}  // namespace baton
