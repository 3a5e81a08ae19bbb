/// Loading of checkpoints to a backend: required tensors, fusing, error messages.
#include "model/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "io/file.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/source/random.h"
#include "model/source/safetensors.h"
#include "support/checkpoint_writer.h"
#include "support/drawn_golden.h"
#include "support/recording_backend.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using test::f32_tensor;
using test::safetensors_file;
using test::TensorToWrite;
using test::to_floats;
using test::values_of;

ModelSpec llama_of_seven_tokens() {
  return parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 6,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "intermediate_size": 5, "vocab_size": 7,
      "max_position_embeddings": 16})",
                          "the test")
      .value();
}

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

void give_latent_attention(ModelSpec& spec, const LatentSpec& latent) {
  spec.names.q = "model.layers.{}.self_attn.q";
  spec.names.q_a = "model.layers.{}.self_attn.q_a";
  spec.names.q_b = "model.layers.{}.self_attn.q_b";
  spec.names.kv_a = "model.layers.{}.self_attn.kv_a";
  spec.names.kv_b = "model.layers.{}.self_attn.kv_b";
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.n_kv_heads = 1;
    layer.attention.head_dim = latent.rank + latent.rope_dim;
    layer.attention.latent = latent;
  }
}

class Weights : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    write_tensors();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Makes the tensors that the spec expects.
  void write_tensors() {
    tensors_.clear();
    float next = 0;  // all elements are different small numbers, exact in bf16
    for (const ExpectedTensor& tensor : expected_tensors(spec_)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.n_elements()));
      for (float& value : values) value = static_cast<float>(static_cast<int>(next = std::fmod(next + 1, 251)) - 125);
      const Shape shape = tensor.n_taps > 0 ? tensor.dense_shape() : tensor.shape;
      tensors_.push_back(f32_tensor(tensor.name, sizes_of(shape), values));
    }
  }
  TensorToWrite& tensor(std::string_view name) {
    for (TensorToWrite& candidate : tensors_)
      if (candidate.name == name) return candidate;
    check_failed("no such tensor");
  }
  std::vector<float> written(std::string_view name) {
    const TensorToWrite& found = tensor(name);
    std::vector<float> values(found.bytes.size() / sizeof(float));
    std::memcpy(values.data(), found.bytes.data(), found.bytes.size());
    return values;
  }
  Result<ModelWeights> load(DType dtype) {
    EXPECT_TRUE(write_file(folder_ / "model.safetensors", safetensors_file(tensors_)));
    BATON_TRY(const Checkpoint checkpoint, Checkpoint::open(folder_));
    BATON_TRY_VOID(fit_to_checkpoint(spec_, checkpoint));
    return load_weights(spec_, checkpoint, backend_, dtype, 1);
  }
  std::string error_of_load() {
    const auto weights = load(DType::f32);
    return weights ? "no error" : weights.error().message;
  }

  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "baton_weights_test";
  ModelSpec spec_ = llama_of_seven_tokens();
  std::vector<TensorToWrite> tensors_;
  test::RecordingBackend backend_;
};

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> whole;
  for (const auto& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

TEST_F(Weights, names_and_shapes_of_a_llama_are_those_of_its_checkpoints) {
  const auto expected = expected_tensors(spec_);
  EXPECT_EQ(expected.size(), 2u * 9 + 3);
  EXPECT_EQ(expected.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(expected[2 + 9].name, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(expected[2 + 9].shape, (Shape{8, 6}));
  EXPECT_EQ(expected[3].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(expected[3].shape, (Shape{4, 6}));
  EXPECT_EQ(expected.back().name, "lm_head.weight");
  spec_.tie_embeddings = true;
  EXPECT_EQ(expected_tensors(spec_).back().name, "model.norm.weight");
}

TEST_F(Weights, queries_keys_values_and_gate_up_are_stacked) {
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->layers.size(), 2u);
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(layer.qkv.n_out(), 16);
  EXPECT_EQ(layer.qkv.n_in(), 6);
  const std::string prefix = "model.layers.1.";
  EXPECT_EQ(values_of(layer.qkv.weight()),
            joined({written(prefix + "self_attn.q_proj.weight"), written(prefix + "self_attn.k_proj.weight"),
                    written(prefix + "self_attn.v_proj.weight")}));
  EXPECT_EQ(values_of(layer.up.weight()),
            joined({written(prefix + "mlp.gate_proj.weight"), written(prefix + "mlp.up_proj.weight")}));
  EXPECT_EQ(values_of(layer.attention_out.weight()), written(prefix + "self_attn.o_proj.weight"));
  EXPECT_EQ(values_of(layer.down.weight()), written(prefix + "mlp.down_proj.weight"));
  EXPECT_EQ(to_floats(layer.attention_norm.weight), written(prefix + "input_layernorm.weight"));
  EXPECT_EQ(to_floats(layer.feed_forward_norm.weight), written(prefix + "post_attention_layernorm.weight"));
  EXPECT_EQ(to_floats(weights->embedding), written("model.embed_tokens.weight"));
  EXPECT_EQ(to_floats(weights->final_norm.weight), written("model.norm.weight"));
  EXPECT_EQ(values_of(weights->lm_head.weight()), written("lm_head.weight"));
  const std::size_t n_matrix_elements = 2 * 7 * 6 + 2 * (16 * 6 + 6 * 8 + 10 * 6 + 6 * 5);
  EXPECT_EQ(weights->size_bytes(), n_matrix_elements * 4 + 5 * 64);
}

TEST_F(Weights, experts_have_tensors_of_their_own_and_a_router) {
  spec_.names.router = "model.layers.{}.moe.gate";
  spec_.names.expert_gate = "model.layers.{}.moe.experts.{}.w1";
  spec_.names.expert_up = "model.layers.{}.moe.experts.{}.w3";
  spec_.names.expert_down = "model.layers.{}.moe.experts.{}.w2";
  spec_.layers[1].feed_forward = {.d_ff = 4, .n_experts = 3, .n_experts_per_row = 2};
  write_tensors();
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_TRUE(weights->layers[0].router.is_empty() && weights->layers[0].expert_up.is_empty());
  const LayerWeights& layer = weights->layers[1];
  EXPECT_TRUE(layer.up.is_empty() && layer.down.is_empty());
  EXPECT_EQ(values_of(layer.router.weight()), written("model.layers.1.moe.gate.weight"));
  EXPECT_EQ(layer.expert_up.weights().n_experts, 3);
  EXPECT_EQ(layer.expert_up.weights().n, 8);
  EXPECT_EQ(layer.expert_down.weights().k, 4);
  for (const std::size_t expert : {0U, 1U, 2U}) {
    const std::string name = "model.layers.1.moe.experts." + std::to_string(expert);
    EXPECT_EQ(values_of(layer.expert_up.weights(), expert),
              joined({written(name + ".w1.weight"), written(name + ".w3.weight")}));
    EXPECT_EQ(values_of(layer.expert_down.weights(), expert), written(name + ".w2.weight"));
  }
  const WeightBytes bytes = weight_bytes(spec_, DType::f32, ModelRank{});
  EXPECT_EQ(static_cast<std::size_t>(bytes.held), weights->size_bytes());
  EXPECT_EQ(bytes.staged, 16 * 6 * 4) << "one expert at a time: the largest is the matrix of queries, keys and values";
  tensor("model.layers.1.moe.experts.2.w3.weight").name = "other";
  EXPECT_EQ(error_of_load(),
            "the checkpoint lacks tensor 'model.layers.1.moe.experts.2.w3.weight' of the 28 that "
            "LlamaForCausalLM has");
}

TEST_F(Weights, biases_are_stacked_as_their_matrices_and_offsets_are_added_to_norms) {
  spec_.tie_embeddings = true;
  spec_.has_lm_head_bias = true;
  spec_.final_norm = {.kind = NormSpec::Kind::layer, .weight_offset = 1, .has_bias = true};
  for (LayerSpec& layer : spec_.layers) {
    layer.is_parallel = true;
    layer.norm = spec_.final_norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = layer.feed_forward.has_bias = true;
  }
  write_tensors();
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  const std::string prefix = "model.layers.1.";
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(to_floats(layer.qkv.bias()),
            joined({written(prefix + "self_attn.q_proj.bias"), written(prefix + "self_attn.k_proj.bias"),
                    written(prefix + "self_attn.v_proj.bias")}));
  EXPECT_EQ(to_floats(layer.attention_out.bias()), written(prefix + "self_attn.o_proj.bias"));
  EXPECT_EQ(to_floats(layer.up.bias()), joined({written(prefix + "mlp.gate_proj.bias"), written(prefix + "mlp.up_proj.bias")}));
  EXPECT_EQ(to_floats(layer.down.bias()), written(prefix + "mlp.down_proj.bias"));
  EXPECT_EQ(to_floats(weights->lm_head.bias()), written("lm_head.bias"));
  EXPECT_EQ(values_of(weights->lm_head.weight()), written("model.embed_tokens.weight"));
  std::vector<float> norm = written(prefix + "input_layernorm.weight");
  for (float& value : norm) value += 1;
  EXPECT_EQ(to_floats(layer.attention_norm.weight), norm);
  EXPECT_EQ(to_floats(layer.attention_norm.bias), written(prefix + "input_layernorm.bias"));
  EXPECT_EQ(layer.feed_forward_norm.weight.data, nullptr) << "a parallel block has one norm";
}

TEST_F(Weights, fused_tensors_are_taken_as_they_are) {
  spec_.names.q = spec_.names.k = spec_.names.v = spec_.names.gate = spec_.names.up = "";
  spec_.names.qkv = "model.layers.{}.self_attn.qkv_proj";
  spec_.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  for (LayerSpec& layer : spec_.layers) layer.attention.has_qkv_bias = true;
  write_tensors();
  EXPECT_EQ(tensor("model.layers.1.self_attn.qkv_proj.weight").shape, (std::vector<std::int64_t>{16, 6}));
  EXPECT_EQ(tensor("model.layers.1.mlp.gate_up_proj.weight").shape, (std::vector<std::int64_t>{10, 6}));
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(values_of(layer.qkv.weight()), written("model.layers.1.self_attn.qkv_proj.weight"));
  EXPECT_EQ(to_floats(layer.qkv.bias()), written("model.layers.1.self_attn.qkv_proj.bias"));
  EXPECT_EQ(values_of(layer.up.weight()), written("model.layers.1.mlp.gate_up_proj.weight"));
  tensors_.erase(std::ranges::find(tensors_, "model.layers.0.self_attn.qkv_proj.bias", &TensorToWrite::name));
  EXPECT_EQ(error_of_load(),
            "the checkpoint lacks tensor 'model.layers.0.self_attn.qkv_proj.bias' of the 17 that LlamaForCausalLM has");
}

// Rows of queries and keys in heads of 8, of which all or the first 4 are rotated.
TEST_F(Weights, interleaved_pairs_of_queries_and_keys_are_parted) {
  spec_ = parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 3,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 5, "vocab_size": 7,
      "attention_bias": true})",
                           "the test")
              .value();
  spec_.ropes[0].is_interleaved = true;
  write_tensors();
  const std::string prefix = "model.layers.0.self_attn.";
  for (const auto& [rotary_dim, order] : {std::pair{8, std::array<std::size_t, 8>{0, 2, 4, 6, 1, 3, 5, 7}},
                                          std::pair{4, std::array<std::size_t, 8>{0, 2, 1, 3, 4, 5, 6, 7}}}) {
    spec_.ropes[0].rotary_dim = rotary_dim;
    const auto parted = [&order](const std::vector<float>& rows, std::size_t width) {
      std::vector<float> made;
      for (std::size_t head = 0; head < rows.size(); head += 8 * width)
        for (const std::size_t row : order)
          for (std::size_t i = 0; i < width; ++i) made.push_back(rows[head + row * width + i]);
      return made;
    };
    const auto weights = load(DType::f32);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(values_of(weights->layers[0].qkv.weight()),
              joined({parted(written(prefix + "q_proj.weight"), 3), parted(written(prefix + "k_proj.weight"), 3),
                      written(prefix + "v_proj.weight")}));
    EXPECT_EQ(to_floats(weights->layers[0].qkv.bias()),
              joined({parted(written(prefix + "q_proj.bias"), 1), parted(written(prefix + "k_proj.bias"), 1),
                      written(prefix + "v_proj.bias")}));
  }
}

