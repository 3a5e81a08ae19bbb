/// Experts of a gpt-oss in MXFP4 as it is shipped: they compute what Transformers computes from the weights that they stand for,
/// and what the same checkpoint with dense experts computes; damaged tensors are refused by name.
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/config.h"
#include "model/weights.h"
#include "support/changed_checkpoint.h"
#include "support/golden_model.h"
#include "support/recording_backend.h"

namespace baton {
namespace {

using test::ChangedCheckpoint;
using test::TensorToWrite;
using testing::Golden;
using testing::GoldenModel;
using testing::GoldenOptions;

constexpr const char* kName = "gpt_oss_mxfp4";

std::vector<TokenId> prompt() {
  const auto ids = Golden(test::quantised(kName) / "golden.safetensors").read<std::int32_t>("input_ids");
  return {ids.begin(), ids.end()};
}
std::vector<float> expected_logits() { return Golden(test::quantised(kName) / "golden.safetensors").read<float>("logits"); }

TEST(Mxfp4Experts, logits_equal_those_of_transformers) {
  GoldenModel model(test::quantised(kName), DType::f32, {.max_positions = 128});
  EXPECT_EQ(model.model->weight_scheme(), "float4_e2m1");
  EXPECT_LE(testing::relative_error(model.run(prompt(), 0, true, nullptr), expected_logits()), 1e-4);
}

TEST(Mxfp4Experts, logits_in_16_bits_stay_near_float32) {
  const auto expect_near = [](const std::string& device, DType dtype, double bound) {
    GoldenModel model(test::quantised(kName), dtype, {.device = device, .max_positions = 128});
    EXPECT_EQ(model.model->weight_scheme(), "float4_e2m1");
    EXPECT_LE(testing::relative_error(model.run(prompt(), 0, true, nullptr), expected_logits()), bound) << device;
  };
  for (const std::string& device : testing::devices_with_bf16()) expect_near(device, DType::bf16, 2e-2);
  for (const std::string& device : testing::devices_with_f16()) expect_near(device, DType::f16, 4e-3);
}

TEST(Mxfp4Experts, a_prompt_has_the_same_bits_in_one_step_and_in_many) {
  const std::vector<TokenId> ids = prompt();
  const GoldenOptions options{.max_positions = 128, .batch_invariant = true};
  GoldenModel together(test::quantised(kName), DType::f32, options);
  const std::vector<float> expected = together.run(ids, 0, true, nullptr);
  GoldenModel model(test::quantised(kName), DType::f32, options);
  std::vector<float> apart;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> row = model.run(std::vector<TokenId>{ids[i]}, static_cast<std::int32_t>(i), true, nullptr);
    apart.insert(apart.end(), row.begin(), row.end());
  }
  EXPECT_EQ(apart, expected);
}

/// The numbers of a matrix of every expert, [n_experts, k, n]: transposed, as dense checkpoints have them.
std::vector<float> unpacked(const TensorToWrite& blocks, const TensorToWrite& scales) {
  const std::int64_t n = blocks.shape[1];
  const std::int64_t k = blocks.shape[2] * 32;
  std::vector<float> numbers(static_cast<std::size_t>(blocks.shape[0] * n * k));
  for (std::int64_t e = 0; e < blocks.shape[0]; ++e)
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t c = 0; c < k; ++c) {
        const std::int64_t at = ((e * n + r) * k + c) / 2;
        const auto both = static_cast<std::uint8_t>(blocks.bytes[static_cast<std::size_t>(at)]);
        const auto scale = static_cast<std::uint8_t>(scales.bytes[static_cast<std::size_t>(((e * n + r) * k + c) / 32)]);
        numbers[static_cast<std::size_t>((e * k + c) * n + r)] = f4_value(both >> (c % 2 * 4) & 15u) * e8m0_value(scale);
      }
  return numbers;
}

