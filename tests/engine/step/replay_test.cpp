/// Replay: small traces with known answers.
#include "engine/step/replay.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::int32_t kRunLen = 32;

/// Conversations: each turn contains the previous one and adds to it. All begin with the same run.
Trace conversations(std::uint32_t seed, int n_requests, double gap_s) {
  std::mt19937 rng(seed);
  Trace trace{kRunLen, {}};
  std::vector<std::vector<std::int64_t>> open{{0}};
  std::int64_t next_run = 1;
  for (int i = 0; i < n_requests; ++i) {
    std::vector<std::int64_t> runs = rng() % 3 == 0 ? open[rng() % open.size()] : open[0];
    for (std::uint32_t n = 1 + rng() % 6; n > 0; --n) runs.push_back(next_run++);
    open.push_back(runs);
    const auto len = static_cast<std::int32_t>(runs.size()) * kRunLen - static_cast<std::int32_t>(rng() % kRunLen);
    trace.requests.push_back({i * gap_s, len, static_cast<std::int32_t>(rng() % 120), runs});
  }
  return trace;
}

/// Runs that were computed in full before and do not contain the last token of the prompt: the hits of an unbounded
/// cache.
std::int64_t ideal_runs(const Trace& trace) {
  std::set<std::int64_t> seen;
  std::int64_t n = 0;
  for (const TraceRequest& request : trace.requests) {
    for (std::size_t i = 0; i < request.runs.size(); ++i) {
      const auto end = static_cast<std::int32_t>(i + 1) * kRunLen;
      if (end < request.prompt_len && seen.contains(request.runs[i])) ++n;
      if (end <= request.prompt_len) seen.insert(request.runs[i]);
    }
  }
  return n;
}

ReplayOptions options_for(const Trace& trace, std::int32_t block_len) {
  ReplayOptions options;
  options.scheduler = {.max_num_seqs = 16, .max_num_batched_tokens = 256};
  options.block_len = block_len;
  options.n_blocks = static_cast<std::int32_t>(blocks_for_all(trace, block_len));
  return options;
}

TEST(Replay, of_a_cache_that_holds_all_finds_every_run_that_came_before_however_many_arrive_at_once) {
  for (const double gap_s : {0.0, 0.01, 10.0}) {
    const Trace trace = conversations(3, 400, gap_s);
    ASSERT_GT(ideal_runs(trace), 500);
    for (const std::int32_t block_len : {16, kRunLen}) {
      const ReplayReport report = replay(trace, options_for(trace, block_len));
      EXPECT_EQ(report.cached_runs, ideal_runs(trace)) << "gap " << gap_s << ", blocks of " << block_len;
      EXPECT_EQ(report.preemptions, 0);
    }
  }
}

TEST(Replay, gives_every_request_its_tokens) {
  const Trace trace = conversations(4, 300, 0.005);
  std::int64_t n_tokens = 0, n_prompt = 0;
  for (const TraceRequest& request : trace.requests) {
    n_tokens += std::max(request.output_len, 1);
    n_prompt += request.prompt_len;
  }
  ReplayOptions options = options_for(trace, 16);
  options.n_blocks = 70;
  const ReplayReport report = replay(trace, options);
  EXPECT_EQ(report.n_requests, 300);
  EXPECT_EQ(report.n_refused, 0);
  EXPECT_EQ(report.output_tokens, n_tokens);
  EXPECT_EQ(report.prompt_tokens, n_prompt);
  EXPECT_GT(report.preemptions, 0) << "the cache was too large to show anything";
  EXPECT_LE(report.most_preemptions, kMaxPreemptions);
  // Every token is computed once, except those found in the cache, those computed again, and last tokens.
  EXPECT_EQ(report.rows, n_prompt - report.cached_tokens + n_tokens - 300 + report.recomputed_tokens);
}

TEST(Replay, is_the_same_every_time) {
  const Trace trace = conversations(5, 200, 0.01);
  ReplayOptions options = options_for(trace, 16);
  options.n_blocks = 150;
  const ReplayReport first = replay(trace, options), second = replay(trace, options);
  EXPECT_EQ(first.cached_tokens, second.cached_tokens);
  EXPECT_EQ(first.simulated_s, second.simulated_s);
  EXPECT_EQ(first.queue_s.p99, second.queue_s.p99);
}

