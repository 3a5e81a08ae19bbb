/// Checkpoints in the formats of quantised ones: what they compute is what Transformers computes from the weights that they stand
/// for; every trap of a format; and what is refused. Written by tools/goldens/quantised.py.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bench/engine/forwarding_backend.h"
#include "model/config.h"
#include "model/weights.h"
#include "support/changed_checkpoint.h"
#include "support/golden_model.h"
#include "support/recording_backend.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using test::quantised;
using test::TensorToWrite;
using testing::Golden;
using testing::GoldenModel;

/// The CPU, and CUDA where there is a GPU.
std::vector<std::string> devices() {
  std::vector<std::string> names;
  for (const testing::TestBackend& test : testing::test_backends())
    if (names.empty() || names.back() != test.device) names.push_back(test.device);
  return names;
}

class QuantisedGolden : public ::testing::TestWithParam<const char*> {};

std::vector<float> logits_of(const fs::path& folder, DType dtype, const testing::GoldenOptions& options,
                             std::span<const std::int32_t> ids) {
  GoldenModel model(folder, dtype, options);
  const std::vector<TokenId> tokens(ids.begin(), ids.end());
  return model.run(tokens, 0, true, nullptr);
}

// float32: the weights are exact, and sums are rounded as with dense weights.
TEST_P(QuantisedGolden, logits_equal_those_of_the_weights_that_it_stands_for) {
  const Golden golden(quantised(GetParam()) / "golden.safetensors");
  const auto ids = golden.read<std::int32_t>("input_ids");
  const auto expected = golden.read<float>("logits");
  EXPECT_LE(testing::relative_error(logits_of(quantised(GetParam()), DType::f32, {.max_positions = 128}, ids), expected), 1e-4);
}

TEST_P(QuantisedGolden, bf16_activations_stay_near_float32) {
  const Golden golden(quantised(GetParam()) / "golden.safetensors");
  const auto ids = golden.read<std::int32_t>("input_ids");
  const auto expected = golden.read<float>("logits");
  for (const std::string& device : testing::devices_with_bf16())
    EXPECT_LE(testing::relative_error(
                  logits_of(quantised(GetParam()), DType::bf16, {.device = device, .max_positions = 128}, ids), expected),
              2e-2)
        << device;
}

TEST_P(QuantisedGolden, f16_activations_stay_near_float32) {
  const Golden golden(quantised(GetParam()) / "golden.safetensors");
  const auto ids = golden.read<std::int32_t>("input_ids");
  const auto expected = golden.read<float>("logits");
  for (const std::string& device : testing::devices_with_f16())
    EXPECT_LE(testing::relative_error(
                  logits_of(quantised(GetParam()), DType::f16, {.device = device, .max_positions = 128}, ids), expected),
              4e-3)
        << device;
}

TEST_P(QuantisedGolden, a_prompt_has_the_same_bits_in_one_step_and_in_many) {
  const auto ids = Golden(quantised(GetParam()) / "golden.safetensors").read<std::int32_t>("input_ids");
  std::vector<std::pair<std::string, DType>> cases;
  for (const std::string& device : devices()) cases.emplace_back(device, device == "cuda" ? DType::bf16 : DType::f32);
  for (const auto& [device, dtype] : cases) {
    const testing::GoldenOptions options{.device = device, .max_positions = 128, .batch_invariant = true};
    const std::vector<float> together = logits_of(quantised(GetParam()), dtype, options, ids);
    GoldenModel model(quantised(GetParam()), dtype, options);
    std::vector<float> apart;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::vector<float> row = model.run(std::vector<TokenId>{ids[i]}, static_cast<std::int32_t>(i), true, nullptr);
      apart.insert(apart.end(), row.begin(), row.end());
    }
    EXPECT_EQ(apart, together) << device;
  }
}

