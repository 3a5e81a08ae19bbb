/// Start, drain and shutdown (server/server.h).
#include "server/server.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "jinja/value.h"
#include "server/server_fixture.h"

namespace baton {
namespace {

constexpr std::string_view kStream =
    R"({"prompt": "AB", "max_tokens": 1500, "ignore_eos": true, "temperature": 0, "stream": true})";

TEST(Server, finishes_streams_while_it_refuses_new_requests) {
  ServerOptions options;
  options.shutdown_timeout_ms = std::chrono::milliseconds(testing::kUntilKilled).count();
  HeldServer fixture(std::move(options));
  RawClient client = fixture.client();
  client.send_post("/v1/completions", kStream);
  fixture.run_until([&] { return client.has_come("data: "); });
  fixture.server->begin_shutdown();
  EXPECT_EQ(fixture.get("/health").status, 503);
  EXPECT_EQ(fixture.get("/livez").status, 200) << "a draining server is not to be killed";
  const RawResponse refused = fixture.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body,
            R"({"error":{"message":"the server is shutting down","type":"ServiceUnavailableError","param":null,"code":503}})");
  std::thread waiting([&] { fixture.server->wait(); });
  fixture.release();
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
  HeldServer fixture(std::move(options));
  RawClient client = fixture.client();
  client.send_post("/v1/completions", kStream);
  fixture.run_until([&] { return client.has_come("data: "); });
  fixture.server->begin_shutdown();
  std::thread waiting([&] { fixture.server->wait(); });
  // The threads of text work end after all requests were cancelled.
  ServerFixture::wait_until([&] { return fixture.post("/tokenize", R"({"prompt": "x"})").status == 503; });
  fixture.release();
  const std::string rest = client.read_to_end();
  EXPECT_NE(rest.find(R"("finish_reason":"abort")"), std::string::npos);
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  waiting.join();
}

TEST(Server, is_neither_healthy_nor_alive_while_its_engine_is_stuck) {
  EngineOptions options;
  options.step_timeout_ms = 20;
  HeldServer fixture({}, options);
  RawClient client = fixture.client();
  client.send_post("/v1/completions", R"({"prompt": "AB", "max_tokens": 2, "ignore_eos": true})");
  for (const std::string_view path : {"/health", "/livez"})
    ServerFixture::wait_until([&] { return fixture.get(path).status == 503; });
  fixture.release();
  EXPECT_EQ(client.read_response().status, 200);
  for (const std::string_view path : {"/health", "/livez"})
    ServerFixture::wait_until([&] { return fixture.get(path).status == 200; });
}

/// Its template would run for hours for a message of the role "slow".
ServedModel endless_model() {
  const std::string loop = "{% for i in range(1000) %}", end = "{% endfor %}";
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  auto endless = ChatTemplate::parse(
      "{% if messages[0].role == 'slow' %}" + loop + loop + loop + loop + end + end + end + end + "{% endif %}text",
      {.memory_bytes = std::size_t{1} << 40, .work = kNoLimit, .loop_iterations = kNoLimit});
  EXPECT_TRUE(endless) << endless.error().message;
  ServedModel model = byte_model();
  model.chat_template.emplace(std::move(*endless));
  return model;
}

TEST(Server, a_client_that_leaves_frees_the_threads_of_text_work) {
  const ServerFixture fixture({}, {}, /*n_blocks=*/256, /*max_position=*/2048, endless_model());
  for (int i = 0; i < 40; ++i) fixture.client().send_post("/tokenize", R"({"messages": [{"role": "slow", "content": "x"}]})");
  ServerFixture::wait_until([&] { return fixture.server->budgets().text_work.used() == 0; });
  EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "x"})").status, 200);
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

TEST(Server, continues_at_signals_that_ask_for_files_it_does_not_have) {
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
