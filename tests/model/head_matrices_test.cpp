/// Matrices of heads are dense, whatever they are stored as.
#include "model/source/head_matrices.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/changed_checkpoint.h"
#include "support/quantised_tensors.h"
#include "support/stored_weight.h"

namespace baton {
namespace {

using testing::StoredForm;

TEST(HeadMatrices, rows_of_every_scheme_are_what_they_stand_for) {
  std::mt19937 random(3);
  for (const StoredForm& form :
       {StoredForm{.scheme = WeightScheme::f8, .scale_rows = 4, .scale_columns = 32, .scale_dtype = DType::bf16},
        StoredForm{.scheme = WeightScheme::f8, .scale_columns = 80},
        StoredForm{.scheme = WeightScheme::i8, .scale_columns = 16, .has_zeros = true, .is_permuted = true},
        StoredForm{.scheme = WeightScheme::i8, .scale_columns = 80},
        StoredForm{.scheme = WeightScheme::i4, .scale_columns = 32, .scale_dtype = DType::f16},
        StoredForm{.scheme = WeightScheme::i4, .scale_columns = 16, .has_zeros = true},
        StoredForm{.scheme = WeightScheme::f4, .scale_columns = 32, .scale_dtype = DType::u8},
        StoredForm{.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3}}) {
    SCOPED_TRACE(std::string(to_string(form.scheme)));
    const testing::StoredWeight weight = testing::random_stored(random, form, 11, 80);
    const std::vector<float> expected = test::dense_values(weight.matrix);
    std::vector<float> got(expected.size());
    for (std::int64_t row = 0; row < 11; ++row)
      widen_row(weight.matrix, row, std::span(got).subspan(static_cast<std::size_t>(row) * 80, 80));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_FLOAT_EQ(got[i], expected[i]) << i;
  }
}

constexpr std::int64_t kWidth = 160, kHeads = 2, kNope = 48, kRope = 16, kValue = 40, kRank = 144, kQueryRank = 136,
                       kExperts = 3, kHidden = 96, kVocab = 32;

json::Value config_with(const std::string& architecture, const std::string& quantization) {
  json::Value config = {{"architectures", {architecture}},
                        {"vocab_size", kVocab},
                        {"hidden_size", kWidth},
                        {"moe_intermediate_size", kHidden},
                        {"intermediate_size", kHidden},
                        {"num_hidden_layers", 1},
                        {"num_attention_heads", kHeads},
                        {"num_key_value_heads", kHeads},
                        {"q_lora_rank", kQueryRank},
                        {"kv_lora_rank", kRank},
                        {"qk_nope_head_dim", kNope},
                        {"qk_rope_head_dim", kRope},
                        {"v_head_dim", kValue},
                        {"n_routed_experts", kExperts},
                        {"num_experts_per_tok", 2},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 0},
                        {"torch_dtype", "bfloat16"}};
  config["quantization_config"] = json::parse(quantization, "the test").value();
  return config;
}

/// Two bytes of bf16, all of whose numbers are 2^exponent.
std::string bf16_power(int exponent) {
  const auto bits = static_cast<std::uint16_t>((127 + exponent) << 7);
  return {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)};
}

