/// Engine with models of each kind of recurrent layer: the states of short convolutions and of Mamba-2 follow their sequences through
/// chunks of prompts, preemption and slots that others have left.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/held_engine.h"

namespace baton {
namespace {

using testing::AsyncBackend;
using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::make_async_engine;
using testing::make_tiny_engine;
using testing::Pace;
using testing::random_prompt;
using testing::run_requests;

struct StateKind {
  std::string name;
  std::string fields;
  std::int64_t n_numbers;  ///< of a sequence's state
};

const StateKind kStateKinds[] = {
    {"lfm2",
     R"("architectures": ["Lfm2ForCausalLM"], "num_hidden_layers": 4, "full_attn_idxs": [2], "block_ff_dim": 96,
        "block_multiple_of": 16)",
     3 * 2 * 48},
    {"granite",
     R"("architectures": ["GraniteMoeHybridForCausalLM"], "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 3, "mamba_d_head": 32, "mamba_d_state": 16, "num_local_experts": 4, "intermediate_size": 32,
        "shared_intermediate_size": 32)",
     2 * (3 * (96 + 2 * 16) + 3 * 32 * 16)},
    {"nemotron",
     R"("architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M-M*E", "mamba_num_heads": 2,
        "mamba_head_dim": 32, "ssm_state_size": 32, "n_groups": 2, "n_routed_experts": 4, "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 48, "intermediate_size": 80)",
     2 * (3 * (64 + 4 * 32) + 2 * 32 * 32)},
};

class EngineStateKinds : public ::testing::TestWithParam<StateKind> {
 protected:
  static ModelSpec spec() {
    auto spec = parse_model_spec("{" + GetParam().fields + R"(, "hidden_size": 48, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 160, "max_position_embeddings": 2048, "eos_token_id": 2})",
                                 "the model");
    EXPECT_TRUE(spec) << spec.error().message;
    return std::move(*spec);
  }
  static EngineOptions options() {
    return {.batch_invariant = true, .max_num_seqs = 8, .max_num_batched_tokens = 60, .max_model_len = 160};
  }
};

TEST_P(EngineStateKinds, sequences_have_the_same_bits_alone_and_preempted_in_a_crowd) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 14; ++i) {
    Request request = greedy(joined(random_prompt(i % 2, 16 * (i % 2)), random_prompt(50 + i, 3 + 7 * (i % 5))), 90);
    if (i % 3 == 0) request.sampling.stop_ids = random_prompt(i, 6);
    if (i % 5 == 0) request.n_sequences = 2;
    requests.push_back(request);
  }
  std::vector<Generated> expected;
  for (const Request& request : requests) {
    EngineOptions alone = options();
    alone.max_num_batched_tokens = 2048;
    for (Generated& generated : run_requests(*make_tiny_engine(alone, 100, spec(), 1), {request}))
      expected.push_back(std::move(generated));
  }
  const auto cpu = make_tiny_engine(options(), 20, spec(), 1);
  EXPECT_EQ(cpu->info().state_slot_bytes, 4 * GetParam().n_numbers);
  expect_same_bits(run_requests(*cpu, requests), expected, "cpu");
  EXPECT_GT(cpu->metrics().num_preemptions.value(), 0) << "the load was too light to show anything";
  for (const Pace pace : {Pace::late, Pace::random}) {
    AsyncBackend* device = nullptr;
    const auto engine = make_async_engine(options(), 20, pace, spec(), &device);
    expect_same_bits(run_requests(*engine, requests), expected, "pace " + std::to_string(static_cast<int>(pace)));
    EXPECT_GT(engine->metrics().num_preemptions.value(), 0);
    EXPECT_GT(device->n_replays(), 10u) << "decode steps are replayed";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EngineStateKinds, ::testing::ValuesIn(kStateKinds),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace baton