TEST_P(QuantisedGolden, needs_the_memory_that_was_foretold_and_holds_the_bits_of_the_file) {
  const ModelSpec spec = read_model_spec(quantised(GetParam())).value();
  const Checkpoint checkpoint = Checkpoint::open(quantised(GetParam())).value();
  test::RecordingBackend backend;
  const auto weights = load_weights(spec, checkpoint, backend, DType::bf16, 1);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto held = static_cast<double>(weight_bytes(spec, DType::bf16, ModelRank{}, &checkpoint).held);
  ModelSpec dense = spec;
  dense.quantization = {};
  EXPECT_LT(held, 0.9 * static_cast<double>(weight_bytes(dense, DType::bf16, ModelRank{}).held));
  EXPECT_NE(weights->layers[0].qkv.weight().scheme, WeightScheme::dense);
  EXPECT_EQ(weights->lm_head.weight().scheme, WeightScheme::dense);
}

INSTANTIATE_TEST_SUITE_P(Goldens, QuantisedGolden,
                         ::testing::Values("fp8_block", "fp8_tensor", "ct_fp8_block", "ct_fp8_channel", "ct_int8", "ct_int4",
                                           "ct_int4_zeros", "ct_int8_packed", "ct_nvfp4", "ct_mxfp4", "modelopt_nvfp4",
                                           "modelopt_mixed", "gptq", "gptq_misnamed", "gptq_zeros", "gptq_v2_zeros",
                                           "gptq_desc_act", "gptq_int8", "awq"),
                         [](const auto& info) { return std::string(info.param); });

/// The prompt of a golden, and what follows its last token, by several ways to round.
class LastRows {
 public:
  explicit LastRows(const fs::path& folder) : golden_(folder / "golden.safetensors") {
    const auto ids = golden_.read<std::int32_t>("input_ids");
    tokens_.assign(ids.begin(), ids.end());
  }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  std::vector<float> logits(const char* name) const {
    const auto rows = golden_.read<float>(name);
    return {rows.end() - static_cast<std::ptrdiff_t>(rows.size() / tokens_.size()), rows.end()};
  }

 private:
  Golden golden_;
  std::vector<TokenId> tokens_;
};

// The file states activations in float8 with a scale for each token. What attention gives keeps the dtype of the model. This is
// of a CPU; F8Rows of kernels_tests are for both backends.
TEST(F8Activations, logits_equal_those_of_activations_that_are_rounded_as_the_file_says) {
  const fs::path folder = quantised("ct_fp8_dynamic");
  EXPECT_TRUE(read_model_spec(folder).value().quantization.has_f8_activations);
  EXPECT_FALSE(read_model_spec(quantised("ct_fp8_channel")).value().quantization.has_f8_activations);
  const LastRows golden(folder);
  GoldenModel model(folder, DType::f32, {.max_positions = 256, .has_f8_rows = true});
  const std::vector<float> logits = model.run(golden.tokens(), 0, false, nullptr);
  const auto error_from = [&](const char* name) { return testing::relative_error(logits, golden.logits(name)); };
  constexpr double kBound = 2e-2;
  EXPECT_LE(error_from("logits_of_f8_activations_but_of_o"), kBound);
  EXPECT_GT(error_from("logits_of_f8_activations"), kBound) << "the golden does not tell what attention gives";
  EXPECT_GT(error_from("logits"), kBound) << "activations were not rounded";
  std::printf("%.4f from activations in float8 everywhere, %.4f from the dequantised model\n",
              error_from("logits_of_f8_activations"), error_from("logits"));
}