TEST_F(Weights, of_latent_attention_are_stacked_and_parted_by_heads) {
  for (const int q_rank : {0, 4}) {
    SCOPED_TRACE(q_rank);
    give_latent_attention(spec_, {q_rank, 6, 2, 4, 3});
    write_tensors();
    const auto weights = load(DType::f32);
    ASSERT_TRUE(weights) << weights.error().message;
    const LayerWeights& layer = weights->layers[1];
    const std::string stem = "model.layers.1.self_attn.";
    EXPECT_EQ(values_of(layer.qkv.weight()),
              joined({written(stem + (q_rank > 0 ? "q_a.weight" : "q.weight")), written(stem + "kv_a.weight")}));
    EXPECT_EQ(layer.q_b.is_empty(), q_rank == 0);
    EXPECT_EQ(layer.q_norm.weight.data != nullptr, q_rank > 0);
    if (q_rank > 0) {
      EXPECT_EQ(values_of(layer.q_b.weight()), written(stem + "q_b.weight"));
    }
    EXPECT_EQ(to_floats(layer.k_norm.weight), written(stem + "k_norm.weight"));
    EXPECT_EQ(layer.attention_out.n_in(), 4 * 3);
    // Of each of 4 heads 2 rows for keys, then 3 for values; a row is 6 wide.
    const std::vector<float> kv_b = written(stem + "kv_b.weight");
    std::vector<float> keys, values;
    for (std::size_t head = 0; head < 4; ++head) {
      for (std::size_t i = 0; i < 6; ++i)
        for (std::size_t j = 0; j < 2; ++j) keys.push_back(kv_b[(head * 5 + j) * 6 + i]);
      for (std::size_t j = 2; j < 5; ++j)
        for (std::size_t i = 0; i < 6; ++i) values.push_back(kv_b[(head * 5 + j) * 6 + i]);
    }
    const PackedHeads& of_keys = layer.keys_of_heads.weights();
    EXPECT_EQ(values_of(of_keys), keys);
    EXPECT_EQ(std::vector({of_keys.n_heads, of_keys.n, of_keys.k}), (std::vector<std::int64_t>{4, 6, 2}));
    EXPECT_EQ(values_of(layer.values_of_heads.weights()), values);
    EXPECT_EQ(static_cast<std::size_t>(weight_bytes(spec_, DType::f32, ModelRank{}).held), weights->size_bytes());
    const auto drawn = random_weights(spec_, backend_, DType::bf16, 1, 1, {.scheme = WeightScheme::i8});
    ASSERT_TRUE(drawn) << drawn.error().message;
    EXPECT_EQ(drawn->layers[0].keys_of_heads.weights().dtype, DType::bf16) << "matrices of heads are not rounded";
    EXPECT_EQ(drawn->layers[0].qkv.weight().scheme, WeightScheme::i8);
  }
}

