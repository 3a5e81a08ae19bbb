/// Jobs whose clients disconnect, do not read or ask for too much (server/answer/dispatcher.h), over HTTP.
#include "server/answer/dispatcher.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace {

/// Larger allocations of the server's own threads fail.
std::atomic<std::size_t> largest_allocation = std::numeric_limits<std::size_t>::max();

bool is_server_thread() {
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof(name));
  for (const std::string_view own : {"http", "answers", "large-answers", "text-short", "text-long"})
    if (own == name) return true;
  return false;
}

}  // namespace

void* operator new(std::size_t size) {
  if (size > largest_allocation.load(std::memory_order_relaxed) && is_server_thread()) throw std::bad_alloc();
  if (void* const bytes = std::malloc(size)) return bytes;
  throw std::bad_alloc();
}
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

namespace baton {
namespace {

std::string endless(bool is_stream) {
  return std::string(R"({"prompt": "AB", "max_tokens": 1500, "ignore_eos": true, "temperature": 0, "stream": )") +
         (is_stream ? "true}" : "false}");
}

/// Waits until a job has given back everything: the blocks in use are the ones that the prefix pins.
void expect_nothing_left(const ServerFixture& fixture) {
  const std::int64_t n_blocks = fixture.server->prefixes().find("shop")->info.n_pinned_tokens / 16;
  EXPECT_GT(n_blocks, 0);
  const EngineMetrics& metrics = fixture.engine->metrics();
  fixture.wait_until([&] { return fixture.engine->is_idle(); });
  fixture.wait_until([&] { return metrics.kv_blocks_used.value() == n_blocks; });
  fixture.wait_until([&] { return metrics.num_requests_running.value() == 0; });
}

TEST(AnswerDispatcher, cancels_what_runs_for_a_client_that_left_in_the_middle_of_a_stream) {
  HeldServer fixture;
  RawClient client = fixture.client();
  client.send_post("/v1/completions", endless(/*is_stream=*/true));
  fixture.run_until([&] { return client.has_come("data: "); });
  client.close();
  fixture.wait_until_left();
  fixture.release();
  fixture.wait_until([&] { return fixture.engine->metrics().finished_abort.value() == 1; });
  expect_nothing_left(fixture);
  EXPECT_EQ(fixture.post("/v1/completions", R"({"prompt": "AB", "max_tokens": 2})").status, 200);
}

TEST(AnswerDispatcher, a_stream_that_waits_says_so_in_its_dialect) {
  const std::string messages = R"("messages": [{"role": "user", "content": "hi"}], "stream": true)";
  const struct {
    const char* path;
    std::string body;
    const char* frame;
  } cases[] = {
      {"/v1/completions", endless(/*is_stream=*/true), ": waiting\n\n"},
      {"/v1/chat/completions", "{" + messages + "}", ": waiting\n\n"},
      {"/v1/responses", R"({"input": "hi", "stream": true})", ": waiting\n\n"},
      {"/v1/messages", R"({"max_tokens": 9, )" + messages + "}", "event: ping\ndata: {\"type\":\"ping\"}\n\n"},
  };
  for (const auto& of : cases) {
    ServerOptions options;
    options.longest_silence_ms = 1;
    HeldServer fixture(std::move(options));
    RawClient client = fixture.client();
    client.send_post(of.path, of.body);
    fixture.wait_until([&] { return client.has_come(of.frame); });
    EXPECT_TRUE(client.has_come("X-Accel-Buffering: no\r\n")) << of.path;
  }
}

TEST(AnswerDispatcher, an_answer_in_one_piece_says_nothing_while_it_waits) {
  ServerOptions options;
  options.longest_silence_ms = 1;
  HeldServer fixture(std::move(options));
  RawClient whole = fixture.client();
  RawClient stream = fixture.client();
  whole.send_post("/v1/completions", endless(/*is_stream=*/false));
  stream.send_post("/v1/completions", endless(/*is_stream=*/true));
  fixture.wait_until([&] { return stream.has_come(": waiting\n\n"); });
  EXPECT_FALSE(whole.has_come("waiting"));
}

TEST(AnswerDispatcher, cancels_what_runs_for_a_client_that_left_before_its_answer) {
  HeldServer fixture;
  RawClient client = fixture.client();
  client.send_post("/v1/completions", endless(/*is_stream=*/false));
  fixture.generate();
  client.close();
  fixture.wait_until_left();
  fixture.release();
  fixture.wait_until([&] { return fixture.engine->metrics().finished_abort.value() == 1; });
  expect_nothing_left(fixture);
}

TEST(AnswerDispatcher, cancels_what_runs_for_a_client_that_does_not_read) {
  ServerOptions options;
  options.limits.max_unsent_bytes = 1000;
  ServerFixture fixture(std::move(options));
  RawClient client = fixture.client();
  const int few = 4096;
  ASSERT_EQ(::setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
  for (int i = 0; i < 40; ++i)
    client.send_post("/v1/completions",
                     R"({"prompt": "AB", "max_tokens": 1500, "n": 8, "logprobs": 20, "ignore_eos": true, "stream": true})");
  fixture.wait_until([&] { return fixture.engine->metrics().finished_abort.value() > 0; });
  fixture.wait_until([&] { return fixture.engine->is_idle(); });
}

TEST(AnswerDispatcher, ends_the_sequence_in_the_engine_when_its_text_meets_a_stop_string) {
  const std::string body =
      R"({"prompt": "AB", "max_tokens": 400, "temperature": 0, "ignore_eos": true, "return_token_ids": true)";
  const json::Value whole = parsed(ServerFixture().post("/v1/completions", body + "}").body)["choices"][0];
  const auto ids = whole["token_ids"].get<std::vector<TokenId>>();  // of bytes
  const auto letter = std::ranges::find_if(ids, [](TokenId c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; });
  ASSERT_NE(letter, ids.end());
  // It computes slowly enough that the service sees the letter long before the 400th token.
  HeldServer fixture;
  RawClient client = fixture.client();
  client.send_post("/v1/completions", body + R"(, "stop": ")" + std::string(1, static_cast<char>(*letter)) + "\"}");
  fixture.run_until([&] { return client.has_come("HTTP/1.1"); });
  const RawResponse stopped = client.read_response();
  fixture.wait_until_left();
  fixture.release();
  EXPECT_EQ(parsed(stopped.body)["choices"][0]["finish_reason"], "stop");
  EXPECT_LT(parsed(stopped.body)["usage"]["completion_tokens"], 400);
  fixture.wait_until([&] { return fixture.engine->metrics().finished_stop.value() == 1; });
  fixture.wait_until([&] { return fixture.engine->is_idle(); });
}

TEST(AnswerDispatcher, the_io_thread_does_not_wait_while_an_answer_is_written) {
  ServerFixture fixture({}, {}, /*n_blocks=*/512);
  std::string prompt;
  for (int i = 0; i < 1800; ++i) prompt += (i == 0 ? "" : ",") + std::to_string(32 + i % 90);
  RawClient large = fixture.client();
  // Several hundred thousand log-probabilities: decoding and writing them takes a while.
  large.send_post("/v1/completions", R"({"prompt": [)" + prompt +
                                         R"(], "max_tokens": 1, "n": 12, "echo": true, "logprobs": 20, "temperature": 0})");
  std::thread reader([&] { EXPECT_EQ(large.read_response().status, 200); });
  const auto& n_ended = fixture.engine->metrics().finished_length;
  RawClient small = fixture.client();
  const auto ask = [&](int i) { EXPECT_EQ(small.get(i % 16 == 0 ? "/v1/models" : "/health").status, 200); };
  int n_asked = 0;
  while (n_ended.value() < 12) ask(n_asked++);
  for (const int end = n_asked + 200; n_asked < end;) ask(n_asked++);  // while the answer is written
  reader.join();
  const std::string page = fixture.get("/metrics").body;
  const std::size_t line = page.find(R"(baton:io_lock_wait_seconds_count{model_name="demo",engine="0")");
  ASSERT_NE(line, std::string::npos);
  EXPECT_GT(std::stoll(page.substr(page.find("} ", line) + 2)), n_asked);
}

/// A request for an answer of 8 MB, which many clients can have at the same time.
std::string large_answer() {
  std::string ids = "65";
  for (int i = 1; i < 1500; ++i) ids += "," + std::to_string(32 + i % 90);
  return R"({"prompt": [)" + ids + R"(], "max_tokens": 1, "n": 4, "prompt_logprobs": 20, "temperature": 0})";
}

TEST(AnswerDispatcher, sends_large_answers_in_pieces_to_each_client_as_it_reads) {
  ServerFixture fixture({}, {}, /*n_blocks=*/512);
  const RawResponse first = fixture.post("/v1/completions", large_answer());
  EXPECT_EQ(first.status, 200);
  EXPECT_TRUE(first.has("Transfer-Encoding: chunked"));
  EXPECT_TRUE(first.has("Content-Type: application/json"));
  EXPECT_GT(first.body.size(), std::size_t{8'000'000});
  const json::Value answer = parsed(first.body);
  ASSERT_EQ(answer["choices"].size(), 4U);
  EXPECT_EQ(answer["choices"][3]["prompt_logprobs"].size(), 1500U);
  const auto choices_of = [](const std::string& body) { return body.substr(body.find("\"choices\"")); };
  const std::string choices = choices_of(first.body);
  // Clients that do not read hold up neither another one nor the memory of the server.
  const Budget& unsent = fixture.server->budgets().unsent;
  std::vector<std::unique_ptr<RawClient>> lazy;
  for (int i = 0; i < 3; ++i) {
    lazy.push_back(std::make_unique<RawClient>(fixture.server->port()));
    lazy.back()->send_post("/v1/completions", large_answer());
  }
  EXPECT_TRUE(choices_of(fixture.post("/v1/completions", large_answer()).body) == choices);
  EXPECT_LT(unsent.used(), 4 * (256 << 10));
  // One that has read only a part leaves; another one reads all.
  EXPECT_EQ(lazy.back()->read_bytes(1 << 20).size(), std::size_t{1} << 20);
  lazy.pop_back();
  EXPECT_TRUE(choices_of(lazy.back()->read_response().body) == choices);
  lazy.clear();
  fixture.wait_until([&] { return unsent.used() == 0; });
  fixture.wait_until([&] { return fixture.server->budgets().scores.used() == 0; });
  expect_nothing_left(fixture);
}

TEST(AnswerDispatcher, large_answers_wait_for_room_among_answers_that_are_not_taken) {
  ServerOptions options;
  options.limits.budgets.unsent_bytes = 1 << 20;
  ServerFixture fixture(std::move(options), {}, /*n_blocks=*/512);
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      RawClient client = fixture.client();
      const RawResponse response = client.post("/v1/completions", large_answer());
      EXPECT_EQ(response.status, 200);
      EXPECT_GT(response.body.size(), std::size_t{8'000'000});
    });
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(fixture.server->budgets().unsent.n_refused(), 0);
}

