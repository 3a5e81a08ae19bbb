/// The error bodies of server/http/json_body.h.
#include "server/http/json_body.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ApiError, carries_the_status_as_an_integer_code_and_names_its_type) {
  const HttpResponse response = error_response(Error{ErrorCode::invalid_request, "'n' must be positive", "n"});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, R"({"error":{"message":"'n' must be positive","type":"BadRequestError","param":"n","code":400}})");
}

TEST(ApiError, has_a_null_param_where_no_field_is_at_fault) {
  EXPECT_EQ(json::dump(error_body(404, "no such model", "")),
            R"({"error":{"message":"no such model","type":"NotFoundError","param":null,"code":404}})");
}

TEST(ApiError, says_by_a_word_that_a_conversation_is_too_long) {
  const auto code = [](int status, const std::string& message) { return error_body(status, message, "")["error"]["code"]; };
  EXPECT_EQ(code(400, std::string(kContextLengthSentence) + "5 tokens."), "context_length_exceeded");
  EXPECT_EQ(code(400, "another mistake"), 400) << "all other codes are numbers";
  EXPECT_EQ(code(500, std::string(kContextLengthSentence)), 500);
}

TEST(ApiError, a_long_message_is_cut_between_two_characters) {
  const auto message_of = [](std::string_view message) {
    return error_body(400, message, "")["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(message_of(std::string(2048, 'a')), std::string(2048, 'a'));
  EXPECT_EQ(message_of(std::string(2049, 'a')), std::string(2048, 'a') + "... (2049 bytes)");
  std::string accents = "a";
  for (int i = 0; i < 2000; ++i) accents += "\xC3\xA9";
  EXPECT_EQ(message_of(accents), accents.substr(0, 2047) + "... (4001 bytes)");
}

TEST(ApiError, every_code_has_its_status) {
  const std::pair<ErrorCode, int> cases[] = {
      {ErrorCode::invalid_request, 400}, {ErrorCode::not_found, 404},   {ErrorCode::too_large, 413},
      {ErrorCode::unavailable, 503},     {ErrorCode::unsupported, 501}, {ErrorCode::invalid_data, 500},
      {ErrorCode::out_of_memory, 500},   {ErrorCode::io, 500},          {ErrorCode::internal, 500}};
  for (const auto& [code, status] : cases) EXPECT_EQ(http_status(code), status) << to_string(code);
}

TEST(ApiError, lists_are_short) {
  std::vector<std::string> names;
  EXPECT_EQ(short_list(names), "none");
  for (int i = 0; i < 10; ++i) names.push_back(std::to_string(i));
  EXPECT_EQ(short_list(names), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
  names.resize(1000);
  EXPECT_EQ(short_list(names), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... and 990 more");
}

}  // namespace
}  // namespace baton