/// Rounds the rows of a matmul by FP8 weights to 8 bits, with a scale for each, and gives them back in f32.
class RoundingBackend final : public ForwardingBackend {
 public:
  /// Of rows of a multiple of `step` columns.
  RoundingBackend(std::unique_ptr<Backend> cpu, std::int64_t step) : ForwardingBackend(std::move(cpu)), step_(step) {}
  void matmul(const MatmulArgs& args) override {
    const std::int64_t k = args.x.shape[1];
    if (args.weight->scheme != WeightScheme::f8 || k % step_ != 0) return ForwardingBackend::matmul(args);
    const auto x = args.x.elements<float>();
    std::vector<float> rounded;
    for (std::size_t begin = 0; begin < x.size(); begin += static_cast<std::size_t>(k)) {
      const auto row = x.subspan(begin, static_cast<std::size_t>(k));
      float most = 0;
      for (const float value : row) most = std::max(most, std::abs(value));
      const float scale = most / Float8E4M3::kLargest;
      for (const float value : row) rounded.push_back(static_cast<float>(Float8E4M3(value * (1 / scale))) * scale);
    }
    MatmulArgs changed = args;
    changed.x = view_of(std::span<const float>(rounded), args.x.shape);
    ForwardingBackend::matmul(changed);
  }
  void gated_matmul(const GatedMatmulArgs& args) override {
    matmul(args.matmul);
    gated_activation(args.activation);
  }

 private:
  std::int64_t step_;
};

// Gated DeltaNet and attention with a gate: dense matrices and FP8 ones read the same rows. All matrices of these layers that are in
// FP8 multiply rounded rows, and no others.
TEST(F8Activations, of_recurrent_layers_and_of_gated_attention_are_those_of_matmuls_that_round_what_they_read) {
  const fs::path folder = test::source_folder() / "tests/goldens/qwen3_5_tiny_chunks";
  std::vector<TokenId> tokens;
  for (int i = 0; i < GoldenModel::kMaxSamples; ++i) tokens.push_back(TokenId{3 + i * 37 % 300});
  const testing::GoldenOptions plain{.max_positions = 128, .rounding = {WeightScheme::f8}};
  const auto logits_of_all = [&](DType dtype, const testing::GoldenOptions& options) {
    return GoldenModel(folder, dtype, options).run(tokens, 0, true, nullptr);
  };
  const auto of_rounded = [&](std::int64_t step) {
    testing::GoldenOptions options = plain;
    options.wrap = [&](std::unique_ptr<Backend> cpu) { return std::make_unique<RoundingBackend>(std::move(cpu), step); };
    return logits_of_all(DType::f32, options);
  };
  const std::vector<float> unrounded = logits_of_all(DType::f32, plain);
  testing::GoldenOptions f8 = plain;
  f8.has_f8_rows = true;
  const std::vector<float> expected = of_rounded(kF8RowStep);
  const double error = testing::relative_error(logits_of_all(DType::f32, f8), expected);
  const double of_rounding = testing::relative_error(unrounded, expected);
  std::printf("%.5f from matmuls that round; rounding changes %.5f\n", error, of_rounding);
  EXPECT_LE(error, of_rounding / 8);
  for (const std::string& device : testing::devices_with_bf16()) {
    if (device == "cuda" && make_backend(device, {.n_threads = 1}).value()->info().features != "sm_90") continue;
    f8.device = device;
    const double in_bf16 =
        testing::relative_error(logits_of_all(DType::bf16, f8), of_rounded(device == "cuda" ? 64 : kF8RowStep));
    std::printf("%.5f in bf16 on %s\n", in_bf16, device.c_str());
    EXPECT_LE(in_bf16, of_rounding) << device;
  }
}

