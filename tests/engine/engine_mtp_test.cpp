/// Drafts of the model's own layer through the engine: answers equal those without them.
#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/grammar_vocabulary.h"
#include "support/mtp_model.h"

namespace baton {
namespace {

using grammar::GrammarKind;
using testing::ForeseeingModel;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::mtp_spec;
using testing::random_prompt;
using testing::recurrent_mtp_spec;
using testing::run_requests;
using testing::token_after;

constexpr SpeculationOptions mtp(std::int32_t n_tokens) { return {.n_tokens = n_tokens, .method = DraftMethod::mtp}; }

class EngineMtp : public testing::EngineOnDevice {
 protected:
  void SetUp() override {
    EngineOnDevice::SetUp();
    if (testing::n_test_ranks() > 1) GTEST_SKIP() << "one rank has the layer for drafts";
  }
  /// An engine of this model on the test's device.
  std::unique_ptr<Engine> engine_of(const ForeseeingModel& model, EngineOptions options, std::int32_t n_blocks = 300) const {
    Result<std::unique_ptr<Backend>> backend =
        make_backend(is_cuda() ? "cuda" : "cpu", {.n_threads = 1, .batch_invariant = options.batch_invariant});
    if (!is_cuda() && std::string(GetParam()) != "cpu") {
      auto made =
          testing::AsyncBackend::make({.n_threads = 1, .batch_invariant = options.batch_invariant}, testing::Pace::late);
      EXPECT_TRUE(made) << made.error().message;
      backend = std::move(*made);
    }
    EXPECT_TRUE(backend) << backend.error().message;
    options.kv_dtype = is_cuda() ? DType::bf16 : DType::f32;
    auto engine = testing::create_tiny_engine(std::move(*backend), options, n_blocks, model.make());
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineMtp, testing::engine_devices(), testing::name_of_device);

std::vector<Request> drafting(std::vector<Request> requests, std::int32_t n_tokens) {
  for (Request& request : requests) request.speculation = mtp(n_tokens);
  return requests;
}

/// Requests with every kind of sampling, few of whose tokens are possible.
std::vector<Request> mixed_crowd(std::uint32_t n) {
  std::mt19937 rng(7);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < n; ++i) {
    Request request = greedy(random_prompt(i % 5, 4 + rng() % 60), 1 + static_cast<std::int32_t>(rng() % 50));
    request.sampling.temperature = i % 3 == 0 ? 0 : 0.8F;
    request.sampling.seed = i;
    if (i % 2 == 0) request.sampling.repetition_penalty = 1.1F;
    if (i % 4 == 1) request.sampling.allowed_ids = random_prompt(900 + i, 5);
    if (i % 3 == 1) request.sampling.stop_ids = {random_prompt(i, 1)[0]};
    if (i % 7 == 0) request.n_sequences = 2;
    if (i % 4 == 0) request.sampling.n_prompt_logprobs = 1;
    requests.push_back(request);
  }
  return requests;
}

TEST_P(EngineMtp, answers_are_those_without_it_whatever_is_asked) {
  const std::vector<Request> requests = mixed_crowd(24);
  for (const bool relay : {true, false}) {
    SCOPED_TRACE(relay ? "relay" : "paged");
    const EngineOptions options{.relay = relay, .batch_invariant = true, .max_num_seqs = 10, .max_num_batched_tokens = 48};
    const auto plain = make_tiny_engine(options, 300, mtp_spec());
    const auto eager = make_tiny_engine(options, 300, mtp_spec());
    testing::expect_same_bits(run_requests(*eager, drafting(requests, 3)), run_requests(*plain, requests));
    const EngineMetrics& metrics = eager->metrics();
    EXPECT_GT(metrics.draft_tokens_by_source[1].value(), 20);
    EXPECT_EQ(metrics.draft_tokens_by_source[1].value(), metrics.spec_decode_num_draft_tokens.value());
    EXPECT_LT(metrics.accepted_tokens_by_source[1].value(), metrics.draft_tokens_by_source[1].value()) << "some are rejected";
    EXPECT_GT(metrics.draft_passes.value(), 0);
    EXPECT_EQ(metrics.kv_blocks_used.value(), 0);
    EXPECT_EQ(plain->metrics().spec_decode_num_draft_tokens.value(), 0) << "no request asked for it";
  }
}

TEST_P(EngineMtp, answers_of_a_model_with_recurrent_layers_are_those_without_it) {
  const std::vector<Request> requests = mixed_crowd(16);
  const EngineOptions options{.batch_invariant = true, .max_num_seqs = 6, .max_num_batched_tokens = 48};
  const auto plain = make_tiny_engine(options, 300, recurrent_mtp_spec());
  const auto eager = make_tiny_engine(options, 300, recurrent_mtp_spec());
  testing::expect_same_bits(run_requests(*eager, drafting(requests, 3)), run_requests(*plain, requests));
  EXPECT_GT(eager->metrics().draft_tokens_by_source[1].value(), 20);
  EXPECT_EQ(eager->metrics().kv_blocks_used.value(), 0);
}

/// The answer of a model whose layers add nothing.
std::vector<TokenId> chain_after(TokenId token, std::int32_t n) {
  std::vector<TokenId> chain;
  for (std::int32_t i = 0; i < n; ++i) chain.push_back(token = token_after(token));
  return chain;
}

TEST_P(EngineMtp, right_drafts_are_all_accepted_and_save_their_steps) {
  for (const auto reads : {ForeseeingModel::Reads::token, ForeseeingModel::Reads::hidden_state}) {
    const ForeseeingModel model(reads);
    for (const std::int32_t k : {1, 2, 5}) {
      SCOPED_TRACE(::testing::Message() << k << " drafts, reads " << static_cast<int>(reads));
      const auto engine = engine_of(model, {.batch_invariant = true, .max_num_batched_tokens = 64});
      std::vector<Request> requests;
      for (std::uint32_t i = 0; i < 6; ++i) requests.push_back(greedy(random_prompt(i, 3 + 17 * i), 61));
      const std::vector<Generated> got = run_requests(*engine, drafting(requests, k));
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].tokens, chain_after(requests[i].prompt.back(), 61));
        EXPECT_EQ(got[i].stats.accepted_tokens, got[i].stats.draft_tokens) << "sequence " << i;
        EXPECT_GE(got[i].stats.accepted_tokens, 45 * k / (k + 1)) << "only beside prompts there may be no room for drafts";
      }
    }
  }
}

