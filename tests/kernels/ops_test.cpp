/// The argument checks of every operation: a violation is reported before a backend is called.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/recording_backend.h"

namespace baton {
namespace {

using testing::HostTensor;

TEST(OpsDeathTest, a_wrong_shape_is_named_with_both_shapes) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor weight(DType::f32, {7});
  HostTensor out(DType::f32, {3, 8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, weight.view(), out.view()}), "weight has shape .*7.*expected .*8");
  HostTensor gate_up(DType::f32, {3, 15});
  EXPECT_DEATH(gated_activation(backend, {gate_up.view(), out.view()}), "shape .*15.*expected .*16");
}

TEST(OpsDeathTest, a_gated_matmul_activates_what_it_makes_and_keeps_x) {
  test::RecordingBackend backend;
  PackedMatrix weight;
  weight.n = 16;
  weight.k = 8;
  HostTensor x(DType::f32, {3, 8});
  HostTensor made(DType::f32, {3, 16});
  HostTensor other(DType::f32, {3, 16});
  HostTensor out(DType::f32, {3, 8});
  EXPECT_DEATH(gated_matmul(backend, {{x.view(), &weight, made.view()}, {other.view(), out.view()}}),
               "the activation is not of what the matmul makes");
  EXPECT_DEATH(gated_matmul(backend, {{x.view(), &weight, made.view()}, {made.view(), x.view()}}), "out overlaps x");
}

TEST(OpsDeathTest, biases_and_second_deltas_must_fit) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor weight(DType::f32, {8});
  HostTensor short_bias(DType::f32, {7});
  HostTensor half_bias(DType::f16, {8});
  HostTensor out(DType::f32, {3, 8});
  HostTensor delta(DType::f32, {3, 8});
  HostTensor half_delta(DType::bf16, {3, 8});
  EXPECT_DEATH(layer_norm(backend, {x.view(), {}, weight.view(), short_bias.view(), out.view()}),
               "layer_norm bias has shape .*7.*expected .*8");
  EXPECT_DEATH(layer_norm(backend, {x.view(), {}, weight.view(), half_bias.view(), out.view()}),
               "layer_norm bias must be float32, is float16");
  HostTensor half_weight(DType::bf16, {8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, half_weight.view(), out.view()}), "norm weight must be float32, is bfloat16");
  EXPECT_DEATH(
      layer_norm(backend, {x.view(), {.first = {}, .second = delta.view(), .norm_weight = {}}, weight.view(), {}, out.view()}),
      "norm: a second delta without a first");
  EXPECT_DEATH(
      rms_norm(backend,
               {x.view(), {.first = delta.view(), .second = half_delta.view(), .norm_weight = {}}, weight.view(), out.view()}),
      "norm second delta must be float32, is bfloat16");
  Deltas normed{.first = delta.view(), .second = {}, .norm_weight = short_bias.view()};
  EXPECT_DEATH(rms_norm(backend, {x.view(), normed, weight.view(), out.view()}), "delta's norm has shape .*7.*expected .*8");
  normed.norm_weight = weight.view();
  EXPECT_DEATH(layer_norm(backend, {x.view(), normed, weight.view(), {}, out.view()}), "layer_norm: the norm of a delta");
  normed.second = delta.view();
  EXPECT_DEATH(rms_norm(backend, {x.view(), normed, weight.view(), out.view()}), "the norm of a delta needs one delta");
  EXPECT_DEATH(layer_norm(backend, {x.view(), {}, {}, {}, out.view()}), "layer_norm: no weight");
  EXPECT_DEATH(scale_logits(backend, {x.view(), 1, -1}), "the soft-cap is negative");
  HostTensor wide(DType::f32, {3, 9});
  EXPECT_DEATH(activation(backend, {wide.view(), out.view()}), "activation in has shape .*9.*expected .*8");
  EXPECT_DEATH(activation(backend, {x.view(), x.view()}), "activation: out overlaps in");
  test::RecordedMatrix matrix;
  matrix.n = matrix.k = 8;
  EXPECT_DEATH(matmul(backend, {x.view(), &matrix, out.view(), short_bias.view()}), "matmul bias has shape .*7.*expected .*8");
}

