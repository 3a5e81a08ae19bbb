/// Drafts with models that have recurrent layers: answers have the bits that they have without drafts, through preemption,
/// cancellation, snapshots and grammars.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/grammar_vocabulary.h"

namespace baton {
namespace {

using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::make_async_engine;
using testing::make_tiny_engine;
using testing::Pace;
using testing::random_prompt;
using testing::recurrent_spec;
using testing::run_requests;
using testing::SequenceKey;

constexpr SpeculationOptions kStateDrafts{.n_tokens = 6, .lookup_max = 3, .lookup_min = 1};

struct DraftingKind {
  std::string name;
  std::string fields;  ///< of the configuration; none: recurrent_spec
};

const DraftingKind kDraftingKinds[] = {
    {"qwen", ""},
    {"lfm2",
     R"("architectures": ["Lfm2ForCausalLM"], "num_hidden_layers": 4, "full_attn_idxs": [2], "block_ff_dim": 96,
        "block_multiple_of": 16)"},
    {"granite",
     R"("architectures": ["GraniteMoeHybridForCausalLM"], "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 3, "mamba_d_head": 32, "mamba_d_state": 16, "num_local_experts": 4, "intermediate_size": 32,
        "shared_intermediate_size": 32)"},
};

EngineOptions drafting_options() {
  return {.batch_invariant = true,
          .max_num_seqs = 8,
          .max_num_batched_tokens = 60,
          .max_model_len = 160,
          .uses_step_times = false};  // times of steps are not tested
}

/// Requests of few different tokens, whose text repeats, with shared prompts and stops; more than there are slots.
std::vector<Request> repeating_requests(bool has_drafts) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 12; ++i) {
    Request request = greedy(joined(random_prompt(i % 2, 48 * (i % 2)), random_prompt(50 + i, 3 + 7 * (i % 5))), 70);
    request.sampling.allowed_ids = random_prompt(900 + i, 4);
    request.sampling.temperature = i % 3 == 0 ? 0 : 0.5F;
    request.sampling.seed = i;
    if (i % 4 == 1) request.sampling.n_top_logprobs = 2;
    if (i % 4 == 3) request.sampling.stop_ids = {request.sampling.allowed_ids[3]};
    if (i % 5 == 0) request.n_sequences = 2;
    if (has_drafts) request.speculation = kStateDrafts;
    requests.push_back(request);
  }
  return requests;
}

class EngineStateDrafts : public ::testing::TestWithParam<DraftingKind> {
 protected:
  static ModelSpec spec() {
    if (GetParam().fields.empty()) return recurrent_spec();
    auto spec = parse_model_spec("{" + GetParam().fields + R"(, "hidden_size": 48, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 160, "max_position_embeddings": 2048, "eos_token_id": 2})",
                                 "the model");
    EXPECT_TRUE(spec) << spec.error().message;
    return std::move(*spec);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EngineStateDrafts, ::testing::ValuesIn(kDraftingKinds),
                         [](const auto& of) { return of.param.name; });

TEST_P(EngineStateDrafts, answers_have_the_bits_they_have_without_drafts) {
  const auto expected = run_requests(*make_tiny_engine(drafting_options(), 200, spec(), 1), repeating_requests(false));
  const auto check_on = [&](Engine& engine, const std::string& name) {
    for (const char* cache : {", cold", ", warm"})
      expect_same_bits(run_requests(engine, repeating_requests(true)), expected, name + cache);
    const EngineMetrics& metrics = engine.metrics();
    EXPECT_GT(metrics.spec_decode_num_accepted_tokens.value(), 50) << name;
    EXPECT_GT(metrics.spec_decode_num_draft_tokens.value(), metrics.spec_decode_num_accepted_tokens.value() + 50)
        << "some must be rejected to show anything";
    EXPECT_EQ(metrics.kv_blocks_used.value(), 0);
  };
  check_on(*make_tiny_engine(drafting_options(), 200, spec(), 1), "cpu");
  for (const Pace pace : {Pace::late, Pace::at_once, Pace::random}) {
    const std::string name = "pace " + std::to_string(static_cast<int>(pace));
    check_on(*make_async_engine(drafting_options(), 200, pace, spec()), name);
    const auto small = make_async_engine(drafting_options(), 20, pace, spec());
    check_on(*small, name + ", small");
    EXPECT_GT(small->metrics().num_preemptions.value(), 0) << "the load was too light to show anything";
  }
}

TEST_P(EngineStateDrafts, drafts_that_are_cancelled_leave_nothing) {
  const auto expected = run_requests(*make_tiny_engine(drafting_options(), 200, spec(), 1), repeating_requests(false));
  for (const Pace pace : {Pace::late, Pace::random}) {
    EngineOptions options = drafting_options();
    options.max_num_seqs = 3;
    const auto engine = make_async_engine(options, 60, pace, spec());
    const std::vector<Request> requests = repeating_requests(true);
    std::map<SequenceKey, Generated> generated;
    std::vector<SequenceKey> keys;
    for (const Request& request : requests) {
      Request other = requests[7];
      other.prompt = random_prompt(7, 30);
      const RequestId cancelled = engine->submit(other).value();
      const RequestId id = engine->submit(request).value();
      for (std::int32_t i = 0; i < request.n_sequences; ++i) keys.push_back({id.value, i});
      for (int i = 0; i < 9; ++i) {
        engine->step();
        engine->check_invariants();
      }
      engine->cancel(cancelled);
    }
    testing::run_to_end(*engine, generated);
    std::vector<Generated> got;
    for (const SequenceKey& key : keys) got.push_back(generated[key]);
    expect_same_bits(got, expected, "pace " + std::to_string(static_cast<int>(pace)));
    EXPECT_GT(engine->metrics().spec_decode_num_accepted_tokens.value(), 50);
    EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
  }
}

/// The other devices have more tests above.
class EngineStateDraftsOnDevice : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineStateDraftsOnDevice, ::testing::Values("cuda"), testing::name_of_device);