// The file states activations in int8 with a scale for each token; the CPU has one for 128 columns of it at most.
TEST(Int8Activations, logits_equal_those_of_activations_that_are_rounded_in_blocks) {
  const fs::path folder = quantised("ct_int8_dynamic");
  EXPECT_TRUE(read_model_spec(folder).value().quantization.has_int8_activations);
  EXPECT_FALSE(read_model_spec(quantised("ct_int8")).value().quantization.has_int8_activations);
  const LastRows golden(folder);
  const auto error_of = [&](bool has_int8_x, const char* name) {
    GoldenModel model(folder, DType::f32, {.max_positions = 256, .has_int8_x = has_int8_x});
    return testing::relative_error(model.run(golden.tokens(), 0, false, nullptr), golden.logits(name));
  };
  const double by_blocks = error_of(true, "logits_of_int8_blocks");
  const double by_tokens = error_of(true, "logits_of_int8_tokens"), of_dequantised = error_of(true, "logits");
  // A code of 8 bits that is rounded to its neighbour moves a logit by 1e-3. Other ways to round lie above the bound.
  constexpr double kBound = 5e-3;
  EXPECT_LE(by_blocks, kBound);
  EXPECT_GT(by_tokens, kBound) << "the golden does not tell blocks from tokens";
  EXPECT_GT(of_dequantised, kBound) << "activations were not rounded";
  EXPECT_LE(error_of(false, "logits"), 1e-4);
  std::printf("%.4f from activations in int8 by blocks, %.4f by tokens, %.4f from the dequantised model\n", by_blocks,
              by_tokens, of_dequantised);
}

class ChangedGolden : public ::testing::Test, protected test::ChangedCheckpoint {};

// Values of a matrix that a RecordingBackend packed are those it stands for.
std::vector<float> rows_of(const Linear& linear, std::int64_t begin, std::int64_t end) {
  const std::vector<float>& values = test::values_of(linear.weight());
  return {values.begin() + begin * linear.n_in(), values.begin() + end * linear.n_in()};
}

// Each rank's part of a matrix has the values of the whole, whatever blocks and groups the cut goes through.
TEST_F(ChangedGolden, ranks_hold_parts_of_the_whole) {
  for (const char* name : {"fp8_block", "fp8_tensor", "ct_fp8_channel", "ct_int4_zeros", "gptq_zeros", "awq", "ct_int8",
                           "ct_nvfp4", "ct_mxfp4", "modelopt_nvfp4"}) {
    read(name);
    const auto whole = load();
    ASSERT_TRUE(whole) << whole.error().message;
    const LayerWeights& layer = whole->layers[0];
    const std::int64_t q = layer.attention_out.n_in();
    const std::int64_t kv = (layer.qkv.n_out() - q) / 2;
    for (const int rank : {0, 1}) {
      const auto half = load({rank, 2});
      ASSERT_TRUE(half) << name << ": " << half.error().message;
      const LayerWeights& part = half->layers[0];
      std::vector<float> expected = rows_of(layer.qkv, rank * q / 2, (rank + 1) * q / 2);
      for (const std::int64_t first : {q, q + kv}) {
        const auto rows = rows_of(layer.qkv, first + rank * kv / 2, first + (rank + 1) * kv / 2);
        expected.insert(expected.end(), rows.begin(), rows.end());
      }
      EXPECT_EQ(test::values_of(part.qkv.weight()), expected) << name;
      const std::int64_t n = layer.attention_out.n_out();
      expected.clear();
      for (std::int64_t row = 0; row < n; ++row) {
        const auto values = rows_of(layer.attention_out, row, row + 1);
        expected.insert(expected.end(), values.begin() + rank * q / 2, values.begin() + (rank + 1) * q / 2);
      }
      EXPECT_EQ(test::values_of(part.attention_out.weight()), expected) << name;
    }
  }
}

TEST_F(ChangedGolden, columns_in_the_order_of_activations_are_not_split_over_ranks) {
  read("gptq_desc_act");
  const auto half = load({0, 2});
  ASSERT_FALSE(half);
  EXPECT_NE(half.error().message.find("in the order of activations (desc_act)"), std::string::npos) << half.error().message;
}

