/// The engine plans within the bounds of a step: sequences that would exceed them wait, and answers stay the same.
#include <gtest/gtest.h>

#include "support/tiny_engine.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::make_tiny_engine;
using testing::random_prompt;
using testing::SequenceKey;

constexpr std::int32_t kBoundsPromptLen = 200;
constexpr std::int32_t kMaxTokens = 8;

/// Requests with the same long prompt, each with penalties over all of it.
std::vector<Request> crowd(std::int32_t n) {
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < n; ++i) {
    requests.push_back(greedy(
        joined(random_prompt(1, kBoundsPromptLen - 5), random_prompt(100 + static_cast<std::uint32_t>(i), 5)), kMaxTokens));
    requests.back().sampling.repetition_penalty = 1.2F;
  }
  return requests;
}

/// Runs all requests at once. Returns their tokens and the most sequences that ran at a time.
std::pair<std::vector<std::vector<TokenId>>, std::int64_t> run(const EngineOptions& options,
                                                               const std::vector<Request>& requests) {
  auto engine = make_tiny_engine(options, /*n_blocks=*/400);
  std::map<SequenceKey, Generated> generated;
  for (const Request& request : requests) EXPECT_TRUE(engine->submit(request));
  std::int64_t most_running = 0;
  while (engine->step()) {
    engine->check_invariants();
    most_running = std::max<std::int64_t>(most_running, engine->metrics().num_requests_running.value());
    testing::collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  }
  std::vector<std::vector<TokenId>> tokens;
  for (const auto& [key, sequence] : generated) {
    EXPECT_EQ(sequence.finished, FinishReason::length);
    tokens.push_back(sequence.tokens);
  }
  return {tokens, most_running};
}

TEST(EngineBounds, sequences_that_one_step_could_not_hold_wait_and_get_the_same_answers) {
  const std::vector<Request> requests = crowd(8);
  for (const bool relay : {false, true}) {
    EngineOptions options;
    options.relay = relay;
    options.max_model_len = 256;
    options.max_num_seqs = 8;
    const auto [expected, most_running] = run(options, requests);
    ASSERT_EQ(expected.size(), requests.size());
    EXPECT_GT(most_running, 3);

    // Each sequence reaches 13 blocks, and its penalties 208 entries.
    options.max_block_entries = 3 * 13 + 2;
    const auto [by_blocks, most_by_blocks] = run(options, requests);
    EXPECT_EQ(by_blocks, expected);
    EXPECT_EQ(most_by_blocks, 3);

    options.max_block_entries = 0;
    options.max_list_entries = 2 * 208 + 100;
    const auto [by_lists, most_by_lists] = run(options, requests);
    EXPECT_EQ(by_lists, expected);
    EXPECT_EQ(most_by_lists, 2);
  }
}

TEST(EngineBounds, refuses_what_no_step_could_hold_by_name_and_limit) {
  EngineOptions options;
  options.max_list_entries = 200;
  const auto engine = make_tiny_engine(options, 400);
  const auto refused = engine->submit(crowd(1)[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "repetition_penalty");
  EXPECT_NE(refused.error().message.find("208 entries, and a step holds 200"), std::string::npos) << refused.error().message;

  options.max_block_entries = 127;
  auto backend = make_backend("cpu", {.n_threads = 1});
  auto weights = random_weights(testing::tiny_spec(), **backend, DType::f32, 11, 1);
  const auto made =
      Engine::create(options, std::move(*backend), std::make_unique<Model>(testing::tiny_spec(), std::move(*weights)));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().param, "max_model_len");
  EXPECT_NE(made.error().message.find("has 128 blocks, and a step can list 127"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace baton
