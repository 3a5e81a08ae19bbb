/// Single values of fields (server/request/json_fields.h).
#include "server/request/json_fields.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

const json::Value kBody = {{"three", 3}, {"half", 0.5}, {"text", "3"}, {"nothing", nullptr}, {"yes", true}};

TEST(OpenaiValues, reads_integers_in_bounds) {
  EXPECT_EQ(*integer_field(kBody, "three", 0, 3), 3);
  EXPECT_EQ(*integer_field(kBody, "nothing", 0, 3), std::nullopt);
  EXPECT_EQ(*integer_field(kBody, "absent", 0, 3), std::nullopt);
  EXPECT_EQ(integer_field(kBody, "three", 0, 2).error().message, "'three' must be from 0 to 2, not 3");
  EXPECT_EQ(integer_field(kBody, "half", 0, 3).error().param, "half");
  EXPECT_EQ(integer_field(kBody, "text", 0, 3).error().param, "text");
}

TEST(OpenaiValues, reads_numbers_in_bounds) {
  EXPECT_EQ(*number_field(kBody, "half", 0, 1, 9), 0.5F);
  EXPECT_EQ(*number_field(kBody, "nothing", 0, 1, 9), 9);
  EXPECT_EQ(number_field(kBody, "three", -1, 1, 0).error().message, "'three' must be from -1 to 1, not 3");
  EXPECT_EQ(number_field(kBody, "yes", 0, 1, 0).error().param, "yes");
}

TEST(OpenaiValues, reads_flags) {
  EXPECT_TRUE(*flag_field(kBody, "yes", false));
  EXPECT_TRUE(*flag_field(kBody, "absent", true));
  EXPECT_EQ(flag_field(kBody, "three", true).error().param, "three");
}

TEST(OpenaiValues, reads_token_ids_of_the_vocabulary) {
  EXPECT_EQ(parse_token_ids(json::Value{0, 9}, "ids", 10).value(), (std::vector<TokenId>{0, 9}));
  EXPECT_EQ(parse_token_ids(json::Value{10}, "ids", 10).error().message, "'ids' must hold token ids from 0 to 9, not 10");
  EXPECT_EQ(parse_token_ids(json::Value{"a"}, "ids", 10).error().param, "ids");
  EXPECT_EQ(parse_token_ids(json::Value(3), "ids", 10).error().param, "ids");
}

}  // namespace
}  // namespace baton