/// Rows [begin, begin + n) of a matrix with `width` columns.
std::vector<float> rows_of_matrix(const std::vector<float>& values, std::size_t width, std::size_t begin, std::size_t n) {
  return {values.begin() + static_cast<std::ptrdiff_t>(begin * width),
          values.begin() + static_cast<std::ptrdiff_t>((begin + n) * width)};
}

/// One layer is recurrent: two key heads of 3, four value heads of 2.
void give_recurrent_layer(ModelSpec& spec) {
  spec.names.conv = "model.layers.{}.mixer.conv";
  spec.names.a_log = "model.layers.{}.mixer.A_log";
  spec.names.dt_bias = "model.layers.{}.mixer.dt_bias";
  spec.names.recurrent_norm = "model.layers.{}.mixer.norm";
  spec.names.recurrent_out = "model.layers.{}.mixer.out";
  spec.layers[0].delta = GatedDeltaSpec{.n_key_heads = 2, .n_heads = 4, .key_dim = 3, .value_dim = 2, .n_taps = 4, .norm = {}};
  group_layers(spec);
}

TEST_F(Weights, of_recurrent_layers_are_stacked) {
  give_recurrent_layer(spec_);
  spec_.names.delta_qkv = "model.layers.{}.mixer.qkv";
  spec_.names.delta_z = "model.layers.{}.mixer.z";
  spec_.names.delta_b = "model.layers.{}.mixer.b";
  spec_.names.delta_a = "model.layers.{}.mixer.a";
  write_tensors();
  EXPECT_EQ(tensor("model.layers.0.mixer.conv.weight").shape, (std::vector<std::int64_t>{20, 1, 4}));
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  const LayerWeights& layer = weights->layers[0];
  const auto part = [&](const std::string& name) { return written("model.layers.0.mixer." + name); };
  EXPECT_TRUE(layer.qkv.is_empty());
  EXPECT_EQ(values_of(layer.recurrent_in.weight()), joined({part("qkv.weight"), part("z.weight")}));
  EXPECT_EQ(values_of(layer.recurrent_gates.weight()), joined({part("b.weight"), part("a.weight")}));
  EXPECT_EQ(to_floats(layer.conv.weight), part("conv.weight"));
  EXPECT_EQ(to_floats(layer.a_log.weight), part("A_log"));
  EXPECT_EQ(to_floats(layer.dt_bias.weight), part("dt_bias"));
  EXPECT_EQ(to_floats(layer.recurrent_norm.weight), part("norm.weight"));
  EXPECT_EQ(values_of(layer.attention_out.weight()), part("out.weight"));
  EXPECT_FALSE(weights->layers[1].qkv.is_empty());
  EXPECT_EQ(static_cast<std::size_t>(weight_bytes(spec_, DType::f32, ModelRank{}).held), weights->size_bytes());
}

