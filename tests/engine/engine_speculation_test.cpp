/// Speculation through the engine: tokens, log-probabilities and ends equal those without it.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;

class EngineSpeculation : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineSpeculation, testing::engine_devices(), testing::name_of_device);

constexpr SpeculationOptions kEager{.n_tokens = 6, .lookup_max = 3, .lookup_min = 1};

std::vector<Request> with(std::vector<Request> requests, const SpeculationOptions& speculation) {
  for (Request& request : requests) request.speculation = speculation;
  return requests;
}

void expect_equal(const std::vector<Generated>& got, const std::vector<Generated>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "sequence " << i);
    EXPECT_EQ(got[i].tokens, expected[i].tokens);
    EXPECT_EQ(got[i].logprobs, expected[i].logprobs) << "bit for bit";
    EXPECT_EQ(got[i].finished, expected[i].finished);
    EXPECT_EQ(got[i].stop_id, expected[i].stop_id);
    EXPECT_EQ(got[i].stop_logprob, expected[i].stop_logprob);
    EXPECT_EQ(got[i].stats.completion_tokens, expected[i].stats.completion_tokens);
    ASSERT_EQ(got[i].top.size(), expected[i].top.size());
    for (std::size_t t = 0; t < got[i].top.size(); ++t) {
      ASSERT_EQ(got[i].top[t].size(), expected[i].top[t].size());
      for (std::size_t k = 0; k < got[i].top[t].size(); ++k) {
        EXPECT_EQ(got[i].top[t][k].token, expected[i].top[t][k].token);
        EXPECT_EQ(got[i].top[t][k].logprob, expected[i].top[t][k].logprob);
      }
    }
  }
}

/// The metrics agree with the sequences' own counts.
std::int64_t n_accepted(const Engine& engine, const std::vector<Generated>& generated) {
  const EngineMetrics& metrics = engine.metrics();
  std::int64_t drafts = 0, accepted = 0, of_places = 0;
  for (const Generated& sequence : generated) {
    drafts += sequence.stats.draft_tokens;
    accepted += sequence.stats.accepted_tokens;
  }
  for (const Count& count : metrics.spec_decode_num_accepted_tokens_per_pos) of_places += count.value();
  EXPECT_EQ(metrics.spec_decode_num_draft_tokens.value(), drafts);
  EXPECT_EQ(metrics.spec_decode_num_accepted_tokens.value(), accepted);
  EXPECT_EQ(of_places, accepted);
  EXPECT_LE(metrics.spec_decode_num_drafts.value(), drafts);
  return accepted;
}

std::vector<Request> repetitive() {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 5; ++i) {
    const std::vector<TokenId> phrase = random_prompt(50 + i, 7);
    requests.push_back(greedy(joined(joined(phrase, phrase), random_prompt(i, 3 + 20 * i)), 60 + static_cast<std::int32_t>(i)));
    requests.back().sampling.n_top_logprobs = 3;
  }
  return requests;
}

TEST_P(EngineSpeculation, greedy_tokens_are_those_without_it_and_drafts_are_accepted) {
  for (const bool relay : {true, false}) {
    SCOPED_TRACE(relay ? "relay" : "paged");
    const EngineOptions options{.relay = relay, .batch_invariant = true};
    const auto plain = make_tiny_engine(options, 200);
    const auto eager = make_tiny_engine(options, 200);
    const std::vector<Generated> expected = run_requests(*plain, repetitive());
    const std::vector<Generated> got = run_requests(*eager, with(repetitive(), kEager));
    expect_equal(got, expected);
    EXPECT_GT(n_accepted(*eager, got), 0) << "a greedy tiny model repeats itself";
    EXPECT_EQ(n_accepted(*plain, expected), 0);
    EXPECT_EQ(plain->metrics().spec_decode_num_drafts.value(), 0) << "no request asked for it";
    EXPECT_EQ(eager->metrics().kv_blocks_used.value(), 0);
  }
}

