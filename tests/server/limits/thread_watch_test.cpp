/// Threads that hang are named, forgiven when they continue, and do not keep the program from ending
/// (server/limits/thread_watch.h).
#include "server/limits/thread_watch.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/prefixes_held.h"
#include "server/server_fixture.h"
#include "support/held_engine.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

/// Waits until the condition holds. If it never does, the test's time limit ends the test.
template <class Claim>
void wait_until(const Claim& claim) {
  while (!claim()) std::this_thread::sleep_for(milliseconds(1));
}

TEST(ThreadWatch, names_a_thread_whose_work_does_not_end_and_forgives_it_when_it_does) {
  ThreadWatch watch(milliseconds(5));
  ThreadWatch::Place& idle = watch.add("idle");
  ThreadWatch::Place& busy = watch.add("busy");
  watch.start();
  EXPECT_FALSE(watch.complaint());
  {
    const ThreadWatch::Work work(busy);
    wait_until([&] { return watch.hanging() == Names{"busy"}; });
    EXPECT_EQ(watch.complaint(),
              "threads of this server hang: busy; each has worked for over 0.005 s (--step-timeout) on one piece of work");
    const ThreadWatch::Work other(idle);
    wait_until([&] { return watch.hanging() == Names{"idle", "busy"}; });
  }
  EXPECT_EQ(watch.hanging(), Names{});
  EXPECT_FALSE(watch.complaint());
}

TEST(ThreadWatch, without_a_timeout_no_thread_hangs) {
  ThreadWatch watch(milliseconds(0));
  const ThreadWatch::Work work(watch.add("busy"));
  EXPECT_FALSE(watch.complaint());
}

/// A service without clients, with answers that are written when the test says so.
class WatchedService : public ::testing::Test {
 protected:
  /// Writes nothing, and waits for the test.
  class HeldWriter final : public AnswerWriter {
   public:
    explicit HeldWriter(std::shared_future<void> goes_on) : goes_on_(std::move(goes_on)) {}
    std::string choice_frames(std::size_t, bool) override {
      goes_on_.wait();
      return {};
    }
    std::string last_frames() override { return {}; }
    std::string error_frames(int, std::string_view, std::string_view) override { return {}; }
    Resumable write_response(std::string& out) override {
      goes_on_.wait();
      out = "{}";
      co_return;
    }
    std::size_t response_bytes() const override { return std::size_t{1} << 30; }
    HttpResponse error(int status, std::string_view, std::string_view) override { return {status, {}, {}}; }

   private:
    const std::shared_future<void> goes_on_;
  };

  WatchedService() {
    engine_->start();
    auto bound = HttpServer::bind({.host = "127.0.0.1", .port = 0}, {});
    EXPECT_TRUE(bound);
    http_ = std::move(*bound);
    dispatcher_ = std::make_unique<AnswerDispatcher>(*engine_, *http_, metrics_);
    dispatcher_->start(watch_);
  }
  ~WatchedService() override {
    dispatcher_->stop();
    engine_->stop();
  }

  void begin_answer(bool is_stream) {
    GenerationRequest request;
    request.is_stream = is_stream;
    std::vector<AnswerPrompt> prompts(1);
    const std::vector<TokenId> tokens(4, 65);
    prompts[0].tokens = tokens;
    const ExchangeId exchange{1};
    dispatcher_->open(exchange, "/v1/completions", "POST", {}, kOpenaiErrors, {});
    auto answer = std::make_unique<Answer>(
        AnswerHeader{}, std::move(request), std::move(prompts), tokenizer_,
        [this](const AnswerContent&, const Tokenizer&) { return std::make_unique<HeldWriter>(goes_on_.get_future().share()); });
    EXPECT_TRUE(dispatcher_->begin(exchange, std::move(answer), {testing::greedy(tokens, 2)}));
  }
  void expect_that_it_goes_on() {
    EXPECT_EQ(dispatcher_->n_open(), 1) << "no thread holds the lock of the I/O thread while an answer is written";
    goes_on_.set_value();
    wait_until([&] { return !watch_.complaint().has_value(); });
    dispatcher_->client_left(ExchangeId{1});
    wait_until([&] { return dispatcher_->n_open() == 0; });
  }