/// What a layer has beside its matrices of experts, each matrix as `form` says.
std::vector<test::TensorToWrite> attention_tensors(const test::QuantisedForm& form) {
  std::vector<test::TensorToWrite> tensors;
  const test::QuantisedForm dense{.kind = test::QuantisedForm::Kind::dense};
  const std::string layer = "model.layers.0.";
  const std::string attention = layer + "self_attn.";
  test::add_matrix(attention + "q_a_proj", kQueryRank, kWidth, form, tensors);
  test::add_matrix(attention + "q_b_proj", kHeads * (kNope + kRope), kQueryRank, form, tensors);
  test::add_matrix(attention + "kv_a_proj_with_mqa", kRank + kRope, kWidth, form, tensors);
  test::add_matrix(attention + "kv_b_proj", kHeads * (kNope + kValue), kRank, form, tensors);
  test::add_matrix(attention + "o_proj", kWidth, kHeads * kValue, form, tensors);
  for (const std::string& block : {std::string("mlp.shared_experts."), std::string("mlp.experts.0."),
                                   std::string("mlp.experts.1."), std::string("mlp.experts.2.")}) {
    test::add_matrix(layer + block + "gate_proj", kHidden, kWidth, form, tensors);
    test::add_matrix(layer + block + "up_proj", kHidden, kWidth, form, tensors);
    test::add_matrix(layer + block + "down_proj", kWidth, kHidden, form, tensors);
  }
  test::add_matrix(layer + "mlp.gate", kExperts, kWidth, dense, tensors);
  test::add_matrix("model.embed_tokens", kVocab, kWidth, dense, tensors);
  test::add_matrix("lm_head", kVocab, kWidth, dense, tensors);
  tensors.push_back(test::filled(layer + "mlp.gate.e_score_correction_bias", "F32", {kExperts}, std::string(4, '\0')));
  for (const auto& [name, n] : {std::pair("input_layernorm", kWidth),
                                {"post_attention_layernorm", kWidth},
                                {"self_attn.q_a_layernorm", kQueryRank},
                                {"self_attn.kv_a_layernorm", kRank}})
    tensors.push_back(test::filled(layer + name + ".weight", "BF16", {n}, bf16_power(0)));
  tensors.push_back(test::filled("model.norm.weight", "BF16", {kWidth}, bf16_power(0)));
  return tensors;
}

// deepseek-ai/DeepSeek-V3: no size is a multiple of the blocks', and heads begin inside of blocks.
TEST(HeadMatrices, of_deepseek_v3_in_blocks_of_float8_are_dense) {
  test::ChangedCheckpoint checkpoint;
  checkpoint.config =
      config_with("DeepseekV3ForCausalLM",
                  R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128]})");
  checkpoint.tensors = attention_tensors({.kind = test::QuantisedForm::Kind::f8,
                                          .scales = test::QuantisedForm::Scales::group,
                                          .group = 128,
                                          .block_rows = 128,
                                          .scale_name = "weight_scale_inv"});
  // [176, 144] weights have 2 x 2 blocks.
  const std::vector<float> scales{1, 2, 4, 8};
  checkpoint.tensor("kv_b_proj.weight_scale_inv").bytes =
      std::string(reinterpret_cast<const char*>(scales.data()), scales.size() * sizeof(float));
  const std::string stored = checkpoint.tensor("kv_b_proj.weight").bytes;
  const auto weight = [&](std::int64_t row, std::int64_t column) {
    Float8E4M3 value;
    value.bits = static_cast<std::uint8_t>(stored[static_cast<std::size_t>(row * kRank + column)]);
    return static_cast<float>(value) * scales[static_cast<std::size_t>(row / 128 * 2 + column / 128)];
  };
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const LayerWeights& layer = weights->layers[0];
  for (const Linear* linear : {&layer.qkv, &layer.q_b, &layer.attention_out, &layer.up})
    EXPECT_EQ(linear->weight().scheme, WeightScheme::f8);
  const std::vector<float>& keys = test::values_of(layer.keys_of_heads.weights());
  const std::vector<float>& values = test::values_of(layer.values_of_heads.weights());
  ASSERT_EQ(keys.size(), static_cast<std::size_t>(kHeads * kRank * kNope));
  ASSERT_EQ(values.size(), static_cast<std::size_t>(kHeads * kValue * kRank));
  for (std::int64_t head = 0; head < kHeads; ++head)
    for (std::int64_t i = 0; i < kRank; ++i) {
      for (std::int64_t j = 0; j < kNope; ++j)
        ASSERT_EQ(keys[static_cast<std::size_t>((head * kRank + i) * kNope + j)], weight(head * (kNope + kValue) + j, i));
      for (std::int64_t j = 0; j < kValue; ++j)
        ASSERT_EQ(values[static_cast<std::size_t>((head * kValue + j) * kRank + i)],
                  weight(head * (kNope + kValue) + kNope + j, i));
    }
  const auto halves = checkpoint.load({1, 2});
  ASSERT_TRUE(halves) << halves.error().message;
  const std::vector<float>& of_rank = test::values_of(halves->layers[0].keys_of_heads.weights());
  EXPECT_TRUE(std::equal(of_rank.begin(), of_rank.end(), keys.begin() + kRank * kNope)) << "the second head's";
}

