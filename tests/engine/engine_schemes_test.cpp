/// Weights in 8 and 4 bits in the engine, on the CPU: with batch_invariant the same bits relayed and paged, with a cold
/// and a warm cache, alone and in a batch, in one step and in chunks, with a cache of 32 and of 16 bits; and those in
/// integers with activations in int8.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/source/safetensors.h"
#include "support/changed_checkpoint.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;

constexpr std::int32_t kSchemeBlocks = 160;
constexpr std::int32_t kSchemeLength = 384;  // of the longest sequence: more than one chunk of attention

/// A checkpoint of tests/goldens/quantised, or random weights that are rounded.
struct SchemeCase {
  std::string name;
  WeightRounding rounding;
  bool has_int8_x = false;  ///< activations are rounded to 8 bits
  bool is_latent = false;   ///< rounded weights of latent attention
};

/// Rows of more than one group of 128, and of an odd number of groups of 32.
ModelSpec rounded_spec(bool is_latent) {
  if (is_latent)
    return parse_model_spec(R"({"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2, "hidden_size": 256,
        "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 160, "kv_lora_rank": 256, "qk_nope_head_dim": 40,
        "qk_rope_head_dim": 64, "v_head_dim": 48, "intermediate_size": 384, "moe_intermediate_size": 128,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
        "vocab_size": 64, "max_position_embeddings": 2048, "eos_token_id": 2})",
                            "the rounded model")
        .value();
  return parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 256,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 384, "vocab_size": 64,
      "max_position_embeddings": 2048, "eos_token_id": 2})",
                          "the rounded model")
      .value();
}

/// Tokens below 64, the vocabulary of all cases.
std::vector<TokenId> small_prompt(std::uint32_t seed, std::size_t n) {
  std::vector<TokenId> tokens = testing::random_prompt(seed, n);
  for (TokenId& token : tokens) token = 3 + token % 61;
  return tokens;
}

class EngineSchemes : public ::testing::TestWithParam<SchemeCase> {
 protected:
  void SetUp() override {
    if (is_golden() && testing::n_test_ranks() > 1) GTEST_SKIP() << "its matrices are too small to be cut";
    if (!is_golden()) return;
    checkpoint_.emplace(Checkpoint::open(folder()).value());
  }

  static std::filesystem::path folder() { return test::quantised(GetParam().name); }

  bool is_golden() const { return !GetParam().rounding.is_on(); }

  testing::MakeRankModel make_model() const {
    if (is_golden()) {
      ModelSpec spec = read_model_spec(folder()).value();
      spec.max_position = kSchemeLength;
      return testing::checkpoint_model(spec, *checkpoint_, GetParam().has_int8_x);
    }
    return [rounding = GetParam().rounding, has_int8_x = GetParam().has_int8_x,
            is_latent = GetParam().is_latent](Backend& backend) -> Result<std::unique_ptr<Model>> {
      const ModelSpec spec = rounded_spec(is_latent);
      BATON_TRY(ModelSpec of_rank, split_spec(spec, {backend.info().rank, backend.info().world_size}));
      BATON_TRY(ModelWeights weights, random_weights(spec, backend, DType::f32, 5, 1, rounding, has_int8_x));
      return std::make_unique<Model>(std::move(of_rank), std::move(weights));
    };
  }

  /// In float32 but for the cache, which has options.kv_dtype.
  std::unique_ptr<Engine> make_engine(EngineOptions options) const {
    options.batch_invariant = true;
    const auto make_device = testing::cpu_of_rank(true);
    options.ranks = testing::fork_followers(testing::n_test_ranks(), make_device, make_model());
    auto backend = make_device(options.ranks).value();
    auto model = make_model()(*backend).value();
    options.max_model_len = kSchemeLength;
    options.max_num_seqs = 8;
    options.uses_step_times = false;
    for (const KvShape& shape : model->kv_shapes(1, options.block_len, options.kv_dtype))
      options.kv_cache_bytes += kSchemeBlocks * backend->kv_block_bytes(shape);
    auto engine = Engine::create(options, std::move(backend), std::move(model));
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }

  std::optional<Checkpoint> checkpoint_;
};

TEST_P(EngineSchemes, answer_with_the_same_bits_relayed_and_paged_cold_and_warm_alone_and_together_and_in_chunks) {
  const auto shared = small_prompt(1, 290);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i)
    requests.push_back(greedy(testing::joined(shared, small_prompt(10 + i, 3 + 20 * i)), 5));
  for (const DType kv_dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(kv_dtype));
    const EngineOptions whole{.max_num_batched_tokens = 2 * kSchemeLength, .kv_dtype = kv_dtype};
    EngineOptions options = whole;
    options.relay = false;
    const auto paged = make_engine(options);
    std::vector<Generated> alone;
    for (const Request& request : requests) alone.push_back(testing::run_requests(*paged, {request})[0]);
    EXPECT_EQ(alone[0].stats.cached_tokens, 0) << "cold";
    EXPECT_GT(alone[2].stats.cached_tokens, 0) << "warm";
    EXPECT_NE(alone[1].logprobs, alone[2].logprobs);
    testing::expect_same_bits(testing::run_requests(*paged, requests), alone, "paged, together");
    EXPECT_EQ(paged->metrics().kv_bytes_saved.value(), 0);

    const auto relay = make_engine(whole);
    for (const char* cache : {"relayed, cold", "relayed, warm"})
      testing::expect_same_bits(testing::run_requests(*relay, requests), alone, cache);
    // Other keys are so few bytes that each request reads them itself.
    if (kv_dtype == DType::f32 || !(is_golden() || GetParam().is_latent)) {
      EXPECT_GT(relay->metrics().kv_bytes_saved.value(), 0);
    }

    options = whole;
    options.max_num_batched_tokens = 77;
    testing::expect_same_bits(testing::run_requests(*make_engine(options), requests), alone, "in chunks of 77 rows");
  }
}

std::vector<SchemeCase> scheme_cases() {
  std::vector<SchemeCase> cases{{"rounded_fp8", {.scheme = WeightScheme::f8}},
                                {"rounded_int8", {.scheme = WeightScheme::i8}},
                                {"rounded_int4_128", {.scheme = WeightScheme::i4}},
                                {"rounded_int4_32", {.scheme = WeightScheme::i4, .group = 32}},
                                {"latent_fp8", {.scheme = WeightScheme::f8}, false, true},
                                {"latent_int8", {.scheme = WeightScheme::i8}, false, true}};
  for (const char* name : {"fp8_block", "fp8_tensor", "ct_fp8_channel", "ct_int8", "ct_int4", "ct_int4_zeros", "gptq_zeros",
                           "gptq_desc_act", "gptq_int8", "awq"})
    cases.push_back({name, {}});
  const std::size_t n_cases = cases.size();
  for (std::size_t i = 0; i < n_cases; ++i) {
    SchemeCase with_int8_x = cases[i];
    with_int8_x.has_int8_x = true;
    if (with_int8_x.name.find("fp8") == std::string::npos) cases.push_back(with_int8_x);
  }
  cases.push_back({"ct_int8_dynamic", {}, true});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Schemes, EngineSchemes, ::testing::ValuesIn(scheme_cases()),
                         [](const auto& of) { return of.param.name + (of.param.has_int8_x ? "_by_int8" : ""); });

}  // namespace
}  // namespace baton
