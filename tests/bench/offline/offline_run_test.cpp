/// One run of a workload on a model small enough for a test: its counts and answers in each arm, conversations, and the
/// cut by the time limit.
#include "bench/offline/offline_run.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "load/load_engine.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

/// `count` tokens that differ between streams.
std::vector<TokenId> tokens_of(std::int32_t count, std::int32_t stream) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back((stream * 37 + i * (3 + stream) + 11) % 160);
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> first, const std::vector<TokenId>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class OfflineRun : public ::testing::Test {
 protected:
  OfflineRun() {
    options_.load_format = "dummy";
    options_.threads = 1;
    options_.max_num_seqs = 4;
    options_.max_num_batched_tokens = 256;
    options_.max_model_len = 512;
  }
  void load() {
    auto engine = load_engine({"tiny", shape_.folder(), false}, options_);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  OfflineResult run(const Workload& workload, const std::string& arm, double time_limit_s = 0) {
    const auto result = run_offline(*engine_, workload,
                                    {.arm = arm,
                                     .salt = "run " + std::to_string(++n_runs_),
                                     .time_limit_s = time_limit_s,
                                     .title = "run",
                                     .shows_progress = false});
    EXPECT_TRUE(result) << result.error().message;
    engine_->check_invariants();
    return result ? *result : OfflineResult();
  }

  /// Requests behind one prompt of 128 tokens, a multiple of the block size.
  static Workload behind_one_prompt(std::int32_t n_requests) {
    Workload workload;
    for (std::int32_t i = 0; i < n_requests; ++i)
      workload.requests.push_back(
          {.prompt = joined(tokens_of(128, 0), tokens_of(5 + i, 1 + i)), .output_len = 3 + i % 4, .shared_len = 128});
    return workload;
  }

  const test::TinyShape shape_{"offline_run"};
  ModelOptions options_;
  std::unique_ptr<Engine> engine_;
  int n_runs_ = 0;
};

TEST_F(OfflineRun, counts_requests_tokens_and_what_was_cached_in_each_arm) {
  load();
  const Workload workload = behind_one_prompt(8);
  for (const std::string arm : {"relay", "paged", "unshared"}) {
    const OfflineResult result = run(workload, arm);
    EXPECT_EQ(result.arm, arm);
    EXPECT_EQ(result.n_requests, 8);
    EXPECT_FALSE(result.is_cut);
    EXPECT_EQ(result.prompt_tokens, workload.prompt_tokens());
    EXPECT_EQ(result.output_tokens, workload.output_tokens());
    EXPECT_EQ(result.unfinished_output_tokens, 0);
    EXPECT_EQ(result.cached_tokens, arm == "unshared" ? 0 : 7 * 128) << arm;
    EXPECT_GT(result.seconds, 0);
    EXPECT_GT(result.device_busy_s, 0);
    EXPECT_LE(result.device_busy_s, result.seconds);
    EXPECT_GT(result.steps, 8 / 4 * 3);
    EXPECT_GT(result.kv_bytes_requested, 0);
    EXPECT_EQ(result.kv_bytes_saved > 0, arm == "relay") << arm;
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(result.answers[i].size(), static_cast<std::size_t>(workload.requests[i].output_len));
  }
}

TEST_F(OfflineRun, begins_with_a_cold_cache_and_has_the_same_counts_again) {
  load();
  const Workload workload = behind_one_prompt(8);
  const OfflineResult first = run(workload, "relay");
  const OfflineResult second = run(workload, "relay");
  EXPECT_EQ(second.cached_tokens, first.cached_tokens);
  EXPECT_EQ(second.kv_bytes_requested, first.kv_bytes_requested);
  EXPECT_EQ(second.kv_bytes_saved, first.kv_bytes_saved);
}

TEST_F(OfflineRun, gives_equal_answers_in_all_arms_in_the_batch_invariant_mode) {
  options_.batch_invariant = true;
  load();
  const Workload workload = behind_one_prompt(8);
  const OfflineResult relay = run(workload, "relay");
  const OfflineResult paged = run(workload, "paged");
  OfflineResult unshared = run(workload, "unshared");
  const OfflineResult* all[] = {&relay, &paged, &unshared};
  EXPECT_EQ(compare_answers(all).n_compared, 8);
  EXPECT_EQ(compare_answers(all).n_equal, 8);
  unshared.answers[3].back() = (unshared.answers[3].back() + 1) % 160;
  unshared.answers[5].clear();  // it did not finish
  EXPECT_EQ(compare_answers(all).n_compared, 7);
  EXPECT_EQ(compare_answers(all).n_equal, 6);
}

TEST_F(OfflineRun, sends_a_turn_when_the_answer_before_it_has_ended) {
  options_.batch_invariant = true;
  load();
  Workload talk;
  talk.requests.push_back({.prompt = tokens_of(40, 1), .output_len = 5});
  talk.requests.push_back({.prompt = tokens_of(30, 2), .output_len = 7});
  talk.requests.push_back({.prompt = tokens_of(9, 3), .output_len = 4, .follows = 0});
  talk.requests.push_back({.prompt = tokens_of(8, 4), .output_len = 6, .follows = 2});
  const OfflineResult result = run(talk, "relay");
  EXPECT_EQ(result.n_requests, 4);
  EXPECT_EQ(result.prompt_tokens, 40 + 30 + (40 + 5 + 9) + (40 + 5 + 9 + 4 + 8));
  // The second turn finds two full blocks of the 44 tokens that the first one computed; the third finds three of 57.
  EXPECT_EQ(result.cached_tokens, 32 + 48);
  // Each turn answers what was said before.
  Workload apart;
  std::vector<TokenId> prompt = talk.requests[0].prompt;
  for (const std::size_t turn : {0, 2, 3}) {
    if (turn > 0) prompt = joined(std::move(prompt), talk.requests[turn].prompt);
    apart.requests.push_back({.prompt = prompt, .output_len = talk.requests[turn].output_len});
    prompt = joined(std::move(prompt), result.answers[turn]);
  }
  const OfflineResult once_more = run(apart, "paged");
  EXPECT_EQ(once_more.answers[0], result.answers[0]);
  EXPECT_EQ(once_more.answers[1], result.answers[2]);
  EXPECT_EQ(once_more.answers[2], result.answers[3]);
  EXPECT_EQ(longest_context(talk), 40 + 5 + 9 + 4 + 8 + 6);
}

TEST_F(OfflineRun, is_cut_by_the_time_limit_and_counts_what_had_finished) {
  load();
  Workload workload = behind_one_prompt(12);
  for (std::size_t i = 0; i < 12; ++i) workload.requests[i].output_len = i < 2 ? 1 : 350;
  const OfflineResult whole = run(workload, "paged");
  const OfflineResult result = run(workload, "paged", whole.seconds / 4);
  EXPECT_TRUE(result.is_cut);
  EXPECT_GE(result.n_requests, 2);
  EXPECT_LT(result.n_requests, 12);
  EXPECT_LT(result.seconds, whole.seconds);
  std::int64_t n_tokens = 0;
  std::int64_t n_finished = 0;
  for (const auto& answer : result.answers) {
    n_tokens += static_cast<std::int64_t>(answer.size());
    n_finished += answer.empty() ? 0 : 1;
  }
  EXPECT_EQ(n_finished, result.n_requests);
  EXPECT_EQ(n_tokens, result.output_tokens);
  EXPECT_GT(result.unfinished_output_tokens, 0);
  EXPECT_TRUE(engine_->is_idle());
  // The engine continues with the next run.
  EXPECT_EQ(run(behind_one_prompt(4), "relay").n_requests, 4);
}

TEST_F(OfflineRun, answers_with_one_of_the_choices) {
  load();
  Workload workload = behind_one_prompt(4);
  for (WorkloadRequest& request : workload.requests) {
    request.output_len = 1;
    request.choices = {7, 21, 90};
  }
  const OfflineResult result = run(workload, "relay");
  for (const auto& answer : result.answers) {
    ASSERT_EQ(answer.size(), 1u);
    EXPECT_TRUE(answer[0] == 7 || answer[0] == 21 || answer[0] == 90) << answer[0];
  }
}

TEST_F(OfflineRun, says_which_request_is_too_long) {
  load();
  Workload workload = behind_one_prompt(1);
  workload.requests[0].prompt = tokens_of(600, 1);
  const auto result = run_offline(*engine_, workload, {.arm = "paged", .salt = "run", .title = "run", .shows_progress = false});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid_request);
  EXPECT_NE(result.error().message.find("600"), std::string::npos) << result.error().message;
}

TEST(WarmUp, takes_first_requests_with_short_answers_of_different_lengths) {
  Workload workload;
  for (std::int32_t i = 0; i < 6; ++i) workload.requests.push_back({.prompt = tokens_of(4, i), .output_len = i == 0 ? 1 : 90});
  workload.requests[1].follows = 0;
  const Workload some = warm_up_of(workload, 4);
  ASSERT_EQ(some.requests.size(), 4u);
  EXPECT_EQ(some.requests[0].output_len, 1);
  EXPECT_EQ(some.requests[1].prompt, workload.requests[2].prompt);
  EXPECT_EQ(some.requests[1].output_len, 3);
  EXPECT_EQ(some.requests[3].output_len, 5);
  EXPECT_EQ(warm_up_of(workload, 100).requests.size(), 5u);
}

}  // namespace
}  // namespace baton