TEST(AnswerDispatcher, a_failed_allocation_ends_an_exchange_and_not_the_program) {
  ServerFixture fixture({}, {}, /*n_blocks=*/512);
  const std::string small = R"({"prompt": "AB", "max_tokens": 2, "ignore_eos": true})";
  std::string ids = "65";
  for (int i = 1; i < 1500; ++i) ids += ",65";
  const std::string scored = R"({"prompt": [)" + ids + R"(], "max_tokens": 1, "n": 4, "prompt_logprobs": 20})";
  const std::string large =
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n" +
      std::string(3'000'000, ' ');
  RawClient sender = fixture.client();
  EXPECT_EQ(fixture.post("/v1/completions", scored).status, 200);
  largest_allocation = 112 << 10;
  const RawResponse answer = fixture.post("/v1/completions", scored);  // its first piece cannot be written
  sender.send(large);
  const RawResponse body = sender.read_response();  // it cannot be read
  const RawResponse after = fixture.post("/v1/completions", small);
  largest_allocation = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(answer.status, 503) << answer.body.substr(0, 300);
  EXPECT_EQ(parsed(answer.body)["error"]["message"], "this server has no memory left for the answer");
  EXPECT_EQ(body.status, 503) << body.body;
  EXPECT_EQ(after.status, 200) << after.body;
  expect_nothing_left(fixture);
}

