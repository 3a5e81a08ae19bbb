/// Every limit of a request, and the field that its error names.
#include "engine/schedule/request_check.h"

#include <malloc.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/batch.h"

namespace baton {
namespace {

constexpr std::array<TokenId, 2> kEos{7, 8};
const RequestLimits kLimits{.max_model_len = 100, .n_vocab = 50, .eos_token_ids = kEos};

Request valid() {
  Request request;
  request.prompt = {1, 2, 3};
  return request;
}

/// The refused field after a change; "" if none is refused.
std::string refused(const std::function<void(Request&)>& change) {
  Request request = valid();
  change(request);
  const auto result = check_request(request, kLimits);
  if (result) return "";
  EXPECT_EQ(result.error().code, ErrorCode::invalid_request);
  EXPECT_FALSE(result.error().message.empty());
  return result.error().param;
}

TEST(RequestCheck, accepts_each_parameter_at_its_limits) {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refused([](Request&) {}), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.temperature = 0; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.temperature = -0.1F; }), "temperature");
  EXPECT_EQ(refused([nan](Request& r) { r.sampling.temperature = nan; }), "temperature");
  EXPECT_EQ(refused([](Request& r) { r.sampling.temperature = INFINITY; }), "temperature");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_p = 1; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_p = 0; }), "top_p");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_p = 1.01F; }), "top_p");
  EXPECT_EQ(refused([nan](Request& r) { r.sampling.top_p = nan; }), "top_p");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_k = 0; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_k = -1; }), "top_k");
  EXPECT_EQ(refused([](Request& r) { r.sampling.n_top_logprobs = kMaxTopLogprobs; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.n_top_logprobs = kMaxTopLogprobs + 1; }), "top_logprobs");
  EXPECT_EQ(refused([](Request& r) { r.sampling.n_top_logprobs = -2; }), "top_logprobs");
  EXPECT_EQ(refused([](Request& r) { r.sampling.n_prompt_logprobs = kMaxTopLogprobs; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.n_prompt_logprobs = kMaxTopLogprobs + 1; }), "prompt_logprobs");
  EXPECT_EQ(refused([](Request& r) { r.n_sequences = kMaxSequencesPerRequest; }), "");
  EXPECT_EQ(refused([](Request& r) { r.n_sequences = kMaxSequencesPerRequest + 1; }), "n");
  EXPECT_EQ(refused([](Request& r) { r.n_sequences = 0; }), "n");
  EXPECT_EQ(refused([](Request& r) { r.tenant = {kMaxTenants - 1, kMaxTenantWeight}; }), "");
  EXPECT_EQ(refused([](Request& r) { r.tenant = {kMaxTenants, 1}; }), "tenant");
  EXPECT_EQ(refused([](Request& r) { r.tenant = {-1, 1}; }), "tenant");
  EXPECT_EQ(refused([](Request& r) { r.tenant = {0, 0}; }), "tenant");
  EXPECT_EQ(refused([](Request& r) { r.tenant = {0, kMaxTenantWeight + 1}; }), "tenant");
  EXPECT_EQ(refused([](Request& r) { r.sampling.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(refused([](Request& r) { r.sampling.max_tokens = 97; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.max_tokens = 98; }), "max_tokens");
  EXPECT_EQ(refused([](Request& r) { r.sampling.max_tokens = std::numeric_limits<std::int32_t>::max(); }), "max_tokens");
  EXPECT_EQ(refused([](Request& r) { r.sampling.min_tokens = 97; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.min_tokens = 98; }), "min_tokens");
  EXPECT_EQ(refused([](Request& r) { r.sampling.min_tokens = -1; }), "min_tokens");
  EXPECT_EQ(refused([](Request& r) { r.prompt = {}; }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.prompt = std::vector<TokenId>(99, 1); }), "");
  EXPECT_EQ(refused([](Request& r) { r.prompt = std::vector<TokenId>(100, 1); }), "prompt");
  const auto scored = [](std::size_t n_prompt) {
    return refused([=](Request& r) {
      r.prompt = std::vector<TokenId>(n_prompt, 1);
      r.sampling.n_prompt_logprobs = 0;
      r.sampling.max_tokens = 0;
    });
  };
  EXPECT_EQ(scored(100), "") << "no room for an answer is needed";
  EXPECT_EQ(scored(101), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.prompt = {50}; }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.prompt = {-1}; }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.sampling.stop_ids = {50}; }), "stop_token_ids");
  EXPECT_EQ(refused([](Request& r) { r.scope.salt_from = -1; }), "cache_salt");
}