TEST_F(Weights, of_recurrent_layers_that_share_tensors_by_key_heads_are_parted) {
  give_recurrent_layer(spec_);
  spec_.names.delta_qkvz = "model.layers.{}.mixer.qkvz";
  spec_.names.delta_ba = "model.layers.{}.mixer.ba";
  write_tensors();
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto all = written("model.layers.0.mixer.qkvz.weight");
  const auto rows = [&](std::size_t begin, std::size_t n) { return rows_of_matrix(all, 6, begin, n); };
  // Of each key head: 3 rows of q, 3 of k, 4 of values, 4 of their gates.
  EXPECT_EQ(values_of(weights->layers[0].recurrent_in.weight()),
            joined({rows(0, 3), rows(14, 3), rows(3, 3), rows(17, 3), rows(6, 4), rows(20, 4), rows(10, 4), rows(24, 4)}));
  const auto gates = written("model.layers.0.mixer.ba.weight");
  const auto of = [&](std::size_t begin, std::size_t n) { return rows_of_matrix(gates, 6, begin, n); };
  EXPECT_EQ(values_of(weights->layers[0].recurrent_gates.weight()), joined({of(0, 2), of(4, 2), of(2, 2), of(6, 2)}));
}

TEST_F(Weights, of_short_convolutions_and_mamba2_are_read) {
  give_recurrent_layer(spec_);
  spec_.names.recurrent_in = "model.layers.{}.mixer.in";
  spec_.names.skip = "model.layers.{}.mixer.D";
  const auto part = [&](const std::string& name) { return written("model.layers.0.mixer." + name); };
  spec_.layers[0].delta.reset();
  spec_.layers[0].conv = ShortConvSpec{.n_channels = 8, .n_taps = 3, .has_bias = true};
  write_tensors();
  EXPECT_EQ(tensor("model.layers.0.mixer.conv.weight").shape, (std::vector<std::int64_t>{8, 1, 3}));
  const auto of_conv = load(DType::f32);
  ASSERT_TRUE(of_conv) << of_conv.error().message;
  EXPECT_EQ(values_of(of_conv->layers[0].recurrent_in.weight()), part("in.weight"));
  EXPECT_EQ(to_floats(of_conv->layers[0].conv.weight), part("conv.weight"));
  EXPECT_EQ(to_floats(of_conv->layers[0].conv_bias.weight), part("conv.bias"));
  spec_.layers[0].conv.reset();
  spec_.layers[0].mamba2 = Mamba2Spec{.n_heads = 2,
                                      .head_dim = 4,
                                      .n_groups = 1,
                                      .state_dim = 3,
                                      .n_taps = 4,
                                      .has_conv_bias = true,
                                      .has_bias = false,
                                      .n_norm_groups = 1,
                                      .norm = {}};
  spec_.layers[0].has_feed_forward = false;
  spec_.layers[0].feed_forward = {};
  write_tensors();
  EXPECT_EQ(tensor("model.layers.0.mixer.in.weight").shape[0], 8 + 8 + 2 * 3 + 2);
  const auto of_mamba = load(DType::f32);
  ASSERT_TRUE(of_mamba) << of_mamba.error().message;
  const LayerWeights& layer = of_mamba->layers[0];
  EXPECT_EQ(values_of(layer.recurrent_in.weight()), part("in.weight"));
  EXPECT_EQ(to_floats(layer.conv_bias.weight), part("conv.bias"));
  EXPECT_EQ(to_floats(layer.skip.weight), part("D"));
  EXPECT_EQ(to_floats(layer.recurrent_norm.weight), part("norm.weight"));
  EXPECT_TRUE(layer.up.is_empty() && layer.recurrent_gates.is_empty());
  EXPECT_EQ(static_cast<std::size_t>(weight_bytes(spec_, DType::f32, ModelRank{}).held), of_mamba->size_bytes());
}

