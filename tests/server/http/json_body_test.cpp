/// Bodies of requests that are JSON, and answers in JSON (server/http/json_body.h).
#include "server/http/json_body.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

Result<json::Value> parse(std::string body, std::int64_t max_values) {
  HttpRequest request;
  request.body = std::move(body);
  return parse_body(request, max_values);
}

TEST(JsonBody, parses_an_object_within_the_limit_of_values) {
  ASSERT_TRUE(parse(R"({"a": [1, 2]})", 4));
  EXPECT_EQ((*parse(R"({"a": [1, 2]})", 4))["a"][1], 2);
  EXPECT_EQ(parse(R"({"a": [1, 2, 3, 4, 5, 6]})", 4).error().code, ErrorCode::too_large);
  EXPECT_EQ(parse("[1]", 4).error().message, "the request body must be a JSON object, not a list");
  EXPECT_EQ(parse("{", 4).error().code, ErrorCode::invalid_request);
}

TEST(JsonBody, counts_values_and_not_what_stands_in_strings) {
  EXPECT_EQ(count_json_values("1"), 1);
  EXPECT_EQ(count_json_values("[1,2,3]"), 4);
  EXPECT_EQ(count_json_values(R"({"a": [1, {"b": 2}], "c": "x,y,[{"})"), 6);
  EXPECT_EQ(count_json_values(R"(["\",,,", "\\", 1])"), 4);
  EXPECT_EQ(count_json_values("\"\\"), 1);
}

TEST(JsonBody, answers_with_json) {
  const HttpResponse good = json_response({{"a", 1}});
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.body, R"({"a":1})");
  const HttpResponse bad = logged_error_response({ErrorCode::unavailable, "full", {}});
  EXPECT_EQ(bad.status, 503);
  EXPECT_NE(bad.body.find(R"("message":"full")"), std::string::npos);
}

}  // namespace
}  // namespace baton
