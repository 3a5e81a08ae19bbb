/// Numbers of values (server/limits/json_size.h).
#include "server/limits/json_size.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(JsonSize, counts_values_and_not_what_stands_in_strings) {
  EXPECT_EQ(count_json_values("1"), 1);
  EXPECT_EQ(count_json_values("[1,2,3]"), 4);
  EXPECT_EQ(count_json_values(R"({"a": [1, {"b": 2}], "c": "x,y,[{"})"), 6);
  EXPECT_EQ(count_json_values(R"(["\",,,", "\\", 1])"), 4);
  EXPECT_EQ(count_json_values("\"\\"), 1);
}

}  // namespace
}  // namespace baton