TEST_F(Weights, gates_of_attention_are_parted_from_queries) {
  for (LayerSpec& layer : spec_.layers) layer.attention.has_output_gate = true;
  write_tensors();
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto all = written("model.layers.0.self_attn.q_proj.weight");
  ASSERT_EQ(all.size(), 16u * 6) << "for each of four heads two rows of queries and two of gates";
  const auto rows = [&](std::size_t begin) { return rows_of_matrix(all, 6, begin, 2); };
  EXPECT_EQ(values_of(weights->layers[0].qkv.weight()),
            joined({rows(0), rows(4), rows(8), rows(12), written("model.layers.0.self_attn.k_proj.weight"),
                    written("model.layers.0.self_attn.v_proj.weight")}));
  EXPECT_EQ(values_of(weights->layers[0].attention_gate.weight()), joined({rows(2), rows(6), rows(10), rows(14)}));
}

TEST_F(Weights, experts_may_be_in_tensors_of_their_own_or_in_one) {
  spec_.names.router = "model.layers.{}.moe.gate";
  spec_.names.expert_gate = "model.layers.{}.moe.experts.{}.w1";
  spec_.names.expert_up = "model.layers.{}.moe.experts.{}.w3";
  spec_.names.expert_down = "model.layers.{}.moe.experts.{}.w2";
  spec_.names.other_expert_gate_up = "model.layers.{}.moe.experts.gate_up";
  spec_.names.other_expert_down = "model.layers.{}.moe.experts.down";
  spec_.names.has_gate_up_in_halves = true;
  spec_.names.has_transposed_experts = false;
  spec_.layers[1].feed_forward = {.d_ff = 4, .n_experts = 3, .n_experts_per_row = 2};
  write_tensors();
  const auto apart = load(DType::f32);
  ASSERT_TRUE(apart) << apart.error().message;
  std::vector<float> up;
  std::vector<float> down;
  for (const std::string expert : {"0", "1", "2"}) {
    const std::string name = "model.layers.1.moe.experts." + expert;
    for (const char* matrix : {".w1.weight", ".w3.weight"}) {
      const std::vector<float> values = written(name + matrix);
      up.insert(up.end(), values.begin(), values.end());
    }
    const std::vector<float> values = written(name + ".w2.weight");
    down.insert(down.end(), values.begin(), values.end());
  }
  std::erase_if(tensors_, [](const TensorToWrite& tensor) { return tensor.name.find("experts") != std::string::npos; });
  tensors_.push_back(f32_tensor("model.layers.1.moe.experts.gate_up", {3, 8, 6}, up));
  tensors_.push_back(f32_tensor("model.layers.1.moe.experts.down", {3, 6, 4}, down));
  const auto in_one = load(DType::f32);
  ASSERT_TRUE(in_one) << in_one.error().message;
  for (const std::size_t expert : {0U, 1U, 2U}) {
    EXPECT_EQ(values_of(in_one->layers[1].expert_up.weights(), expert),
              values_of(apart->layers[1].expert_up.weights(), expert));
    EXPECT_EQ(values_of(in_one->layers[1].expert_down.weights(), expert),
              values_of(apart->layers[1].expert_down.weights(), expert));
  }
}