// mistralai/Mistral-Small-4: a scale for each tensor, and experts in two tensors with one for each expert.
TEST(HeadMatrices, of_mistral_4_in_float8_stand_beside_experts_in_one_tensor) {
  test::ChangedCheckpoint checkpoint;
  checkpoint.config =
      config_with("Mistral4ForCausalLM", R"({"activation_scheme":"static","quant_method":"fp8","weight_block_size":null})");
  checkpoint.config["rope_parameters"] = {
      {"type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}, {"llama_4_scaling_beta", 0.1}};
  checkpoint.tensors =
      attention_tensors({.kind = test::QuantisedForm::Kind::f8, .scale_dtype = "BF16", .scale_name = "weight_scale_inv"});
  std::erase_if(checkpoint.tensors, [](const test::TensorToWrite& tensor) {
    return tensor.name.find(".mlp.experts.") != std::string::npos || tensor.name.ends_with("e_score_correction_bias");
  });
  const std::string experts = "model.layers.0.mlp.experts.";
  for (const auto& [name, n, k] : {std::tuple("gate_up_proj", 2 * kHidden, kWidth), {"down_proj", kWidth, kHidden}}) {
    test::TensorToWrite values = test::filled(experts + name, "F8_E4M3", {kExperts, n, k}, "\x38");  // 1
    checkpoint.tensors.push_back(values);
    checkpoint.tensors.push_back(
        {experts + name + "_scale_inv", "BF16", {kExperts, 1, 1}, bf16_power(0) + bf16_power(1) + bf16_power(2)});
    checkpoint.tensors.push_back(
        {experts + name + "_activation_scale", "BF16", {kExperts, 1, 1}, bf16_power(0) + bf16_power(0) + bf16_power(0)});
  }
  checkpoint.tensor("gate_up_proj").bytes[static_cast<std::size_t>((2 * kHidden + 5) * kWidth + 7)] = '\x40';  // 2
  ::testing::internal::CaptureStderr();
  const auto weights = checkpoint.load();
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(said.find("unused_tensors"), std::string::npos) << said;
  const LayerWeights& layer = weights->layers[0];
  EXPECT_EQ(layer.expert_up.weights().scheme, WeightScheme::f8);
  for (const std::size_t e : {0U, 1U, 2U}) {
    const std::vector<float>& up = test::values_of(layer.expert_up.weights(), e);
    EXPECT_EQ(up.front(), 1 << e);
    EXPECT_EQ(up[5 * kWidth + 7], e == 1 ? 4 : 1 << e) << "row 5 of gate, column 7";
    EXPECT_EQ(test::values_of(layer.expert_down.weights(), e).back(), 1 << e);
  }
  EXPECT_EQ(test::values_of(layer.values_of_heads.weights()).size(), static_cast<std::size_t>(kHeads * kValue * kRank));
  const auto halves = checkpoint.load({1, 2});
  EXPECT_TRUE(halves) << halves.error().message;
  checkpoint.tensor("down_proj_scale_inv").shape = {kExperts};
  EXPECT_EQ(checkpoint.error(),
            "tensor 'model.layers.0.mlp.experts.down_proj_scale_inv' has the shape [3]; for 3 experts it may be [3, 1, 1] or "
            "[3, 2, 1]");
}

}  // namespace
}  // namespace baton
