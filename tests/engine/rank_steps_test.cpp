/// Engines whose steps run on several ranks: the same tokens, and an end with a sentence when a rank is lost.
#include "engine/rank_steps.h"

#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/test_ranks.h"
#include "support/tiny_engine.h"
#include "support/wait_until.h"

namespace baton {
namespace {

/// An engine over `n_ranks` processes.
struct RankedEngine {
  explicit RankedEngine(int n_ranks, EngineOptions options = {}) {
    const ModelSpec spec = testing::tiny_spec();
    const auto make_device = testing::cpu_of_rank(options.batch_invariant);
    ranks = testing::fork_followers(n_ranks, make_device, testing::random_model(spec));
    auto backend = make_device(ranks);
    EXPECT_TRUE(backend) << backend.error().message;
    options.kv_dtype = DType::f32;
    options.ranks = ranks;
    auto made = testing::create_tiny_engine(std::move(*backend), options, 256, spec);
    EXPECT_TRUE(made) << made.error().message;
    engine = std::move(*made);
  }
  std::shared_ptr<RankGroup> ranks;
  std::unique_ptr<Engine> engine;
};

std::vector<Request> requests() {
  std::vector<Request> made;
  for (std::uint32_t i = 0; i < 6; ++i) {
    made.push_back(testing::greedy(testing::joined(testing::random_prompt(1, 40), testing::random_prompt(i, 5 + i * 7)), 12));
    made.back().sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    made.back().sampling.seed = i;
  }
  return made;
}

TEST(RankSteps, several_ranks_generate_the_tokens_of_one) {
  const auto alone = testing::run_requests(*testing::make_tiny_engine({}, 256, testing::tiny_spec(), 1), requests());
  for (const int n_ranks : {2, 4}) {
    SCOPED_TRACE(n_ranks);
    const RankedEngine ranked(n_ranks);
    EXPECT_EQ(ranked.engine->info().backend.world_size, n_ranks);
    const auto got = testing::run_requests(*ranked.engine, requests());
    ASSERT_EQ(got.size(), alone.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tokens, alone[i].tokens);
      ASSERT_EQ(got[i].logprobs.size(), alone[i].logprobs.size());
      for (std::size_t t = 0; t < got[i].logprobs.size(); ++t) EXPECT_NEAR(got[i].logprobs[t], alone[i].logprobs[t], 1e-4);
    }
  }
}

TEST(RankSteps, a_lost_rank_ends_all_requests_with_its_sentence) {
  const RankedEngine ranked(2);
  Engine& engine = *ranked.engine;
  std::vector<RequestId> ids;
  for (Request& request : requests()) {
    request.sampling.max_tokens = 500;
    ids.push_back(engine.submit(std::move(request)).value());
  }
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine.step());
  ASSERT_EQ(engine.fault(), std::nullopt);
  const auto other = ranked.ranks->process_ids()[1];
  ::kill(static_cast<pid_t>(other), SIGKILL);
  testing::wait_until([&] { return engine.fault().has_value(); });
  while (engine.step()) engine.check_invariants();
  const std::string sentence = "rank 1 (process " + std::to_string(other) + ") was killed by signal 9 (Killed)";
  EXPECT_EQ(engine.fault(), sentence);
  std::map<RequestId, std::string> errors;
  for (const Event& event : engine.wait_events(std::chrono::milliseconds(0))) {
    if (!event.finished) continue;
    EXPECT_EQ(event.finished, FinishReason::error);
    ASSERT_NE(event.error, nullptr);
    EXPECT_EQ(event.error->code, ErrorCode::unavailable);
    errors[event.request] = event.error->message;
  }
  ASSERT_EQ(errors.size(), ids.size());
  for (const RequestId id : ids) EXPECT_EQ(errors[id], sentence);
  EXPECT_TRUE(engine.is_idle());
  const auto refused = engine.submit(requests()[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(refused.error().message, sentence);
}

TEST(RankSteps, a_rank_that_cannot_be_set_up_ends_the_start_with_its_error) {
  const auto ranks = testing::fork_test_ranks(2, [](const auto& joined) { joined->fail("its weights are others"); });
  auto backend = make_backend("cpu", {.n_threads = 1, .ranks = ranks});
  ASSERT_TRUE(backend) << backend.error().message;
  EngineOptions options{.kv_dtype = DType::f32, .ranks = ranks};
  const auto engine = testing::create_tiny_engine(std::move(*backend), options, 256);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().message, "rank 1: its weights are others");
}

/// Two engines, one after the other, over the same ranks, as `baton demo` makes them.
TEST(RankSteps, ranks_take_the_next_model_when_an_engine_ends) {
  const auto ranks = testing::fork_test_ranks(2, [](const std::shared_ptr<RankGroup>& joined) {
    while (const auto what = next_load(*joined).value_or(std::nullopt)) {
      if (*what == "tiny")
        testing::follow_with_model(joined, testing::cpu_of_rank(false), testing::random_model(testing::tiny_spec()));
    }
  });
  std::vector<std::vector<TokenId>> tokens;
  for (int i = 0; i < 2; ++i) {
    RankSteps(ranks).load("nothing that is followed");
    RankSteps(ranks).end();
    RankSteps(ranks).load("tiny");
    auto backend = make_backend("cpu", {.n_threads = 1, .ranks = ranks});
    ASSERT_TRUE(backend) << backend.error().message;
    EngineOptions options{.kv_dtype = DType::f32, .ranks = ranks};
    const auto engine = testing::create_tiny_engine(std::move(*backend), options, 256);
    ASSERT_TRUE(engine) << engine.error().message;
    tokens.push_back(testing::run_requests(**engine, {testing::greedy(testing::random_prompt(3, 20), 8)})[0].tokens);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(ranks->fault(), std::nullopt);
}

}  // namespace
}  // namespace baton