TEST_F(Weights, tied_embeddings_are_the_output_layer) {
  spec_.tie_embeddings = true;
  tensors_.pop_back();
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(values_of(weights->lm_head.weight()), written("model.embed_tokens.weight"));
}

TEST_F(Weights, an_output_layer_that_differs_from_the_embedding_it_is_tied_to_is_used) {
  spec_.tie_embeddings = true;
  ::testing::internal::CaptureStderr();
  const auto weights = load(DType::f32);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(values_of(weights->lm_head.weight()), written("lm_head.weight"));
  EXPECT_EQ(to_floats(weights->embedding), written("model.embed_tokens.weight"));
  EXPECT_NE(said.find("event=output_layer_not_tied tensor=lm_head.weight"), std::string::npos) << said;

  tensor("lm_head.weight").bytes = tensor("model.embed_tokens.weight").bytes;
  spec_.tie_embeddings = true;
  ::testing::internal::CaptureStderr();
  const auto tied = load(DType::f32);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(tied) << tied.error().message;
  EXPECT_TRUE(spec_.tie_embeddings);
  EXPECT_EQ(values_of(tied->lm_head.weight()), written("model.embed_tokens.weight"));
}

TEST_F(Weights, the_dtype_that_no_configuration_states_is_the_embeddings) {
  TensorToWrite& embedding = tensor("model.embed_tokens.weight");
  embedding.bytes.resize(embedding.bytes.size() / 2);
  for (const bool states_dtype : {true, false}) {
    for (const char* stored : {"BF16", "F16"}) {
      embedding.dtype = stored;
      spec_.states_dtype = states_dtype;
      spec_.dtype = DType::f32;
      ASSERT_TRUE(load(DType::f32));
      EXPECT_EQ(spec_.dtype, states_dtype ? DType::f32 : embedding.dtype == "F16" ? DType::f16 : DType::bf16);
    }
  }
}

TEST_F(Weights, are_converted_to_the_dtype_asked_for_and_norms_to_f32) {
  for (const char* name : {"BF16", "F16"}) {
    TensorToWrite& k = tensor("model.layers.0.self_attn.k_proj.weight");
    TensorToWrite& norm = tensor("model.norm.weight");
    const std::vector<float> k_values = written("model.layers.0.self_attn.q_proj.weight");  // the fused matrix
    for (TensorToWrite* stored : {&k, &norm}) {
      const std::size_t n = static_cast<std::size_t>(
          std::accumulate(stored->shape.begin(), stored->shape.end(), std::int64_t{1}, std::multiplies<>()));
      stored->dtype = name;
      stored->bytes.assign(n * 2, '\0');
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint16_t bits = name == std::string_view("BF16") ? BFloat16(k_values[i]).bits : Float16(k_values[i]).bits;
        std::memcpy(stored->bytes.data() + 2 * i, &bits, 2);
      }
    }
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      ::testing::internal::CaptureStderr();
      const auto weights = load(dtype);
      const std::string said = ::testing::internal::GetCapturedStderr();
      ASSERT_TRUE(weights) << weights.error().message;
      EXPECT_EQ(said.find("event=weights_converted from=float16 to=bfloat16 tensors=1 ") != std::string::npos,
                dtype == DType::bf16 && k.dtype == "F16")
          << said;
      EXPECT_EQ(said.find("event=weights_converted from=bfloat16 to=float16 tensors=1 ") != std::string::npos,
                dtype == DType::f16 && k.dtype == "BF16")
          << said;
      EXPECT_EQ(said.find("event=weights_converted from=float32 to=bfloat16 ") != std::string::npos, dtype == DType::bf16)
          << said;
      EXPECT_EQ(said.find("event=weights_converted from=float32 to=float16 ") != std::string::npos, dtype == DType::f16)
          << said;
      EXPECT_EQ(weights->dtype, dtype);
      EXPECT_EQ(weights->embedding.dtype, dtype);
      EXPECT_EQ(weights->final_norm.weight.dtype, DType::f32);
      EXPECT_EQ(to_floats(weights->final_norm.weight), std::vector<float>(k_values.begin(), k_values.begin() + 6));
      const auto& qkv = values_of(weights->layers[0].qkv.weight());
      EXPECT_EQ(std::vector<float>(qkv.begin() + 48, qkv.begin() + 72),
                std::vector<float>(k_values.begin(), k_values.begin() + 24));
    }
  }
}

