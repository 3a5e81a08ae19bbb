/// Ids of tool calls (server/request/stamp.h).
#include "server/request/stamp.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <gtest/gtest.h>

namespace baton {
namespace {

bool is_of_letters_and_digits(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0; });
}

TEST(CallId, is_new_each_time_and_has_the_form_that_is_asked_for) {
  std::set<std::string> ids;
  for (int i = 0; i < 200; ++i) {
    const std::string id = new_call_id(/*is_short=*/false);
    EXPECT_TRUE(id.starts_with("call_"));
    EXPECT_EQ(id.size(), 29u);
    EXPECT_TRUE(is_of_letters_and_digits(id.substr(5))) << id;
    const std::string brief = new_call_id(/*is_short=*/true);
    EXPECT_EQ(brief.size(), 9u);
    EXPECT_TRUE(is_of_letters_and_digits(brief)) << brief;
    ids.insert(id);
    ids.insert(brief);
  }
  EXPECT_EQ(ids.size(), 400u);
}

TEST(CallId, of_another_server_becomes_a_short_one_always_the_same) {
  EXPECT_EQ(short_call_id("aB3dE6gH9"), "aB3dE6gH9");
  const std::string made = short_call_id("call_0123456789");
  EXPECT_EQ(made.size(), 9u);
  EXPECT_TRUE(is_of_letters_and_digits(made)) << made;
  EXPECT_EQ(short_call_id("call_0123456789"), made);
  EXPECT_NE(short_call_id("call_0123456788"), made);
  EXPECT_EQ(short_call_id("functions"), "functions");
  EXPECT_NE(short_call_id("call-0001"), "call-0001") << "no letter, no digit";
  EXPECT_EQ(short_call_id("").size(), 9u);
}

}  // namespace
}  // namespace baton
