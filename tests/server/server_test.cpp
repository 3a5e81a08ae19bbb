/// Start, drain and shutdown (server/server.h).
#include "server/server.h"

#include <csignal>
#include <ctime>
#include <thread>

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace baton {
namespace {

constexpr std::string_view kStream =
    R"({"prompt": "AB", "max_tokens": 1500, "ignore_eos": true, "temperature": 0, "stream": true})";

TEST(Server, finishes_streams_while_it_refuses_new_requests) {
  ServerFixture fixture;
  RawClient client = fixture.client();
  client.send_post("/v1/completions", kStream);
  EXPECT_FALSE(client.read_until("data: ").empty());
  fixture.server->begin_shutdown();
  EXPECT_EQ(fixture.get("/health").status, 503);
  EXPECT_EQ(fixture.get("/livez").status, 200) << "who drains is not to be killed";
  const RawResponse refused = fixture.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body,
            R"({"error":{"message":"the server is shutting down","type":"ServiceUnavailableError","param":null,"code":503}})");
  std::thread waiting([&] { fixture.server->wait(); });
  const std::string rest = client.read_to_end();
  EXPECT_NE(rest.find(R"("finish_reason":"length")"), std::string::npos)
      << rest.substr(rest.size() < 500 ? 0 : rest.size() - 500);
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  waiting.join();
  EXPECT_FALSE(RawClient(fixture.server->port()).is_connected());
}

TEST(Server, aborts_what_outlasts_the_shutdown_timeout_and_tells_the_client) {
  ServerOptions options;
  options.shutdown_timeout_ms = 0;
  ServerFixture fixture(std::move(options));
  RawClient client = fixture.client();
  client.send_post("/v1/completions", kStream);
  EXPECT_FALSE(client.read_until("data: ").empty());
  fixture.server->begin_shutdown();
  std::thread waiting([&] { fixture.server->wait(); });
  const std::string rest = client.read_to_end();
  EXPECT_NE(rest.find(R"("finish_reason":"abort")"), std::string::npos);
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  waiting.join();
}

TEST(Server, is_neither_healthy_nor_alive_while_its_engine_is_stuck) {
  EngineOptions options;
  options.step_timeout_ms = 1;
  ServerFixture fixture({}, options);
  std::uint32_t seed = 0;
  const auto keep_busy = [&] {
    if (!fixture.engine->is_idle()) return;
    EXPECT_TRUE(fixture.engine->submit(testing::greedy(testing::random_prompt(++seed, 1900), 1)));
  };
  for (const std::string_view path : {"/health", "/livez"}) {
    ServerFixture::wait_until([&] {
      keep_busy();
      return fixture.get(path).status == 503;
    });
  }
  ServerFixture::wait_until([&] { return fixture.engine->is_idle() && fixture.get("/health").status == 200; });
  EXPECT_EQ(fixture.get("/livez").status, 200);
}

/// Processor seconds of this process so far, whatever else the machine does.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(Server, a_client_that_leaves_frees_the_threads_of_text_work) {
  const ServerFixture fixture;
  constexpr std::string_view kSlow = R"({"messages": [{"role": "slow", "content": "x"}]})";
  double begin = processor_seconds();
  EXPECT_EQ(fixture.post("/tokenize", kSlow).status, 400);
  const double slow = processor_seconds() - begin;
  // These would take forty times as much. Their clients leave at once.
  begin = processor_seconds();
  for (int i = 0; i < 40; ++i) fixture.client().send_post("/tokenize", kSlow);
  ServerFixture::wait_until([&] { return fixture.server->budgets().text_work.used() == 0; });
  EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "x"})").status, 200);
  EXPECT_LT(processor_seconds() - begin, 20 * slow);
}

TEST(Server, begins_its_shutdown_at_a_signal) {
  ServerOptions options;
  options.handles_signals = true;
  ServerFixture fixture(std::move(options));
  EXPECT_EQ(fixture.get("/health").status, 200);
  std::raise(SIGTERM);
  fixture.server->wait();
  EXPECT_FALSE(RawClient(fixture.server->port()).is_connected());
}

TEST(Server, goes_on_at_signals_that_ask_for_files_it_does_not_have) {
  ServerOptions options;
  options.handles_signals = true;
  const ServerFixture fixture(std::move(options));
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR1, SIGHUP}) {
    std::raise(signal);
    EXPECT_EQ(fixture.get("/health").status, 200);
  }
}

TEST(Server, names_the_prefix_that_cannot_be_registered) {
  ServerFixture fixture;
  auto second = Server::bind({.address = {.host = "127.0.0.1", .port = 0}, .limits = {}, .routes = {}});
  ASSERT_TRUE(second);
  std::vector<PrefixDefinition> prefixes;
  prefixes.push_back({"long", parsed(R"([{"role": "system", "content": ")" + std::string(4000, 'x') + "\"}]")});
  const auto started = (*second)->start(byte_model(), *fixture.engine, std::move(prefixes));
  ASSERT_FALSE(started);
  EXPECT_TRUE(started.error().message.starts_with("prefix long: ")) << started.error().message;
}

}  // namespace
}  // namespace baton