TEST(AnswerDispatcher, a_failed_allocation_is_told_in_the_form_of_the_dialect) {
  ServerFixture fixture;
  RawClient client = fixture.client();
  EXPECT_EQ(client.get("/health").status, 200);
  largest_allocation = 112 << 10;
  client.send("POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n" +
              std::string(3'000'000, ' '));
  const RawResponse refused = client.read_response();
  largest_allocation = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, R"({"type":"error","error":{"type":"overloaded_error","message":)"
                          R"("this server has no memory left for the request"}})");
  EXPECT_TRUE(refused.has("request-id: req_"));
}

TEST(AnswerDispatcher, a_template_variable_that_ends_without_memory_ends_no_program) {
  ServerFixture fixture;
  // The library's destructor of the variables would move all their values into one list, which is larger than each.
  std::string numbers = "0";
  for (int i = 1; i < 4096; ++i) numbers += ",0";
  const std::string variables = R"({"x": [[)" + numbers + "],[" + numbers + "],[" + numbers + "]]}";
  const std::string chat = R"({"messages": [{"role": "user", "content": "A"}], "max_tokens": 2, "ignore_eos": true,
                              "chat_template_kwargs": )" +
                           variables + "}";
  largest_allocation = 96 << 10;
  const RawResponse answered = fixture.post("/v1/chat/completions", chat);
  const RawResponse rendered = fixture.post("/v1/chat/completions/render", chat);
  const RawResponse tokenized = fixture.post("/tokenize", chat);
  largest_allocation = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(answered.status, 200) << answered.body.substr(0, 300);
  EXPECT_EQ(rendered.status, 200) << rendered.body.substr(0, 300);
  EXPECT_EQ(tokenized.status, 200) << tokenized.body.substr(0, 300);
  expect_nothing_left(fixture);
}

