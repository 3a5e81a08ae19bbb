/// Weights that are rounded to 8 or 4 bits while they are read (model/source/rounding.h, rounding_source.h).
#include "model/source/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/split_mix.h"
#include "io/file.h"
#include "model/config.h"
#include "model/source/random.h"
#include "model/source/safetensors.h"
#include "model/weights.h"
#include "support/checkpoint_writer.h"
#include "support/recording_backend.h"
#include "support/source_folder.h"

namespace baton {
namespace {

constexpr WeightScheme kRoundedSchemes[] = {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4};

/// A rounded row.
struct RoundedRow {
  MatrixForm form;
  std::vector<std::byte> values;
  std::vector<float> scales;
  bool is_good = false;

  RoundedRow(const WeightRounding& rounding, const std::vector<float>& weights)
      : form(rounded_form(rounding, static_cast<std::int64_t>(weights.size()))) {
    const auto k = static_cast<std::int64_t>(weights.size());
    values.resize(static_cast<std::size_t>(rounded_row_bytes(form.scheme, k)));
    scales.resize(static_cast<std::size_t>((k + form.scale_columns - 1) / form.scale_columns));
    is_good = round_row(weights, form, values.data(), scales);
  }
  std::vector<float> widened(std::size_t k) const {
    std::vector<float> made(k);
    widen_row(form, values.data(), scales, made);
    return made;
  }
  int byte(std::size_t i) const { return std::to_integer<int>(values[i]); }
};

std::vector<float> drawn_row(std::int64_t k, std::uint64_t key) {
  std::vector<float> row(static_cast<std::size_t>(k));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(split_mix(key, i) >> 40) * 0x1p-24f - 0.5f;
  return row;
}

TEST(Rounding, of_int8_is_to_nearest_even_of_128_steps) {
  const std::vector<float> weights{127.5f, -127.5f, 0.5f, 1.5f, 2.4f, -0.5f, -2.6f, 0};
  const RoundedRow row({.scheme = WeightScheme::i8}, weights);
  ASSERT_TRUE(row.is_good);
  EXPECT_EQ(row.scales, std::vector<float>{1});
  const std::vector<int> expected{127, -128, 0, 2, 2, 0, -3, 0};
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(row.byte(i) - 128, expected[i]) << i;
}

TEST(Rounding, of_int4_has_a_scale_for_each_group_in_bfloat16) {
  std::vector<float> weights(256, 0.0f);
  weights[0] = 7.5f;
  weights[1] = -7.5f;
  weights[2] = 2.5f;
  weights[128] = 75;
  weights[255] = -36;
  const RoundedRow row({.scheme = WeightScheme::i4}, weights);
  ASSERT_TRUE(row.is_good);
  EXPECT_EQ(row.scales, (std::vector<float>{1, 10}));
  EXPECT_EQ(row.byte(0), (7 + 8) | (-8 + 8) << 4) << "the first column is in the low bits";
  EXPECT_EQ(row.byte(1), (2 + 8) | 8 << 4);
  EXPECT_EQ(row.byte(64), 15 | 8 << 4);
  EXPECT_EQ(row.byte(127), 8 | (-4 + 8) << 4);
  const RoundedRow third({.scheme = WeightScheme::i4}, {1, 0});
  EXPECT_EQ(third.scales[0], static_cast<float>(BFloat16(1 / 7.5f))) << "weights are divided by the scale that is stored";
}

TEST(Rounding, of_fp8_gives_the_largest_weight_the_largest_number) {
  const std::vector<float> weights{-3, 1, 0.01f, 1e-9f};
  const RoundedRow row({.scheme = WeightScheme::f8}, weights);
  ASSERT_TRUE(row.is_good);
  EXPECT_EQ(row.scales, std::vector<float>{3 / 448.0f});
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(row.byte(i), Float8E4M3(weights[i] / row.scales[0]).bits) << i;
  EXPECT_EQ(row.byte(0), 0xfe);
}

TEST(Rounding, is_never_further_off_than_half_a_step) {
  for (const WeightScheme scheme : kRoundedSchemes)
    for (const std::int64_t k : {1, 2, 17, 64, 172, 576, 1024}) {
      const std::vector<float> weights = drawn_row(k, static_cast<std::uint64_t>(k));
      const RoundedRow row({.scheme = scheme}, weights);
      ASSERT_TRUE(row.is_good);
      const std::vector<float> widened = row.widened(weights.size());
      for (std::size_t c = 0; c < weights.size(); ++c) {
        const float scale = row.scales[c / static_cast<std::size_t>(row.form.scale_columns)];
        const float step = scheme == WeightScheme::f8 ? std::max(std::abs(weights[c]) / 8, scale * 0x1p-9f) : scale;
        EXPECT_LE(std::abs(widened[c] - weights[c]), 0.5f * step + 0.04f * scale) << to_string(scheme) << " " << k << " " << c;
      }
    }
}

TEST(Rounding, of_zeros_and_of_numbers_too_small_for_a_scale_is_zero) {
  for (const WeightScheme scheme : kRoundedSchemes)
    for (const float small : {0.0f, 1e-44f}) {
      const RoundedRow row({.scheme = scheme}, {small, -small, 0});
      ASSERT_TRUE(row.is_good);
      for (const float value : row.widened(3)) EXPECT_LE(std::abs(value), 1e-40f) << to_string(scheme);
    }
}

TEST(Rounding, refuses_numbers_that_are_not_finite_and_takes_the_largest) {
  for (const WeightScheme scheme : kRoundedSchemes) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
      EXPECT_FALSE(RoundedRow({.scheme = scheme}, {1, bad, 2}).is_good);
    const float largest = std::numeric_limits<float>::max();
    const RoundedRow row({.scheme = scheme}, {largest, -largest});
    ASSERT_TRUE(row.is_good);
    EXPECT_NEAR(row.widened(2)[0] / largest, 1, 0.07) << to_string(scheme);
  }
}

TEST(Rounding, takes_the_largest_group_that_divides_a_row) {
  const auto group = [](std::int64_t k, std::int64_t most) {
    return rounded_form({.scheme = WeightScheme::i4, .group = most}, k).scale_columns;
  };
  EXPECT_EQ(group(4096, 128), 128);
  EXPECT_EQ(group(4096, 32), 32);
  EXPECT_EQ(group(576, 128), 64);
  EXPECT_EQ(group(48, 128), 16);
  EXPECT_EQ(group(64, 128), 64);
  EXPECT_EQ(group(172, 128), 172) << "the whole row: 4 columns are too few for a scale";
  EXPECT_EQ(rounded_form({.scheme = WeightScheme::i8}, 4096).scale_columns, 4096);
}

ModelSpec two_layers(const std::string& more = "") {
  return parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96, "vocab_size": 41,
      "max_position_embeddings": 16)" +
                              more + "}",
                          "the test")
      .value();
}

