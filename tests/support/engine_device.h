/// The devices that engine tests run on, one test for each: the CPU, an asynchronous test device, CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/async_backend.h"
#include "support/long_run.h"
#include "support/test_backends.h"
#include "support/tiny_engine.h"

namespace baton::testing {

/// An asynchronous test device of a rank. Ranks above 0 run what they are told at once: rank 0, at whatever pace, waits for
/// them in its sums, and they for it.
inline Result<std::unique_ptr<AsyncBackend>> async_of_rank(const std::shared_ptr<RankGroup>& ranks, bool batch_invariant,
                                                           Pace pace) {
  const bool follows = ranks != nullptr && ranks->rank() > 0;
  return AsyncBackend::make({.n_threads = 1, .batch_invariant = batch_invariant, .ranks = ranks},
                            follows ? Pace::at_once : pace);
}
/// The ranks of an engine or executor on such a device.
inline std::shared_ptr<RankGroup> fork_async_followers(bool batch_invariant, const MakeRankModel& make_model) {
  const auto make_device = [=](const std::shared_ptr<RankGroup>& ranks) -> Result<std::unique_ptr<Backend>> {
    return async_of_rank(ranks, batch_invariant, Pace::at_once);
  };
  return fork_followers(n_test_ranks(), make_device, make_model);
}

/// A tiny engine on an asynchronous test device, which overwrites the blocks that the engine frees. The test fails if
/// it cannot be made. `device`, if given, is set to the device, which lives as long as the engine.
inline std::unique_ptr<Engine> make_async_engine(EngineOptions options, std::int32_t n_blocks, Pace pace,
                                                 const ModelSpec& spec = tiny_spec(), AsyncBackend** device = nullptr) {
  options.ranks = fork_async_followers(options.batch_invariant, random_model(spec));
  auto backend = async_of_rank(options.ranks, options.batch_invariant, pace);
  EXPECT_TRUE(backend) << backend.error().message;
  AsyncBackend& made = **backend;
  if (device != nullptr) *device = &made;
  options.kv_dtype = DType::f32;
  auto engine = create_tiny_engine(std::move(*backend), options, n_blocks, spec);
  EXPECT_TRUE(engine) << engine.error().message;
  made.watch_free_blocks([engine = engine->get()](int group) { return engine->free_blocks(group); });
  return std::move(*engine);
}

/// A test whose engines run on the device that GetParam names. Without CUDA its tests are skipped, or fail if
/// BATON_REQUIRE names it.
class EngineOnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!is_cuda()) return;
    static const std::string error = [] {
      const auto backend = make_backend("cuda", {});
      return backend ? std::string() : backend.error().message;
    }();
    if (error.empty()) return;
    ASSERT_FALSE(is_required("cuda")) << "BATON_REQUIRE names cuda, but " << error;
    GTEST_SKIP() << error;
  }

  bool is_cuda() const { return std::string(GetParam()) == "cuda"; }

  std::unique_ptr<Engine> make_tiny_engine(EngineOptions options, std::int32_t n_blocks,
                                           const ModelSpec& spec = tiny_spec()) const {
    const std::string name = GetParam();
    if (name == "cpu") return testing::make_tiny_engine(options, n_blocks, spec);
    if (name == "async") return make_async_engine(options, n_blocks, Pace::late, spec);
    if (name == "async_at_once") return make_async_engine(options, n_blocks, Pace::at_once, spec);
    if (name == "async_random") return make_async_engine(options, n_blocks, Pace::random, spec);
    auto backend = make_backend("cuda", {.batch_invariant = options.batch_invariant});
    EXPECT_TRUE(backend) << backend.error().message;
    options.kv_dtype = DType::bf16;  // CUDA's attention does not read f32
    auto engine = create_tiny_engine(std::move(*backend), options, n_blocks, spec);
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }

  /// Tolerance of a log-probability against a run with different batches. On the CPU it is 0: tests that compare
  /// choose loads whose rows are summed in the same order. On CUDA it covers the rounding of a bf16 cache.
  float logprob_tolerance() const { return is_cuda() ? 0.05F : 0.0F; }

  /// Expects the same greedy tokens. On CUDA they may diverge where two tokens are equally probable within the
  /// tolerance.
  void expect_same_tokens(const Generated& got, const Generated& expected) const {
    ASSERT_EQ(got.tokens.size(), expected.tokens.size());
    expect_beginning(got, expected);
  }
  /// Expects a beginning of `expected`, as far as the sequence got.
  void expect_beginning(const Generated& got, const Generated& expected) const {
    ASSERT_LE(got.tokens.size(), expected.tokens.size());
    const auto parted = std::ranges::mismatch(got.tokens, expected.tokens).in1;
    if (parted == got.tokens.end()) return;
    const auto at = static_cast<std::size_t>(parted - got.tokens.begin());
    ASSERT_TRUE(is_cuda()) << "another token at " << at;
    EXPECT_NEAR(got.logprobs.at(at), expected.logprobs.at(at), logprob_tolerance()) << "another token at " << at;
  }
  /// Expects the same sampled tokens. On CUDA only the first must be equal: samples depend on the last bits of the
  /// logits.
  void expect_same_draws(const Generated& got, const Generated& expected) const {
    const std::size_t n = is_cuda() ? std::min<std::size_t>(1, expected.tokens.size()) : expected.tokens.size();
    ASSERT_GE(got.tokens.size(), n);
    EXPECT_TRUE(std::ranges::equal(std::span(got.tokens).first(n), std::span(expected.tokens).first(n)));
    EXPECT_TRUE(is_cuda() || got.tokens.size() == n);
  }

  static constexpr const char* kOtherCosts = "which nodes are relayed depends on the device's costs; the test counts the CPU's";
};

inline std::string name_of_device(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

/// For most tests.
inline auto engine_devices() { return ::testing::Values("cpu", "async", "cuda"); }
/// For load tests, where the order of events matters most: at each pace in a long run.
inline auto engine_devices_at_each_pace() {
  using Names = std::vector<const char*>;
  return ::testing::ValuesIn(is_long_run() ? Names{"cpu", "async", "async_at_once", "async_random", "cuda"}
                                           : Names{"cpu", "async_random", "cuda"});
}

/// `n` conversations that come back in turn, some of them sampled, with several answers, or with a salt: each round repeats a prompt
/// and asks on. Two of them share their first `n_shared` tokens, which at least `n_own` of its own follow.
inline std::vector<Request> conversations(std::uint32_t n, int round, std::size_t n_shared, std::size_t n_own) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < n; ++i) {
    std::vector<TokenId> prompt = joined(random_prompt(i / 2, n_shared), random_prompt(100 + i, n_own + 9 * i));
    for (int r = 0; r < round; ++r) prompt = joined(prompt, random_prompt(500 + i, 21));
    Request request = greedy(prompt, 8);
    if (i % 3 == 1) request.n_sequences = 3;
    if (i % 3 == 2) request.scope = {.adapter = "", .salt = "tenant " + std::to_string(i % 2), .salt_from = 32};
    if (i % 2 == 1) {
      request.sampling.temperature = 1;
      request.sampling.seed = i;
    }
    requests.push_back(request);
  }
  return requests;
}

}  // namespace baton::testing