TEST_P(EngineStateDraftsOnDevice, answers_have_the_bits_they_have_without_drafts) {
  for (const auto& [enforce_eager, state_dtype] :
       {std::pair(false, DType::f32), std::pair(true, DType::f32), std::pair(false, DType::bf16)}) {
    EngineOptions options = drafting_options();
    options.enforce_eager = enforce_eager;
    options.state_dtype = state_dtype;
    const auto expected = run_requests(*make_tiny_engine(options, 200, recurrent_spec()), repeating_requests(false));
    const auto engine = make_tiny_engine(options, 200, recurrent_spec());
    for (const char* cache : {"cold", "warm"})
      expect_same_bits(run_requests(*engine, repeating_requests(true)), expected, cache);
    EXPECT_GT(engine->metrics().spec_decode_num_accepted_tokens.value(), 50);
  }
}

TEST(EngineStateDraftsOfOne, turns_of_a_conversation_continue_where_the_answer_ended) {
  for (const Pace pace : {Pace::late, Pace::random}) {
    EngineOptions options = drafting_options();
    options.max_num_batched_tokens = 256;
    options.max_model_len = 2048;
    options.snapshot_bytes = 60 * testing::recurrent_state_bytes(DType::f32);
    options.speculation = kStateDrafts;
    const auto engine = make_async_engine(options, 200, pace, recurrent_spec());
    std::vector<TokenId> conversation = random_prompt(1, 200);
    for (std::uint32_t turn = 0; turn < 8; ++turn) {
      conversation = joined(conversation, random_prompt(10 + turn, 30));
      Request request = greedy(conversation, 90);
      request.sampling.allowed_ids = random_prompt(900, 2);
      const Generated answer = run_requests(*engine, {request})[0];
      if (turn > 0) {
        EXPECT_LE(answer.stats.replayed_tokens, 64) << turn;
        EXPECT_GT(answer.stats.cached_tokens, 64 * static_cast<std::int32_t>(turn));
      }
      conversation = joined(conversation, answer.tokens);
    }
    EXPECT_GT(engine->metrics().spec_decode_num_accepted_tokens.value(), 200) << "few snapshots stood beside drafts";
  }
}

TEST(EngineStateDraftsOfOne, text_that_a_grammar_demands_is_drafted) {
  const auto requests = [](bool has_drafts) {
    std::vector<Request> all;
    for (std::uint32_t i = 0; i < 6; ++i) {
      Request request = greedy(random_prompt(i, 13), 60);
      request.sampling.ignore_eos = false;
      request.constraint = testing::constraint_of(
          grammar::GrammarKind::regex, "(name: value value value [a-f]+; null null null [0-9]{3}, ){1,4}", has_drafts);
      all.push_back(request);
    }
    return all;
  };
  const auto plain = make_tiny_engine(drafting_options(), 200, recurrent_spec(), 1);
  const auto expected = run_requests(*plain, requests(false));
  EXPECT_EQ(plain->metrics().spec_decode_num_drafts.value(), 0);
  for (const Pace pace : {Pace::late, Pace::random}) {
    const auto engine = make_async_engine(drafting_options(), 200, pace, recurrent_spec());
    expect_same_bits(run_requests(*engine, requests(true)), expected);
    EXPECT_GT(engine->metrics().spec_decode_num_accepted_tokens.value(), 20);
    EXPECT_EQ(engine->metrics().mask_deferrals.value(), 0) << "a row is computed once";
  }
}

}  // namespace
}  // namespace baton
