/// Numbers of a model from its files' headers (load/model_info.h).
#include "load/model_info.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "load/load_engine.h"
#include "support/checkpoint_writer.h"
#include "support/drawn_golden.h"
#include "support/quantised_tensors.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = test::source_folder() / "tests/goldens/llama_tiny_gqa64";

TEST(ModelInfo, is_read_from_the_configuration_and_the_headers) {
  const test::DrawnGolden golden(kGolden);
  const auto info = read_model_info(golden.folder(), {});
  ASSERT_TRUE(info) << info.error().message;
  ASSERT_EQ(info->groups.size(), 1u);
  const AttentionSpec& attention = info->spec.layers[0].attention;
  const auto n_layers = static_cast<std::int64_t>(info->spec.layers.size());
  EXPECT_EQ(info->groups[0].n_layers, n_layers);
  EXPECT_EQ(info->groups[0].bytes_per_token, n_layers * 2 * attention.n_kv_heads * attention.head_dim * 4);
  EXPECT_EQ(info->stored_bytes, (std::map<std::string, std::int64_t>{{"float32", info->spec.n_parameters() * 4}}));
  EXPECT_EQ(info->weights_fault, "");
  EXPECT_EQ(info->tokenizer, "");
  ModelOptions in_bf16;
  in_bf16.kv_cache_dtype = "bfloat16";
  EXPECT_EQ(read_model_info(golden.folder(), in_bf16)->groups[0].bytes_per_token, info->groups[0].bytes_per_token / 2);
}

TEST(ModelInfo, matrices_of_states_in_bfloat16_take_half_the_bytes) {
  const auto info_of = [](const char* golden, const char* dtype) {
    ModelOptions options;
    options.state_cache_dtype = dtype;
    return read_model_info(test::source_folder() / "tests/goldens" / golden, options);
  };
  constexpr std::int64_t kConv = 3 * 4 * 3 * (2 * 128 + 3 * 128);
  constexpr std::int64_t kMatrices = 3 * 4 * 3 * 128 * 128;
  for (const char* dtype : {"auto", "float32"})
    EXPECT_EQ(info_of("qwen3_5_tiny_chunks", dtype)->state_bytes, kConv + kMatrices) << dtype;
  EXPECT_EQ(info_of("qwen3_5_tiny_chunks", "bfloat16")->state_bytes, kConv + kMatrices / 2);
  EXPECT_EQ(info_of("qwen3_5_tiny_chunks", "bfloat16")->draft_bytes, info_of("qwen3_5_tiny_chunks", "auto")->draft_bytes);
  EXPECT_TRUE(info_of("lfm2_tiny_biases", "float32"));
  EXPECT_EQ(
      info_of("lfm2_tiny_biases", "bfloat16").error().message,
      "--state-cache-dtype bfloat16: Lfm2ForCausalLM keeps the last inputs of its convolutions, which are float32, and no "
      "matrices");
  EXPECT_EQ(info_of("llama_tiny_gqa64", "float32").error().message,
            "--state-cache-dtype float32: LlamaForCausalLM has no recurrent layers");
}

TEST(ModelInfo, tells_what_a_layer_for_drafts_takes_whether_it_is_loaded_or_not) {
  const test::DrawnGolden golden(test::source_folder() / "tests/goldens/mtp_qwen3_5");
  ModelOptions loads;
  loads.speculation = {.n_tokens = 1, .method = DraftMethod::mtp};
  for (const fs::path& folder : {golden.folder(), test::source_folder() / "tests/goldens/mtp_qwen3_5"}) {
    const auto without = read_model_info(folder, {});
    ASSERT_TRUE(without) << without.error().message;
    const auto with = read_model_info(folder, loads);
    ASSERT_TRUE(with) << with.error().message;
    ASSERT_TRUE(without->draft_layer.has_value());
    EXPECT_EQ(without->draft_layer->fault, "");
    EXPECT_GT(without->draft_layer->weight_bytes, 0);
    EXPECT_EQ(without->draft_layer->weight_bytes, with->weights.held - without->weights.held);
    EXPECT_EQ(without->draft_layer->kv_bytes_per_token, context_bytes(with->groups, 1) - context_bytes(without->groups, 1));
    EXPECT_EQ(with->draft_layer->weight_bytes, without->draft_layer->weight_bytes);
  }
  EXPECT_FALSE(read_model_info(kGolden, {})->draft_layer.has_value());
}