  const Tokenizer tokenizer_ = byte_tokenizer();
  std::unique_ptr<Engine> engine_ = testing::make_tiny_engine({}, /*n_blocks=*/256);
  MetricsPage metrics_{*engine_, "demo"};
  std::unique_ptr<HttpServer> http_;
  ThreadWatch watch_{milliseconds(200)};
  std::unique_ptr<AnswerDispatcher> dispatcher_;
  std::promise<void> goes_on_;
};

TEST_F(WatchedService, sees_that_the_thread_of_answers_hangs) {
  begin_answer(/*is_stream=*/true);
  wait_until([&] { return watch_.hanging() == Names{"answers"}; });
  expect_that_it_goes_on();
}

TEST_F(WatchedService, sees_that_the_thread_of_large_answers_hangs) {
  begin_answer(/*is_stream=*/false);
  wait_until([&] { return watch_.hanging() == Names{"large-answers"}; });
  expect_that_it_goes_on();
}

ServerOptions impatient() {
  ServerOptions options;
  options.step_timeout_ms = 200;
  return options;
}

TEST(ThreadWatch, health_checks_name_each_thread_that_hangs_until_it_continues) {
  const ServerFixture fixture(impatient());
  const auto complains_of = [&](std::string_view name) {
    ServerFixture::wait_until([&] {
      const RawResponse health = fixture.get("/health");
      return health.status == 503 && health.body.find(name) != std::string::npos;
    });
    EXPECT_EQ(fixture.get("/livez").status, 503);
  };
  EXPECT_EQ(fixture.post("/v1/prefixes", R"({"id": "brief", "text": "Soon over.", "ttl_seconds": 1})").status, 200);
  RawClient long_text = fixture.client(), text = fixture.client(), page = fixture.client();
  {
    const PrefixesHeld held(fixture.server->prefixes());
    const std::string prompt(TextQueue::kLongBytes, 'x');
    long_text.send_post("/v1/completions", R"({"prefix": "shop", "prompt": ")" + prompt + "\"}");
    complains_of("text-long");
    text.send_post("/v1/completions", R"({"prefix": "shop", "prompt": "x"})");
    complains_of("text-short");
    page.send("GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n");
    complains_of("pages");
    complains_of("prefixes");  // one expires
  }
  for (const std::string_view path : {"/health", "/livez"})
    ServerFixture::wait_until([&] { return fixture.get(path).status == 200; });
}

TEST(ThreadWatchDeathTest, a_thread_that_hangs_does_not_keep_the_program_from_ending) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ServerOptions options = impatient();
        options.shutdown_timeout_ms = 0;
        ServerFixture fixture(std::move(options));
        const PrefixesHeld held(fixture.server->prefixes());
        RawClient client = fixture.client();
        client.send_post("/v1/completions", R"({"prefix": "shop", "prompt": "x"})");
        ServerFixture::wait_until([&] { return fixture.get("/health").status == 503; });
        fixture.server->begin_shutdown();
        fixture.server->wait();
      },
      ::testing::ExitedWithCode(1), "event=shutdown_hangs .* threads=text-");
}

TEST(ThreadWatchDeathTest, an_engine_that_hangs_does_not_keep_the_program_from_ending) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const testing::HeldEngine held;
        EXPECT_TRUE(held.engine->submit(testing::greedy(testing::random_prompt(1, 20), 500)));
        held.wait();
        stop_engine(*held.engine);
      },
      ::testing::ExitedWithCode(1), "event=shutdown_hangs .* threads=engine:");
}

TEST(StopEngine, ends_an_engine_that_does_not_hang) {
  const auto engine = testing::make_tiny_engine({}, /*n_blocks=*/256);
  engine->start();
  stop_engine(*engine);
  EXPECT_FALSE(engine->submit(testing::greedy(testing::random_prompt(1, 20), 1)));
}

}  // namespace
}  // namespace baton