/// Requests that use every sampling option.
std::vector<Request> sampled_crowd() {
  std::mt19937 rng(5);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 24; ++i) {
    Request request = greedy(random_prompt(i, 4 + rng() % 60), 1 + static_cast<std::int32_t>(rng() % 60));
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 3 == 0 ? 0 : 0.7F;
    sampling.seed = i;
    sampling.allowed_ids = random_prompt(900 + i, 6);  // few, so that the text repeats
    sampling.n_top_logprobs = static_cast<std::int32_t>(rng() % 3) - 1;
    if (i % 2 == 0) sampling.repetition_penalty = 1.02F;
    if (i % 4 == 1) sampling.frequency_penalty = 0.01F, sampling.presence_penalty = 0.02F;
    if (i % 5 == 0) sampling.logit_bias = {{sampling.allowed_ids[0], 1.5F}, {sampling.allowed_ids[1], -1}};
    if (i % 4 == 2) sampling.bad_words = {{sampling.allowed_ids[0], sampling.allowed_ids[1]}, {sampling.allowed_ids[2]}};
    if (i % 3 == 1) sampling.stop_ids = {sampling.allowed_ids[5]};
    if (i % 6 == 1) sampling.min_tokens = std::min(20, *sampling.max_tokens);
    if (i % 5 == 2) sampling.top_k = 4, sampling.top_p = 0.9F, sampling.min_p = 0.05F;
    if (i % 7 == 0) request.n_sequences = 3;
    if (i % 4 == 0) sampling.n_prompt_logprobs = 1;
    requests.push_back(request);
  }
  return requests;
}

TEST_P(EngineSpeculation, sampled_tokens_are_those_without_it_whatever_is_asked) {
  const std::vector<Request> requests = sampled_crowd();
  for (const bool relay : {true, false}) {
    SCOPED_TRACE(relay ? "relay" : "paged");
    const EngineOptions options{.relay = relay, .batch_invariant = true, .max_num_seqs = 12};
    const auto plain = make_tiny_engine(options, 300);
    const auto eager = make_tiny_engine(options, 300);
    const std::vector<Generated> expected = run_requests(*plain, requests);
    const std::vector<Generated> got = run_requests(*eager, with(requests, kEager));
    expect_equal(got, expected);
    EXPECT_GT(n_accepted(*eager, got), 20);
    EXPECT_GT(eager->metrics().spec_decode_num_draft_tokens.value(), eager->metrics().spec_decode_num_accepted_tokens.value())
        << "some must be rejected to show anything";
  }
}

TEST_P(EngineSpeculation, continues_after_preemptions_and_in_small_steps) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 8; ++i) {
    requests.push_back(greedy(random_prompt(60 + i, 30), 90));
    requests.back().sampling.allowed_ids = random_prompt(i, 4);
    requests.back().sampling.temperature = 1;
    requests.back().sampling.seed = i;
    requests.back().sampling.frequency_penalty = 0.01F;
  }
  EngineOptions options{.batch_invariant = true, .max_model_len = 160};
  const auto roomy = make_tiny_engine(options, 200);
  options.max_num_batched_tokens = 9;  // a batch of eight leaves one of them
  const auto tight = make_tiny_engine(options, 16);
  const std::vector<Generated> expected = run_requests(*roomy, requests);
  const std::vector<Generated> got = run_requests(*tight, with(requests, kEager));
  expect_equal(got, expected);
  EXPECT_GT(tight->metrics().num_preemptions.value(), 0);
  EXPECT_GT(n_accepted(*tight, got), 0);
  EXPECT_EQ(tight->metrics().kv_blocks_used.value(), 0);
}

TEST_P(EngineSpeculation, a_repetition_takes_fewer_steps) {
  Request request = greedy(random_prompt(1, 40), 60);
  request.sampling.logit_bias = {{7, kMaxBias}};  // only this token is sampled
  const auto engine = make_tiny_engine({}, 200);
  const Generated got = run_requests(*engine, with({request}, kEager))[0];
  EXPECT_EQ(got.tokens, std::vector<TokenId>(60, 7));
  EXPECT_LE(engine->metrics().steps.value(), 50) << "at least the first drafts are made at once and accepted";
}

