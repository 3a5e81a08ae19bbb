/// Error bodies of the Anthropic dialect (server/dialects/messages/dialect.h).
#include "server/dialects/messages/dialect.h"

#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/http/json_body.h"
#include "support/source_folder.h"

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

TEST(MessagesError, says_in_two_sentences_that_a_conversation_is_too_long) {
  EXPECT_EQ(messages_excess({.prompt_len = 27004, .max_len = 4096}).message, "prompt is too long: 27004 tokens > 4096 maximum");
  EXPECT_EQ(messages_excess({.prompt_len = 4096, .max_len = 4096}).message, "prompt is too long: 4096 tokens > 4095 maximum");
  EXPECT_EQ(
      messages_excess({.prompt_len = 15, .max_tokens = 4090, .max_len = 4096}).message,
      "input length and `max_tokens` exceed context limit: 15 + 4090 > 4096, decrease input length or `max_tokens` and try "
      "again");
}

/// A table of docs/dialects.md: its rows after the head that begins with `first`, without the spaces around cells.
std::vector<std::vector<std::string>> documented_table(std::string_view first) {
  std::ifstream file(test::source_folder() / "docs/dialects.md");
  std::vector<std::vector<std::string>> rows;
  bool is_in = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| " + std::string(first) + " |")) is_in = true;
    if (!is_in) continue;
    if (!line.starts_with('|')) break;
    std::vector<std::string> cells;
    for (std::size_t at = 1, end; (end = line.find('|', at)) != std::string::npos; at = end + 1) {
      const std::string cell = line.substr(at, end - at);
      const auto from = cell.find_first_not_of(" `"), to = cell.find_last_not_of(" `");
      cells.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
    }
    rows.push_back(std::move(cells));
  }
  return rows.size() < 2 ? decltype(rows)() : decltype(rows)(rows.begin() + 2, rows.end());
}

TEST(MessagesError, and_those_of_the_openai_api_are_those_of_the_documented_table) {
  const auto rows = documented_table("status");
  EXPECT_EQ(rows.size(), 13u);
  for (const std::vector<std::string>& row : rows) {
    ASSERT_EQ(row.size(), 5u);
    const int status = std::stoi(row[0]);
    const bool is_too_long = row[3] == "context_length_exceeded";
    const std::string message = is_too_long ? openai_excess({.prompt_len = 9, .max_len = 4}).message : "no";
    const json::Value error = error_body(status, message, "")["error"];
    EXPECT_EQ(error["type"], row[2]) << status;
    EXPECT_EQ(error["code"].is_string() ? error["code"].get<std::string>() : json::dump(error["code"]), row[3]) << status;
    EXPECT_EQ(messages_error_body(status, "no")["error"]["type"], row[4]) << status;
  }
}

}  // namespace
}  // namespace baton
