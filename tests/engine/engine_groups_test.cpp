/// Layer groups with windows in the engine: blocks that a window has left are given back, prompts are found as far as
/// every group holds them, and answers equal those of an engine that shares nothing.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/engine_device.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;

constexpr std::int32_t kWindow = 40;
constexpr std::int32_t kBlockLen = 16;

class EngineGroups : public testing::EngineOnDevice {
 protected:
  /// Expects the same greedy tokens and, while they are the same, log-probabilities within rounding errors.
  void expect_equal_answers(const std::vector<Generated>& got, const std::vector<Generated>& expected) const {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      expect_same_tokens(got[i], expected[i]);
      ASSERT_EQ(got[i].logprobs.size(), expected[i].logprobs.size());
      for (std::size_t n = 0; n < got[i].logprobs.size() && got[i].tokens[n] == expected[i].tokens[n]; ++n)
        EXPECT_NEAR(got[i].logprobs[n], expected[i].logprobs[n], 1e-4F + logprob_tolerance()) << "token " << n;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineGroups, testing::engine_devices(), testing::name_of_device);

/// Four layers; every second one has a window of 40 keys: two groups. With `all_windows` the others have a window of
/// 70 keys.
ModelSpec windowed_spec(bool all_windows = false) {
  ModelSpec spec = testing::tiny_spec();
  spec.layers.resize(4, spec.layers[0]);
  for (const std::size_t layer : {1U, 3U}) spec.layers[layer].attention.window = kWindow;
  for (const std::size_t layer : {0U, 2U}) spec.layers[layer].attention.window = all_windows ? 70 : 0;
  group_layers(spec);
  return spec;
}

/// The most blocks of a group that sequences hold at once.
std::int32_t n_held(const Engine& engine, int group) {
  return engine.info().cache_groups[static_cast<std::size_t>(group)].n_blocks -
         static_cast<std::int32_t>(engine.free_blocks(group).size());
}

TEST_P(EngineGroups, give_back_blocks_that_a_window_has_left_and_no_others) {
  EngineOptions options{.max_num_seqs = 4, .max_num_batched_tokens = 64};
  options.enable_prefix_caching = false;
  options.max_model_len = 512;
  const auto engine = make_tiny_engine(options, 60, windowed_spec());
  ASSERT_EQ(engine->info().cache_groups.size(), 2U);
  EXPECT_EQ(engine->info().cache_groups[0].window, 0);
  EXPECT_EQ(engine->info().cache_groups[1].window, kWindow);
  ASSERT_TRUE(engine->submit(greedy(random_prompt(1, 300), 200)));
  std::map<testing::SequenceKey, Generated> generated;
  std::int32_t most = 0, most_in_decode = 0;
  while (engine->step()) {
    engine->check_invariants();
    collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
    most = std::max(most, n_held(*engine, 1));
    const bool decodes = !generated.empty() && !generated.begin()->second.tokens.empty();
    if (decodes) most_in_decode = std::max(most_in_decode, n_held(*engine, 1));
    if (decodes && engine->metrics().num_requests_running.value() > 0) {
      EXPECT_GE(n_held(*engine, 0), 300 / kBlockLen);
    }
  }
  ASSERT_EQ(generated.size(), 1U);
  EXPECT_EQ(generated.begin()->second.tokens.size(), 200U);
  EXPECT_LE(most, (kWindow + 2 * 64 + kBlockLen - 1) / kBlockLen + 1) << "a window and two steps of prefill";
  EXPECT_LE(most_in_decode, (kWindow + 2 + kBlockLen - 1) / kBlockLen + 1) << "a window and two rows";
  EXPECT_EQ(n_held(*engine, 0) + n_held(*engine, 1), 0);
}

TEST_P(EngineGroups, find_a_prompt_only_as_far_as_every_group_still_holds_its_keys) {
  for (const bool all_windows : {false, true}) {
    EngineOptions options{.max_num_seqs = 1, .max_num_batched_tokens = 32};
    const std::int32_t n_blocks = all_windows ? 49 : 160;  // 40 in the group with the window of 40 keys
    const auto engine = make_tiny_engine(options, n_blocks, windowed_spec(all_windows));
    EXPECT_EQ(engine->info().cache_groups[1].n_blocks, 40);
    options.enable_prefix_caching = false;
    const auto plain = make_tiny_engine(options, n_blocks, windowed_spec(all_windows));
    const auto prompt = random_prompt(1, 310);
    const auto half = joined(std::vector(prompt.begin(), prompt.begin() + 160), random_prompt(2, 20));
    const auto ask = [&](const std::vector<TokenId>& tokens) {
      const auto got = run_requests(*engine, {greedy(tokens, 30)});
      expect_equal_answers(got, run_requests(*plain, {greedy(tokens, 30)}));
      return got[0].stats.cached_tokens;
    };
    EXPECT_EQ(ask(prompt), 0);
    EXPECT_EQ(ask(half), 160) << "nothing is dropped yet";
    EXPECT_EQ(ask(prompt), 304);
    for (std::uint32_t seed = 10; seed < 13; ++seed) EXPECT_EQ(ask(random_prompt(seed, 200)), 0);
    EXPECT_EQ(ask(prompt), 304) << "the window of its end is kept";
    const auto third = joined(std::vector(prompt.begin(), prompt.begin() + 80), random_prompt(3, 20));
    EXPECT_EQ(ask(third), 0) << "no group with a window holds what is before position 80";
    EXPECT_EQ(ask(third), 96) << "computed again, with a block of its own after it";
  }
}

TEST_P(EngineGroups, a_registered_prefix_is_found_whatever_else_is_dropped) {
  EngineOptions options{.max_num_seqs = 2, .max_num_batched_tokens = 32};
  const auto engine = make_tiny_engine(options, 160, windowed_spec());
  options.enable_prefix_caching = false;
  const auto plain = make_tiny_engine(options, 160, windowed_spec());
  const auto prefix = random_prompt(1, 200);
  ASSERT_TRUE(engine->pin(prefix));
  EXPECT_EQ(engine->pins()[0].n_pinned_tokens, 192);
  for (std::uint32_t seed = 20; seed < 32; ++seed) run_requests(*engine, {greedy(random_prompt(seed, 220), 10)});
  std::vector<Request> requests;
  for (std::uint32_t seed = 40; seed < 46; ++seed) requests.push_back(greedy(joined(prefix, random_prompt(seed, 30)), 60));
  const auto got = run_requests(*engine, requests);
  for (const Generated& one : got) EXPECT_GE(one.stats.cached_tokens, 192);
  expect_equal_answers(got, run_requests(*plain, requests));
}

TEST_P(EngineGroups, answer_alike_in_caches_that_preempt_drop_and_share) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 12; ++i) {
    requests.push_back(greedy(joined(random_prompt(i % 3, 70 + 30 * (i % 3)), random_prompt(50 + i, 5 + i)), 90));
  }
  for (const bool all_windows : {false, true}) {
    EngineOptions options{.max_num_seqs = 1, .max_num_batched_tokens = 64};
    options.enable_prefix_caching = false;
    const auto alone = make_tiny_engine(options, 200, windowed_spec(all_windows));
    const auto expected = run_requests(*alone, requests);
    options = {.max_num_seqs = 12, .max_num_batched_tokens = 48};
    options.max_model_len = 288;
    const auto together = make_tiny_engine(options, 40, windowed_spec(all_windows));
    expect_equal_answers(run_requests(*together, requests), expected);
    EXPECT_GT(together->metrics().num_preemptions.value() + together->metrics().prompt_tokens_cached.value(), 0);
  }
}

}  // namespace
}  // namespace baton