TEST_F(Weights, conversion_to_bf16_rounds_to_nearest_even) {
  const float values[] = {1.00390625f, 1.01171875f, -1.003907f, 3.0f, 0.1f, -0.0f};  // two ties, one above a tie
  std::memcpy(tensor("model.embed_tokens.weight").bytes.data(), values, sizeof(values));
  const auto weights = load(DType::bf16);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto found = to_floats(weights->embedding);
  EXPECT_EQ(std::vector<float>(found.begin(), found.begin() + 6),
            (std::vector<float>{1.0f, 1.015625f, -1.0078125f, 3.0f, 0.10009765625f, -0.0f}));
}

TEST_F(Weights, errors_name_the_tensor_and_both_shapes) {
  tensor("model.layers.1.mlp.up_proj.weight").shape = {6, 5};
  EXPECT_EQ(error_of_load(),
            "tensor 'model.layers.1.mlp.up_proj.weight' has the shape [6, 5]; the configuration asks for [5, 6]");
  tensor("model.layers.1.mlp.up_proj.weight").shape = {5, 6};
  tensor("model.norm.weight").dtype = "I32";
  EXPECT_EQ(error_of_load(), "tensor 'model.norm.weight' is int32; weights must be float32, bfloat16 or float16");
  tensors_.pop_back();
  EXPECT_EQ(error_of_load(), "the checkpoint lacks tensor 'lm_head.weight' of the 21 that LlamaForCausalLM has");
  tensors_.erase(tensors_.begin(), tensors_.begin() + 2);
  EXPECT_EQ(error_of_load(),
            "the checkpoint lacks tensor 'model.embed_tokens.weight' and 2 others of the 21 that LlamaForCausalLM has");
}

TEST_F(Weights, unexpected_tensors_do_no_harm) {
  tensors_.push_back(f32_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {1}, {1}));
  tensors_.push_back({"surprise", "F64", {1}, std::string(8, 'x')});
  tensors_.push_back(f32_tensor("model.layers.0.self_attn.q_proj.bias", {8}, std::vector<float>(8)));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of_load(), "no error");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("event=unused_tensors count=2 names=model.layers.0.self_attn.q_proj.bias,surprise"), std::string::npos)
      << said;
}

TEST_F(Weights, layers_that_only_draft_tokens_are_passed_over_in_silence) {
  tensors_.push_back(f32_tensor("model.layers.2.eh_proj.weight", {1}, {1}));
  spec_.n_draft_layers = 1;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of_load(), "no error");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  tensors_.push_back(f32_tensor("model.layers.3.eh_proj.weight", {1}, {1}));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of_load(), "no error");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("event=unused_tensors count=1 names=model.layers.3.eh_proj.weight"), std::string::npos) << said;
}

TEST_F(Weights, tensors_of_a_part_of_a_larger_model_are_found_under_its_names) {
  for (const TensorRoot& root :
       {TensorRoot{"language_model.model.", "language_model.lm_head"}, TensorRoot{"model.language_model.", "lm_head"}}) {
    spec_ = llama_of_seven_tokens();
    write_tensors();
    spec_.other_roots = {{"language_model.model.", "language_model.lm_head"}, {"model.language_model.", "lm_head"}};
    const std::vector<float> up = written("model.layers.1.mlp.up_proj.weight");
    const std::vector<float> head = written("lm_head.weight");
    for (TensorToWrite& tensor : tensors_)
      tensor.name = tensor.name == "lm_head.weight" ? std::string(root.lm_head) + ".weight"
                                                    : std::string(root.model) + tensor.name.substr(6);
    const auto weights = load(DType::f32);
    ASSERT_TRUE(weights) << weights.error().message;
    const auto& loaded = values_of(weights->layers[1].up.weight());
    EXPECT_EQ(std::vector<float>(loaded.end() - 30, loaded.end()), up);
    EXPECT_EQ(values_of(weights->lm_head.weight()), head);
  }
  spec_ = llama_of_seven_tokens();
  spec_.other_roots = {{"language_model.model.", "language_model.lm_head"}};
  EXPECT_EQ(error_of_load(),
            "the checkpoint lacks tensor 'model.embed_tokens.weight' and 19 others of the 21 that LlamaForCausalLM has")
      << "the names of the model alone, where no root has the embedding";
}