TEST(Replay, refuses_what_the_cache_cannot_hold_and_continues) {
  Trace trace{kRunLen, {{0, 1000, 5, {}}, {0, 100, 5, {}}}};
  ReplayOptions options = options_for(trace, 16);
  options.n_blocks = 10;
  const ReplayReport report = replay(trace, options);
  EXPECT_EQ(report.n_refused, 1);
  EXPECT_EQ(report.prompt_tokens, 100);
  EXPECT_EQ(report.output_tokens, 5);
}

TEST(Replay, bounds_the_time_between_tokens_while_a_prompt_of_32k_comes_in) {
  Trace trace{kRunLen, {}};
  for (int i = 0; i < 8; ++i) trace.requests.push_back({0, 100, 400, {}});
  trace.requests.push_back({1, 32768, 10, {}});
  ReplayOptions options = options_for(trace, 16);
  options.scheduler = {.max_num_seqs = 16, .max_num_batched_tokens = 2048, .max_prefill_tokens = 256};
  const ReplayReport report = replay(trace, options);
  EXPECT_EQ(report.most_prefill_beside_decodes, 256);
  EXPECT_LE(report.gap_s.most, options.step_s + (256 + 9) * options.row_s + 1e-6);
  options.scheduler.max_prefill_tokens = 0;
  EXPECT_GT(replay(trace, options).gap_s.most, options.step_s + 2000 * options.row_s);
}

TEST(Replay, with_eviction_by_reuse_finds_more_than_least_recently_used_where_strangers_pass_through) {
  std::mt19937 rng(1);
  Trace trace{kRunLen, {}};
  std::int64_t next_run = 1000;
  for (int i = 0; i < 1500; ++i) {
    std::vector<std::int64_t> runs;
    if (rng() % 4 == 0) {
      const auto shop = static_cast<std::int64_t>(rng() % 12) * 8;
      for (std::int64_t run = shop; run < shop + 8; ++run) runs.push_back(run);
    }
    for (int k = 0; k < 6; ++k) runs.push_back(next_run++);
    trace.requests.push_back({0.05 * i, static_cast<std::int32_t>(runs.size()) * kRunLen, 4, runs});
  }
  ReplayOptions options = options_for(trace, kRunLen);
  options.n_blocks = 240;
  const ReplayReport reuse = replay(trace, options);
  options.life_of_reuse = 0;
  const ReplayReport lru = replay(trace, options);
  EXPECT_GT(reuse.cached_runs, lru.cached_runs * 11 / 10) << reuse.share_of_runs() << " against " << lru.share_of_runs();
}

/// Steps in which 100 rows cost nothing and each further one 25 us, on a device that 30 requests a second keep half busy.
TEST(Replay, of_paced_prompts_shortens_the_time_per_token_where_steps_have_free_rows) {
  std::mt19937 rng(2);
  std::exponential_distribution<double> gap(30);
  Trace trace{kRunLen, {}};
  double now = 0;
  for (int i = 0; i < 1000; ++i)
    trace.requests.push_back(
        {now += gap(rng), static_cast<std::int32_t>(20 + rng() % 800), static_cast<std::int32_t>(50 + rng() % 300), {}});
  ReplayOptions options = options_for(trace, 16);
  options.scheduler = {.max_num_seqs = 256, .max_num_batched_tokens = 2048};
  std::string fault;
  std::vector<StepCostTable::Entry> entries;
  for (const std::int32_t n_decodes : {0, 256})
    for (const std::int32_t n_tokens : {0, 100, 2100})
      entries.push_back({n_decodes, n_tokens, 5e-3 + 1e-5 * n_decodes + 25e-6 * std::max(0, n_tokens - 100)});
  options.costs = StepCostTable::make(entries, fault);
  ASSERT_TRUE(options.costs) << fault;
  const ReplayReport at_once = replay(trace, options);
  options.scheduler.paces_prefill = true;
  const ReplayReport paced = replay(trace, options);
  EXPECT_EQ(paced.output_tokens, at_once.output_tokens);
  EXPECT_EQ(paced.rows, at_once.rows);
  EXPECT_LT(paced.mean_token_s, 0.85 * at_once.mean_token_s);
  EXPECT_LT(paced.gap_s.p99, at_once.gap_s.p99);
  EXPECT_LT(paced.first_token_s.p99, at_once.first_token_s.p99 + 0.1);
  EXPECT_LE(paced.simulated_s, 1.01 * at_once.simulated_s) << "the rate of requests stays";
}

TEST(Replay, of_nothing_is_nothing) {
  const ReplayReport report = replay(Trace{}, {.n_blocks = 1});
  EXPECT_EQ(report.n_requests, 0);
  EXPECT_EQ(report.share_of_runs(), 0);
}

}  // namespace
}  // namespace baton