ModelSpec spec_with_experts() {
  ModelSpec spec = two_layers();
  spec.names.router = "model.layers.{}.moe.gate";
  spec.names.expert_gate = "model.layers.{}.moe.experts.{}.w1";
  spec.names.expert_up = "model.layers.{}.moe.experts.{}.w3";
  spec.names.expert_down = "model.layers.{}.moe.experts.{}.w2";
  spec.layers[1].feed_forward = {.d_ff = 96, .n_experts = 3, .n_experts_per_row = 2};
  return spec;
}

ModelWeights loaded_weights(const ModelSpec& spec, const WeightRounding& rounding, DType dtype = DType::f32,
                            int n_threads = 1) {
  test::RecordingBackend backend;
  return random_weights(spec, backend, dtype, 7, n_threads, rounding).value();
}

/// The rows of a dense matrix, rounded and widened again.
std::vector<float> rounded_rows(const Linear& dense, const WeightRounding& rounding) {
  const std::vector<float>& values = test::values_of(dense.weight());
  const auto k = static_cast<std::size_t>(dense.n_in());
  std::vector<float> made;
  for (std::size_t begin = 0; begin < values.size(); begin += k) {
    const std::vector<float> weights(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                     values.begin() + static_cast<std::ptrdiff_t>(begin + k));
    const std::vector<float> row = RoundedRow(rounding, weights).widened(k);
    made.insert(made.end(), row.begin(), row.end());
  }
  return made;
}

