/// Sampling options through the engine, which plans a step before it knows the tokens of the previous step.
#include <algorithm>
#include <cmath>
#include <map>
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

class EngineSampling : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineSampling, testing::engine_devices(), testing::name_of_device);

Request asked(std::uint32_t seed, std::size_t n_prompt, std::int32_t max_tokens) {
  Request request = greedy(random_prompt(seed, n_prompt), max_tokens);
  request.sampling.n_top_logprobs = kMaxTopLogprobs;
  return request;
}

/// Checks that each token is the best of the most likely ones after penalties, counted here from the beginning.
void expect_penalised(const Request& request, const Generated& generated) {
  const SamplingParams& sampling = request.sampling;
  std::map<TokenId, int> answer;
  std::map<TokenId, int> prompt;
  for (const TokenId token : request.prompt) ++prompt[token];
  int n_moved = 0;
  for (std::size_t i = 0; i < generated.tokens.size(); ++i) {
    const std::vector<TokenLogprob>& top = generated.top[i];
    // These values are log-probabilities: logits without a constant. A repetition penalty depends on the logits' sign,
    // so other tests cover it.
    const auto score = [&](const TokenLogprob& token) {
      const int count = answer[token.token];
      return token.logprob -
             (count > 0 ? sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(count) : 0);
    };
    const TokenLogprob& best = *std::ranges::max_element(top, {}, score);
    if (score(best) < top.back().logprob) continue;  // a token outside the list may have won
    EXPECT_EQ(generated.tokens[i], best.token) << "at token " << i;
    n_moved += best.token != top[0].token ? 1 : 0;
    ++answer[generated.tokens[i]];
  }
  EXPECT_GT(n_moved, 0) << "the penalty moved nothing";
}

TEST_P(EngineSampling, penalties_count_the_token_in_flight) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 6; ++i) {
    requests.push_back(asked(30 + i, 5 + 9 * i, 60));
    requests.back().sampling.presence_penalty = i % 2 == 0 ? 0.05F : 0;
    requests.back().sampling.frequency_penalty = 0.02F * static_cast<float>(i + 1);
  }
  const auto engine = make_tiny_engine({}, 200);
  const std::vector<Generated> generated = run_requests(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(generated[i].tokens.size(), 60u);
    expect_penalised(requests[i], generated[i]);
  }
}

TEST_P(EngineSampling, a_strong_penalty_repeats_nothing) {
  Request request = asked(1, 20, 100);
  request.sampling.repetition_penalty = 1e6F;  // moves negative logits far down and positive ones to 0
  request.sampling.presence_penalty = 2;
  request.sampling.logit_bias = {{1, 100}};  // would always be chosen; it is not in the prompt
  const auto engine = make_tiny_engine({}, 200);
  const std::vector<TokenId> tokens = run_requests(*engine, {request})[0].tokens;
  EXPECT_EQ(std::ranges::count(tokens, 1), 1);
}

TEST_P(EngineSampling, penalties_continue_after_a_preemption) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    requests.push_back(asked(60 + i, 30, 90));
    requests.back().sampling.frequency_penalty = 0.1F;
    requests.back().sampling.temperature = 1;
    requests.back().sampling.seed = i;
  }
  const EngineOptions options{.batch_invariant = true, .max_model_len = 160};
  const auto roomy = make_tiny_engine(options, 200);
  const auto tight = make_tiny_engine(options, 16);
  const std::vector<Generated> expected = run_requests(*roomy, requests);
  const std::vector<Generated> got = run_requests(*tight, requests);
  EXPECT_GT(tight->metrics().num_preemptions.value(), 0);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i].tokens, expected[i].tokens) << i;
}

bool contains(const std::vector<TokenId>& tokens, const std::vector<TokenId>& word) {
  return !std::ranges::search(tokens, word).empty();
}

