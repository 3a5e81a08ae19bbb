/// Access-Control headers (server/http/cors.h).
#include "server/http/cors.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

HttpRequest from(std::string origin, std::string method = "POST", std::string wanted = "") {
  HttpRequest request;
  request.method = std::move(method);
  if (!origin.empty()) request.headers.emplace_back("Origin", std::move(origin));
  if (request.method == "OPTIONS") request.headers.emplace_back("Access-Control-Request-Method", "POST");
  if (!wanted.empty()) request.headers.emplace_back("Access-Control-Request-Headers", std::move(wanted));
  return request;
}

std::string value(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, text] : headers)
    if (key == name) return text;
  return "none";
}

TEST(Cors, says_nothing_to_clients_that_are_no_pages) { EXPECT_TRUE(cors_headers({}, from("")).empty()); }

TEST(Cors, allows_any_page_by_default) {
  EXPECT_EQ(value(cors_headers({}, from("https://a")), "Access-Control-Allow-Origin"), "*");
  const HttpHeaders preflight = cors_headers({}, from("https://a", "OPTIONS", "authorization, x-y"));
  EXPECT_EQ(value(preflight, "Access-Control-Allow-Methods"), "GET, HEAD, POST, DELETE, OPTIONS");
  EXPECT_EQ(value(preflight, "Access-Control-Allow-Headers"), "authorization, x-y");
}

TEST(Cors, names_the_page_where_not_all_may_read) {
  const CorsOptions options = {.origins = {"https://a"}, .methods = {"POST"}, .headers = {"authorization"}};
  EXPECT_TRUE(cors_headers(options, from("https://b")).empty());
  const HttpHeaders headers = cors_headers(options, from("https://a", "OPTIONS", "x-y"));
  EXPECT_EQ(value(headers, "Access-Control-Allow-Origin"), "https://a");
  EXPECT_EQ(value(headers, "Vary"), "Origin");
  EXPECT_EQ(value(headers, "Access-Control-Allow-Methods"), "POST");
  EXPECT_EQ(value(headers, "Access-Control-Allow-Headers"), "authorization");
}

TEST(Cors, names_the_page_where_credentials_are_allowed) {
  const CorsOptions options = {.allows_credentials = true};
  const HttpHeaders headers = cors_headers(options, from("https://a"));
  EXPECT_EQ(value(headers, "Access-Control-Allow-Origin"), "https://a");
  EXPECT_EQ(value(headers, "Access-Control-Allow-Credentials"), "true");
}

TEST(Cors, a_plain_options_request_is_no_preflight) {
  EXPECT_TRUE(is_preflight(from("https://a", "OPTIONS")));
  EXPECT_FALSE(is_preflight(from("", "OPTIONS")));
  EXPECT_FALSE(is_preflight(from("https://a", "GET")));
}

}  // namespace
}  // namespace baton
