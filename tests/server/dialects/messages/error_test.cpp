/// Error bodies of the Anthropic dialect (server/dialects/messages/error.h).
#include "server/dialects/messages/error.h"

#include <gtest/gtest.h>

#include "server/http/error_body.h"

namespace baton {
namespace {

TEST(MessagesError, has_a_type_for_each_status) {
  EXPECT_EQ(messages_error_response(400, "no").body,
            R"({"type":"error","error":{"type":"invalid_request_error","message":"no"}})");
  constexpr std::pair<int, std::string_view> kTypes[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"}, {405, "invalid_request_error"},
      {413, "request_too_large"},    {429, "rate_limit_error"}, {500, "api_error"},       {501, "api_error"},
      {503, "overloaded_error"}};
  for (const auto& [status, type] : kTypes) EXPECT_EQ(messages_error_body(status, "")["error"]["type"], type) << status;
}

TEST(MessagesError, keeps_the_status_the_headers_and_the_message_of_another_dialect) {
  const HttpResponse busy = as_messages_error(error_response(503, "too many", {}));
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy.headers, error_response(503, "too many", {}).headers);
  EXPECT_EQ(busy.body, R"({"type":"error","error":{"type":"overloaded_error","message":"too many"}})");
  const HttpResponse unknown = as_messages_error({401, {}, R"({"error":"Unauthorized"})"});
  EXPECT_EQ(unknown.body, R"({"type":"error","error":{"type":"authentication_error","message":"Unauthorized"}})");
  EXPECT_EQ(as_messages_error({500, {}, "?"}).body,
            R"({"type":"error","error":{"type":"api_error","message":"Internal Server Error"}})");
}

}  // namespace
}  // namespace baton
