/// Requests of every kind whose server finds no memory: the k-th allocation of one of its threads fails, for each k. The server
/// stays up, the answer is what it would be or a 503 or the connection is closed, and nothing is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "server/server_fixture.h"
#include "support/failing_allocations.h"

namespace baton {

/// The threads that serve requests, by the beginnings of their names. The engine's has a reserve of its own.
inline constexpr const char* kServingThreads[] = {"http", "text-", "answers", "large-answers", "pages", "metrics", "prefixes"};

/// One kind of request. `{0}` in its body is a number that no other request had.
struct AllocationCase {
  std::string_view name;
  std::string_view path;
  std::string_view body;  ///< empty: GET
  int status = 200;
  bool leaves = false;                ///< the client goes when it has read the head of the answer
  std::string_view then_delete = {};  ///< what is deleted afterwards
};

inline std::vector<AllocationCase> allocation_cases() {
  static const std::string large_prompt = [] {
    std::string ids = "65";
    for (int i = 1; i < 120; ++i) ids += fmt::format(",{}", 32 + i % 90);
    return fmt::format(R"({{"prompt": [{}], "max_tokens": 1, "n": 2, "prompt_logprobs": 20, "temperature": 0}})", ids);
  }();
  static const std::string large_echo = [] {
    std::string texts;
    for (int i = 0; i < 8; ++i) texts += fmt::format("{}\"{}\"", i == 0 ? "" : ",", std::string(1800, 'A'));
    return fmt::format(R"({{"prompt": [{}], "max_tokens": 0, "n": 12, "echo": true}})", texts);
  }();
  static const std::string long_chat =
      R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2)" + std::string(70'000, ' ') + "}";
  return {
      {"chat", "/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": true, "logprobs": true})"},
      {"chat_stream", "/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": true, "stream": true})"},
      {"chat_long", "/v1/chat/completions", long_chat},
      {"chat_of_a_prefix", "/v1/chat/completions",
       R"({"prefix": "shop", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "ignore_eos": true})"},
      {"completion", "/v1/completions", R"({"prompt": "AB", "max_tokens": 3, "n": 2, "ignore_eos": true, "stop": ["~~"]})"},
      {"completion_stream", "/v1/completions",
       R"({"prompt": ["AB", "CD"], "max_tokens": 3, "ignore_eos": true, "stream": true, "logprobs": 2})"},
      {"completion_of_nothing", "/v1/completions", R"({"prompt": "AB", "max_tokens": 0, "echo": true, "stream": true})"},
      {"completion_that_is_left", "/v1/completions",
       R"({"prompt": "AB", "max_tokens": 1500, "ignore_eos": true, "stream": true})", 200, true},
      {"large_answer", "/v1/completions", large_prompt},
      {"large_echo", "/v1/completions", large_echo},
      {"message", "/v1/messages",
       R"({"system": [{"type": "text", "text": "Answers questions of all kinds, {0}.", "cache_control": {"type": "ephemeral"}}],
           "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})"},
      {"message_stream", "/v1/messages",
       R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stream": true})"},
      {"message_count", "/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "hi"}]})"},
      {"message_error", "/v1/messages", R"({"messages": []})", 400},
      {"response", "/v1/responses", R"({"input": "hi {0}", "max_output_tokens": 3})"},
      {"response_stream", "/v1/responses", R"({"input": "hi {0}", "max_output_tokens": 3, "stream": true})"},
      {"tokenize", "/tokenize", R"({"prompt": "a text"})"},
      {"detokenize", "/detokenize", R"({"tokens": [65, 66]})"},
      {"render", "/v1/chat/completions/render", R"({"messages": [{"role": "user", "content": "hi"}]})"},
      {"prefix", "/v1/prefixes",
       R"({"id": "one", "text": "A text of some length, the number {0} of its kind.", "version": "{0}"})", 200, false,
       "/v1/prefixes/one"},
      {"schema", "/v1/completions",
       R"({"prompt": "AB", "max_tokens": 8, "structured_outputs": {"json": {"enum": [{0}, "b"]}}})"},
      {"tools", "/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "tool_choice": "required", "tools": [{"type":
           "function", "function": {"name": "t{0}", "strict": true, "parameters": {"type": "object", "properties": {"a":
           {"const": true}}, "required": ["a"], "additionalProperties": false}}}]})"},
      {"unknown_path", "/v1/nothing", R"({})", 404},
      {"wrong_json", "/v1/completions", R"({"prompt": )", 400},
      {"wrong_field", "/v1/completions", R"({"prompt": "AB", "max_tokens": "many"})", 400},
      {"models", "/v1/models", ""},
      {"metrics", "/metrics", ""},
      {"health", "/health", ""},
      {"not_offered", "/v1/embeddings", R"({})", 501},
  };
}

