/// The sizes of a step's memory.
#include "model/workspace.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/config.h"
#include "support/recording_backend.h"

namespace baton {
namespace {

ModelSpec spec_of_long_positions() {
  return parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 3, "hidden_size": 16,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 10, "vocab_size": 7,
      "max_position_embeddings": 100000})",
                          "the test")
      .value();
}

constexpr StepBounds kBounds{.max_rows = 8, .max_samples = 2, .max_partials = 4, .max_slots = 2, .max_positions = 50};

TEST(Workspace, tables_of_rotations_have_the_positions_of_the_longest_sequence_and_no_more) {
  test::RecordingBackend backend;
  const auto made = Workspace::make(spec_of_long_positions(), DType::f32, /*has_f8_rows=*/false, backend, kBounds);
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ((*made)->ropes.size(), 1u);
  const RopeTable& rope = (*made)->ropes[0];
  EXPECT_EQ(rope.cos.shape, (Shape{50, 2}));
  EXPECT_EQ(rope.sin.shape, (Shape{50, 2}));
  const auto cosines = rope.cos.elements<float>();
  const auto sines = rope.sin.elements<float>();
  EXPECT_EQ(cosines[0], 1.0f);
  EXPECT_EQ(sines[0], 0.0f);
  EXPECT_EQ(cosines[2 * 49], static_cast<float>(std::cos(49.0)));
  EXPECT_EQ(sines[2 * 49], static_cast<float>(std::sin(49.0)));
}

TEST(Workspace, tables_of_scaled_queries_have_a_factor_for_each_position) {
  ModelSpec spec = spec_of_long_positions();
  spec.ropes[0].query_beta = 0.5;
  spec.ropes[0].query_length = 20;
  test::RecordingBackend backend;
  const auto made = Workspace::make(spec, DType::f32, /*has_f8_rows=*/false, backend, kBounds);
  ASSERT_TRUE(made) << made.error().message;
  const ConstTensorView& factors = (*made)->ropes[0].q_factor;
  ASSERT_EQ(factors.shape, (Shape{50}));
  EXPECT_EQ(factors.elements<float>()[0], 1.0f);
  EXPECT_EQ(factors.elements<float>()[19], 1.0f);
  EXPECT_EQ(factors.elements<float>()[20], static_cast<float>(1 + 0.5 * std::log(2.0)));
  EXPECT_EQ(factors.elements<float>()[49], static_cast<float>(1 + 0.5 * std::log(3.0)));
}

TEST(Workspace, buffers_hold_the_widest_layer) {
  ModelSpec spec = spec_of_long_positions();
  spec.layers[1].feed_forward.d_ff = 30;
  spec.layers[2].attention.n_heads = 6;
  group_layers(spec);
  test::RecordingBackend backend;
  const auto made = Workspace::make(spec, DType::f32, /*has_f8_rows=*/false, backend, kBounds);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->rows.size_bytes(), 2u * 8 * sizeof(TokenRow)) << "two layer groups";
  EXPECT_EQ((*made)->up.size_bytes(), 8u * 2 * 30 * 4);
  EXPECT_EQ((*made)->activated.size_bytes(), 8u * 30 * 4);
  EXPECT_EQ((*made)->qkv.size_bytes(), 8u * (6 + 2 * 2) * 4 * 4);
  EXPECT_EQ((*made)->partial_o.size_bytes(), 4u * 6 * 4 * 4);
  EXPECT_EQ((*made)->logits.size_bytes(), 2u * 7 * 4);
  EXPECT_EQ((*made)->router_logits.size_bytes() + (*made)->expert_out.size_bytes(), 0u) << "no experts";
}

TEST(Workspace, a_row_has_room_for_each_of_its_experts) {
  ModelSpec spec = spec_of_long_positions();
  spec.layers[1].feed_forward = {.d_ff = 6, .n_experts = 9, .n_experts_per_row = 4};
  test::RecordingBackend backend;
  const auto made = Workspace::make(spec, DType::f32, /*has_f8_rows=*/false, backend, kBounds);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->up.size_bytes(), 8u * 4 * 2 * 6 * 4) << "wider than the dense layers' 2 * 10";
  EXPECT_EQ((*made)->activated.size_bytes(), 8u * 4 * 6 * 4);
  EXPECT_EQ((*made)->expert_out.size_bytes(), 8u * 4 * 16 * 4);
  EXPECT_EQ((*made)->router_logits.size_bytes(), 8u * 9 * 4);
  const ExpertChoices choices = (*made)->expert_choices(spec.layers[1].feed_forward, 5);
  EXPECT_EQ(choices.places.shape, (Shape{5, 4}));
  EXPECT_EQ(choices.rows.shape, (Shape{20}));
  EXPECT_EQ(choices.offsets.shape, (Shape{10}));
}

}  // namespace
}  // namespace baton