TEST_P(EngineSampling, bad_words_of_any_length_do_not_come) {
  const auto engine = make_tiny_engine({}, 200);
  Request request = asked(7, 40, 80);
  std::vector<TokenId> tokens = run_requests(*engine, {request})[0].tokens;
  std::vector<std::vector<TokenId>> bad_words;
  // Repeatedly bans what was generated, in pieces of one to four tokens.
  for (std::size_t n = 1; n <= 12; ++n) {
    const auto len = static_cast<std::ptrdiff_t>(n % 4 + 1);
    bad_words.emplace_back(tokens.begin() + 10, tokens.begin() + 10 + len);
    EXPECT_TRUE(contains(tokens, bad_words.back()));
    request.sampling.bad_words = bad_words;
    tokens = run_requests(*engine, {request})[0].tokens;
    ASSERT_EQ(tokens.size(), 80u);
    for (const std::vector<TokenId>& word : bad_words) EXPECT_FALSE(contains(tokens, word));
  }
}

TEST_P(EngineSampling, only_what_is_allowed_comes) {
  const auto engine = make_tiny_engine({}, 200);
  Request request = asked(7, 40, 50);
  request.sampling.temperature = 2;
  request.sampling.allowed_ids = {90, 17, 33};
  request.sampling.bad_words = {{17, 17}, {90, 33}};
  const std::vector<TokenId> tokens = run_requests(*engine, {request})[0].tokens;
  ASSERT_EQ(tokens.size(), 50u);
  for (const TokenId token : tokens) EXPECT_TRUE(token == 90 || token == 17 || token == 33) << token;
  EXPECT_FALSE(contains(tokens, {17, 17}));
  EXPECT_FALSE(contains(tokens, {90, 33}));
}

TEST_P(EngineSampling, ends_where_no_token_may_follow) {
  const auto engine = make_tiny_engine({}, 200);
  Request request = asked(7, 40, 50);
  request.sampling.allowed_ids = {17, 33};
  request.sampling.bad_words = {{17, 17}, {17, 33}, {33, 33, 33}, {33, 17}};
  const Generated got = run_requests(*engine, {request})[0];
  EXPECT_LE(got.tokens.size(), 2u);
  EXPECT_EQ(got.finished, FinishReason::stop);
  EXPECT_FALSE(got.stop_id);
}

TEST_P(EngineSampling, gives_the_same_tokens_alone_and_in_a_batch_whatever_is_asked) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 10; ++i) {
    requests.push_back(asked(200 + i, 10 + 7 * i, 40));
    SamplingParams& sampling = requests.back().sampling;
    sampling.temperature = 0.5F + 0.1F * static_cast<float>(i);
    sampling.seed = 1000 + i;
    sampling.min_p = i % 2 == 0 ? 0.05F : 0;
    sampling.top_p = i % 3 == 0 ? 0.9F : 1;
    sampling.top_k = i % 4 == 0 ? 30 : 0;
    sampling.repetition_penalty = 1 + 0.02F * static_cast<float>(i);
    sampling.frequency_penalty = 0.1F;
    sampling.logit_bias = {{static_cast<TokenId>(10 + i), 0.5F}};
    sampling.bad_words = {{static_cast<TokenId>(40 + i)}};
  }
  const auto together = make_tiny_engine({.batch_invariant = true}, 400);
  const std::vector<Generated> expected = run_requests(*together, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto alone = make_tiny_engine({.batch_invariant = true}, 400);
    const Generated got = run_requests(*alone, {requests[i]})[0];
    EXPECT_EQ(got.tokens, expected[i].tokens) << i;
    EXPECT_EQ(got.logprobs, expected[i].logprobs) << i;
  }
}

/// The log-probability of each token of the prompt but the first, from one request for each.
std::vector<float> scores_one_by_one(Engine& engine, const std::vector<TokenId>& prompt) {
  std::vector<Request> requests;
  for (std::size_t n = 1; n < prompt.size(); ++n) {
    requests.push_back(greedy({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n)}, 1));
    requests.back().sampling.allowed_ids = {prompt[n]};
  }
  std::vector<float> scores;
  for (const Generated& generated : run_requests(engine, requests)) scores.push_back(generated.logprobs.at(0));
  return scores;
}

