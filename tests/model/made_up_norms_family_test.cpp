/// A model with the norms, gates and scales that Llama does without (support/made_up_norms_family.h), against its formulas
/// in float64 (tools/goldens/made_up_norms.py).
#include "support/made_up_norms_family.h"

#include <functional>

#include <gtest/gtest.h>

#include "model/layer.h"
#include "support/drawn_golden.h"
#include "support/float64_golden.h"
#include "support/golden_model.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using testing::Golden;
using testing::GoldenModel;
using testing::relative_error;

constexpr Family kNormsFamilies[] = {testing::kMadeUpNormsFamily};

std::filesystem::path norms_folder() { return test::source_folder() / "tests/goldens/made_up_norms_tiny"; }

TEST(MadeUpNormsFamily, expects_the_tensors_of_its_checkpoint_and_no_others) {
  const auto spec = read_model_spec(norms_folder(), kNormsFamilies);
  ASSERT_TRUE(spec) << spec.error().message;
  const test::DrawnGolden golden(norms_folder());
  const auto checkpoint = Checkpoint::open(golden.folder());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  std::int64_t n = 0;
  for (const ExpectedTensor& tensor : expected_tensors(*spec)) n += tensor.shape.n_elements();
  EXPECT_EQ(spec->n_parameters(), n);
  EXPECT_EQ(expected_tensors(*spec).size(), checkpoint->n_tensors());
}

TEST(MadeUpNormsFamily, logits_and_greedy_tokens_equal_those_of_float64) {
  testing::expect_float64_golden(norms_folder(), kNormsFamilies);
}

TEST(MadeUpNormsFamily, bf16_stays_near_float64) { testing::expect_bf16_near_float64(norms_folder(), kNormsFamilies); }

/// The error of float32 logits with a changed spec.
double error_with(const std::function<void(ModelSpec&)>& change, DType dtype = DType::f32) {
  static const Golden golden(norms_folder() / "golden.safetensors");
  GoldenModel model(norms_folder(), dtype, {.families = kNormsFamilies, .change = change});
  return relative_error(model.run(golden.read<std::int32_t>("input_ids"), 0, true, nullptr), golden.read<float>("logits"));
}

// Each option counts: without it the logits are others, so that none is read and then ignored.
TEST(MadeUpNormsFamily, no_option_is_without_effect) {
  const auto in_layers = [](const std::function<void(LayerSpec&)>& change) {
    return [change](ModelSpec& spec) {
      for (LayerSpec& layer : spec.layers) change(layer);
      group_layers(spec);
    };
  };
  constexpr double kOther = 1e-3;
  EXPECT_LE(error_with([](ModelSpec&) {}), 1e-4);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[0].has_post_norms = false; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[0].has_pre_norms = false; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[0].attention.qk_norm = QkNorm::none; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[1].attention.qk_norm = QkNorm::none; }), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.qk_norm_spec.epsilon = 1; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.attention.qk_norm_spec.weight_offset = 0; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.norm.epsilon = 1; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.norm.weight_offset = 0; })), kOther);
  EXPECT_GT(error_with(in_layers([](LayerSpec& layer) { layer.residual_scale = 1; })), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[1].attention.rope = 0; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[2].attention.rope = 0; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[2].attention.rope = AttentionSpec::kNoRope; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.embedding_scale = 1; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.logits_scale = 1; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.logits_softcap = 0; }), kOther);
  EXPECT_GT(error_with([](ModelSpec& spec) { spec.layers[2].feed_forward.kind = FeedForwardSpec::Kind::gated_gelu; }), kOther);
  const double tanh = error_with([](ModelSpec& spec) { spec.layers[1].feed_forward.kind = spec.layers[0].feed_forward.kind; });
  EXPECT_GT(tanh, 1e-6);
  EXPECT_LT(tanh, 1e-2) << "the approximation is near";
}

// A scale far between two numbers of bf16: rounding it is another model, which only the rounded golden could show.
TEST(MadeUpNormsFamily, the_embedding_scale_is_rounded_to_the_dtype_of_the_weights_if_the_spec_says_so) {
  const auto logits_with = [](DType dtype, float scale, bool rounds) {
    const auto change = [&](ModelSpec& spec) {
      spec.embedding_scale = scale;
      spec.rounds_embedding_scale = rounds;
    };
    GoldenModel model(norms_folder(), dtype, {.families = kNormsFamilies, .change = change});
    return model.run(std::vector<TokenId>{1, 5, 9, 70}, 0, true, nullptr);
  };
  EXPECT_EQ(logits_with(DType::f32, 6.9f, true), logits_with(DType::f32, 6.9f, false));
  if (make_backend("cpu", {}).value()->capabilities().has_bf16_matmul) {
    const float rounded = static_cast<float>(BFloat16(6.9f));
    EXPECT_EQ(logits_with(DType::bf16, 6.9f, true), logits_with(DType::bf16, rounded, false));
    EXPECT_NE(logits_with(DType::bf16, 6.9f, true), logits_with(DType::bf16, 6.9f, false));
  }
}

TEST(MadeUpNormsFamilyDeathTest, norms_that_no_operation_computes_are_refused) {
  const auto run_with = [](const std::function<void(LayerSpec&)>& change) {
    error_with([&](ModelSpec& spec) { change(spec.layers[0]); });
  };
  EXPECT_DEATH(run_with([](LayerSpec& layer) { layer.norm.kind = NormSpec::Kind::layer; }), "post-norms must be RMS norms");
  EXPECT_DEATH(run_with([](LayerSpec& layer) { layer.attention.qk_norm_spec.kind = NormSpec::Kind::layer; }),
               "norms of queries and keys must be RMS norms");
}

}  // namespace
}  // namespace baton