class AllocationTest : public ::testing::TestWithParam<AllocationCase> {
 protected:
  AllocationTest() {
    EXPECT_TRUE(write_file(keys_, R"({"keys": [{"name": "shop", "key": "k", "role": "admin", "concurrent_requests": 1000}]})"));
    ServerOptions options;
    options.keys.file = keys_;
    options.limits.budgets.unsent_bytes = 64 << 20;
    fixture_.emplace(std::move(options), EngineOptions{}, /*n_blocks=*/512, /*max_position=*/2048, tool_model());
    n_pinned_ = fixture_->engine->metrics().kv_blocks_pinned.value();
  }
  ~AllocationTest() override { std::filesystem::remove(keys_); }

  /// Fails each of the first `n` allocations of each thread, one a request; or, of each `step`-th, `n_failing` in a row.
  void fail_each(std::int64_t n, std::int64_t n_failing = 1, std::int64_t step = 1) {
    EXPECT_EQ(ask(), GetParam().status);  // and what is made once is there
    settle();
    for (const char* const thread : kServingThreads) {
      // Work beside the request moves the end: the last one is after some that do not fail.
      for (std::int64_t k = 0, n_quiet = 0; k < n && n_quiet < 4 && !HasFailure(); k += step) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, fmt::format("allocation {} of {}", k + 1, thread));
        test::FailingAllocations::instance().fail(thread, k, n_failing);
        const int status = ask();
        settle();
        n_quiet = test::FailingAllocations::instance().stop() == 0 ? n_quiet + 1 : 0;
        EXPECT_TRUE(status == 0 || status == 503 || status == GetParam().status) << status;
      }
    }
    EXPECT_EQ(ask(), GetParam().status);
    expect_nothing_left();
  }

 private:
  static std::string authorization() { return "Authorization: Bearer k\r\n"; }

  /// The status of the case's answer; 0 if there is none.
  int ask() {
    const AllocationCase& asked = GetParam();
    std::string body(asked.body);
    ++n_asked_;
    for (std::size_t at; (at = body.find("{0}")) != std::string::npos;) body.replace(at, 3, std::to_string(n_asked_));
    int status = 0;
    {
      RawClient client = fixture_->client();
      if (body.empty())
        client.send(fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n{}\r\n", asked.path, authorization()));
      else
        client.send_post(asked.path, body, authorization());
      if (asked.leaves) {
        const std::string head = client.read_until("\r\n\r\n");
        status = head.size() < 12 ? 0 : std::atoi(head.c_str() + 9);
      } else {
        const RawResponse response = client.read_response();
        status = response.status;
        EXPECT_TRUE(asked.name != "metrics" || status != 200 || response.body.find("\nprocess_max_fds ") != std::string::npos)
            << "a part of the page is missing";
      }
    }
    if (!asked.then_delete.empty()) {
      RawClient client = fixture_->client();
      client.send(fmt::format("DELETE {} HTTP/1.1\r\nHost: h\r\n{}\r\n", asked.then_delete, authorization()));
      client.read_response();
    }
    return status;
  }

  void settle() const {
    fixture_->wait_until([&] { return fixture_->server->n_open() == 0 && fixture_->engine->is_idle(); });
  }

  void expect_nothing_left() const {
    for_each_budget(fixture_->server->budgets(), [&](std::string_view name, const Budget& budget) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, std::string(name));
      fixture_->wait_until([&] { return budget.used() == 0; });
    });
    const EngineMetrics& metrics = fixture_->engine->metrics();
    fixture_->wait_until([&] { return metrics.num_requests_running.value() == 0; });
    fixture_->wait_until([&] { return n_of_key() == "0"; });  // those of clients that left are forgotten a little later
    EXPECT_EQ(metrics.kv_blocks_pinned.value() - n_kept_for_messages(), n_pinned_);
  }
  /// Requests of the key that run, as the page of metrics says.
  std::string n_of_key() const {
    const std::string page = fixture_->get("/metrics").body;
    const std::size_t number = page.find("} ", page.find("baton:key_requests_running{")) + 2;
    return page.substr(number, page.find('\n', number) - number);
  }
  /// Marked prompts of messages stay pinned for a while.
  std::int64_t n_kept_for_messages() const {
    return GetParam().name == "message" ? fixture_->engine->metrics().kv_blocks_pinned.value() - n_pinned_ : 0;
  }

  const std::filesystem::path keys_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("allocation_keys_{}.json", ::getpid());
  std::optional<ServerFixture> fixture_;
  std::int64_t n_pinned_ = 0;
  int n_asked_ = 1000;
};

}  // namespace baton