TEST(Mxfp4Experts, compute_what_dense_experts_of_the_same_numbers_do) {
  ChangedCheckpoint dense;
  dense.read(kName);
  for (const char* name : {"gate_up_proj", "down_proj"})
    for (const char* layer : {"0", "1"}) {
      const std::string stem = std::string("model.layers.") + layer + ".mlp.experts." + name;
      const TensorToWrite blocks = dense.tensor(stem + "_blocks");
      const std::vector<float> numbers = unpacked(blocks, dense.tensor(stem + "_scales"));
      dense.remove(stem + "_blocks");
      dense.remove(stem + "_scales");
      dense.tensors.push_back(test::f32_tensor(stem, {blocks.shape[0], blocks.shape[2] * 32, blocks.shape[1]}, numbers));
    }
  dense.config.erase("quantization_config");
  ASSERT_TRUE(dense.load()) << dense.error();  // writes its files
  GoldenModel model(dense.folder(), DType::f32, {.max_positions = 128});
  EXPECT_EQ(model.model->weight_scheme(), "float32");
  EXPECT_LE(testing::relative_error(model.run(prompt(), 0, true, nullptr), expected_logits()), 1e-4);
}

TEST(Mxfp4Experts, are_held_in_the_bits_of_the_file) {
  const ModelSpec spec = read_model_spec(test::quantised(kName)).value();
  const Checkpoint checkpoint = Checkpoint::open(test::quantised(kName)).value();
  const WeightBytes bytes = weight_bytes(spec, DType::bf16, ModelRank{}, &checkpoint);
  // Two layers of four experts: half a byte for each weight and a byte for 32.
  EXPECT_EQ(bytes.held_as.at(WeightScheme::f4), 2 * 4 * (3 * 64 * 64) * 17 / 32);
}

TEST(Mxfp4Experts, are_cut_between_ranks_inside_a_group_too) {
  ChangedCheckpoint checkpoint;
  checkpoint.read(kName);
  for (const std::int32_t n_ranks : {2, 4}) {
    const auto weights = checkpoint.load({1, n_ranks});
    ASSERT_TRUE(weights) << weights.error().message;
    const LayerWeights& layer = weights->layers[1];
    EXPECT_EQ(layer.expert_up.weights().n, 2 * 64 / n_ranks);
    EXPECT_EQ(layer.expert_down.weights().k, 64 / n_ranks);
    EXPECT_EQ(layer.expert_up.weights().scheme, WeightScheme::f4);
    EXPECT_EQ(layer.sinks.weight.shape, Shape{4 / n_ranks});
  }
}

TEST(Mxfp4Experts, errors_name_the_tensor) {
  ChangedCheckpoint changed;
  const auto error_after = [&](const auto& change) {
    changed.read(kName);
    change();
    return changed.error();
  };
  const auto scales = [&]() -> TensorToWrite& { return changed.tensor("layers.1.mlp.experts.down_proj_scales"); };
  const auto blocks = [&]() -> TensorToWrite& { return changed.tensor("layers.0.mlp.experts.gate_up_proj_blocks"); };
  EXPECT_EQ(error_after([&] { scales().bytes.back() = '\xff'; }),
            "tensor 'model.layers.1.mlp.experts.down_proj_scales' holds NaN; scales must be finite");
  EXPECT_EQ(error_after([&] {
              scales().shape = {4, 32, 4};
            }),
            "tensor 'model.layers.1.mlp.experts.down_proj_scales' has the shape [4, 32, 4], not [4, 64, 2]");
  EXPECT_EQ(error_after([&] {
              blocks().shape = {4, 64, 4, 16};
            }),
            "tensor 'model.layers.0.mlp.experts.gate_up_proj_blocks' has the shape [4, 64, 4, 16], not [4, 128, 2, 16]");
  EXPECT_EQ(error_after([&] { scales().dtype = "I8"; }),
            "tensor 'model.layers.1.mlp.experts.down_proj_scales' has the element type I8; U8 is read");
  EXPECT_EQ(error_after([&] { changed.remove("layers.1.mlp.experts.down_proj_scales"); }),
            "the checkpoint lacks tensor 'model.layers.1.mlp.experts.down_proj_scales'");
  EXPECT_EQ(error_after([&] { changed.remove("layers.0.self_attn.sinks"); }),
            "the checkpoint lacks tensor 'model.layers.0.self_attn.sinks' of the 37 that GptOssForCausalLM has");
  EXPECT_EQ(error_after([&] {
              changed.quantization() = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
            }),
            "tensor 'model.layers.0.mlp.experts.gate_up_proj_blocks' is float4_e2m1 with a scale for 32 columns of a row; the "
            "configuration ('fp8') states float8_e4m3 with a scale for the tensor");
}

}  // namespace
}  // namespace baton