TEST(ModelInfo, counts_the_bytes_of_quantised_weights) {
  for (const auto& [name, dtype] : {std::pair("ct_int8", "I8"), {"ct_int4", "int32"}, {"fp8_block", "float8_e4m3"}}) {
    const auto info = read_model_info(test::source_folder() / "tests/goldens/quantised" / name, {});
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->weights_fault, "") << name;
    std::string dtypes;
    for (const auto& [stored, bytes] : info->stored_bytes) dtypes += stored + " ";
    EXPECT_TRUE(info->stored_bytes.contains(dtype)) << name << ": " << dtypes;
    EXPECT_LT(info->weights.held, info->spec.n_parameters() * 4) << name;
  }
}

/// What loading a folder says where it fails.
std::string load_error(const fs::path& folder, ModelOptions options) {
  options.threads = 1;
  options.max_model_len = 64;
  const auto engine = load_engine({.name = folder.string(), .folder = folder}, options);
  return engine ? "it loads" : engine.error().message;
}

TEST(ModelInfo, says_why_weights_cannot_be_loaded_in_the_words_of_loading) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_model_info_faults_test";
  fs::remove_all(folder);
  fs::copy(test::source_folder() / "tests/goldens/quantised/ct_int4", folder);
  const auto fault = [&](const ModelOptions& options) {
    const auto info = read_model_info(folder, options);
    return info ? info->weights_fault : info.error().message;
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(load_error(folder, {}), "it loads");
  json::Value config = json::parse_file(folder / "config.json").value();
  config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 64;
  ASSERT_TRUE(write_file(folder / "config.json", json::dump(config)));
  EXPECT_NE(fault({}).find("; the configuration ('compressed-tensors') states "), std::string::npos) << fault({});
  EXPECT_EQ(fault({}), load_error(folder, {}));
  config.erase("quantization_config");
  ASSERT_TRUE(write_file(folder / "config.json", json::dump(config)));
  EXPECT_EQ(fault({}), "") << "the tensors say their scheme";
  for (const char* scheme : {"int8", "compressed-tensors"}) {
    ModelOptions options;
    options.quantization = scheme;
    EXPECT_NE(fault(options), "") << scheme;
    EXPECT_EQ(fault(options), load_error(folder, options));
  }
  fs::remove_all(folder);
}

/// A Qwen3-MoE whose experts are in int4, with a scale that cannot be read, and whose other matrices are in 16 bits.
std::string weights_with_integer_experts(std::int64_t d, std::int64_t d_ff) {
  std::vector<test::TensorToWrite> tensors;
  const auto add_plain = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    tensors.push_back(test::filled(name + ".weight", "BF16", shape, "\x12\x3c"));
  };
  const test::QuantisedForm int4{
      .kind = test::QuantisedForm::Kind::packed, .scales = test::QuantisedForm::Scales::group, .group = 32};
  const std::string layer = "model.layers.0.";
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) add_plain(layer + "self_attn." + name, {d, d});
  for (const char* name : {"q_norm", "k_norm"}) add_plain(layer + "self_attn." + name, {d / 2});
  add_plain(layer + "mlp.gate", {2, d});
  for (const char* expert : {"0.", "1."}) {
    const std::string stem = layer + "mlp.experts." + expert;
    test::add_matrix(stem + "gate_proj", d_ff, d, int4, tensors);
    test::add_matrix(stem + "up_proj", d_ff, d, int4, tensors);
    test::add_matrix(stem + "down_proj", d, d_ff, int4, tensors);
  }
  for (test::TensorToWrite& tensor : tensors)
    if (tensor.name.ends_with("down_proj.weight_scale"))
      tensor = test::filled(tensor.name, "F32", tensor.shape, std::string_view("\0\0\x80\x7f", 4));
  for (const char* name : {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"})
    add_plain(name, {d});
  for (const char* name : {"model.embed_tokens", "lm_head"}) add_plain(name, {8, d});
  return test::safetensors_file(tensors);
}

TEST(ModelInfo, refuses_int8_activations_before_weights_are_read_where_only_experts_are_integers) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_model_info_experts_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const json::Value config{
      {"architectures", {"Qwen3MoeForCausalLM"}},
      {"vocab_size", 8},
      {"hidden_size", 64},
      {"moe_intermediate_size", 64},
      {"intermediate_size", 64},
      {"num_hidden_layers", 1},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 2},
      {"head_dim", 32},
      {"num_experts", 2},
      {"num_experts_per_tok", 1},
      {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 1e4},
      {"torch_dtype", "bfloat16"},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups", {{"g", {{"weights", {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}}}}}}}}}};
  ASSERT_TRUE(write_file(folder / "config.json", json::dump(config)));
  ASSERT_TRUE(write_file(folder / "model.safetensors", weights_with_integer_experts(64, 64)));
  EXPECT_NE(load_error(folder, {}).find("holds infinity"), std::string::npos) << load_error(folder, {});
  ModelOptions options;
  options.activation_dtype = "int8";
  const std::string refusal = load_error(folder, options);
  EXPECT_NE(refusal.find("all matrices in int8 and int4 are experts'"), std::string::npos) << refusal;
  const auto info = read_model_info(folder, options);
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().message, refusal);
  EXPECT_FALSE(read_model_info(folder, {})->activations) << "unknown without a device";
  options.activation_dtype = "dtype";
  EXPECT_EQ(read_model_info(folder, options)->activations, ActivationChoice{});
  fs::remove_all(folder);
}

