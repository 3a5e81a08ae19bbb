/// config.json and generation_config.json: spellings, defaults, and an error for each value out of range.
#include "model/config.h"

#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "io/json.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/llama.h"
#include "model/spec.h"
#include "model/weights.h"
#include "support/source_folder.h"

namespace baton {
namespace {

json::Value llama() {
  return json::parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":172,
      "num_hidden_layers":5,"num_attention_heads":8,"num_key_value_heads":4,"vocab_size":512,"max_position_embeddings":512,
      "rms_norm_eps":1e-5,"hidden_act":"silu","tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":2,"torch_dtype":"bfloat16",
      "rope_theta":10000.0,"rope_scaling":null,"attention_bias":false,"mlp_bias":false,"use_cache":true})",
                     "the test")
      .value();
}

Result<ModelSpec> parsed(const json::Value& root) { return parse_model_spec(json::dump(root), "config.json"); }

/// The error when `key` has the JSON value `text`.
std::string error_with(std::string_view key, std::string_view text) {
  json::Value root = llama();
  root[std::string(key)] = json::parse(text, "the test").value();
  const auto config = parsed(root);
  return config ? "no error" : config.error().message;
}

std::string error_without(std::string_view key) {
  json::Value root = llama();
  root.erase(std::string(key));
  const auto config = parsed(root);
  return config ? "no error" : config.error().message;
}

TEST(Config, reads_the_fields_of_a_llama) {
  const auto config = parsed(llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->family, "LlamaForCausalLM");
  EXPECT_EQ(config->layers.size(), 5u);
  EXPECT_EQ(config->d_model, 64);
  EXPECT_EQ(config->layers[4].attention.n_heads, 8);
  EXPECT_EQ(config->layers[4].attention.n_kv_heads, 4);
  EXPECT_EQ(config->layers[0].attention.head_dim, 8);
  EXPECT_EQ(config->layers[0].feed_forward.d_ff, 172);
  EXPECT_EQ(config->n_vocab, 512);
  EXPECT_EQ(config->max_position, 512);
  EXPECT_EQ(config->layers[0].norm.epsilon, 1e-5f);
  EXPECT_EQ(config->ropes[0].theta, 10000);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_EQ(config->dtype, DType::bf16);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->eos_token_ids, std::vector<TokenId>{2});
  EXPECT_EQ(config->n_parameters(), 5 * (2 * 64 * 12 * 8 + 3 * 64 * 172 + 2 * 64) + 64 + 64 * 512);
}

TEST(Config, a_llama_has_one_layer_group_one_rotation_and_none_of_the_other_options) {
  const auto spec = parsed(llama());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->n_groups(), 1);
  ASSERT_EQ(spec->ropes.size(), 1u);
  EXPECT_EQ(spec->ropes[0].rotary_dim, 8);
  for (const LayerSpec& layer : spec->layers) {
    EXPECT_EQ(layer.norm.kind, NormSpec::Kind::rms);
    EXPECT_EQ(layer.feed_forward.kind, FeedForwardSpec::Kind::gated_silu);
    EXPECT_FALSE(layer.is_parallel || layer.attention.has_qkv_bias || layer.attention.has_out_bias || layer.norm.has_bias ||
                 layer.feed_forward.has_bias);
    EXPECT_EQ(layer.attention.window, 0);
    EXPECT_EQ(layer.attention.softcap, 0);
    EXPECT_EQ(layer.attention.scale, 1.0f / std::sqrt(8.0f));
  }
}

TEST(Spec, groups_layers_with_the_same_heads_and_window_in_their_order) {
  ModelSpec spec = parsed(llama()).value();
  for (const std::size_t layer : {1u, 3u}) spec.layers[layer].attention.window = 16;
  spec.layers[4].attention.n_kv_heads = 8;
  group_layers(spec);
  EXPECT_EQ(spec.n_groups(), 3);
  const std::vector<std::int32_t> expected{0, 1, 0, 1, 2};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(spec.layers[i].group, expected[i]) << i;
}

TEST(Spec, counts_the_parameters_of_the_tensors_that_it_expects) {
  ModelSpec spec = parsed(llama()).value();
  const auto n_expected = [&] {
    std::int64_t n = 0;
    for (const ExpectedTensor& tensor : expected_tensors(spec)) n += tensor.shape.n_elements();
    return n;
  };
  EXPECT_EQ(spec.n_parameters(), n_expected());
  spec.tie_embeddings = false;
  EXPECT_EQ(spec.n_parameters(), n_expected());
}

