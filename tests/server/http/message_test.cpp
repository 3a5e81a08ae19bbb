/// Header look-up and the head's text of server/http/message.h.
#include "server/http/message.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(HttpMessage, finds_a_header_in_any_case_and_takes_the_first) {
  HttpRequest request;
  request.headers = {{"X-REQUEST-id", "a"}, {"x-request-id", "b"}};
  EXPECT_EQ(request.header("x-request-id"), "a");
  EXPECT_EQ(request.header("x-request"), "");
}

TEST(HttpMessage, writes_the_status_line_the_headers_and_an_empty_line) {
  EXPECT_EQ(serialize_head({404, {{"A", "1"}}, "unused"}, {{"Content-Length", "2"}}),
            "HTTP/1.1 404 Not Found\r\nA: 1\r\nContent-Length: 2\r\n\r\n");
}

TEST(HttpMessage, every_status_that_the_server_sends_has_a_phrase) {
  for (const int status : {200, 204, 400, 401, 404, 405, 408, 413, 431, 500, 501, 503, 505})
    EXPECT_NE(reason_phrase(status), "Unknown") << status;
}

TEST(HttpMessage, parameters_and_case_do_not_change_a_media_type) {
  for (const char* type : {"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json \t;x"})
    EXPECT_TRUE(is_media_type(type, "application/json")) << type;
  for (const char* type : {"", ";", "text/plain", "application/jsonl", "application", "x application/json"})
    EXPECT_FALSE(is_media_type(type, "application/json")) << type;
}

}  // namespace
}  // namespace baton