TEST_F(ChangedGolden, a_scheme_that_the_configuration_does_not_state_is_named) {
  read("ct_int4");
  quantization()["config_groups"]["group_0"]["weights"]["group_size"] = 16;
  EXPECT_EQ(
      error(),
      "tensor 'model.layers.0.self_attn.q_proj.weight_packed' is int4 with a scale for 32 columns of a row; the configuration "
      "('compressed-tensors') states int4 with a scale for 16 columns of a row");
  read("ct_int4_zeros");
  quantization()["config_groups"]["group_0"]["weights"]["symmetric"] = true;
  EXPECT_NE(error().find("is int4 with a scale and a zero for 32 columns of a row"), std::string::npos) << error();
  read("fp8_block");
  quantization()["weight_block_size"] = {64, 64};
  EXPECT_NE(error().find(
                "weight_scale_inv' has the shape [1, 2]; for 128 x 160 weights it may be [1], [128, 1] or [2, 3] for blocks of "
                "64 x 64"),
            std::string::npos)
      << error();
  read("fp8_tensor");
  quantization()["weight_block_size"] = {32, 32};
  EXPECT_NE(
      error().find("is float8_e4m3 with a scale for the tensor; the configuration ('fp8') states float8_e4m3 with a scale for "
                   "32 x 32 weights"),
      std::string::npos)
      << error();
}

TEST_F(ChangedGolden, modules_may_be_dense_and_need_no_configuration_in_float8) {
  read("ct_fp8_channel");
  config.erase("quantization_config");
  TensorToWrite& q = tensor("q_proj.weight");
  q.dtype = "BF16";
  q.bytes = std::string(q.bytes.size() * 2, '\1');
  remove("q_proj.weight_scale");
  EXPECT_NE(error().find("are stored as dense and float8_e4m3; matrices that are multiplied together must be stored alike"),
            std::string::npos)
      << error();
  for (const char* name : {"k_proj.weight", "v_proj.weight"}) {
    tensor(name).dtype = "BF16";
    tensor(name).bytes = std::string(tensor(name).bytes.size() * 2, '\1');
    remove(std::string(name) + "_scale");
  }
  EXPECT_EQ(error(), "no error");
}

TEST_F(ChangedGolden, scales_may_be_exponents) {
  read("fp8_block");
  for (TensorToWrite& stored : tensors)
    if (stored.name.ends_with("weight_scale_inv")) {
      stored.dtype = "F8_E8M0";
      stored.bytes.assign(stored.bytes.size() / 2, '\x78');  // 2^-7
    }
  const auto weights = load();
  ASSERT_TRUE(weights) << weights.error().message;
  Float8E4M3 first;
  std::memcpy(&first.bits, tensor("q_proj.weight").bytes.data(), 1);
  EXPECT_EQ(test::values_of(weights->layers[0].qkv.weight())[0], static_cast<float>(first) / 128);
  tensor("q_proj.weight_scale_inv").bytes[0] = '\xff';
  EXPECT_EQ(error(), "tensor 'model.layers.0.self_attn.q_proj.weight_scale_inv' holds NaN; scales must be finite");
}

// Row 0 of q has the codes 1 (0.5) and 14 (-4) first, and 0 otherwise.
void set_first_codes(TensorToWrite& packed) {
  packed.bytes = std::string(packed.bytes.size(), '\0');
  packed.bytes[0] = '\xe1';
}

float float_at_end(const TensorToWrite& stored) {
  float value = 0;
  std::memcpy(&value, stored.bytes.data() + stored.bytes.size() - sizeof(value), sizeof(value));
  return value;
}

