/// Scales of keys and values under the names that tools give them (model/source/kv_scales.h), and what a cache in 8 bits gets.
#include "model/source/kv_scales.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/decoder.h"
#include "support/changed_checkpoint.h"

namespace baton {
namespace {

using test::TensorToWrite;

/// The scales that a golden of one layer has with these tensors.
Result<KvScales> scales_with(const std::vector<TensorToWrite>& tensors) {
  test::ChangedCheckpoint checkpoint;
  checkpoint.read("fp8_tensor");
  for (const TensorToWrite& tensor : tensors) checkpoint.tensors.push_back(tensor);
  EXPECT_EQ(checkpoint.error(), "no error");
  BATON_TRY(const ModelSpec spec, read_model_spec(checkpoint.folder()));
  BATON_TRY(const Checkpoint opened, Checkpoint::open(checkpoint.folder()));
  return read_kv_scales(spec, opened);
}

const std::string kLayer = "model.layers.0.self_attn.";

TEST(KvScales, are_found_under_each_name) {
  for (const auto& [key, value] : {std::pair("k_proj.k_scale", "v_proj.v_scale"),
                                   {"k_scale", "v_scale"},
                                   {"k_proj.output_scale", "v_proj.output_scale"}}) {
    const auto scales =
        scales_with({test::f32_tensor(kLayer + key, {}, {0.5f}), test::f32_tensor(kLayer + value, {1}, {0.25f})});
    ASSERT_TRUE(scales) << scales.error().message;
    EXPECT_EQ(scales->keys, std::vector{0.5f}) << key;
    EXPECT_EQ(scales->values, std::vector{0.25f}) << value;
    EXPECT_TRUE(is_kv_scale(kLayer + key) && is_kv_scale(kLayer + value));
  }
  EXPECT_FALSE(is_kv_scale(kLayer + "k_proj.weight_scale"));
  EXPECT_TRUE(scales_with({})->keys.empty());
  const auto one = scales_with({{kLayer + "v_proj.v_scale", "BF16", {1, 1}, std::string("\x00\x3f", 2)}});
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_TRUE(one->keys.empty());
  EXPECT_EQ(one->values, std::vector{0.5f});
}

TEST(KvScales, that_no_cache_can_use_are_named) {
  const auto error = [](const TensorToWrite& tensor) { return scales_with({tensor}).error().message; };
  const std::string name = kLayer + "k_proj.k_scale";
  EXPECT_EQ(error(test::f32_tensor(name, {2}, {1, 1})),
            "tensor '" + name + "' is float32 [2]; one float is read as the scale of a layer's keys or values");
  EXPECT_NE(error({name, "U8", {}, "\x7f"}).find("' is uint8 []; one float is read"), std::string::npos);
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_NE(error(test::f32_tensor(name, {}, {bad})).find("a scale must be finite and above 0"), std::string::npos);
}

TEST(KvScales, are_those_of_a_cache_in_8_bits_alone) {
  test::ChangedCheckpoint checkpoint;
  checkpoint.read("fp8_tensor");
  auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  weights->kv_scales = {.keys = {0.5f}, .values = {}};
  const Model model(read_model_spec(checkpoint.folder()).value(), std::move(*weights));
  const KvShape in_8_bits = model.kv_shapes(1, 16, DType::f8_e4m3).front();
  EXPECT_EQ(in_8_bits.k_scales, std::vector{0.5f});
  EXPECT_TRUE(in_8_bits.v_scales.empty());
  EXPECT_TRUE(model.kv_shapes(1, 16, DType::bf16).front().k_scales.empty());
}

}  // namespace
}  // namespace baton