TEST_F(Weights, tensors_at_odd_offsets_are_read) {
  tensors_.insert(tensors_.begin(), {"odd", "U8", {3}, "abc"});
  const auto weights = load(DType::f32);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(to_floats(weights->embedding), written("model.embed_tokens.weight"));
  EXPECT_EQ(values_of(weights->layers[0].down.weight()), written("model.layers.0.mlp.down_proj.weight"));
}

TEST_F(Weights, random_weights_repeat_with_their_seed_and_have_the_variance_of_their_width) {
  spec_.d_model = 64;
  spec_.n_vocab = 500;
  const auto first = random_weights(spec_, backend_, DType::f32, 3, 1);
  const auto again = random_weights(spec_, backend_, DType::f32, 3, 1);
  const auto other = random_weights(spec_, backend_, DType::f32, 4, 1);
  ASSERT_TRUE(first && again && other);
  const auto& values = values_of(first->lm_head.weight());
  EXPECT_EQ(values, values_of(again->lm_head.weight()));
  EXPECT_NE(values, values_of(other->lm_head.weight()));
  EXPECT_NE(values, to_floats(first->embedding));
  EXPECT_EQ(to_floats(first->final_norm.weight), std::vector<float>(64, 1.0f));
  double sum = 0;
  double sum_of_squares = 0;
  for (const float value : values) {
    sum += value;
    sum_of_squares += static_cast<double>(value) * value;
  }
  const double n = static_cast<double>(values.size());  // 32,000: standard errors 0.0007 (mean) and 0.5% (variance)
  EXPECT_NEAR(sum / n, 0, 0.004);
  EXPECT_NEAR(sum_of_squares / n * 64, 1, 0.03);
}

/// Counts this process's threads while weights are packed.
class ThreadCountingBackend : public test::RecordingBackend {
 public:
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    n_threads = static_cast<int>(std::distance(begin(tasks), end(tasks)));
    return RecordingBackend::pack_matrix(weight, dtype, name);
  }
  int n_threads = 0;
};

TEST_F(Weights, are_loaded_and_made_with_the_threads_asked_for) {
  ASSERT_TRUE(write_file(folder_ / "model.safetensors", safetensors_file(tensors_)));
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint);
  ThreadCountingBackend counting;
  const auto n_loading = [&](int n_threads) {
    EXPECT_TRUE(load_weights(spec_, *checkpoint, counting, DType::f32, n_threads));
    return counting.n_threads;
  };
  const auto n_making = [&](int n_threads) {
    EXPECT_TRUE(random_weights(spec_, counting, DType::f32, 1, n_threads));
    return counting.n_threads;
  };
  std::thread([] {}).join();  // with the first thread the thread sanitizer starts one of its own
  const int n_alone = n_loading(1);
  EXPECT_EQ(n_loading(4), n_alone + 3);
  EXPECT_EQ(n_making(1), n_alone);
  EXPECT_EQ(n_making(5), n_alone + 4);
}

TEST_F(Weights, take_the_memory_that_was_foretold) {
  spec_.d_model = 64;  // rows fill whole cache lines, so nothing is padded
  for (const bool ties : {false, true}) {
    spec_.tie_embeddings = ties;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto weights = random_weights(spec_, backend_, dtype, 1, 1);
      ASSERT_TRUE(weights);
      const WeightBytes bytes = weight_bytes(spec_, dtype, ModelRank{});
      EXPECT_EQ(bytes.held, static_cast<std::int64_t>(weights->size_bytes())) << ties;
      EXPECT_EQ(bytes.staged, 64 * 16 * static_cast<std::int64_t>(size_bytes(dtype))) << "queries, keys and values";
    }
  }
}

TEST(WeightsOfFiles, load_single_sharded_and_bf16_goldens) {
  for (const char* name : {"gqa64", "gqa80", "gqa128", "mha64", "bf16", "sharded"}) {
    const test::DrawnGolden golden(test::source_folder() / ("tests/goldens/llama_tiny_" + std::string(name)));
    const auto spec = read_model_spec(golden.folder());
    const auto checkpoint = Checkpoint::open(golden.folder());
    ASSERT_TRUE(spec && checkpoint) << name;
    test::RecordingBackend backend;
    const auto weights = load_weights(*spec, *checkpoint, backend, DType::f32, 1);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(weights->layers.size(), 2u);
  }
}

TEST(WeightsOfFiles, load_a_real_model) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const std::filesystem::path folder = std::filesystem::path(data) / "model-stories260K" / "hf";
  const auto spec = read_model_spec(folder);
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(spec && checkpoint);
  test::RecordingBackend backend;
  const auto weights = load_weights(*spec, *checkpoint, backend, DType::bf16, 1);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->layers.size(), 5u);
}

}  // namespace
}  // namespace baton