// Even columns are in the low half of a byte. compressed-tensors stores the inverse of what ModelOpt stores.
TEST_F(ChangedGolden, numbers_of_4_bits_are_scaled_twice_and_the_scale_of_the_tensor_may_be_an_inverse) {
  for (const bool is_modelopt : {false, true}) {
    read(is_modelopt ? "modelopt_nvfp4" : "ct_nvfp4");
    set_first_codes(tensor(is_modelopt ? "q_proj.weight" : "q_proj.weight_packed"));
    tensor("q_proj.weight_scale").bytes[0] = '\x48';  // 4
    const float given = float_at_end(tensor(is_modelopt ? "q_proj.weight_scale_2" : "q_proj.weight_global_scale"));
    const float scale = 4 * (is_modelopt ? given : 1 / given);
    const auto weights = load();
    ASSERT_TRUE(weights) << weights.error().message;
    const std::vector<float> row = rows_of(weights->layers[0].qkv, 0, 1);
    EXPECT_EQ(row[0], 0.5f * scale);
    EXPECT_EQ(row[1], -4 * scale);
    EXPECT_EQ(row[2], 0);
  }
  read("ct_mxfp4");
  set_first_codes(tensor("q_proj.weight_packed"));
  for (const auto& [exponent, scale] : {std::pair{'\x80', 2.0f}, std::pair{'\0', 0x1p-127f}}) {
    tensor("q_proj.weight_scale").bytes[0] = exponent;
    const auto weights = load();
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(rows_of(weights->layers[0].qkv, 0, 1)[0], 0.5f * scale);
    EXPECT_EQ(rows_of(weights->layers[0].qkv, 0, 1)[1], -4 * scale);
  }
}

TEST_F(ChangedGolden, parts_of_a_matrix_keep_the_scales_of_their_tensors) {
  read("modelopt_nvfp4");
  const auto before = load();
  ASSERT_TRUE(before) << before.error().message;
  TensorToWrite& scale = tensor("k_proj.weight_scale_2");
  const float doubled = 2 * float_at_end(scale);
  std::memcpy(scale.bytes.data(), &doubled, sizeof(doubled));
  const auto after = load();
  ASSERT_TRUE(after) << after.error().message;
  const std::int64_t q = before->layers[0].attention_out.n_in();
  const std::int64_t kv = (before->layers[0].qkv.n_out() - q) / 2;
  EXPECT_EQ(rows_of(after->layers[0].qkv, 0, q), rows_of(before->layers[0].qkv, 0, q));
  EXPECT_EQ(rows_of(after->layers[0].qkv, q + kv, q + 2 * kv), rows_of(before->layers[0].qkv, q + kv, q + 2 * kv));
  std::vector<float> keys = rows_of(before->layers[0].qkv, q, q + kv);
  for (float& key : keys) key *= 2;
  EXPECT_EQ(rows_of(after->layers[0].qkv, q, q + kv), keys);
}