TEST(RoundedWeights, are_those_of_every_matrix_but_embedding_output_layer_and_routers) {
  const ModelSpec spec = spec_with_experts();
  const ModelWeights dense = loaded_weights(spec, {});
  EXPECT_EQ(dense.scheme_text(), "float32");
  for (const WeightScheme scheme : kRoundedSchemes) {
    SCOPED_TRACE(to_string(scheme));
    const WeightRounding rounding{.scheme = scheme, .group = 32};
    const ModelWeights weights = loaded_weights(spec, rounding);
    for (std::size_t i = 0; i < 2; ++i) {
      const LayerWeights& layer = weights.layers[i];
      EXPECT_EQ(layer.qkv.weight().scheme, scheme);
      EXPECT_EQ(test::values_of(layer.qkv.weight()), rounded_rows(dense.layers[i].qkv, rounding));
      EXPECT_EQ(test::values_of(layer.attention_out.weight()), rounded_rows(dense.layers[i].attention_out, rounding));
    }
    EXPECT_EQ(test::values_of(weights.layers[0].up.weight()), rounded_rows(dense.layers[0].up, rounding));
    EXPECT_EQ(test::values_of(weights.layers[0].down.weight()), rounded_rows(dense.layers[0].down, rounding));
    EXPECT_EQ(weights.layers[1].router.weight().scheme, WeightScheme::dense);
    EXPECT_NE(test::values_of(weights.layers[1].expert_up.weights(), 2),
              test::values_of(dense.layers[1].expert_up.weights(), 2));
    EXPECT_EQ(weights.lm_head.weight().scheme, WeightScheme::dense);
    EXPECT_EQ(weights.scheme_text(), to_string(scheme));
    EXPECT_EQ(weights.dense_modules, (std::set<std::string>{"lm_head", "model.layers.*.moe.gate"}));
    EXPECT_EQ(test::to_floats(weights.embedding), test::to_floats(dense.embedding));
  }
}

TEST(RoundedWeights, the_output_layer_is_rounded_where_it_is_asked_for_also_if_it_is_the_embedding) {
  for (const bool ties : {false, true}) {
    const ModelSpec spec = two_layers(ties ? R"(, "tie_word_embeddings": true)" : "");
    const ModelWeights dense = loaded_weights(spec, {});
    const WeightRounding rounding{.scheme = WeightScheme::i4, .rounds_lm_head = true};
    const ModelWeights weights = loaded_weights(spec, rounding);
    EXPECT_EQ(weights.lm_head.weight().scheme, WeightScheme::i4);
    EXPECT_EQ(test::values_of(weights.lm_head.weight()), rounded_rows(dense.lm_head, rounding));
    EXPECT_EQ(test::to_floats(weights.embedding), test::to_floats(dense.embedding)) << "the table is dense";
  }
}

TEST(RoundedWeights, do_not_depend_on_the_dtype_of_activations_or_on_threads) {
  for (const WeightScheme scheme : kRoundedSchemes) {
    const WeightRounding rounding{.scheme = scheme};
    const ModelWeights weights = loaded_weights(two_layers(), rounding);
    const ModelWeights in_bf16 = loaded_weights(two_layers(), rounding, DType::bf16, 3);
    EXPECT_EQ(test::values_of(weights.layers[1].up.weight()), test::values_of(in_bf16.layers[1].up.weight()));
    EXPECT_EQ(test::values_of(weights.layers[0].qkv.weight()), test::values_of(in_bf16.layers[0].qkv.weight()));
  }
}