/// On an asynchronous device a sequence that waits for its own token does not take others out of the pipeline.
TEST(EngineSpeculationOnTheDevice, continues_with_a_step_in_flight_while_one_of_two_sequences_drafts) {
  Request repeating = greedy(random_prompt(1, 40), 60);
  repeating.sampling.logit_bias = {{7, kMaxBias}};  // only this token is sampled
  repeating.speculation = kEager;
  const Request other = greedy(random_prompt(2, 40), 60);
  testing::AsyncBackend* device = nullptr;
  const auto engine = testing::make_async_engine({}, 200, testing::Pace::late, testing::tiny_spec(), &device);
  const auto expected = run_requests(*testing::make_tiny_engine({}, 200), {other})[0];
  ASSERT_TRUE(engine->submit(repeating));
  ASSERT_TRUE(engine->submit(other));
  const testing::SequenceKey of_repeating{0, 0};
  const testing::SequenceKey of_other{1, 0};
  std::map<testing::SequenceKey, Generated> generated;
  for (int step = 0; step < 50; ++step) {
    ASSERT_TRUE(engine->step());
    engine->check_invariants();
    testing::collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
    EXPECT_LT(device->n_run(), device->n_enqueued()) << "nothing is in flight after step " << step;
    EXPECT_EQ(generated[of_other].tokens.size(), static_cast<std::size_t>(step)) << "a token in every step";
  }
  testing::run_to_end(*engine, generated);
  EXPECT_EQ(generated[of_repeating].tokens, std::vector<TokenId>(60, 7));
  EXPECT_GT(generated[of_repeating].stats.accepted_tokens, 30);
  EXPECT_EQ(generated[of_other].tokens, expected.tokens);
  EXPECT_EQ(generated[of_other].logprobs, expected.logprobs);
}

TEST_P(EngineSpeculation, the_engines_setting_holds_for_requests_that_do_not_say) {
  EngineOptions options{.batch_invariant = true, .speculation = kEager};
  const auto engine = make_tiny_engine(options, 200);
  const auto repeats = [&](const std::vector<Request>& requests) {
    const std::int64_t before = engine->metrics().spec_decode_num_drafts.value();
    run_requests(*engine, requests);
    return engine->metrics().spec_decode_num_drafts.value() - before;
  };
  EXPECT_GT(repeats(repetitive()), 0);
  EXPECT_EQ(repeats(with(repetitive(), {.n_tokens = 0})), 0) << "a request may ask for none";
}

TEST_P(EngineSpeculation, refuses_what_is_out_of_range) {
  const auto engine = make_tiny_engine({}, 200);
  Request request = greedy(random_prompt(1, 5), 5);
  request.speculation = {.n_tokens = 99};
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "speculative_config");
}

/// Another request may find tokens in the cache only if they were accepted.
TEST_P(EngineSpeculation, caches_no_block_with_a_rejected_token) {
  const EngineOptions options{.batch_invariant = true};
  const auto plain = make_tiny_engine(options, 200);
  const auto eager = make_tiny_engine(options, 200);
  for (std::uint32_t i = 0; i < 6; ++i) {
    Request first = greedy(random_prompt(i, 20), 70);
    first.sampling.allowed_ids = random_prompt(40 + i, 5);
    first.sampling.temperature = 1;
    first.sampling.seed = i;
    std::vector<TokenId> answer = run_requests(*eager, with({first}, kEager))[0].tokens;
    answer.pop_back();
    const Request next = greedy(joined(joined({first.prompt.begin(), first.prompt.end()}, answer), random_prompt(i, 3)), 20);
    const std::vector<Generated> got = run_requests(*eager, with({next}, kEager));
    EXPECT_GT(got[0].stats.cached_tokens, 64) << "what was generated is found";
    expect_equal(got, run_requests(*plain, {next}));
  }
}

/// A sequence that drafts has each step committed before the next plan. The prefix ends in such a commit, and the plan admits a
/// request that needs the rest of the cache, and more.
TEST_P(EngineSpeculation, leaves_a_prefix_its_blocks_when_it_ends_before_a_plan) {
  const EngineOptions options{
      .batch_invariant = true, .max_num_seqs = 2, .max_model_len = 128, .has_priorities = true, .speculation = kEager};
  const auto engine = make_tiny_engine(options, 16);
  Request drafting = greedy(joined(random_prompt(1, 8), random_prompt(1, 8)), 40);
  Request large = greedy(random_prompt(2, 120), 8);
  large.priority = 1;
  const auto first = engine->submit(drafting);
  const auto last = engine->submit(large);
  ASSERT_TRUE(first && last);
  const auto prefix = engine->pin(random_prompt(3, 112));
  ASSERT_TRUE(prefix) << prefix.error().message;
  EXPECT_EQ(prefix->n_pinned_tokens, 112);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 7);
  engine->check_invariants();
}

}  // namespace
}  // namespace baton