TEST(OpsDeathTest, a_wrong_dtype_is_named) {
  test::RecordingBackend backend;
  HostTensor x(DType::bf16, {3, 8});
  HostTensor weight(DType::f32, {8});
  HostTensor out(DType::f32, {3, 8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, weight.view(), out.view()}), "x must be float32, is bfloat16");
  HostTensor table(DType::i32, {16, 8});
  HostTensor ids(DType::i32, {3});
  EXPECT_DEATH(embedding(backend, {out.view(), table.view(), ids.view()}), "table must be f32, bf16 or f16, is int32");
}

TEST(OpsDeathTest, overlapping_memory_is_refused) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor weight(DType::f32, {8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, weight.view(), x.view()}), "out overlaps x");
  const TensorView parts{x.view().data, x.view().dtype, {1, x.view().shape[0], x.view().shape[1]}};
  EXPECT_DEATH(all_gather(backend, {parts, x.view()}), "out overlaps parts");
}

TEST(OpsDeathTest, the_second_form_of_a_norm_is_beside_rows_in_8_bits) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 16}), out(DType::f32, {3, 16}), f8(DType::f8_e4m3, {3, 16}), scales(DType::f32, {3});
  RmsNormArgs args{.x = x.view(), .deltas = {}, .weight = {}, .out = out.view()};
  args.wide_out = out.view();
  EXPECT_DEATH(rms_norm(backend, args), "wide_out without out in 8 bits");
  args.out = f8.view();
  args.out_scales = scales.view();
  args.wide_out = x.view();
  EXPECT_DEATH(rms_norm(backend, args), "wide_out overlaps another tensor");
  args.wide_out = f8.view();
  EXPECT_DEATH(rms_norm(backend, args), "rms_norm wide_out must be f32, bf16 or f16");
}

TEST(OpsDeathTest, a_product_needs_a_weight_of_its_width_and_dtype) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor out(DType::f32, {3, 4});
  EXPECT_DEATH(matmul(backend, {x.view(), nullptr, out.view()}), "matmul: no weight");
  test::RecordedMatrix weight;
  weight.n = 4;
  weight.k = 9;
  weight.dtype = DType::f32;
  EXPECT_DEATH(matmul(backend, {x.view(), &weight, out.view()}), "matmul x has shape .*8.*expected .*9");
  weight.k = 8;
  weight.dtype = DType::bf16;
  EXPECT_DEATH(matmul(backend, {x.view(), &weight, out.view()}), "matmul x must be bfloat16, is float32");
}

TEST(OpsDeathTest, a_norm_of_columns_stays_within_its_rows) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor weight(DType::f32, {6});
  HostTensor half_weight(DType::bf16, {6});
  HostTensor out(DType::f32, {3, 6});
  HostTensor two_rows(DType::f32, {2, 6});
  EXPECT_DEATH(norm_columns(backend, {x.view(), 3, weight.view(), out.view()}), "out has other rows than x, or more columns");
  EXPECT_DEATH(norm_columns(backend, {x.view(), -1, weight.view(), out.view()}), "out has other rows than x, or more columns");
  EXPECT_DEATH(norm_columns(backend, {x.view(), 0, weight.view(), two_rows.view()}), "out has other rows than x");
  EXPECT_DEATH(norm_columns(backend, {x.view(), 2, half_weight.view(), out.view()}), "weight must be float32, is bfloat16");
  EXPECT_DEATH(norm_columns(backend, {out.view(), 0, weight.view(), out.view()}), "out overlaps x");
  EXPECT_DEATH(norm_columns(backend, {x.view(), 2, weight.view(), out.view(), -1}), "eps is negative");
}