TEST(RequestCheck, bounds_penalties_and_min_p) {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refused([](Request& r) { r.sampling.min_p = 1; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.min_p = 1.01F; }), "min_p");
  EXPECT_EQ(refused([](Request& r) { r.sampling.min_p = -0.01F; }), "min_p");
  EXPECT_EQ(refused([nan](Request& r) { r.sampling.min_p = nan; }), "min_p");
  EXPECT_EQ(refused([](Request& r) { r.sampling.repetition_penalty = 0.01F; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(refused([](Request& r) { r.sampling.repetition_penalty = INFINITY; }), "repetition_penalty");
  EXPECT_EQ(refused([](Request& r) { r.sampling.presence_penalty = -2; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.presence_penalty = -2.1F; }), "presence_penalty");
  EXPECT_EQ(refused([nan](Request& r) { r.sampling.presence_penalty = nan; }), "presence_penalty");
  EXPECT_EQ(refused([](Request& r) { r.sampling.frequency_penalty = 2; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.frequency_penalty = 2.1F; }), "frequency_penalty");
}

TEST(RequestCheck, bounds_lists_of_tokens) {
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = {{49, 100}, {0, -100}, {1, -INFINITY}}; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = {{50, 1}}; }), "logit_bias");
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = {{1, 101}}; }), "logit_bias");
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = {{1, INFINITY}}; }), "logit_bias");
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = {{1, NAN}}; }), "logit_bias");
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = {{1, 1}, {2, 1}, {1, 2}}; }), "logit_bias");
  EXPECT_EQ(refused([](Request& r) { r.sampling.logit_bias = std::vector<TokenBias>(kMaxLogitBiases + 1); }), "logit_bias");
  EXPECT_EQ(refused([](Request& r) { r.sampling.allowed_ids = {3, 3, 49}; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.allowed_ids = {50}; }), "allowed_token_ids");
  EXPECT_EQ(refused([](Request& r) { r.sampling.allowed_ids = std::vector<TokenId>(kMaxAllowedIds + 1); }),
            "allowed_token_ids");
  EXPECT_EQ(refused([](Request& r) { r.sampling.bad_words = {{3, 4}, {5}}; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.bad_words = {{3, 50}}; }), "bad_words");
  EXPECT_EQ(refused([](Request& r) { r.sampling.bad_words = {{}}; }), "bad_words");
  EXPECT_EQ(refused([](Request& r) { r.sampling.bad_words = {std::vector<TokenId>(kMaxBadWordTokens + 1, 1)}; }), "bad_words");
  EXPECT_EQ(refused([](Request& r) { r.sampling.bad_words = std::vector<std::vector<TokenId>>(kMaxBadWords + 1, {1}); }),
            "bad_words");
}

TEST(RequestCheck, sorts_what_is_allowed) {
  Request request = valid();
  request.sampling.allowed_ids = {9, 2, 9, 4};
  EXPECT_EQ(make_sequences(request, SequenceOrigin{}, kLimits, 0)[0]->task->sampling.allowed_ids,
            (std::vector<TokenId>{2, 4, 9}));
}

TEST(RequestCheck, makes_sequences_that_share_the_prompt_and_the_lists_of_their_request) {
  Request request = valid();
  request.sampling.logit_bias = {{4, 1}};
  request.sampling.bad_words = {{5, 6}};
  request.sampling.allowed_ids = {2, 4, 9};
  request.sampling.stop_ids = {3};
  request.n_sequences = 2;
  const auto sequences = make_sequences(request, SequenceOrigin{}, kLimits, 0);
  for (const auto& sequence : sequences) {
    const SamplingParams& sampling = sequence->task->sampling;
    EXPECT_EQ(sampling.logit_bias.data(), request.sampling.logit_bias.data());
    EXPECT_EQ(sampling.bad_words.data(), request.sampling.bad_words.data());
    EXPECT_EQ(sampling.allowed_ids.data(), request.sampling.allowed_ids.data());
    EXPECT_EQ(sampling.stop_ids.data(), request.sampling.stop_ids.data());
    EXPECT_EQ(sequence->task->stop_ids.data(), sequences[0]->task->stop_ids.data());
    EXPECT_EQ(sequence->schedule->tokens.data(), request.prompt.data());
  }
}

/// Bytes that are allocated now; 0 where the allocator does not tell (sanitizers).
std::size_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(RequestCheck, a_waiting_sequence_costs_no_copy_of_a_long_request) {
  if (allocated_bytes() == 0) GTEST_SKIP() << "this allocator does not count";
  Request request;
  request.prompt = std::vector<TokenId>(4000, 1);
  request.sampling.allowed_ids = std::vector<TokenId>(kMaxAllowedIds, 1);
  request.sampling.bad_words = std::vector<std::vector<TokenId>>(kMaxBadWords, {1, 2, 3});
  request.sampling.logit_bias = std::vector<TokenBias>(kMaxLogitBiases);
  request.n_sequences = 128;
  const std::size_t before = allocated_bytes();
  const auto sequences = make_sequences(request, SequenceOrigin{}, kLimits, 0);
  EXPECT_LT(allocated_bytes() - before, 128u * 2048u) << "of 128 sequences";
}