TEST(RoundedWeights, take_less_memory_and_that_is_foretold) {
  for (const bool ties : {false, true}) {
    const ModelSpec spec = two_layers(ties ? R"(, "tie_word_embeddings": true)" : "");
    const std::int64_t linear = 2 * ((128 + 128) * 64 + 64 * 128 + 192 * 64 + 64 * 96);
    const std::int64_t table = 41 * 64;
    const std::int64_t rows = 2 * (256 + 64 + 192 + 64);
    const std::int64_t norms = 5 * 64 * 4;
    const auto held = [&](const WeightRounding& rounding) {
      return weight_bytes(spec, DType::bf16, ModelRank{}, nullptr, rounding).held;
    };
    EXPECT_EQ(held({.scheme = WeightScheme::i8}), linear + rows * 4 + 2 * 2 * table + norms);
    // int4: a scale in bfloat16 for 64, 64, 64 and 32 columns, and for 128.
    const std::int64_t groups = 2 * (256 + 64 + 192 + 64 * 3);
    EXPECT_EQ(held({.scheme = WeightScheme::i4}), linear / 2 + groups * 2 + 2 * 2 * table + norms);
    const std::int64_t head = table / 2 + 128;  // values, and 41 scales, each in whole cache lines
    EXPECT_EQ(held({.scheme = WeightScheme::i4, .rounds_lm_head = true}),
              linear / 2 + groups * 2 + 2 * table + (head + 63) / 64 * 64 + norms);
  }
}

TEST(RoundedWeights, of_a_checkpoint_are_rounded_from_its_own_values_once) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "baton_rounding_test";
  std::filesystem::create_directories(folder);
  const ModelSpec spec = two_layers();
  std::vector<test::TensorToWrite> tensors;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    std::vector<std::int64_t> shape{tensor.shape[0]};
    if (tensor.shape.rank() == 2) shape.push_back(tensor.shape[1]);
    tensors.push_back(test::f32_tensor(tensor.name, shape, drawn_row(tensor.shape.n_elements(), tensors.size())));
  }
  const auto load = [&](const WeightRounding& rounding, DType dtype) -> Result<ModelWeights> {
    EXPECT_TRUE(write_file(folder / "model.safetensors", test::safetensors_file(tensors)));
    BATON_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
    test::RecordingBackend backend;
    return load_weights(spec, checkpoint, backend, dtype, 2, rounding);
  };
  const WeightRounding rounding{.scheme = WeightScheme::i8};
  const auto dense = load({}, DType::f32);
  ASSERT_TRUE(dense) << dense.error().message;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto weights = load(rounding, dtype);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(test::values_of(weights->layers[1].down.weight()), rounded_rows(dense->layers[1].down, rounding));
  }
  const auto down =
      std::ranges::find_if(tensors, [](const auto& tensor) { return tensor.name.ends_with("1.mlp.down_proj.weight"); });
  const float bad = std::numeric_limits<float>::infinity();
  down->bytes.replace(400, 4, reinterpret_cast<const char*>(&bad), 4);
  const auto refused = load(rounding, DType::bf16);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "tensor 'model.layers.1.mlp.down_proj.weight' holds a number that is not finite and cannot be quantised");
  std::filesystem::remove_all(folder);
}

TEST(RoundedWeights, are_not_made_of_quantised_ones) {
  const auto folder = test::source_folder() / "tests/goldens/quantised/ct_int8";
  const ModelSpec spec = read_model_spec(folder).value();
  const Checkpoint checkpoint = Checkpoint::open(folder).value();
  test::RecordingBackend backend;
  const auto weights = load_weights(spec, checkpoint, backend, DType::bf16, 1, {.scheme = WeightScheme::i4});
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("is stored as int8 already"), std::string::npos) << weights.error().message;
}

}  // namespace
}  // namespace baton