TEST_P(EngineMtp, a_prefix_that_is_found_or_pinned_drafts_on) {
  const ForeseeingModel model(ForeseeingModel::Reads::hidden_state);
  const auto engine = engine_of(model, {.batch_invariant = true});
  const std::vector<TokenId> shared = random_prompt(3, 96);
  ASSERT_TRUE(engine->pin(shared));
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    const std::vector<Request> requests{greedy(joined(shared, random_prompt(50, 9)), 40),
                                        greedy(joined(shared, random_prompt(50 + turn, 20)), 40)};
    const std::vector<Generated> got = run_requests(*engine, drafting(requests, 3));
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_GE(got[i].stats.cached_tokens, 96);
      EXPECT_EQ(got[i].tokens, chain_after(requests[i].prompt.back(), 40));
      EXPECT_EQ(got[i].stats.accepted_tokens, got[i].stats.draft_tokens);
      EXPECT_GT(got[i].stats.accepted_tokens, 20);
    }
  }
}

TEST_P(EngineMtp, continues_after_preemptions_and_in_small_steps) {
  const ForeseeingModel model(ForeseeingModel::Reads::token);
  const auto engine = engine_of(model, {.batch_invariant = true, .max_num_batched_tokens = 20, .max_model_len = 160}, 16);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 8; ++i) requests.push_back(greedy(random_prompt(60 + i, 30), 90));
  const std::vector<Generated> got = run_requests(*engine, drafting(requests, 2));
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, chain_after(requests[i].prompt.back(), 90));
    EXPECT_EQ(got[i].stats.accepted_tokens, got[i].stats.draft_tokens);
  }
  EXPECT_GT(engine->metrics().num_preemptions.value(), 0);
  EXPECT_GT(engine->metrics().spec_decode_num_accepted_tokens.value(), 0);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

