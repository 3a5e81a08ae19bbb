/// Names of prefixes, versions and keys (server/limits/prefix_name.h).
#include "server/limits/prefix_name.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(PrefixNameTest, letters_digits_and_three_signs_make_a_name) {
  for (const std::string& name : std::vector<std::string>{"a", "shop.v2", "A_b-9", "...", std::string(64, 'x')})
    EXPECT_TRUE(is_prefix_name(name)) << name;
}

TEST(PrefixNameTest, names_with_a_meaning_in_a_path_and_other_signs_are_none) {
  for (const std::string& name : std::vector<std::string>{"", ".", "..", "a/b", "a b", "\xc3\xa4", std::string(65, 'x')})
    EXPECT_FALSE(is_prefix_name(name)) << name;
}

}  // namespace
}  // namespace baton