TEST(Config, fields_left_out_take_the_defaults_of_transformers) {
  json::Value root = llama();
  for (const char* key :
       {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "bos_token_id",
        "eos_token_id", "torch_dtype", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias"})
    root.erase(key);
  const auto config = parsed(root);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layers[0].attention.n_kv_heads, 8);
  EXPECT_EQ(config->max_position, 2048);
  EXPECT_EQ(config->layers[0].norm.epsilon, 1e-6f);
  EXPECT_FALSE(config->tie_embeddings);
  EXPECT_EQ(config->ropes[0].theta, 10000);
  EXPECT_EQ(config->dtype, DType::f32);
  EXPECT_EQ(config->bos_token_id, std::nullopt);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(Config, reads_what_tools_write_for_nothing) {
  json::Value root = llama();
  root["bos_token_id"] = -1;
  root["eos_token_id"] = {2, -1};
  root["torch_dtype"] = "auto";
  const auto config = parsed(root);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bos_token_id, std::nullopt);
  EXPECT_EQ(config->eos_token_ids, std::vector<TokenId>{2});
  EXPECT_FALSE(config->states_dtype);
  std::string text = json::dump(llama());
  text.insert(1, R"("router_jitter":NaN,"limit":[Infinity,-Infinity],)");
  EXPECT_TRUE(parse_model_spec(text, "config.json"));
  text.insert(1, R"("rms_norm_eps":Infinity,)");
  text.replace(text.rfind("\"rms_norm_eps\""), 14, "\"other\"");
  const auto infinite = parse_model_spec(text, "config.json");
  ASSERT_FALSE(infinite);
  EXPECT_NE(infinite.error().message.find("rms_norm_eps"), std::string::npos) << infinite.error().message;
  EXPECT_EQ(error_with("bos_token_id", "-2"), "config.json: 'bos_token_id' must be token ids from 0 to 511, not -2");
}

TEST(Config, a_llama_has_the_biases_that_its_config_says) {
  json::Value root = llama();
  root["attention_bias"] = true;
  const auto attention = parsed(root);
  ASSERT_TRUE(attention) << attention.error().message;
  EXPECT_TRUE(attention->layers[0].attention.has_qkv_bias && attention->layers[0].attention.has_out_bias);
  EXPECT_FALSE(attention->layers[0].feed_forward.has_bias);
  root["mlp_bias"] = true;
  EXPECT_TRUE(parsed(root)->layers[4].feed_forward.has_bias);
  EXPECT_EQ(error_with("mlp_bias", "1"), "config.json: 'mlp_bias' must be true or false, not an integer");
}

TEST(Config, reads_the_spellings_of_transformers_5) {
  json::Value root = llama();
  root.erase("torch_dtype");
  root.erase("rope_theta");
  root.erase("rope_scaling");
  root["dtype"] = "float16";
  root["head_dim"] = 16;
  root["eos_token_id"] = {2, 7};
  root["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "llama3"},   {"factor", 8.0},
                             {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  const auto config = parsed(root);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dtype, DType::f16);
  EXPECT_EQ(config->layers[0].attention.head_dim, 16);
  EXPECT_EQ(config->eos_token_ids, (std::vector<TokenId>{2, 7}));
  EXPECT_EQ(config->ropes[0].theta, 500000);
  EXPECT_EQ(config->ropes[0].scaling.kind, RopeScaling::Kind::llama3);
  EXPECT_EQ(config->ropes[0].scaling.factor, 8);
  EXPECT_EQ(config->ropes[0].scaling.original_max_position, 8192);
}

TEST(Config, reads_the_scalings_of_transformers_4) {
  json::Value root = llama();
  root["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(parsed(root)->ropes[0].scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(parsed(root)->ropes[0].scaling.factor, 4);
  EXPECT_EQ(parsed(root)->ropes[0].theta, 10000);
  root["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(parsed(root)->ropes[0].scaling.kind, RopeScaling::Kind::none);
}

TEST(Config, knows_the_architecture_by_its_model_type_too) {
  json::Value root = llama();
  root.erase("architectures");
  EXPECT_EQ(parsed(root)->family, "LlamaForCausalLM");
  root.erase("model_type");
  EXPECT_EQ(parsed(root).error().message, "config.json: 'model_type' is missing");
}

TEST(Config, an_unknown_architecture_is_refused_with_the_list_that_is_known) {
  std::string known;
  for (const Family& family : shipped_families()) known += (known.empty() ? "" : ", ") + std::string(family.name);
  EXPECT_EQ(error_with("architectures", R"(["GPT2LMHeadModel"])"),
            "config.json: the architecture 'GPT2LMHeadModel' is not supported; known are: " + known);
}

TEST(Config, sizes_that_are_absurd_or_of_the_wrong_type_are_named) {
  EXPECT_EQ(error_without("hidden_size"), "config.json: 'hidden_size' is missing");
  EXPECT_EQ(error_with("hidden_size", "null"), "config.json: 'hidden_size' must be an integer, not null");
  EXPECT_EQ(error_with("num_hidden_layers", "\"5\""), "config.json: 'num_hidden_layers' must be an integer, not a string");
  EXPECT_EQ(error_with("num_hidden_layers", "2.5"), "config.json: 'num_hidden_layers' must be an integer, not 2.5");
  EXPECT_EQ(error_with("num_attention_heads", "0"), "config.json: 'num_attention_heads' must be from 1 to 1024, not 0");
  EXPECT_EQ(error_with("vocab_size", "-1"), "config.json: 'vocab_size' must be from 1 to 4194304, not -1");
  EXPECT_EQ(error_with("intermediate_size", "99999999999"),
            "config.json: 'intermediate_size' must be from 1 to 1048576, not 99999999999");
  EXPECT_EQ(error_with("num_key_value_heads", "3"),
            "config.json: 'num_attention_heads' must be a multiple of 'num_key_value_heads', but they are 8 and 3");
  EXPECT_EQ(error_with("hidden_size", "65"),
            "config.json: 'hidden_size' must be a multiple of 'num_attention_heads' where there is no 'head_dim', but they are "
            "65 and 8");
  EXPECT_EQ(error_with("head_dim", "7"), "config.json: 'head_dim' must be even, not 7");
  EXPECT_EQ(error_with("rms_norm_eps", "-1"), "config.json: 'rms_norm_eps' must be from 1e-12 to 1, not -1");
  EXPECT_EQ(error_with("rope_theta", "0"), "config.json: 'rope_theta' must be from 1 to 1000000000000, not 0");
  EXPECT_EQ(error_with("eos_token_id", "512"), "config.json: 'eos_token_id' must be token ids from 0 to 511, not 512");
  EXPECT_EQ(error_with("eos_token_id", R"([1,"x"])"), "config.json: 'eos_token_id[1]' must be an integer, not a string");
  EXPECT_EQ(error_with("tie_word_embeddings", "1"), "config.json: 'tie_word_embeddings' must be true or false, not an integer");
}

TEST(Config, heads_may_not_be_wider_than_the_limit) {
  json::Value root = llama();
  root["num_attention_heads"] = 1024;
  root["num_key_value_heads"] = 1024;
  root["head_dim"] = 1024;
  EXPECT_EQ(parsed(root).error().message,
            "config.json: 'num_attention_heads' * 'head_dim' must be at most 131072, not 1048576");
}

TEST(Config, values_that_change_the_arithmetic_are_refused_by_name) {
  EXPECT_EQ(error_with("hidden_act", "\"gelu\""),
            "config.json: 'hidden_act' is \"gelu\", which is not supported; supported is \"silu\" or \"swish\"");
  EXPECT_EQ(error_with("sliding_window", "4096"),
            "config.json: 'sliding_window' is 4096, which is not supported; supported is null");
  EXPECT_EQ(
      error_with("quantization_config", R"({"quant_method":"hqq"})"),
      "config.json: the weights are quantised with 'hqq' ('quantization_config'), which is not supported; supported are "
      "float32, bfloat16 and float16; fp8, fbgemm_fp8, mxfp4 (gpt-oss), compressed-tensors (float-quantized, mxfp8-quantized, "
      "nvfp4-pack-quantized, mxfp4-pack-quantized, int-quantized and pack-quantized), gptq and awq (gemm) in 8 or 4 bits, "
      "and modelopt's FP8, MXFP8, NVFP4 and W4A16_NVFP4");
  for (const char* scheme : {"bitsandbytes", "aqlm"})
    EXPECT_NE(error_with("quantization_config", "{\"quant_method\":\"" + std::string(scheme) + "\"}")
                  .find("quantised with '" + std::string(scheme) + "'"),
              std::string::npos);
  EXPECT_NE(error_with("quantization_config", R"({"load_in_4bit":true})").find("quantised with 'bitsandbytes'"),
            std::string::npos);
  EXPECT_EQ(error_with("quantization_config", "null"), "no error");
  EXPECT_EQ(error_with("partial_rotary_factor", "0.5"),
            "config.json: 'partial_rotary_factor' is 0.5, which is not supported; supported is 1");
  EXPECT_EQ(
      error_with("torch_dtype", "\"int8\""),
      "config.json: 'torch_dtype' is \"int8\", which is not supported; supported is \"float32\", \"bfloat16\" or \"float16\"");
  EXPECT_EQ(error_with("pretraining_tp", "2"), "no error") << "how the training was split over devices";
  EXPECT_EQ(error_with("sliding_window", "null"), "no error");
  EXPECT_EQ(error_with("some_new_field", R"({"a":1})"), "no error");
}

TEST(Config, says_what_is_wrong_with_the_file) {
  EXPECT_EQ(parse_model_spec("[]", "config.json").error().message, "config.json must hold an object, not a list");
  EXPECT_EQ(parse_model_spec("{", "config.json").error().code, ErrorCode::invalid_data);
  EXPECT_EQ(read_model_spec("/nowhere").error().message, "/nowhere/config.json does not exist");
}

TEST(Config, random_damage_gives_an_error_or_sizes_inside_the_limits) {
  const std::string whole = json::dump(llama());
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = whole;
    for (unsigned i = 0; i <= random() % 3; ++i)
      text[random() % text.size()] = static_cast<char>("0123456789-.e,:{}[]\"nul "[random() % 24]);
    const auto config = parse_model_spec(text, "it");
    if (!config) continue;
    ASSERT_FALSE(config->layers.empty());
    const AttentionSpec& attention = config->layers[0].attention;
    ASSERT_GT(attention.n_kv_heads, 0);
    ASSERT_EQ(attention.n_heads % attention.n_kv_heads, 0);
    ASSERT_GT(attention.head_dim, 0);
    ASSERT_GT(config->n_parameters(), 0);
  }
}

TEST(Config, reads_the_models_of_the_goldens) {
  for (const char* name : {"gqa64", "gqa80", "gqa128", "mha64", "bf16", "sharded"}) {
    const auto config = read_model_spec(test::source_folder() / ("tests/goldens/llama_tiny_" + std::string(name)));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->d_model, 48);
  }
}

TEST(GenerationConfig, reads_what_is_there) {
  const auto config = parse_generation_config(
      R"({"bos_token_id":1,"eos_token_id":[1,2],"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":40,"repetition_penalty":1.1,"min_p":0.05,"max_new_tokens":9})",
      "it");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_p, 0.9);
  EXPECT_EQ(config->top_k, 40);
  EXPECT_EQ(config->repetition_penalty, 1.1);
  EXPECT_EQ(config->min_p, 0.05);
  EXPECT_EQ(config->max_new_tokens, 9);
  EXPECT_EQ(config->eos_token_ids, (std::vector<TokenId>{1, 2}));
}

TEST(GenerationConfig, without_a_file_nothing_is_set) {
  const auto config = read_generation_config("/nowhere");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->temperature, std::nullopt);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(GenerationConfig, refuses_values_out_of_range) {
  const auto error = [](std::string_view text) { return parse_generation_config(text, "it").error().message; };
  EXPECT_EQ(error(R"({"temperature":-1})"), "it: 'temperature' must be at least 0, not -1");
  EXPECT_EQ(error(R"({"top_p":0})"), "it: 'top_p' must be above 0 and at most 1, not 0");
  EXPECT_EQ(error(R"({"min_p":2})"), "it: 'min_p' must be from 0 to 1, not 2");
  EXPECT_EQ(error(R"({"repetition_penalty":0})"), "it: 'repetition_penalty' must be above 0, not 0");
  EXPECT_EQ(error(R"({"max_new_tokens":0})"), "it: 'max_new_tokens' must be at least 1, not 0");
  EXPECT_EQ(error(R"({"top_k":-5})"), "it: 'top_k' must be at least -1, not -5");
  EXPECT_EQ(error(R"({"temperature":1e300})"), "it: 'temperature' must be a number that float32 holds, not 1e+300");
  EXPECT_EQ(error(R"({"repetition_penalty":1e-60})"),
            "it: 'repetition_penalty' must be a number that float32 holds, not 1e-60");
  EXPECT_EQ(error(R"({"eos_token_id":-2})"), "it: 'eos_token_id' must be token ids from 0 to 4194303, not -2");
}

TEST(Config, reads_a_real_model) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const auto config = read_model_spec(std::filesystem::path(data) / "model-stories260K" / "hf");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layers[0].attention.head_dim, 8);
}

}  // namespace
}  // namespace baton