/// Requests with each source of drafts beside each other, of which some are cancelled in each state.
TEST_P(EngineMtp, lives_beside_other_requests_and_cancellation) {
  const ForeseeingModel model(ForeseeingModel::Reads::hidden_state);
  const auto engine =
      engine_of(model, {.batch_invariant = true, .max_num_seqs = 6, .max_num_batched_tokens = 40, .max_model_len = 200}, 60);
  std::map<testing::SequenceKey, Generated> generated;
  std::map<std::int64_t, std::vector<TokenId>> expected;
  for (std::uint32_t i = 0; i < 30; ++i) {
    Request request = greedy(random_prompt(i % 4, 5 + 7 * (i % 6)), 30);
    if (i % 3 != 0) request.speculation = i % 3 == 1 ? mtp(2) : SpeculationOptions{.n_tokens = 3, .lookup_min = 1};
    const std::vector<TokenId> answer = chain_after(request.prompt.back(), 30);
    const auto id = engine->submit(request);
    ASSERT_TRUE(id);
    expected[id->value] = answer;
    for (std::uint32_t step = 0; step < i % 4; ++step) {
      engine->step();
      engine->check_invariants();
    }
    if (i % 5 == 4) engine->cancel(*id);
    testing::collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  }
  testing::run_to_end(*engine, generated);
  for (const auto& [key, got] : generated) {
    const std::vector<TokenId>& answer = expected[key.first];
    ASSERT_LE(got.tokens.size(), answer.size());
    EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), answer.begin()));
    if (got.finished != FinishReason::abort) {
      EXPECT_EQ(got.tokens, answer);
    }
  }
  EXPECT_GT(engine->metrics().accepted_tokens_by_source[1].value(), 0);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

TEST_P(EngineMtp, stops_where_the_answer_stops) {
  const ForeseeingModel model(ForeseeingModel::Reads::token);
  const auto engine = engine_of(model, {.batch_invariant = true});
  std::vector<Request> requests;
  for (std::int32_t n = 0; n < 7; ++n) {
    requests.push_back(greedy(random_prompt(1, 20), 30));
    requests.back().sampling.stop_ids = {chain_after(requests.back().prompt.back(), n + 1).back()};
  }
  const std::vector<Generated> got = run_requests(*engine, drafting(requests, 3));
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_EQ(got[n].tokens, chain_after(requests[n].prompt.back(), static_cast<std::int32_t>(n)));
    EXPECT_EQ(got[n].finished, FinishReason::stop);
  }
}

TEST_P(EngineMtp, an_answer_keeps_to_its_grammar) {
  const ForeseeingModel model(ForeseeingModel::Reads::token);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    requests.push_back(greedy(random_prompt(i, 12), 40));
    requests.back().constraint = testing::constraint_of(GrammarKind::regex, "[a-z]{3,30}(12)*");
  }
  const EngineOptions options{.batch_invariant = true, .mask_budget = {.time = std::chrono::hours(1)}};
  const std::vector<Generated> expected = run_requests(*engine_of(model, options), requests);
  testing::expect_same_bits(run_requests(*engine_of(model, options), drafting(requests, 3)), expected);
}

TEST_P(EngineMtp, other_models_and_requests_are_refused_by_name) {
  const auto engine = make_tiny_engine({}, 200);
  Request request = greedy(random_prompt(1, 5), 5);
  request.speculation = mtp(2);
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "speculative_config");
  EXPECT_NE(refused.error().message.find("'mtp'"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(engine->info().has_mtp);
  auto backend = make_backend("cpu", {.n_threads = 1});
  ASSERT_TRUE(backend);
  const auto made = testing::create_tiny_engine(std::move(*backend), {.kv_dtype = DType::f32, .speculation = mtp(2)}, 50);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().param, "speculative_config");
}

/// What the benchmark measures with.
TEST_P(EngineMtp, a_simulated_acceptance_decides_how_many_tokens_a_step_gives) {
  for (const double probability : {0.0, 0.5, 1.0}) {
    EngineOptions options{.batch_invariant = true, .speculation = mtp(1), .simulated_acceptance = probability};
    const auto engine = make_tiny_engine(options, 300, mtp_spec());
    std::vector<Request> requests(4, greedy(random_prompt(1, 20), 200));
    std::int64_t n_drafts = 0;
    std::int64_t n_accepted = 0;
    for (const Generated& got : run_requests(*engine, requests)) {
      EXPECT_EQ(got.tokens.size(), 200u);
      n_drafts += got.stats.draft_tokens;
      n_accepted += got.stats.accepted_tokens;
    }
    ASSERT_GT(n_drafts, 0);
    const double share = static_cast<double>(n_accepted) / static_cast<double>(n_drafts);
    EXPECT_NEAR(share, probability, probability == 0.5 ? 0.1 : 0.0);
  }
}

}  // namespace
}  // namespace baton