TEST_F(ChangedGolden, floats_of_4_bits_may_be_stated_beside_the_configuration_or_not_at_all) {
  read("modelopt_nvfp4");
  config.erase("quantization_config");
  EXPECT_EQ(error(), "no error");
  write("hf_quant_config.json",
        R"({"quantization":{"quant_algo":"W4A16_NVFP4","group_size":16,"exclude_modules":["lm_head"]}})");
  EXPECT_EQ(error(), "no error");
  write("hf_quant_config.json", R"({"quantization":{"quant_algo":"FP8","exclude_modules":["lm_head"]}})");
  EXPECT_EQ(error(),
            "tensor 'model.layers.0.self_attn.q_proj.weight' is float4_e2m1 with a scale for 16 columns of a row; the "
            "configuration ('modelopt') states float8_e4m3 with a scale for the tensor");
  read("modelopt_mixed");
  quantization().erase("quantized_layers");
  quantization()["config_groups"] = {
      {"group_0", {{"targets", {"a"}}, {"weights", {{"num_bits", 8}, {"type", "float"}}}}},
      {"group_1", {{"targets", {"b"}}, {"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}};
  std::filesystem::remove(folder() / "hf_quant_config.json");
  EXPECT_EQ(error(), "no error");
}

TEST_F(ChangedGolden, two_standards_of_floats_of_4_bits_are_not_multiplied_together) {
  read("ct_nvfp4");
  config.erase("quantization_config");
  TensorToWrite& scale = tensor("k_proj.weight_scale");
  scale.dtype = "U8";
  scale.shape[1] /= 2;
  scale.bytes = std::string(scale.bytes.size() / 2, '\x7f');
  EXPECT_EQ(error(),
            "tensors 'model.layers.0.self_attn.q_proj.weight' and 'model.layers.0.self_attn.k_proj.weight' have scales of two "
            "kinds (NVFP4's and MXFP4's); matrices that are multiplied together must be stored alike");
}

// A zero of 0 is stored as 15, and 15 + 1 must not reach the next zero of its word.
TEST_F(ChangedGolden, zeros_that_are_stored_less_one_wrap_around) {
  read("gptq_zeros");
  std::string& zeros = tensor("o_proj.qzeros").bytes;
  zeros = std::string(zeros.size(), '\xff');
  const auto weights = load();
  ASSERT_TRUE(weights) << weights.error().message;
  tensor("o_proj.qzeros").bytes = std::string(zeros.size(), '\0');
  quantization()["checkpoint_format"] = "gptq_v2";
  const auto second = load();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(test::values_of(weights->layers[0].attention_out.weight()),
            test::values_of(second->layers[0].attention_out.weight()));
}

TEST_F(ChangedGolden, damaged_tensors_are_named) {
  read("fp8_tensor");
  tensor("o_proj.weight").bytes[100] = '\x7f';
  EXPECT_EQ(error(), "tensor 'model.layers.0.self_attn.o_proj.weight' holds NaN");
  read("fp8_tensor");
  remove("o_proj.weight_scale_inv");
  EXPECT_EQ(error(), "the checkpoint lacks tensor 'model.layers.0.self_attn.o_proj.weight_scale'");
  read("gptq");
  remove("o_proj.scales");
  EXPECT_EQ(error(), "the checkpoint lacks tensor 'model.layers.0.self_attn.o_proj.scales'");
  read("gptq");
  tensor("o_proj.qzeros").bytes = std::string(tensor("o_proj.qzeros").bytes.size(), '\x66');
  EXPECT_NE(error().find("o_proj.qzeros' begins with 0x66666666; the configuration says that its integers are symmetric"),
            std::string::npos)
      << error();
  read("gptq_desc_act");
  tensor("o_proj.g_idx").bytes = std::string(tensor("o_proj.g_idx").bytes.size(), '\0');
  EXPECT_NE(error().find("o_proj.g_idx' has 64 columns in group 0, not 32"), std::string::npos) << error();
  tensor("o_proj.g_idx").bytes = std::string(tensor("o_proj.g_idx").bytes.size(), '\7');
  EXPECT_NE(error().find("o_proj.g_idx' has the group 117901063 of 2"), std::string::npos) << error();
  read("gptq_desc_act");
  std::ranges::reverse(tensor("k_proj.g_idx").bytes);  // another order of words, each of them reversed
  EXPECT_NE(error(), "no error");
}

TEST_F(ChangedGolden, layouts_that_are_not_read_are_refused_by_name) {
  read("awq");
  tensor("q_proj.qweight").dtype = "I16";
  tensor("q_proj.qweight").shape[1] *= 2;
  EXPECT_NE(error().find("q_proj.qweight' has the shape [64, 16], which is neither GPTQ's nor AWQ's (gemm)"), std::string::npos)
      << error();
  read("fp8_tensor");
  tensor("q_proj.weight").dtype = "U8";
  EXPECT_NE(error().find("has the element type U8 and scales: of schemes of packed bytes, NVFP4 with 'weight_scale_2' is"),
            std::string::npos)
      << error();
  read("modelopt_nvfp4");
  tensors.push_back({"model.layers.0.self_attn.q_proj.pre_quant_scale", "F32", {64}, std::string(256, '\1')});
  EXPECT_NE(error().find("q_proj.pre_quant_scale' scales the inputs of a matrix (modelopt's AWQ)"), std::string::npos)
      << error();
  read("gptq_zeros");
  config.erase("quantization_config");
  EXPECT_NE(error().find("no configuration says whether GPTQ's zeros are stored less one"), std::string::npos) << error();
}

}  // namespace
}  // namespace baton