void expect_scores(const Generated& generated, const std::vector<TokenId>& prompt, const std::vector<float>& expected,
                   float tolerance) {
  ASSERT_EQ(generated.prompt_scores.size(), prompt.size() - 1);
  for (std::size_t i = 0; i + 1 < prompt.size(); ++i) {
    const TokenOutput& score = generated.prompt_scores[i];
    EXPECT_EQ(score.token, prompt[i + 1]) << i;
    EXPECT_NEAR(*score.logprob, expected[i], 1e-4F + tolerance) << i;
    ASSERT_EQ(score.top_logprobs.size(), 3u) << i;
    EXPECT_EQ(score.rank == 1, score.top_logprobs[0].token == score.token) << i;
  }
}

TEST_P(EngineSampling, scores_the_prompt_whatever_is_cached_and_however_it_is_cut) {
  const auto engine = make_tiny_engine({}, 200);
  const std::vector<TokenId> prompt = random_prompt(12, 75);
  const std::vector<float> expected = scores_one_by_one(*engine, prompt);
  Request request = greedy(prompt, 4);
  request.sampling.n_prompt_logprobs = 3;
  request.n_sequences = 2;
  const std::vector<Generated> warm = run_requests(*engine, {request});
  expect_scores(warm[0], prompt, expected, logprob_tolerance());
  EXPECT_EQ(warm[0].tokens.size(), 4u);
  expect_same_tokens(warm[0], run_requests(*engine, {greedy(prompt, 4)})[0]);
  EXPECT_TRUE(warm[1].prompt_scores.empty()) << "once is enough";
  const auto chunked = make_tiny_engine({.max_num_seqs = 4, .max_num_batched_tokens = 7}, 200);
  const std::vector<Generated> chunks = run_requests(*chunked, {request, greedy(random_prompt(1, 30), 20)});
  expect_scores(chunks[0], prompt, expected, logprob_tolerance());
  EXPECT_GT(chunks[0].n_events, 10);
}

TEST_P(EngineSampling, scores_a_prompt_and_generates_nothing) {
  const auto engine = make_tiny_engine({.max_model_len = 75}, 200);
  const std::vector<TokenId> prompt = random_prompt(12, 75);
  Request request = greedy(prompt, 0);
  request.sampling.n_prompt_logprobs = 3;
  const std::vector<Generated> generated = run_requests(*engine, {request, request});
  for (const Generated& one : generated) {
    EXPECT_EQ(one.prompt_scores.size(), 74u);
    EXPECT_TRUE(one.tokens.empty());
    EXPECT_EQ(one.finished, FinishReason::length);
  }
  EXPECT_EQ(engine->metrics().finished_length.value(), 2);
}

TEST_P(EngineSampling, scores_each_token_once_through_preemptions) {
  const EngineOptions options{.max_num_batched_tokens = 12, .max_model_len = 160};
  const auto tight = make_tiny_engine(options, 16);
  const auto roomy = make_tiny_engine({}, 200);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 5; ++i) {
    prompts.push_back(random_prompt(40 + i, 60));
    requests.push_back(greedy(prompts.back(), 40));
    requests.back().sampling.n_prompt_logprobs = 3;
  }
  const std::vector<Generated> got = run_requests(*tight, requests);
  EXPECT_GT(tight->metrics().num_preemptions.value(), 0);
  for (std::size_t i = 0; i < requests.size(); ++i)
    expect_scores(got[i], prompts[i], scores_one_by_one(*roomy, prompts[i]), logprob_tolerance());
}

