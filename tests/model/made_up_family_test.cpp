/// A model of a family that Baton does not ship, with options that Llama does not use (support/made_up_family.h),
/// compared with its formulas in float64 (tools/goldens/made_up.py).
#include "support/made_up_family.h"

#include <functional>

#include <gtest/gtest.h>

#include "model/layer.h"
#include "support/float64_golden.h"
#include "support/golden_model.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using testing::Golden;
using testing::GoldenModel;
using testing::relative_error;

constexpr Family kFamilies[] = {testing::kMadeUpFamily};

std::filesystem::path folder() { return test::source_folder() / "tests/goldens/made_up_tiny"; }

TEST(MadeUpFamily, is_read_from_its_config_alone) {
  const auto spec = read_model_spec(folder(), kFamilies);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->family, "MadeUpForCausalLM");
  ASSERT_EQ(spec->layers.size(), 4u);
  EXPECT_EQ(spec->n_groups(), 2);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spec->layers[i].attention.window, i % 2 == 1 ? 21 : 0);
    EXPECT_EQ(spec->layers[i].group, static_cast<std::int32_t>(i % 2));
    EXPECT_TRUE(spec->layers[i].is_parallel);
  }
  EXPECT_EQ(spec->ropes[0].rotary_dim, 24);
  std::int64_t n = 0;
  for (const ExpectedTensor& tensor : expected_tensors(*spec)) n += tensor.shape.n_elements();
  EXPECT_EQ(spec->n_parameters(), n);
  const std::string refused = read_model_spec(folder()).error().message;
  EXPECT_NE(refused.find("the architecture 'MadeUpForCausalLM' is not supported; known are: "), std::string::npos) << refused;
}

TEST(MadeUpFamily, logits_and_greedy_tokens_equal_those_of_float64) { testing::expect_float64_golden(folder(), kFamilies); }

TEST(MadeUpFamily, bf16_stays_near_float64) { testing::expect_bf16_near_float64(folder(), kFamilies); }

// Each option matters: without it the logits differ, so no option is read and then ignored.
TEST(MadeUpFamily, no_option_is_without_effect) {
  const Golden golden(folder() / "golden.safetensors");
  const auto ids = golden.read<std::int32_t>("input_ids");
  const auto expected = golden.read<float>("logits");
  const auto error_with = [&](const std::function<void(ModelSpec&)>& change) {
    GoldenModel model(folder(), DType::f32, {.families = kFamilies, .change = change});
    return relative_error(model.run(ids, 0, true, nullptr), expected);
  };
  const auto in_layers = [](const std::function<void(LayerSpec&)>& change) {
    return [change](ModelSpec& spec) {
      for (LayerSpec& layer : spec.layers) change(layer);
      group_layers(spec);
    };
  };
  EXPECT_LE(error_with([](ModelSpec&) {}), 1e-4);
  constexpr double kOther = 1e-3;
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.window = 0; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.softcap = 0; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.scale = 0.125f; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.has_qkv_bias = false; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.has_out_bias = false; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.feed_forward.has_bias = false; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.norm.has_bias = false; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.norm.weight_offset = 0.1f; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.norm.kind = NormSpec::Kind::rms; })), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.ropes[0].rotary_dim = 64; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.has_lm_head_bias = false; }), kOther);
  const double tanh =
      error_with(in_layers([](LayerSpec& layer) { layer.feed_forward.kind = FeedForwardSpec::Kind::gelu_tanh; }));
  EXPECT_GT(tanh, 1e-5);
  EXPECT_LT(tanh, 1e-2) << "the approximation is near";
}

}  // namespace
}  // namespace baton
