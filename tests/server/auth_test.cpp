/// API keys (server/auth.h).
#include "server/auth.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Auth, lets_everybody_in_without_keys) { EXPECT_TRUE(is_authorized("", {})); }

TEST(Auth, asks_for_one_of_the_keys) {
  const std::vector<std::string> keys = {"first", "second"};
  EXPECT_TRUE(is_authorized("Bearer first", keys));
  EXPECT_TRUE(is_authorized("bearer second", keys));
  for (const std::string_view wrong :
       {"", "Bearer", "Bearer ", "first", "Basic first", "Bearer firs", "Bearer firstx", "Bearer second "})
    EXPECT_FALSE(is_authorized(wrong, keys)) << wrong;
}

}  // namespace
}  // namespace baton
