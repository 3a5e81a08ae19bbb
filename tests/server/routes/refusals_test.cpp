/// Refusals of every kind, byte for byte in the form of the path's dialect; and that a request's sender is identified once
/// (server/routes/routes.h).
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/dialects/messages/dialect.h"
#include "server/dialects/openai/dialect.h"
#include "server/dialects/responses/dialect.h"
#include "server/server_fixture.h"

namespace baton {
namespace {

/// An error of the OpenAI API, whose dialects are chat completions and responses.
std::string openai_error(int status, std::string_view type, std::string_view message, std::string_view param = "null") {
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":{},"code":{}}}}})", message, type, param, status);
}
/// An error of the Anthropic API.
std::string messages_error(std::string_view type, std::string_view message) {
  return fmt::format(R"({{"type":"error","error":{{"type":"{}","message":"{}"}}}})", type, message);
}

constexpr std::string_view kJson = "Content-Type: application/json\r\n";

/// A server whose key file is rewritten by the test.
class RefusalsOfKeys : public ::testing::Test {
 protected:
  RefusalsOfKeys() {
    write(R"({"keys": [{"name": "shop", "key": "shop-key", "role": "user"}, {"name": "bank", "key": "bank-key",
              "requests_per_minute": 1}]})");
    ServerOptions options;
    options.keys.file = file_;
    options.handles_signals = true;
    options.limits.max_body_bytes = 1000;
    fixture_.emplace(std::move(options));
  }
  ~RefusalsOfKeys() override {
    fixture_.reset();
    std::filesystem::remove(file_);
  }
  void write(std::string_view text) const { std::ofstream(file_) << text; }

  RawResponse sent(std::string_view line, std::string_view headers, std::string_view body = "") const {
    RawClient client = fixture_->client();
    client.send(fmt::format("{} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n{}\r\n{}", line, body.size(), headers, body));
    return client.read_response();
  }
  std::int64_t n_identified() const { return fixture_->server->keys().n_identified(); }

  const std::filesystem::path file_ = std::filesystem::path(::testing::TempDir()) / fmt::format("keys_{}.json", ::getpid());
  std::optional<ServerFixture> fixture_;
};

constexpr std::string_view kShop = "Authorization: Bearer shop-key\r\n";

TEST_F(RefusalsOfKeys, have_the_form_of_the_dialect_to_the_byte) {
  struct Case {
    std::string line;  ///< {} stands for the path of the dialect
    std::string headers;
    std::string body;
    int status;
    std::string_view openai_type;
    std::string_view messages_type;
    std::string message;
  };
  const std::string json_of_shop = std::string(kJson) + std::string(kShop);
  const Case cases[] = {{"GET {}", std::string(kShop), "", 405, "BadRequestError", "invalid_request_error",
                         "GET is not allowed on {}; allowed: POST, OPTIONS"},
                        {"POST {}", std::string(kShop), "{}", 415, "BadRequestError", "invalid_request_error",
                         "the body must be JSON, with 'Content-Type: application/json'; the type is ''"},
                        {"POST {}", json_of_shop, std::string(1001, ' '), 413, "BadRequestError", "request_too_large",
                         "the request body has 1001 bytes; this server accepts 1000"},
                        {"POST {}", json_of_shop, "[]", 400, "BadRequestError", "invalid_request_error",
                         "the request body must be a JSON object, not a list"},
                        {"POST {}", json_of_shop + "a: b\r\n c\r\n", "", 400, "BadRequestError", "invalid_request_error",
                         "the request is not valid HTTP: a header field continues in the next line"}};
  for (const Dialect* dialect : {&kChatCompletions, &kMessages, &kResponses})
    for (const Case& one : cases) {
      const bool is_messages = dialect == &kMessages;
      const RawResponse refused = sent(fmt::format(fmt::runtime(one.line), dialect->path), one.headers, one.body);
      const std::string message = fmt::format(fmt::runtime(one.message), dialect->path);
      EXPECT_EQ(refused.status, one.status);
      EXPECT_EQ(refused.body,
                is_messages ? messages_error(one.messages_type, message) : openai_error(one.status, one.openai_type, message));
      EXPECT_EQ(refused.has("\r\nrequest-id: req_"), is_messages) << refused.head;
      EXPECT_EQ(refused.has("\r\nAllow: POST, OPTIONS"), one.status == 405) << refused.head;
    }
}