/// A request with random options, all of which affect the result.
Request random_request(std::mt19937& random) {
  const auto chance = [&](unsigned n) { return random() % n == 0; };
  const auto token = [&] { return static_cast<TokenId>(3 + random() % 157); };
  Request request = greedy(joined(random_prompt(random() % 3, 48), random_prompt(random(), 1 + random() % 30)),
                           static_cast<std::int32_t>(1 + random() % 70));
  SamplingParams& sampling = request.sampling;
  request.n_sequences = chance(4) ? 3 : 1;
  sampling.temperature = chance(3) ? 0 : 0.3F + 0.1F * static_cast<float>(random() % 12);
  sampling.seed = random();
  if (chance(3)) sampling.top_k = static_cast<std::int32_t>(1 + random() % 60);
  if (chance(3)) sampling.top_p = 0.5F + 0.04F * static_cast<float>(random() % 12);
  if (chance(3)) sampling.min_p = 0.02F * static_cast<float>(random() % 10);
  if (chance(2)) sampling.repetition_penalty = 0.8F + 0.1F * static_cast<float>(random() % 8);
  if (chance(2)) sampling.presence_penalty = 0.25F * static_cast<float>(random() % 9) - 1;
  if (chance(2)) sampling.frequency_penalty = 0.25F * static_cast<float>(random() % 9) - 1;
  std::vector<TokenBias> biases;
  for (TokenId id = 3; id < 160 && chance(2); id += static_cast<TokenId>(1 + random() % 20))
    biases.push_back({id, static_cast<float>(random() % 9) - 4});
  sampling.logit_bias = std::move(biases);
  std::vector<std::vector<TokenId>> bad_words;
  for (int i = 0; i < 12 && chance(2); ++i) bad_words.push_back({token()});
  if (chance(3)) sampling.allowed_ids = {5, 17, 20, 41, 42, 77, 120, 150};
  for (const TokenId id : sampling.allowed_ids) {
    if (!sampling.allowed_ids.empty() && chance(3)) bad_words.push_back({id, sampling.allowed_ids[random() % 8]});
  }
  sampling.bad_words = std::move(bad_words);
  if (chance(3)) sampling.stop_ids = {17, 42, token()};
  if (chance(3)) sampling.min_tokens = static_cast<std::int32_t>(random() % static_cast<unsigned>(*sampling.max_tokens + 1));
  if (chance(4)) sampling.n_prompt_logprobs = 2;
  return request;
}

TEST_P(EngineSampling, a_random_crowd_in_a_tight_cache_gets_what_each_gets_alone) {
  const EngineOptions options{.batch_invariant = true, .max_num_seqs = 12, .max_num_batched_tokens = 40, .max_model_len = 160};
  const auto tight = make_tiny_engine(options, 16);
  const auto roomy = make_tiny_engine(options, 200);
  std::mt19937 random(2026);
  std::vector<Request> requests;
  for (int i = 0; i < 80; ++i) requests.push_back(random_request(random));
  const std::vector<Generated> crowd = run_requests(*tight, requests);
  EXPECT_GT(tight->metrics().num_preemptions.value(), 0);
  std::size_t at = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (const Generated& alone : run_requests(*roomy, {requests[i]})) {
      SCOPED_TRACE(i);
      const Generated& got = crowd[at++];
      EXPECT_EQ(got.tokens, alone.tokens);
      EXPECT_EQ(got.logprobs, alone.logprobs);
      EXPECT_EQ(got.finished, alone.finished);
      EXPECT_EQ(got.stop_id, alone.stop_id);
      ASSERT_EQ(got.prompt_scores.size(), alone.prompt_scores.size());
      for (std::size_t s = 0; s < got.prompt_scores.size(); ++s)
        EXPECT_EQ(got.prompt_scores[s].logprob, alone.prompt_scores[s].logprob) << s;
    }
  }
}

TEST_P(EngineSampling, eight_sequences_of_a_prompt_share_its_blocks) {
  const auto engine = make_tiny_engine({}, 200);
  Request request = asked(3, 500, 8);
  request.n_sequences = 8;
  request.sampling.temperature = 1;
  request.sampling.seed = 1;
  const std::vector<Generated> generated = run_requests(*engine, {request});
  const std::int64_t whole_blocks = 500 / 16 * 16;
  EXPECT_EQ(generated[0].stats.cached_tokens, 0);
  for (std::size_t i = 1; i < 8; ++i) {
    EXPECT_EQ(generated[i].stats.cached_tokens, whole_blocks) << i;
    // A GPU reads such a short prompt again from its L2.
    if (!is_cuda()) {
      EXPECT_EQ(generated[i].stats.largest_group, 8) << i;
    }
    EXPECT_NE(generated[i].tokens, generated[0].tokens) << i;
  }
  EXPECT_EQ(engine->metrics().prefix_cache_hits.value(), 7 * whole_blocks);
}

}  // namespace
}  // namespace baton