TEST(ModelInfo, of_a_configuration_alone_knows_the_sizes) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_model_info_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  EXPECT_FALSE(read_model_info(folder, {})) << "there is no config.json";
  fs::copy(kGolden / "config.json", folder);
  const auto info = read_model_info(folder, {});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_TRUE(info->stored_bytes.empty());
  EXPECT_EQ(info->weights_fault, "");
  EXPECT_GE(info->weights.held, info->spec.n_parameters() * 4);
  std::ofstream(folder / "pytorch_model.bin") << "a pickle";
  const auto other = read_model_info(folder, {});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_NE(other->weights_fault.find("pytorch_model.bin is a pickle of PyTorch"), std::string::npos) << other->weights_fault;
  std::ofstream(folder / "model.safetensors") << "damaged";
  std::ofstream(folder / "tokenizer.json") << R"({"model": {"type": "Strange"}})";
  const auto damaged = read_model_info(folder, {});
  ASSERT_TRUE(damaged) << damaged.error().message;
  EXPECT_NE(damaged->weights_fault, "");
  EXPECT_EQ(damaged->tokenizer, "Strange (tokenizer.json)");
  EXPECT_NE(damaged->tokenizer_fault, "");
  fs::remove_all(folder);
}

TEST(ModelInfo, latent_attention_keeps_a_vector_and_one_rotated_key_of_a_token) {
  const auto info = read_model_info(test::source_folder() / "tests/goldens/deepseek_v2_tiny_lite", {});
  ASSERT_TRUE(info) << info.error().message;
  ASSERT_EQ(info->groups.size(), 1u);
  EXPECT_EQ(info->groups[0].n_layers, 2);
  EXPECT_EQ(info->groups[0].latent_dim, 256);
  EXPECT_EQ(info->groups[0].head_dim, 320);
  EXPECT_EQ(info->groups[0].bytes_per_token, 2 * 320 * 2) << "two layers in bfloat16";
}

TEST(ModelInfo, the_demo_model_has_a_tokenizer_and_a_template) {
  const auto info = read_model_info(test::source_folder() / "models/demo", {});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->tokenizer, "BPE (tokenizer.json)");
  EXPECT_EQ(info->tokenizer_fault, "");
  EXPECT_GT(info->n_tokens, 0);
  EXPECT_EQ(info->templates, std::vector<std::string>{"default"});
}

TEST(ModelInfo, a_context_keeps_at_most_a_window) {
  const std::vector<KvGroup> groups = {{.n_layers = 1, .window = 0, .bytes_per_token = 10},
                                       {.n_layers = 5, .window = 100, .bytes_per_token = 50}};
  EXPECT_EQ(context_bytes(groups, 1), 60);
  EXPECT_EQ(context_bytes(groups, 100), 6000);
  EXPECT_EQ(context_bytes(groups, 1000), 10 * 1000 + 50 * 100);
}

TEST(ModelInfo, sharing_keeps_the_shared_tokens_once_as_far_as_a_window_sees_them) {
  const std::vector<KvGroup> whole = {{.n_layers = 1, .window = 0, .bytes_per_token = 1}};
  const SharedWorkload workload{.n_requests = 64, .shared_len = 2048, .own_len = 256};
  EXPECT_EQ(sharing_bytes(whole, workload).apart, 64 * (2048 + 256));
  EXPECT_EQ(sharing_bytes(whole, workload).shared, 2048 + 64 * 256);
  const std::vector<KvGroup> window = {{.n_layers = 1, .window = 1000, .bytes_per_token = 1}};
  EXPECT_EQ(sharing_bytes(window, workload).apart, 64 * 1000);
  EXPECT_EQ(sharing_bytes(window, workload).shared, 744 + 64 * 256) << "744 of the shared tokens are in the window";
  const std::vector<KvGroup> narrow = {{.n_layers = 1, .window = 100, .bytes_per_token = 1}};
  EXPECT_EQ(sharing_bytes(narrow, workload).shared, sharing_bytes(narrow, workload).apart) << "none is";
}

}  // namespace
}  // namespace baton