TEST(RequestCheck, counts_each_stop_id_once_with_the_models_own) {
  const auto with = [](TokenId first, std::size_t n, bool ignore_eos) {
    return refused([=](Request& r) {
      std::vector<TokenId> ids(n);
      std::iota(ids.begin(), ids.end(), first);
      r.sampling.stop_ids = std::move(ids);
      r.sampling.ignore_eos = ignore_eos;
    });
  };
  EXPECT_EQ(with(20, 14, false), "");
  EXPECT_EQ(with(20, 15, false), "stop_token_ids");
  EXPECT_EQ(with(7, 16, false), "") << "7 and 8 are the model's";
  EXPECT_EQ(with(20, 16, true), "");
  EXPECT_EQ(with(20, 17, true), "stop_token_ids");
}

TEST(RequestCheck, names_the_context_and_what_was_asked_for) {
  Request request = valid();
  request.prompt = std::vector<TokenId>(60, 1);
  request.sampling.max_tokens = 50;
  const std::string both = check_request(request, kLimits).error().message;
  EXPECT_NE(both.find("maximum context length is 100 tokens"), std::string::npos) << both;
  EXPECT_NE(both.find("110 tokens (60 in the prompt, 50 in the completion)"), std::string::npos) << both;
  request.prompt = std::vector<TokenId>(130, 1);
  const std::string alone = check_request(request, kLimits).error().message;
  EXPECT_NE(alone.find("maximum context length is 100 tokens"), std::string::npos) << alone;
  EXPECT_NE(alone.find("130 tokens"), std::string::npos) << alone;
}

TEST(RequestCheck, makes_one_sequence_each_with_its_own_seed) {
  Request request = valid();
  request.n_sequences = 3;
  request.sampling.seed = 10;
  request.sampling.max_tokens = 5;
  request.sampling.stop_ids = {8, 9};
  request.deadline = std::chrono::milliseconds(30);
  const Sequence::Clock::time_point arrived{std::chrono::seconds(2)};
  const auto sequences = make_sequences(request, {RequestId{4}, SequenceId{8}, arrived}, kLimits, 77);
  ASSERT_EQ(sequences.size(), 3u);
  for (std::int32_t i = 0; i < 3; ++i) {
    const Sequence& sequence = *sequences[static_cast<std::size_t>(i)];
    EXPECT_EQ(sequence.task->id, SequenceId{8 + i});
    EXPECT_EQ(sequence.task->submitted, arrived);
    EXPECT_EQ(sequence.task->deadline, arrived + std::chrono::milliseconds(30));
    EXPECT_EQ(sequence.schedule->tokens, request.prompt);
    EXPECT_EQ(sequence.task->request, RequestId{4});
    EXPECT_EQ(sequence.task->index, i);
    EXPECT_EQ(sequence.task->sampling.seed, 10u + static_cast<std::uint64_t>(i));
    EXPECT_EQ(sequence.task->max_len, 8);
    EXPECT_EQ(sequence.task->stop_ids, (std::vector<TokenId>{7, 8, 9}));
  }
}

TEST(RequestCheck, draws_seeds_that_depend_on_engine_and_request) {
  const auto seed_of = [](std::int64_t request, std::uint64_t engine) {
    return *make_sequences(valid(), {RequestId{request}, SequenceId{0}, {}}, kLimits, engine)[0]->task->sampling.seed;
  };
  EXPECT_EQ(seed_of(1, 5), seed_of(1, 5));
  EXPECT_NE(seed_of(1, 5), seed_of(2, 5));
  EXPECT_NE(seed_of(1, 5), seed_of(1, 6));
}

TEST(RequestCheck, fills_in_the_rest_of_the_context_and_takes_tiny_temperatures_as_greedy) {
  Request request = valid();
  request.sampling.temperature = 1e-7F;
  request.sampling.ignore_eos = true;
  const auto sequence = std::move(make_sequences(request, SequenceOrigin{}, kLimits, 0)[0]);
  EXPECT_EQ(sequence->task->max_len, 100);
  EXPECT_EQ(sequence->task->sampling.temperature, 0);
  EXPECT_TRUE(sequence->task->stop_ids.empty());
}

}  // namespace
}  // namespace baton