TEST(OpsDeathTest, matrices_of_heads_need_columns_of_each_head_and_room_for_their_outputs) {
  test::RecordingBackend backend;
  test::RecordedHeads heads;
  heads.n_heads = 2;
  heads.n = 4;
  heads.k = 3;
  HostTensor x(DType::f32, {5, 8});
  HostTensor out(DType::f32, {5, 2, 4});
  HostTensor short_out(DType::f32, {5, 2, 3});
  HostTensor three_heads(DType::f32, {5, 3, 4});
  EXPECT_DEATH(head_matmul(backend, {x.view(), 4, nullptr, out.view()}), "head_matmul: no weights");
  EXPECT_DEATH(head_matmul(backend, {x.view(), 5, &heads, out.view()}), "x has too few columns");
  EXPECT_DEATH(head_matmul(backend, {x.view(), 2, &heads, out.view()}), "x has too few columns");
  EXPECT_DEATH(head_matmul(backend, {x.view(), 4, &heads, short_out.view()}), "out has too few elements a head");
  EXPECT_DEATH(head_matmul(backend, {x.view(), 4, &heads, three_heads.view()}), "out has shape .*3.*expected .*2");
  heads.dtype = DType::bf16;
  EXPECT_DEATH(head_matmul(backend, {x.view(), 4, &heads, out.view()}), "x must be bfloat16, is float32");
}

TEST(OpsDeathTest, routing_needs_groups_with_enough_experts_and_a_logit_and_bias_for_each) {
  test::RecordingBackend backend;
  StepInput step;
  step.header().n_rows = 3;
  step.finish();
  HostTensor logits(DType::f32, {3, 8});
  HostTensor of_rows(DType::i32, {3, 4});
  HostTensor weights(DType::f32, {3, 4});
  HostTensor rows(DType::i32, {12});
  HostTensor offsets(DType::i32, {9});
  HostTensor short_bias(DType::f32, {7});
  const ExpertChoices choices{of_rows.view(), weights.view(), of_rows.view(), rows.view(), offsets.view()};
  const StepView view = step.view();
  const char* const groups = "groups of different sizes, or with too few experts for a row";
  EXPECT_DEATH(route_experts(backend, {view, logits.view(), choices, {.n_groups = 3, .n_groups_per_row = 2}}), groups);
  EXPECT_DEATH(route_experts(backend, {view, logits.view(), choices, {.n_groups = 4, .n_groups_per_row = 1}}), groups);
  EXPECT_DEATH(route_experts(backend, {view, logits.view(), choices, {}, short_bias.view()}),
               "choice_bias has shape .*7.*expected .*8");
  HostTensor few_logits(DType::f32, {3, 7});
  EXPECT_DEATH(route_experts(backend, {view, few_logits.view(), choices}), "fewer logits than experts");
}

TEST(OpsDeathTest, a_shared_expert_is_added_whole_and_in_the_dtype_of_the_others) {
  test::RecordingBackend backend;
  HostTensor in(DType::f32, {12, 8});
  HostTensor of_rows(DType::i32, {3, 4});
  HostTensor weights(DType::f32, {3, 4});
  HostTensor rows(DType::i32, {12});
  HostTensor offsets(DType::i32, {9});
  HostTensor out(DType::f32, {3, 8});
  HostTensor half(DType::bf16, {3, 8});
  HostTensor two_rows(DType::f32, {2, 1});
  const ExpertChoices choices{of_rows.view(), weights.view(), of_rows.view(), rows.view(), offsets.view()};
  EXPECT_DEATH(combine_experts(backend, {in.view(), choices, out.view(), half.view()}), "shared must be float32, is bfloat16");
  EXPECT_DEATH(combine_experts(backend, {in.view(), choices, out.view(), out.view(), two_rows.view()}),
               "gate_logits .rows, n.");
  EXPECT_DEATH(combine_experts(backend, {in.view(), choices, out.view(), {}, weights.view()}), "a gate of nothing");
}

}  // namespace
}  // namespace baton