TEST(AnswerDispatcher, tells_the_metrics_of_clients_that_left) {
  HeldServer fixture;
  RawClient client = fixture.client();
  client.send_post("/v1/completions", endless(/*is_stream=*/true));
  fixture.run_until([&] { return client.has_come("data: "); });
  client.close();
  fixture.wait_until([&] {
    return fixture.get("/metrics")
               .body.find(R"(http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 1)") !=
           std::string::npos;
  });
}

TEST(AnswerDispatcher, answers_503_when_the_queue_is_full) {
  EngineOptions engine_options;
  engine_options.max_num_seqs = 1;
  engine_options.max_num_queued_reqs = 1;
  HeldServer fixture({}, engine_options);
  RawClient running = fixture.client();
  running.send_post("/v1/completions", endless(/*is_stream=*/true));
  fixture.generate();
  RawClient waiting = fixture.client();
  waiting.send_post("/v1/completions", endless(/*is_stream=*/false));
  fixture.run_until([&] { return fixture.engine->metrics().num_requests_waiting.value() == 1; });
  const RawResponse refused = fixture.post("/v1/completions", endless(/*is_stream=*/false));
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(parsed(refused.body)["error"]["code"], 503);
}

TEST(AnswerDispatcher, takes_many_clients_at_once) {
  ServerFixture fixture;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::set<std::string> texts;
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&] {
      RawClient client = fixture.client();
      for (int round = 0; round < 3; ++round) {
        const json::Value body =
            parsed(client
                       .post("/v1/chat/completions", R"({"prefix": "shop", "temperature": 0, "max_tokens": 6,
            "ignore_eos": true, "messages": [{"role": "user", "content": "hi"}]})")
                       .body);
        const std::scoped_lock lock(mutex);
        texts.insert(body["choices"][0]["message"]["content"].get<std::string>());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts.size(), 1u) << "greedy answers to one question are one answer";
  EXPECT_EQ(fixture.engine->metrics().finished_length.value(), 48);
}

}  // namespace
}  // namespace baton
