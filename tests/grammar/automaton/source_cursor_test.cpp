/// Reading a grammar's text from its front.
#include "grammar/automaton/source_cursor.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/automaton/expression.h"

namespace baton::grammar {
namespace {

std::string message(std::string_view read, std::string_view what) { return fmt::format("[{}] {}", read, what); }

TEST(SourceCursor, takes_what_stands_at_the_front_and_nothing_else) {
  SourceCursor source("ab12", message);
  EXPECT_FALSE(source.take("b"));
  EXPECT_FALSE(source.take_count());
  EXPECT_TRUE(source.take("ab"));
  EXPECT_EQ(source.take_count(), 12);
  EXPECT_TRUE(source.rest.empty());
  EXPECT_FALSE(source.take("a"));
  EXPECT_FALSE(source.take_count());
}

TEST(SourceCursor, counts_end_above_the_most_repetitions) {
  EXPECT_EQ(SourceCursor("99999999999999999999", message).take_count(), kMaxRepeat + 1);
  EXPECT_EQ(SourceCursor(std::to_string(kMaxRepeat), message).take_count(), kMaxRepeat);
}

TEST(SourceCursor, code_points_have_all_their_digits_and_an_upper_limit) {
  EXPECT_EQ(*SourceCursor("e9", message).take_hex(2), U'\u00e9');
  EXPECT_EQ(*SourceCursor("0010FFFF", message).take_hex(8), U'\U0010FFFF');
  EXPECT_EQ(SourceCursor("00110000", message).take_hex(8).error().message, "[00110000] has a code point over U+10FFFF");
  EXPECT_EQ(SourceCursor("4g", message).take_hex(2).error().message, "[4] has an escape without its hexadecimal digits");
  EXPECT_FALSE(SourceCursor("4", message).take_hex(2));
}

TEST(SourceCursor, errors_say_where_and_of_which_kind) {
  SourceCursor source("(a", message);
  ASSERT_TRUE(source.take("("));
  const Error invalid = source.invalid("has a '(' without ')'").value();
  EXPECT_EQ(invalid.code, ErrorCode::invalid_request);
  EXPECT_EQ(invalid.message, "[(] has a '(' without ')'");
  const Error unsupported = source.unsupported("look-around").value();
  EXPECT_EQ(unsupported.code, ErrorCode::unsupported);
  EXPECT_EQ(unsupported.message, "[(] has look-around, which is not supported");
}

}  // namespace
}  // namespace baton::grammar