TEST_F(RefusalsOfKeys, have_the_form_of_the_dialect_without_a_key_and_over_a_quota) {
  for (const Dialect* dialect : {&kChatCompletions, &kMessages, &kResponses}) {
    const bool is_messages = dialect == &kMessages;
    const RawResponse unknown = sent(fmt::format("POST {}", dialect->path), kJson, "{}");
    EXPECT_EQ(unknown.status, 401);
    EXPECT_TRUE(unknown.has("\r\nWWW-Authenticate: Bearer")) << unknown.head;
    EXPECT_EQ(unknown.body,
              is_messages ? messages_error("authentication_error", "Unauthorized") : R"({"error":"Unauthorized"})");
    EXPECT_EQ(unknown.has("\r\nrequest-id: req_"), is_messages);
    const std::string of_bank = std::string(kJson) + "Authorization: Bearer bank-key\r\n";
    sent(fmt::format("POST {}", dialect->path), of_bank, "{}");  // counts
    const RawResponse limited = sent(fmt::format("POST {}", dialect->path), of_bank, "{}");
    EXPECT_EQ(limited.status, 429);
    const auto begin = limited.head.find("\r\nRetry-After: ") + 15;
    const std::string seconds = limited.head.substr(begin, limited.head.find("\r\n", begin) - begin);
    const std::string message =
        fmt::format("the key 'bank' has reached its limit of 1 requests per minute; try again in {} s", seconds);
    EXPECT_EQ(limited.body,
              is_messages ? messages_error("rate_limit_error", message) : openai_error(429, "RateLimitError", message));
  }
  const RawResponse below = sent("GET /v1/messages/nothing", "");
  EXPECT_EQ(below.status, 404);
  EXPECT_TRUE(
      below.body.starts_with(R"({"type":"error","error":{"type":"not_found_error","message":"there is no /v1/messages/)"));
}

TEST_F(RefusalsOfKeys, say_where_conversations_with_tools_go) {
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const RawResponse refused = fixture_->post(path, R"({"prompt": "a", "tools": [{}]})", kShop);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.body,
              openai_error(400, "BadRequestError", "'tools' needs a conversation: use /v1/chat/completions", "\"tools\""));
  }
}

TEST_F(RefusalsOfKeys, have_the_form_of_the_dialect_while_the_server_shuts_down) {
  fixture_->engine->begin_drain();
  for (const Dialect* dialect : {&kChatCompletions, &kMessages, &kResponses}) {
    const RawResponse refused = sent(fmt::format("POST {}", dialect->path), std::string(kJson) + std::string(kShop), "{}");
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.has("\r\nRetry-After: 1\r\n")) << refused.head;
    EXPECT_EQ(refused.body, dialect == &kMessages
                                ? messages_error("overloaded_error", "the server is shutting down")
                                : openai_error(503, "ServiceUnavailableError", "the server is shutting down"));
  }
}

TEST_F(RefusalsOfKeys, a_request_is_identified_once) {
  const std::int64_t n_before = n_identified();
  EXPECT_EQ(fixture_->post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})", kShop).status, 200);
  EXPECT_EQ(n_identified(), n_before + 1);
  EXPECT_EQ(fixture_->get("/health").status, 200);
  EXPECT_EQ(n_identified(), n_before + 1);
}

TEST_F(RefusalsOfKeys, a_key_that_is_removed_between_header_and_body_is_refused) {
  const std::string body = R"({"prompt": "a", "max_tokens": 1})";
  const auto wait_for_body = [&](RawClient& client, std::string_view path, std::string_view key) {
    client.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: h\r\n{}Expect: 100-continue\r\nAuthorization: Bearer {}\r\nContent-Length: "
                    "{}\r\n\r\n",
                    path, kJson, key, body.size()));
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  };
  RawClient removed = fixture_->client(), removed_from_messages = fixture_->client(), kept = fixture_->client();
  wait_for_body(removed, "/v1/completions", "shop-key");
  wait_for_body(removed_from_messages, "/v1/messages", "shop-key");
  wait_for_body(kept, "/v1/completions", "bank-key");
  write(R"({"keys": [{"name": "shop", "key": "other-key"}, {"name": "bank", "key": "bank-key"}]})");
  std::raise(SIGHUP);
  fixture_->wait_until([&] { return fixture_->post("/tokenize", R"({"prompt": "a"})", kShop).status == 401; });
  for (RawClient* client : {&removed, &removed_from_messages, &kept}) client->send(body);
  const RawResponse refused = removed.read_response(), refused_message = removed_from_messages.read_response();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(refused_message.status, 401);
  EXPECT_EQ(refused_message.body, messages_error("authentication_error", "Unauthorized"));
  EXPECT_TRUE(refused_message.has("\r\nrequest-id: req_"));
  EXPECT_EQ(kept.read_response().status, 200);
}

}  // namespace
}  // namespace baton
