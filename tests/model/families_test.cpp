/// Each family's config.json to its spec: fields, defaults and refusals that logits of the goldens do not show.
#include "model/families/families.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/families/refusals.h"
#include "model/rope.h"
#include "support/golden_model.h"
#include "support/source_folder.h"

namespace baton {
namespace {

/// A config of `architecture` with sizes, 8 layers and `fields` in the place of its own.
json::Value config_of(std::string_view architecture, std::string_view fields = "{}") {
  json::Value config = json::parse(R"({"hidden_size":64,"intermediate_size":172,"num_hidden_layers":8,"num_attention_heads":8,
      "num_key_value_heads":4,"vocab_size":512})",
                                   "the test")
                           .value();
  config["architectures"] = json::Value::array({architecture});
  const json::Value more = json::parse(fields, "the test").value();
  for (const auto& [key, value] : more.items()) config[key] = value;
  return config;
}

ModelSpec spec_of(std::string_view architecture, std::string_view fields = "{}") {
  auto spec = parse_model_spec(json::dump(config_of(architecture, fields)), "config.json");
  EXPECT_TRUE(spec) << spec.error().message;
  return spec ? std::move(*spec) : ModelSpec{};
}

std::string error_of(std::string_view architecture, std::string_view fields) {
  const auto spec = parse_model_spec(json::dump(config_of(architecture, fields)), "config.json");
  return spec ? "no error" : spec.error().message;
}

std::vector<std::int32_t> windows(const ModelSpec& spec) {
  std::vector<std::int32_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.attention.window);
  return windows;
}

TEST(Families, have_names_of_their_own) {
  for (const Family& one : shipped_families())
    for (const Family& other : shipped_families())
      EXPECT_EQ(&one == &other, one.name == other.name || one.model_type == other.model_type) << one.name << other.name;
}

/// The tables of docs/models.md.
std::string tables() {
  std::string text = "\n| models | `architectures` | `model_type` | weights | devices |\n|---|---|---|---|---|\n";
  for (const Family& family : shipped_families())
    text += fmt::format("| {} | `{}` | `{}` | safetensors: float32, bfloat16, float16 | cpu, cuda |\n", family.models,
                        family.name, family.model_type);
  text += "\nRefused by name:\n\n| `architectures` | `model_type` | what Baton does not compute |\n|---|---|---|\n";
  for (const RefusedFamily& family : refused_families())
    text += fmt::format("| `{}` | `{}` | {} |\n", family.name, family.model_type, family.missing);
  return text + "\n";
}

// With BATON_WRITE_DOCS in the environment the page is written instead of compared.
TEST(Families, are_those_of_the_page_for_users) {
  const std::filesystem::path page = test::source_folder() / "docs/models.md";
  const std::string text = read_file(page).value();
  constexpr std::string_view kBegin = "<!-- families: written by tests/model/families_test.cpp -->\n";
  constexpr std::string_view kEnd = "<!-- end of families -->";
  const std::size_t begin = text.find(kBegin) + kBegin.size();
  const std::size_t end = text.find(kEnd);
  ASSERT_LE(begin, end);
  ASSERT_NE(end, std::string::npos);
  if (std::getenv("BATON_WRITE_DOCS") != nullptr) {
    ASSERT_TRUE(write_file(page, text.substr(0, begin) + tables() + text.substr(end)));
  } else {
    EXPECT_EQ(text.substr(begin, end - begin), tables()) << "BATON_WRITE_DOCS=1 model_families_test writes it";
  }
}

TEST(Families, that_are_refused_say_what_is_missing) {
  const auto refused = [](std::string_view architecture, std::string_view fields = "{}") {
    return error_of(architecture, fields);
  };
  const auto sentence = [](std::string_view architecture, std::string_view missing) {
    return "config.json: the architecture '" + std::string(architecture) + "' is not supported: Baton does not compute " +
           std::string(missing);
  };
  EXPECT_EQ(refused("DeepseekV32ForCausalLM"), sentence("DeepseekV32ForCausalLM", "sparse attention with an indexer"));
  EXPECT_EQ(refused("T5ForConditionalGeneration"), sentence("T5ForConditionalGeneration", "an encoder"));
  for (const RefusedFamily& family : refused_families()) {
    EXPECT_EQ(refused(family.name), sentence(family.name, family.missing));
    for (const Family& shipped : shipped_families()) EXPECT_NE(shipped.name, family.name);
  }
  // Architectures without a reason of their own, by the fields of their configs.
  EXPECT_EQ(refused("NewForCausalLM", R"({"kv_lora_rank":512,"n_routed_experts":256})"),
            sentence("NewForCausalLM", "its multi-head latent attention (only that of the families in docs/models.md)"));
  EXPECT_EQ(refused("NewForCausalLM", R"({"kv_lora_rank":512,"index_topk":2048})"),
            sentence("NewForCausalLM", "sparse attention with an indexer"));
  EXPECT_EQ(refused("NewForCausalLM", R"({"kv_lora_rank":null,"num_experts":64})"),
            sentence("NewForCausalLM", "its experts (only those of the families in docs/models.md)"));
  EXPECT_EQ(refused("NewForConditionalGeneration", R"({"text_config":{},"vision_config":{}})"),
            sentence("NewForConditionalGeneration", "images or sound"));
  EXPECT_EQ(
      refused("NewForConditionalGeneration", R"({"text_config":{"linear_num_key_heads":16},"vision_config":{}})"),
      sentence("NewForConditionalGeneration", "its Gated DeltaNet layers (only those of the families in docs/models.md)"));
  EXPECT_EQ(refused("NewModel", R"({"is_encoder_decoder":true})"), sentence("NewModel", "an encoder"));
  EXPECT_NE(refused("NewForCausalLM").find("known are: LlamaForCausalLM, "), std::string::npos);
}

TEST(QwenNext, has_recurrent_layers_where_the_types_or_the_interval_say_so) {
  const auto recurrent = [](const ModelSpec& spec) {
    std::string kinds;
    for (const LayerSpec& layer : spec.layers) kinds += layer.is_recurrent() ? 'r' : 'a';
    return kinds;
  };
  const ModelSpec spec = spec_of("Qwen3NextForCausalLM");
  EXPECT_EQ(recurrent(spec), "rrrarrra") << "every fourth one has attention by default";
  EXPECT_EQ(spec.n_groups(), 1);
  EXPECT_EQ(spec.layers[0].group, LayerSpec::kNoGroup);
  EXPECT_EQ(spec.layers[3].group, 0);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64) << "a quarter of a head of 256";
  EXPECT_EQ(spec.recurrent_layer()->delta->qkv_width(), 2 * 16 * 128 + 32 * 128);
  EXPECT_EQ(recurrent(spec_of("Qwen3_5ForCausalLM", R"({"full_attention_interval":2})")), "rararara");
  EXPECT_EQ(
      recurrent(spec_of("Qwen3_5ForCausalLM",
                        R"({"num_hidden_layers":3,"layer_types":["full_attention","linear_attention","full_attention"]})")),
      "ara");
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"num_hidden_layers":1,"layer_types":["sliding_attention"]})"),
            "config.json: 'layer_types' is \"sliding_attention\", which is not supported; supported is \"full_attention\" or "
            "\"linear_attention\"");
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"num_hidden_layers":3})"),
            "config.json: one of the 3 layers must have \"full_attention\"");
}

TEST(QwenNext, refuses_what_would_change_its_arithmetic) {
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"attn_output_gate":false})"),
            "config.json: 'attn_output_gate' is false, which is not supported; supported is true");
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"mamba_ssm_dtype":"bfloat16"})"),
            "config.json: 'mamba_ssm_dtype' is \"bfloat16\", which is not supported; supported is \"float32\"");
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"linear_num_value_heads":24})"),
            "config.json: 'linear_num_value_heads' must be a multiple of 'linear_num_key_heads', but they are 24 and 16");
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"linear_conv_kernel_dim":1})"),
            "config.json: 'linear_conv_kernel_dim' must be at least 2, not 1");
  EXPECT_EQ(error_of("Qwen3_5ForCausalLM", R"({"output_gate_type":"sigmoid"})"),
            "config.json: 'output_gate_type' is \"sigmoid\", which is not supported; supported is \"silu\" or \"swish\"");
  EXPECT_EQ(error_of("Qwen3_5MoeForCausalLM", R"({"norm_topk_prob":false})"),
            "config.json: 'norm_topk_prob' is false, which is not supported; supported is true");
}

std::string kinds_of_layers(const ModelSpec& spec) {
  std::string kinds;
  for (const LayerSpec& layer : spec.layers)
    kinds += layer.conv ? 'c' : layer.mamba2 ? 'm' : layer.has_attention() ? 'a' : layer.feed_forward.has_experts() ? 'e' : 'f';
  return kinds;
}

TEST(Lfm2, has_convolutions_where_there_is_no_attention) {
  EXPECT_EQ(kinds_of_layers(spec_of("Lfm2ForCausalLM")), "aaaaaaaa") << "Transformers' default";
  const ModelSpec spec = spec_of("Lfm2ForCausalLM", R"({"full_attn_idxs":[2,5]})");
  EXPECT_EQ(kinds_of_layers(spec), "ccaccacc");
  EXPECT_EQ(spec.layers[0].conv->n_taps, 3);
  EXPECT_EQ(spec.layers[0].group, LayerSpec::kNoGroup);
  EXPECT_TRUE(spec.tie_embeddings);
  EXPECT_EQ(kinds_of_layers(spec_of("Lfm2ForCausalLM", R"({"num_hidden_layers":2,"layer_types":["full_attention","conv"]})")),
            "ac");
  EXPECT_FALSE(spec_of("Lfm2ForCausalLM", R"({"tie_embedding":false})").tie_embeddings);
  EXPECT_EQ(error_of("Lfm2ForCausalLM", R"({"full_attn_idxs":[]})"), "config.json: one of the 8 layers must have attention");
  EXPECT_EQ(error_of("Lfm2ForCausalLM", R"({"num_hidden_layers":1,"layer_types":["mamba"]})"),
            "config.json: 'layer_types' is \"mamba\", which is not supported; supported is \"full_attention\" or \"conv\"");
  EXPECT_EQ(error_of("Lfm2ForCausalLM", R"({"conv_L_cache":1})"), "config.json: 'conv_L_cache' must be at least 2, not 1");
  EXPECT_NE(error_of("Lfm2ForCausalLM", R"({"conv_L_cache":9})"), "no error");
}

TEST(Lfm2, has_two_thirds_of_the_stated_width_unless_the_config_says_otherwise) {
  const auto width = [](std::string_view fields) { return spec_of("Lfm2ForCausalLM", fields).layers[0].feed_forward.d_ff; };
  EXPECT_EQ(width(R"({"block_ff_dim":12288})"), 8192);
  EXPECT_EQ(width(R"({"intermediate_size":1000})"), 768);
  EXPECT_EQ(width(R"({"block_ff_dim":100,"block_ffn_dim_multiplier":1.3,"block_multiple_of":16})"), 96) << "66, 85, 96";
  EXPECT_EQ(width(R"({"block_ff_dim":100,"block_auto_adjust_ff_dim":false})"), 100);
  EXPECT_NE(error_of("Lfm2ForCausalLM", R"({"block_ff_dim":1000000,"block_ffn_dim_multiplier":100})"), "no error");
}

TEST(Lfm2, has_experts_after_the_first_layers) {
  const ModelSpec spec = spec_of("Lfm2MoeForCausalLM", R"({"full_attn_idxs":[3],"num_experts_per_tok":3})");
  EXPECT_FALSE(spec.layers[1].feed_forward.has_experts());
  EXPECT_EQ(spec.layers[1].feed_forward.d_ff, 172) << "as it is stated";
  const FeedForwardSpec& experts = spec.layers[2].feed_forward;
  EXPECT_EQ(experts.n_experts, 32);
  EXPECT_EQ(experts.n_experts_per_row, 3);
  EXPECT_TRUE(experts.has_choice_bias);
  EXPECT_EQ(experts.routing.added_to_sum, 1e-6f);
  EXPECT_TRUE(spec_of("Lfm2MoeForCausalLM", R"({"num_dense_layers":0})").layers[0].feed_forward.has_experts());
}

TEST(GraniteHybrid, has_mamba2_where_the_types_say_so) {
  const std::string_view types = R"({"num_hidden_layers":3,"layer_types":["mamba","attention","linear_attention"],
      "mamba_n_heads":4,"mamba_d_head":32,"num_local_experts":0})";
  const ModelSpec spec = spec_of("GraniteMoeHybridForCausalLM", types);
  EXPECT_EQ(kinds_of_layers(spec), "mam");
  EXPECT_EQ(spec.layers[1].attention.rope, AttentionSpec::kNoRope);
  EXPECT_EQ(spec.layers[0].mamba2->in_width(), 128 + 128 + 2 * 256 + 4);
  EXPECT_EQ(spec.layers[0].feed_forward.d_ff, 1024) << "of the shared block";
  const ModelSpec dense = spec_of("GraniteMoeHybridForCausalLM",
                                  R"({"num_hidden_layers":1,"layer_types":["attention"],"position_embedding_type":"rope"})");
  EXPECT_FALSE(dense.has_recurrent_layers());
  EXPECT_EQ(dense.layers[0].attention.rope, 0);
  EXPECT_EQ(dense.layers[0].feed_forward.n_experts, 8);
  EXPECT_EQ(dense.layers[0].feed_forward.d_ff_shared, 1024);
  EXPECT_EQ(error_of("GraniteMoeHybridForCausalLM", R"({"num_hidden_layers":2,"layer_types":["mamba","mamba"]})"),
            "config.json: one of the 2 layers must have \"attention\"");
  const auto error = [](std::string_view fields) {
    json::Value all =
        json::parse(R"({"num_hidden_layers":2,"layer_types":["mamba","attention"],"mamba_n_heads":4})", "").value();
    const json::Value more = json::parse(fields, "the test").value();
    for (const auto& [key, value] : more.items()) all[key] = value;
    return error_of("GraniteMoeHybridForCausalLM", json::dump(all));
  };
  EXPECT_EQ(error("{}"), "no error") << "\"auto\" heads";
  EXPECT_EQ(error(R"({"mamba_d_head":64})"),
            "config.json: 'mamba_n_heads' * 'mamba_d_head' must be 'mamba_expand' * 'hidden_size', 128, not 256");
  EXPECT_EQ(error(R"({"mamba_n_groups":3})"), "config.json: 'mamba_n_groups' must divide the 4 heads of Mamba-2, not be 3");
  EXPECT_EQ(error(R"({"mamba_d_conv":1})"), "config.json: 'mamba_d_conv' must be at least 2, not 1");
  EXPECT_EQ(error(R"({"time_step_limit":[0.0,0.5]})"),
            "config.json: 'time_step_limit' is [0.0,0.5], which is not supported; supported is [0.0, Infinity]");
  EXPECT_EQ(error(R"({"time_step_limit":[0.0,{"__float__":"Infinity"}]})"), "no error");
  EXPECT_EQ(
      error(R"({"position_embedding_type":"alibi"})"),
      "config.json: 'position_embedding_type' is \"alibi\", which is not supported; supported is \"rope\", \"nope\" or null");
}

TEST(NemotronH, has_layers_of_one_block_in_the_order_of_the_pattern) {
  const ModelSpec spec = spec_of("NemotronHForCausalLM", R"({"hybrid_override_pattern":"M-M*E"})");
  EXPECT_EQ(kinds_of_layers(spec), "mfmae");
  EXPECT_EQ(kinds_of_layers(spec_of("NemotronHForCausalLM", R"({"layers_block_type":["moe","attention","mamba","mlp"]})")),
            "eamf");
  EXPECT_TRUE(spec.ropes.empty());
  EXPECT_EQ(spec.layers[3].attention.head_dim, 128);
  EXPECT_FALSE(spec.layers[0].has_feed_forward);
  EXPECT_FALSE(spec.layers[1].has_mixer);
  EXPECT_EQ(spec.layers[0].mamba2->n_norm_groups, 8);
  EXPECT_EQ(spec.layers[4].feed_forward.d_ff_shared, 7688);
  const auto error = [](std::string_view fields) { return error_of("NemotronHForCausalLM", fields); };
  EXPECT_EQ(error("{}"), "config.json: 'layers_block_type' is missing");
  EXPECT_EQ(error(R"({"hybrid_override_pattern":"MX*"})"),
            "config.json: 'hybrid_override_pattern' is \"MX*\", which is not supported; supported is letters M, *, - and E");
  EXPECT_EQ(error(R"({"hybrid_override_pattern":"M-"})"),
            "config.json: a model must have 1 to 1024 layers, and attention in one of them, not \"M-\"");
  EXPECT_EQ(error(R"({"hybrid_override_pattern":"*E","moe_latent_size":1024})"),
            "config.json: 'moe_latent_size' is 1024, which is not supported; supported is null");
  EXPECT_EQ(error(R"({"hybrid_override_pattern":"*-","mlp_hidden_act":"silu"})"),
            "config.json: 'mlp_hidden_act' is \"silu\", which is not supported; supported is \"relu2\"");
  EXPECT_EQ(error(R"({"hybrid_override_pattern":"M*","mamba_ssm_cache_dtype":"bfloat16"})"),
            "config.json: 'mamba_ssm_cache_dtype' is \"bfloat16\", which is not supported; supported is \"float32\"");
}

TEST(Mistral, has_one_window_in_all_layers_or_none) {
  EXPECT_EQ(windows(spec_of("MistralForCausalLM", R"({"sliding_window":4096})")), std::vector<std::int32_t>(8, 4096));
  EXPECT_EQ(windows(spec_of("MistralForCausalLM", R"({"sliding_window":null})")), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(windows(spec_of("MistralForCausalLM")), std::vector<std::int32_t>(8, 4096)) << "Transformers' default";
  EXPECT_EQ(spec_of("MistralForCausalLM").max_position, 131072);
  EXPECT_EQ(error_of("MistralForCausalLM", R"({"num_hidden_layers":2,"layer_types":["full_attention","sliding_attention"]})"),
            "config.json: 'layer_types' is [\"full_attention\",\"sliding_attention\"], which is not supported; supported is "
            "\"sliding_attention\" in all layers of a Mistral with 'sliding_window'");
  EXPECT_EQ(error_of("MistralForCausalLM", R"({"attention_bias":true})"),
            "config.json: 'attention_bias' is true, which is not supported; supported is false");
}

TEST(Mistral, has_no_window_that_no_context_exceeds) {
  const auto windows_with = [](std::string_view window) {
    return windows(
        spec_of("MistralForCausalLM", R"({"max_position_embeddings":4096,"sliding_window":)" + std::string(window) + "}"));
  };
  EXPECT_EQ(windows_with("4095"), std::vector<std::int32_t>(8, 4095));
  EXPECT_EQ(windows_with("4096"), std::vector<std::int32_t>(8, 0));
}

TEST(Mistral, has_eight_kv_heads_by_default) {
  json::Value config = config_of("MistralForCausalLM", R"({"num_attention_heads":16})");
  config.erase("num_key_value_heads");
  EXPECT_EQ(parse_model_spec(json::dump(config), "it")->layers[0].attention.n_kv_heads, 8);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parse_model_spec(json::dump(config), "it")->layers[0].attention.n_kv_heads, 16);
}

TEST(Ministral, has_windows_in_the_layers_whose_types_say_so) {
  const std::string types =
      R"("num_hidden_layers":4,"layer_types":["full_attention","sliding_attention","sliding_attention","sliding_attention"])";
  const ModelSpec spec = spec_of("MinistralForCausalLM", R"({"sliding_window":32,)" + types + "}");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{0, 32, 32, 32}));
  EXPECT_EQ(spec.n_groups(), 2);
  EXPECT_EQ(error_of("MinistralForCausalLM", R"({"sliding_window":null,)" + types + "}"),
            "config.json: 'sliding_window' is missing");
  EXPECT_EQ(error_of("MinistralForCausalLM", R"({"layer_types":["full_attention"]})"),
            "config.json: 'layer_types' must name the types of 8 layers, not of 1");
  EXPECT_EQ(error_of("MinistralForCausalLM", R"({"num_hidden_layers":1,"layer_types":["chunked_attention"]})"),
            "config.json: 'layer_types' is \"chunked_attention\", which is not supported; supported is \"full_attention\" or "
            "\"sliding_attention\"");
}

TEST(Ministral3, scales_queries_by_their_positions) {
  const std::string fields = R"("rope_type":"yarn","factor":16.0,"original_max_position_embeddings":16384)";
  const auto with = [&](std::string_view more) { return R"({"rope_parameters":{)" + fields + std::string(more) + "}}"; };
  const ModelSpec spec = spec_of("Ministral3ForCausalLM", with(R"(,"llama_4_scaling_beta":0.25)"));
  EXPECT_EQ(spec.ropes[0].query_beta, 0.25);
  EXPECT_EQ(spec.ropes[0].query_length, 16384);
  EXPECT_EQ(spec.layers[0].norm.epsilon, 1e-5f);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 128) << "Transformers' default";
  EXPECT_EQ(spec.max_position, 262144);
  EXPECT_EQ(windows(spec), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(spec_of("Ministral3ForCausalLM", with(R"(,"llama_4_scaling_beta":0)")).ropes[0].query_beta, 0);
  EXPECT_EQ(error_of("Ministral3ForCausalLM", with("")), "config.json: 'llama_4_scaling_beta' is missing");
  EXPECT_EQ(error_of("Ministral3ForCausalLM", "{}"), "config.json: 'llama_4_scaling_beta' is missing");
  EXPECT_EQ(error_of("Ministral3ForCausalLM", with(R"(,"llama_4_scaling_beta":-1)")),
            "config.json: 'llama_4_scaling_beta' must be from 0 to 1000000, not -1");
  EXPECT_EQ(error_of("MistralForCausalLM", with(R"(,"llama_4_scaling_beta":0.1)")),
            "config.json: 'llama_4_scaling_beta' is 0.1, which is not supported; supported is null");
}

TEST(Qwen2, has_a_window_from_max_window_layers_on_if_it_uses_one) {
  const ModelSpec plain = spec_of("Qwen2ForCausalLM", R"({"sliding_window":64,"max_window_layers":2})");
  EXPECT_EQ(windows(plain), std::vector<std::int32_t>(8, 0));
  EXPECT_TRUE(plain.layers[7].attention.has_qkv_bias);
  EXPECT_FALSE(plain.layers[7].attention.has_out_bias || plain.layers[7].feed_forward.has_bias);
  EXPECT_EQ(plain.max_position, 32768);
  EXPECT_EQ(windows(spec_of("Qwen2ForCausalLM", R"({"sliding_window":64,"max_window_layers":6,"use_sliding_window":true})")),
            (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 64, 64}));
  EXPECT_EQ(windows(spec_of("Qwen2ForCausalLM", R"({"sliding_window":64,"max_window_layers":0,"use_sliding_window":true,
                            "num_hidden_layers":2,"layer_types":["sliding_attention","full_attention"]})")),
            (std::vector<std::int32_t>{64, 0}));
  EXPECT_EQ(windows(spec_of("Qwen2ForCausalLM", R"({"sliding_window":null,"max_window_layers":0,"use_sliding_window":true})")),
            std::vector<std::int32_t>(8, 0));
}

std::vector<std::int32_t> experts(const ModelSpec& spec) {
  std::vector<std::int32_t> experts;
  for (const LayerSpec& layer : spec.layers) experts.push_back(layer.feed_forward.n_experts);
  return experts;
}

TEST(Mixtral, has_experts_in_all_layers_whose_weights_sum_to_one) {
  const ModelSpec spec = spec_of("MixtralForCausalLM");
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 8)) << "Transformers' default";
  EXPECT_EQ(windows(spec), std::vector<std::int32_t>(8, 0));
  const FeedForwardSpec& block = spec.layers[7].feed_forward;
  EXPECT_EQ(block.n_experts_per_row, 2);
  EXPECT_EQ(block.d_ff, 172);
  EXPECT_TRUE(block.routing.renormalises);
  EXPECT_FALSE(block.has_bias);
  EXPECT_EQ(spec.max_position, 131072);
  EXPECT_EQ(spec.ropes[0].theta, 1e6);
  const ModelSpec small =
      spec_of("MixtralForCausalLM", R"({"num_local_experts":4,"num_experts_per_tok":3,"sliding_window":64})");
  EXPECT_EQ(experts(small), std::vector<std::int32_t>(8, 4));
  EXPECT_EQ(small.layers[0].feed_forward.n_experts_per_row, 3);
  EXPECT_EQ(windows(small), std::vector<std::int32_t>(8, 64));
  // Of each layer: attention, a router, experts, two norms; then table, output layer and norm.
  EXPECT_EQ(small.n_parameters(), 8 * (64 * (64 + 2 * 32) + 64 * 64 + 64 * 4 + 4 * 3 * 64 * 172 + 2 * 64) + 2 * 512 * 64 + 64);
  EXPECT_EQ(error_of("MixtralForCausalLM", R"({"num_local_experts":4,"num_experts_per_tok":5})"),
            "config.json: 'num_experts_per_tok' must be from 1 to 4, not 5");
  EXPECT_EQ(error_of("MixtralForCausalLM", R"({"num_local_experts":513})"),
            "config.json: 'num_local_experts' must be from 1 to 512, not 513");
  EXPECT_EQ(error_of("MixtralForCausalLM", R"({"hidden_act":"gelu"})"),
            "config.json: 'hidden_act' is \"gelu\", which is not supported; supported is \"silu\" or \"swish\"");
}

TEST(Qwen3Moe, has_experts_in_the_layers_that_its_fields_choose) {
  const ModelSpec spec = spec_of("Qwen3MoeForCausalLM");
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 128)) << "Transformers' default";
  EXPECT_EQ(spec.layers[0].feed_forward.n_experts_per_row, 8);
  EXPECT_EQ(spec.layers[0].feed_forward.d_ff, 768);
  EXPECT_FALSE(spec.layers[0].feed_forward.routing.renormalises);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::head);
  EXPECT_FALSE(spec.layers[0].attention.has_qkv_bias || spec.layers[0].attention.has_out_bias);
  EXPECT_EQ(windows(spec), std::vector<std::int32_t>(8, 0)) << "a window that is not used";
  const std::string_view four = R"({"num_experts":4,"num_experts_per_tok":1,"moe_intermediate_size":40,"norm_topk_prob":true,
      "decoder_sparse_step":3,"mlp_only_layers":[5],"use_sliding_window":true,"sliding_window":32,"attention_bias":true})";
  const ModelSpec mixed = spec_of("Qwen3MoeForCausalLM", four);
  EXPECT_EQ(experts(mixed), (std::vector<std::int32_t>{0, 0, 4, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(mixed.layers[2].feed_forward.routing.renormalises);
  EXPECT_EQ(mixed.layers[2].feed_forward.d_ff, 40);
  EXPECT_EQ(mixed.layers[3].feed_forward.d_ff, 172);
  EXPECT_EQ(windows(mixed), std::vector<std::int32_t>(8, 32));
  EXPECT_TRUE(mixed.layers[0].attention.has_qkv_bias && mixed.layers[0].attention.has_out_bias);
  EXPECT_EQ(experts(spec_of("Qwen3MoeForCausalLM", R"({"num_local_experts":16})")), std::vector<std::int32_t>(8, 16))
      << "as Transformers 5 writes it";
}

TEST(Phi, has_layer_norms_parallel_blocks_and_a_bias_everywhere) {
  const ModelSpec spec = spec_of("PhiForCausalLM", R"({"hidden_size":512})");
  const LayerSpec& layer = spec.layers[3];
  EXPECT_TRUE(layer.is_parallel);
  EXPECT_EQ(layer.norm.kind, NormSpec::Kind::layer);
  EXPECT_EQ(layer.norm.epsilon, 1e-5f);
  EXPECT_TRUE(layer.norm.has_bias && layer.attention.has_qkv_bias && layer.attention.has_out_bias &&
              layer.feed_forward.has_bias);
  EXPECT_TRUE(spec.has_lm_head_bias && spec.final_norm.has_bias);
  EXPECT_EQ(layer.feed_forward.kind, FeedForwardSpec::Kind::gelu_tanh);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 32) << "half a head by default";
  EXPECT_EQ(spec_of("PhiForCausalLM", R"({"hidden_size":640,"partial_rotary_factor":0.4})").ropes[0].rotary_dim, 32);
  EXPECT_EQ(error_of("PhiForCausalLM", R"({"hidden_act":"relu"})"),
            R"(config.json: 'hidden_act' is "relu", which is not supported; supported is "gelu", "gelu_python", "gelu_new", )"
            R"("gelu_fast", "gelu_accurate", "gelu_pytorch_tanh" or "gelu_python_tanh")");
  EXPECT_EQ(error_of("PhiForCausalLM", R"({"qk_layernorm":true})"),
            "config.json: 'qk_layernorm' is true, which is not supported; supported is false");
}

/// All names of Transformers' ACT2FN that stand for one formula, and none of its neighbours.
TEST(Activations, have_every_name_that_transformers_gives_them) {
  const auto config = [](std::string_view key, std::string_view name) { return fmt::format(R"({{"{}":"{}"}})", key, name); };
  using Kind = FeedForwardSpec::Kind;
  for (const char* name : {"silu", "swish"})
    for (const char* family : {"LlamaForCausalLM", "MixtralForCausalLM", "Cohere2ForCausalLM"})
      EXPECT_EQ(spec_of(family, config("hidden_act", name)).layers[0].feed_forward.kind, Kind::gated_silu) << family << name;
  const std::vector<std::string_view> exact{"gelu", "gelu_python"};
  const std::vector<std::string_view> tanh{"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"};
  for (const bool is_exact : {true, false})
    for (const std::string_view name : is_exact ? exact : tanh) {
      const auto kind_of = [&](std::string_view family, std::string_view key) {
        return spec_of(family, config(key, name)).layers[0].feed_forward.kind;
      };
      EXPECT_EQ(kind_of("PhiForCausalLM", "hidden_act"), is_exact ? Kind::gelu : Kind::gelu_tanh) << name;
      for (const char* family : {"Gemma2ForCausalLM", "Gemma3ForCausalLM"})
        EXPECT_EQ(kind_of(family, "hidden_activation"), is_exact ? Kind::gated_gelu : Kind::gated_gelu_tanh) << family << name;
    }
  for (const char* other : {"gelu_10", "quick_gelu", "hardswish", "mish", "relu2", "silu"}) {
    EXPECT_NE(error_of("PhiForCausalLM", config("hidden_act", other)).find("which is not supported"), std::string::npos)
        << other;
    EXPECT_NE(error_of("Gemma3ForCausalLM", config("hidden_activation", other)).find("which is not supported"),
              std::string::npos)
        << other;
  }
}

TEST(Phi3, has_fused_tensors_one_window_and_longrope_under_three_names) {
  const ModelSpec spec = spec_of("Phi3ForCausalLM");
  EXPECT_EQ(windows(spec), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(spec.max_position, 4096);
  EXPECT_EQ(spec.layers[0].norm.epsilon, 1e-5f);
  EXPECT_EQ(spec.names.qkv, "model.layers.{}.self_attn.qkv_proj");
  EXPECT_EQ(windows(spec_of("Phi3ForCausalLM", R"({"sliding_window":2047})")), std::vector<std::int32_t>(8, 2047));
  EXPECT_EQ(spec_of("Phi3ForCausalLM", R"({"hidden_size":512,"partial_rotary_factor":0.75})").ropes[0].rotary_dim, 48);
  for (const char* type : {"su", "yarn", "longrope"}) {
    const ModelSpec longer =
        spec_of("Phi3ForCausalLM", R"({"max_position_embeddings":131072,"rope_scaling":{"type":")" + std::string(type) +
                                       R"(","short_factor":[1,1,1,1],"long_factor":[2,2,2,2]}})");
    EXPECT_EQ(longer.ropes.at(0).scaling.kind, RopeScaling::Kind::longrope);
    EXPECT_EQ(longer.ropes.at(0).scaling.original_max_position, 4096) << "Transformers' default";
    EXPECT_NEAR(longer.ropes.at(0).scaling.attention_factor, 1.1902380714238083, 1e-12);
  }
  EXPECT_EQ(error_of("Phi3ForCausalLM", R"({"lm_head_bias":true})"),
            "config.json: 'lm_head_bias' is true, which is not supported; supported is false");
}

TEST(Qwen3, has_norms_of_heads_and_the_biases_that_its_config_says) {
  const ModelSpec spec = spec_of("Qwen3ForCausalLM");
  EXPECT_EQ(spec.layers[0].attention.head_dim, 128) << "Transformers' default";
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::head);
  EXPECT_FALSE(spec.layers[0].attention.has_qkv_bias || spec.layers[0].attention.has_out_bias);
  const ModelSpec biased = spec_of("Qwen3ForCausalLM", R"({"attention_bias":true,"head_dim":64})");
  EXPECT_TRUE(biased.layers[0].attention.has_qkv_bias && biased.layers[0].attention.has_out_bias);
  EXPECT_EQ(biased.layers[0].attention.head_dim, 64);
  const ModelSpec undecided = spec_of("Qwen3ForCausalLM", R"({"head_dim":null})");
  EXPECT_EQ(undecided.layers[0].attention.head_dim, undecided.d_model / undecided.layers[0].attention.n_heads)
      << "as Transformers";
}

TEST(Olmo2, has_norms_after_its_blocks_and_of_whole_rows_of_heads) {
  const ModelSpec spec = spec_of("Olmo2ForCausalLM");
  EXPECT_FALSE(spec.layers[0].has_pre_norms);
  EXPECT_TRUE(spec.layers[0].has_post_norms);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::width);
  EXPECT_EQ(spec.layers[0].norm.epsilon, 1e-5f);
  EXPECT_EQ(error_of("Olmo2ForCausalLM", R"({"clip_qkv":8})"),
            "config.json: 'clip_qkv' is 8, which is not supported; supported is null");
}

TEST(Olmo3, has_windows_in_three_of_four_layers_and_scales_the_rotation_of_the_others) {
  const ModelSpec spec =
      spec_of("Olmo3ForCausalLM",
              R"({"max_position_embeddings":65536,"rope_theta":500000,"rope_scaling":{"rope_type":"yarn","factor":8.0,
          "original_max_position_embeddings":8192,"attention_factor":1.2}})");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{4096, 4096, 4096, 0, 4096, 4096, 4096, 0}));
  EXPECT_FALSE(spec.layers[0].has_pre_norms);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::width);
  EXPECT_EQ(spec.layers[0].norm.epsilon, 1e-5f);
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(spec.ropes[0].scaling.attention_factor, 1.2);
  EXPECT_EQ(spec.ropes[1].scaling.kind, RopeScaling::Kind::none);
  for (const RopeSpec& rope : spec.ropes) EXPECT_EQ(rope.theta, 500000);
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.attention.rope, layer.attention.window > 0 ? 1 : 0);
  EXPECT_EQ(spec_of("Olmo3ForCausalLM", R"({"rope_parameters":{"sliding_attention":{"rope_theta":7000}}})").ropes[1].theta,
            7000);
  const RopeSpec both =
      spec_of("Olmo3ForCausalLM",
              R"({"rope_parameters":{"full_attention":{"rope_theta":7000}},"rope_scaling":{"rope_type":"linear","factor":8}})")
          .ropes[0];
  EXPECT_EQ(both.theta, 7000) << "rope_scaling adds to the fields of rope_parameters";
  EXPECT_EQ(both.scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(error_of("Olmo3ForCausalLM", R"({"rope_theta":7000})"),
            "config.json: 'rope_theta' is 7000, which is not supported; supported is 500000.0");
  EXPECT_EQ(error_of("Olmo3ForCausalLM", R"({"sliding_window":null})"), "config.json: 'sliding_window' is missing");
}

TEST(Exaone4, rotates_only_the_layers_with_a_window_if_there_is_one) {
  const auto rotated = [](const ModelSpec& spec) {
    std::vector<bool> rotated;
    for (const LayerSpec& layer : spec.layers) rotated.push_back(layer.attention.rope != AttentionSpec::kNoRope);
    return rotated;
  };
  const ModelSpec spec = spec_of("Exaone4ForCausalLM", R"({"max_position_embeddings":8192})");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{4096, 4096, 4096, 0, 4096, 4096, 4096, 0}));
  EXPECT_EQ(rotated(spec), (std::vector<bool>{true, true, true, false, true, true, true, false}));
  EXPECT_FALSE(spec.layers[0].has_pre_norms);
  EXPECT_TRUE(spec.layers[0].has_post_norms);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::head);
  EXPECT_EQ(spec.layers[0].norm.epsilon, 1e-5f);
  const ModelSpec full = spec_of("Exaone4ForCausalLM", R"({"sliding_window":null,"sliding_window_pattern":null})");
  EXPECT_EQ(windows(full), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(rotated(full), std::vector<bool>(8, true));
  const ModelSpec listed =
      spec_of("Exaone4ForCausalLM", R"({"num_hidden_layers":2,"sliding_window":64,"sliding_window_pattern":"LLLG",
      "layer_types":["full_attention","sliding_attention"]})");
  EXPECT_EQ(windows(listed), (std::vector<std::int32_t>{0, 64}));
  EXPECT_EQ(rotated(listed), (std::vector<bool>{false, true}));
  EXPECT_EQ(windows(spec_of("Exaone4ForCausalLM", R"({"num_hidden_layers":2,"sliding_window":64,"sliding_window_pattern":2})")),
            (std::vector<std::int32_t>{64, 0}));
  EXPECT_EQ(
      error_of("Exaone4ForCausalLM", R"({"sliding_window_pattern":"LLLG"})"),
      "config.json: 'sliding_window_pattern' is \"LLLG\", which is not supported; supported is a number, or 'layer_types'");
}

TEST(SeedOss, has_biases_of_queries_keys_and_values_and_others_if_its_config_says_so) {
  const ModelSpec spec = spec_of("SeedOssForCausalLM");
  const LayerSpec& layer = spec.layers[3];
  EXPECT_TRUE(layer.attention.has_qkv_bias);
  EXPECT_FALSE(layer.attention.has_out_bias || layer.feed_forward.has_bias);
  EXPECT_EQ(layer.attention.head_dim, 128) << "Transformers' default";
  EXPECT_EQ(spec.max_position, 524288);
  const LayerSpec other =
      spec_of("SeedOssForCausalLM", R"({"attention_bias":false,"attention_out_bias":true,"mlp_bias":true})").layers[3];
  EXPECT_FALSE(other.attention.has_qkv_bias);
  EXPECT_TRUE(other.attention.has_out_bias && other.feed_forward.has_bias);
}

TEST(Ernie45, rotates_neighbouring_elements_and_has_all_biases_or_none) {
  const ModelSpec spec = spec_of("Ernie4_5ForCausalLM");
  EXPECT_TRUE(spec.ropes[0].is_interleaved);
  EXPECT_EQ(spec.ropes[0].theta, 500000);
  EXPECT_TRUE(spec.tie_embeddings);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 128);
  EXPECT_FALSE(spec.layers[0].attention.has_qkv_bias || spec.layers[0].feed_forward.has_bias);
  const LayerSpec biased = spec_of("Ernie4_5ForCausalLM", R"({"use_bias":true,"compression_ratio":1.0})").layers[0];
  EXPECT_TRUE(biased.attention.has_qkv_bias && biased.attention.has_out_bias && biased.feed_forward.has_bias);
  EXPECT_EQ(error_of("Ernie4_5ForCausalLM", R"({"compression_ratio":2})"),
            "config.json: 'compression_ratio' is 2, which is not supported; supported is 1");
}

TEST(Qwen2Moe, has_a_gated_shared_expert_and_a_window_in_every_second_layer) {
  const ModelSpec spec = spec_of("Qwen2MoeForCausalLM");
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 60)) << "Transformers' defaults";
  const FeedForwardSpec& block = spec.layers[0].feed_forward;
  EXPECT_EQ(block.n_experts_per_row, 4);
  EXPECT_EQ(block.d_ff, 1408);
  EXPECT_EQ(block.d_ff_shared, 5632);
  EXPECT_TRUE(block.has_shared_gate);
  EXPECT_EQ(block.routing, RoutingRule{}) << "shares of the softmax over all";
  EXPECT_TRUE(spec.layers[0].attention.has_qkv_bias);
  EXPECT_FALSE(spec.layers[0].attention.has_out_bias);
  EXPECT_EQ(windows(spec), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(windows(spec_of("Qwen2MoeForCausalLM", R"({"use_sliding_window":false,"sliding_window":0})")),
            std::vector<std::int32_t>(8, 0))
      << "as Transformers writes it";
  const ModelSpec windowed = spec_of("Qwen2MoeForCausalLM", R"({"use_sliding_window":true,"sliding_window":32,
      "max_window_layers":5,"qkv_bias":false,"norm_topk_prob":true,"decoder_sparse_step":4,"mlp_only_layers":[7]})");
  EXPECT_EQ(windows(windowed), (std::vector<std::int32_t>{32, 0, 32, 0, 32, 0, 0, 0}));
  EXPECT_EQ(experts(windowed), (std::vector<std::int32_t>{0, 0, 0, 60, 0, 0, 0, 0}));
  EXPECT_EQ(windowed.layers[0].feed_forward.d_ff_shared, 0) << "a layer without experts";
  EXPECT_TRUE(windowed.layers[3].feed_forward.routing.renormalises);
  EXPECT_FALSE(windowed.layers[3].attention.has_qkv_bias);
}

TEST(Ernie45Moe, has_experts_in_a_run_of_layers) {
  const ModelSpec spec = spec_of("Ernie4_5_MoeForCausalLM");
  EXPECT_EQ(experts(spec), (std::vector<std::int32_t>{0, 64, 64, 64, 64, 64, 64, 64})) << "Transformers' defaults";
  const FeedForwardSpec& block = spec.layers[1].feed_forward;
  EXPECT_EQ(block.n_experts_per_row, 6);
  EXPECT_EQ(block.d_ff_shared, 2 * 1536);
  EXPECT_FALSE(block.has_shared_gate);
  EXPECT_TRUE(block.has_choice_bias);
  EXPECT_EQ(block.routing, (RoutingRule{.renormalises = true, .least_sum = 1e-12f}));
  EXPECT_TRUE(spec.ropes[0].is_interleaved);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 8) << "of the hidden size";
  const ModelSpec some = spec_of("Ernie4_5_MoeForCausalLM", R"({"moe_layer_start_index":2,"moe_layer_end_index":6,
      "moe_layer_interval":2,"moe_num_experts":4,"moe_k":3,"moe_num_shared_experts":0,"moe_norm_min":0.5})");
  EXPECT_EQ(experts(some), (std::vector<std::int32_t>{0, 0, 0, 4, 0, 4, 0, 0}));
  EXPECT_EQ(some.layers[3].feed_forward.n_experts_per_row, 3);
  EXPECT_FALSE(some.layers[3].feed_forward.has_shared_expert());
  EXPECT_EQ(some.layers[3].feed_forward.routing.least_sum, 0.5f);
  EXPECT_EQ(error_of("Ernie4_5_MoeForCausalLM", R"({"use_bias":true})"),
            "config.json: 'use_bias' is true, which is not supported; supported is false");
  EXPECT_EQ(error_of("Ernie4_5_MoeForCausalLM", R"({"moe_num_experts":8,"moe_k":9})"),
            "config.json: 'moe_k' must be from 1 to 8, not 9");
}

TEST(GptOss, has_sinks_windows_from_the_first_layer_on_and_experts_with_biases) {
  const ModelSpec spec = spec_of("GptOssForCausalLM");
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 128)) << "Transformers' defaults";
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{128, 0, 128, 0, 128, 0, 128, 0}));
  const AttentionSpec& attention = spec.layers[1].attention;
  EXPECT_TRUE(attention.has_sinks && attention.has_qkv_bias && attention.has_out_bias);
  EXPECT_EQ(attention.head_dim, 64);
  const FeedForwardSpec& block = spec.layers[1].feed_forward;
  EXPECT_EQ(block.kind, FeedForwardSpec::Kind::gated_clamped_silu);
  EXPECT_EQ(block.gate_alpha, 1.702f);
  EXPECT_EQ(block.gate_limit, 7);
  EXPECT_EQ(block.n_experts_per_row, 4);
  EXPECT_EQ(block.routing, (RoutingRule{.renormalises = true}));
  EXPECT_TRUE(block.has_bias);
  EXPECT_EQ(spec.layers[1].norm.epsilon, 1e-5f);
  const RopeScaling& scaling = spec.ropes[0].scaling;
  EXPECT_EQ(spec.ropes[0].theta, 150000);
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(scaling.factor, 32);
  EXPECT_EQ(scaling.original_max_position, 4096);
  EXPECT_FALSE(scaling.truncate);
  EXPECT_FLOAT_EQ(static_cast<float>(scaling.attention_factor), 1.3465736f);

  const ModelSpec other = spec_of("GptOssForCausalLM", R"({"attention_bias":false,"swiglu_alpha":1.5,"swiglu_limit":10,
      "num_local_experts":32,"sliding_window":64,"rope_scaling":{"rope_type":"default"},"layer_types":["full_attention",
      "full_attention","full_attention","full_attention","full_attention","full_attention","full_attention",
      "sliding_attention"]})");
  EXPECT_EQ(windows(other), (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 64}));
  EXPECT_FALSE(other.layers[0].attention.has_qkv_bias || other.layers[0].attention.has_out_bias);
  EXPECT_TRUE(other.layers[0].feed_forward.has_bias);
  EXPECT_EQ(other.layers[0].feed_forward.gate_alpha, 1.5f);
  EXPECT_EQ(other.layers[0].feed_forward.gate_limit, 10);
  EXPECT_EQ(other.ropes[0].scaling.kind, RopeScaling::Kind::none);
  EXPECT_EQ(error_of("GptOssForCausalLM", R"({"swiglu_limit":0})"),
            "config.json: 'swiglu_limit' must be from 0.001 to 1000000, not 0");
  EXPECT_EQ(error_of("GptOssForCausalLM", R"({"sliding_window":null})"), "config.json: 'sliding_window' is missing");
}

TEST(Glm4Moe, chooses_experts_by_sigmoid_and_bias_in_groups_after_dense_layers) {
  const ModelSpec spec = spec_of("Glm4MoeForCausalLM");
  EXPECT_EQ(experts(spec), (std::vector<std::int32_t>{0, 128, 128, 128, 128, 128, 128, 128})) << "Transformers' defaults";
  const FeedForwardSpec& block = spec.layers[1].feed_forward;
  EXPECT_EQ(block.routing, (RoutingRule{.score = RoutingRule::Score::sigmoid, .renormalises = true, .added_to_sum = 1e-20f}));
  EXPECT_TRUE(block.has_choice_bias);
  EXPECT_EQ(block.d_ff_shared, 1408);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 4);
  EXPECT_FALSE(spec.ropes[0].is_interleaved) << "not as in GLM-4";
  EXPECT_EQ(spec.n_draft_layers, 1);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::none);
  EXPECT_FALSE(spec.layers[0].attention.has_qkv_bias);
  const ModelSpec grouped = spec_of("Glm4MoeForCausalLM", R"({"use_qk_norm":true,"attention_bias":true,"n_group":8,
      "topk_group":4,"routed_scaling_factor":2.5,"first_k_dense_replace":3,"n_shared_experts":2,"norm_topk_prob":false,
      "num_nextn_predict_layers":0})");
  EXPECT_EQ(experts(grouped), (std::vector<std::int32_t>{0, 0, 0, 128, 128, 128, 128, 128}));
  const RoutingRule& rule = grouped.layers[3].feed_forward.routing;
  EXPECT_EQ(rule.n_groups, 8);
  EXPECT_EQ(rule.n_groups_per_row, 4);
  EXPECT_EQ(rule.group_score, RoutingRule::GroupScore::two_best);
  EXPECT_EQ(rule.scale, 2.5f);
  EXPECT_FALSE(rule.renormalises);
  EXPECT_EQ(grouped.layers[3].feed_forward.d_ff_shared, 2816);
  EXPECT_EQ(grouped.layers[0].attention.qk_norm, QkNorm::head);
  EXPECT_TRUE(grouped.layers[0].attention.has_qkv_bias);
  EXPECT_FALSE(grouped.layers[0].attention.has_out_bias);
  EXPECT_EQ(grouped.n_draft_layers, 0);
  EXPECT_EQ(error_of("Glm4MoeForCausalLM", R"({"n_group":3})"), "config.json: 'n_group' must divide the 128 experts, not be 3");
  EXPECT_EQ(error_of("Glm4MoeForCausalLM", R"({"n_group":32,"topk_group":1})"),
            "config.json: 'topk_group' must be so many groups that they have 8 experts, not 1");
}

/// As many query heads as KV heads, as the configs of latent attention have them.
constexpr std::string_view kAllHeads = R"("num_key_value_heads":8)";

ModelSpec latent_spec_of(std::string_view architecture, std::string_view fields = "") {
  return spec_of(architecture, fmt::format("{{{}{}{}}}", kAllHeads, fields.empty() ? "" : ",", fields));
}

std::string error_of_latent(std::string_view architecture, std::string_view fields) {
  return error_of(architecture, fmt::format("{{{},{}}}", kAllHeads, fields));
}

TEST(LatentAttention, has_one_stored_head_and_norms_whose_epsilon_is_not_the_configs) {
  const ModelSpec spec = latent_spec_of("DeepseekV3ForCausalLM", R"("rms_norm_eps":1e-5)");
  const AttentionSpec& attention = spec.layers[0].attention;
  EXPECT_EQ(attention.latent, (LatentSpec{1536, 512, 128, 64, 128})) << "Transformers' defaults";
  EXPECT_EQ(attention.n_heads, 8);
  EXPECT_EQ(attention.n_kv_heads, 1);
  EXPECT_EQ(attention.head_dim, 576);
  EXPECT_EQ(attention.v_dim(), 512);
  EXPECT_EQ(attention.qkv_width(), 1536 + 576);
  EXPECT_EQ(attention.out_width(), 8 * 128);
  EXPECT_EQ(attention.cached_width(), 576);
  EXPECT_EQ(attention.qk_norm_spec.epsilon, 1e-6f);
  EXPECT_EQ(spec.layers[0].norm.epsilon, 1e-5f);
  EXPECT_FLOAT_EQ(attention.scale, 1 / std::sqrt(192.0f));
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  EXPECT_FALSE(spec.ropes[0].is_interleaved) << "nothing is reordered at load";
  EXPECT_TRUE(attention.latent->rotates_neighbours);
  const ModelSpec other =
      latent_spec_of("DeepseekV3ForCausalLM",
                     R"("q_lora_rank":null,"kv_lora_rank":256,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":24,
                        "rope_interleave":false)");
  EXPECT_EQ(other.layers[0].attention.latent, (LatentSpec{0, 256, 32, 16, 24, false}));
  EXPECT_EQ(other.layers[0].attention.qkv_width(), 8 * 48 + 272);
  EXPECT_EQ(other.layers[0].attention.q_norm_width(), 0);
}

TEST(LatentAttention, scales_scores_by_mscale_all_dim_twice) {
  const auto yarn = [](std::string_view more) {
    return latent_spec_of("DeepseekV2ForCausalLM",
                          fmt::format(R"("num_experts_per_tok":6,"rope_scaling":{{"type":"yarn","factor":40,
                              "original_max_position_embeddings":4096,"beta_fast":32,"beta_slow":1{}}})",
                                      more));
  };
  const ModelSpec lite = yarn(R"(,"mscale":0.707,"mscale_all_dim":0.707)");
  const double factor = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_FLOAT_EQ(lite.layers[0].attention.scale, static_cast<float>(factor * factor / std::sqrt(192.0)));
  EXPECT_DOUBLE_EQ(lite.ropes[0].scaling.attention_factor, 1) << "both are the same";
  EXPECT_EQ(lite.max_position, 163840);
  const ModelSpec plain = yarn("");
  EXPECT_FLOAT_EQ(plain.layers[0].attention.scale, 1 / std::sqrt(192.0f));
  EXPECT_DOUBLE_EQ(plain.ropes[0].scaling.attention_factor, 0.1 * std::log(40.0) + 1);
}

TEST(LatentAttention, of_another_kind_is_refused) {
  EXPECT_EQ(error_of("DeepseekV3ForCausalLM", "{}"),
            "config.json: 'num_key_value_heads' is 4, which is not supported; supported is 'num_attention_heads'");
  EXPECT_EQ(error_of_latent("DeepseekV3ForCausalLM", R"("index_topk":2048)"),
            "config.json: 'index_topk' is 2048, which is not supported; supported is null");
  EXPECT_EQ(error_of_latent("DeepseekV3ForCausalLM", R"("attention_bias":true)"),
            "config.json: 'attention_bias' is true, which is not supported; supported is false");
  EXPECT_EQ(error_of_latent("DeepseekV3ForCausalLM", R"("kv_lora_rank":1000)"),
            "config.json: 'kv_lora_rank' + 'qk_rope_head_dim' must be at most 1024, not 1064");
  EXPECT_EQ(error_of_latent("Glm4MoeLiteForCausalLM", R"("partial_rotary_factor":0.5)"),
            "config.json: 'partial_rotary_factor' must leave the 64 elements of 'qk_rope_head_dim', not 32");
  EXPECT_EQ(error_of_latent("DeepseekV3ForCausalLM", R"("rope_scaling":{"rope_type":"linear","factor":2.0})"),
            "config.json: the rotations of latent attention are scaled by YaRN or not at all");
}

TEST(DeepseekV2, weighs_experts_by_their_softmax_and_may_choose_groups_by_their_best) {
  const ModelSpec lite = latent_spec_of("DeepseekV2ForCausalLM", R"("num_experts_per_tok":6,"first_k_dense_replace":1,
      "n_group":1,"topk_group":1,"topk_method":"greedy","moe_intermediate_size":1408)");
  EXPECT_EQ(experts(lite), (std::vector<std::int32_t>{0, 64, 64, 64, 64, 64, 64, 64}));
  EXPECT_EQ(lite.layers[1].feed_forward.routing, (RoutingRule{.group_score = RoutingRule::GroupScore::best}));
  EXPECT_FALSE(lite.layers[1].feed_forward.has_choice_bias);
  EXPECT_EQ(lite.layers[1].feed_forward.d_ff_shared, 2 * 1408);
  EXPECT_EQ(lite.n_draft_layers, 0);
  const ModelSpec grouped = latent_spec_of("DeepseekV2ForCausalLM", R"("num_experts_per_tok":6,"n_routed_experts":160,
      "topk_method":"group_limited_greedy","n_group":8,"topk_group":3,"routed_scaling_factor":16.0)");
  EXPECT_EQ(experts(grouped), std::vector<std::int32_t>(8, 160));
  EXPECT_EQ(grouped.layers[0].feed_forward.routing,
            (RoutingRule{.n_groups = 8, .n_groups_per_row = 3, .group_score = RoutingRule::GroupScore::best, .scale = 16}));
  EXPECT_EQ(error_of_latent("DeepseekV2ForCausalLM", R"("num_experts_per_tok":6,"norm_topk_prob":true)"),
            "config.json: 'norm_topk_prob' is true, which is not supported; supported is false");
  EXPECT_EQ(error_of_latent("DeepseekV2ForCausalLM", R"("num_experts_per_tok":6,"topk_method":"noaux_tc")"),
            "config.json: 'topk_method' is \"noaux_tc\", which is not supported; supported is \"greedy\" or "
            "\"group_limited_greedy\"");
  EXPECT_EQ(error_of_latent("DeepseekV2ForCausalLM", R"("topk_method":"greedy")"),
            "config.json: 'num_experts_per_tok' is missing");
}

TEST(DeepseekV3, chooses_experts_by_sigmoid_and_bias_in_groups_after_three_dense_layers) {
  const ModelSpec spec = latent_spec_of("DeepseekV3ForCausalLM");
  EXPECT_EQ(experts(spec), (std::vector<std::int32_t>{0, 0, 0, 256, 256, 256, 256, 256}));
  const RoutingRule v3{.score = RoutingRule::Score::sigmoid,
                       .n_groups = 8,
                       .n_groups_per_row = 4,
                       .renormalises = true,
                       .added_to_sum = 1e-20f,
                       .scale = 2.5f};
  EXPECT_EQ(spec.layers[3].feed_forward.routing, v3);
  EXPECT_TRUE(spec.layers[3].feed_forward.has_choice_bias);
  EXPECT_EQ(spec.n_draft_layers, 1);
  const ModelSpec kimi = latent_spec_of("KimiK2ForCausalLM", R"("n_group":1,"topk_group":1,"n_routed_experts":384,
      "first_k_dense_replace":1,"num_nextn_predict_layers":0,"routed_scaling_factor":2.827,"scoring_func":"sigmoid",
      "topk_method":"noaux_tc")");
  EXPECT_EQ(experts(kimi), (std::vector<std::int32_t>{0, 384, 384, 384, 384, 384, 384, 384}));
  EXPECT_EQ(kimi.layers[1].feed_forward.routing.n_groups, 1);
  EXPECT_EQ(kimi.n_draft_layers, 0);
  EXPECT_EQ(error_of_latent("DeepseekV3ForCausalLM", R"("scoring_func":"softmax")"),
            "config.json: 'scoring_func' is \"softmax\", which is not supported; supported is \"sigmoid\"");
}

TEST(Glm4MoeLite, has_experts_in_the_layers_that_its_list_calls_sparse) {
  const ModelSpec spec = latent_spec_of("Glm4MoeLiteForCausalLM");
  EXPECT_EQ(spec.layers[0].attention.latent, (LatentSpec{768, 512, 192, 64, 256}));
  EXPECT_EQ(experts(spec), (std::vector<std::int32_t>{0, 64, 64, 64, 64, 64, 64, 64}));
  EXPECT_EQ(spec.layers[1].feed_forward.routing,
            (RoutingRule{.score = RoutingRule::Score::sigmoid, .renormalises = true, .added_to_sum = 1e-20f, .scale = 1.8f}));
  EXPECT_EQ(spec.n_draft_layers, 1);
  const std::string types = R"("num_hidden_layers":3,"mlp_layer_types":["sparse","dense",)";
  EXPECT_EQ(experts(latent_spec_of("Glm4MoeLiteForCausalLM", types + R"("sparse"])")), (std::vector<std::int32_t>{64, 0, 64}));
  EXPECT_EQ(experts(latent_spec_of("Glm4MoeLiteForCausalLM", R"("first_k_dense_replace":2)"))[1], 0);
  EXPECT_EQ(error_of_latent("Glm4MoeLiteForCausalLM", types + R"("wide"])"),
            "config.json: 'mlp_layer_types' is \"wide\", which is not supported; supported is \"dense\" or \"sparse\"");
  EXPECT_EQ(error_of_latent("Glm4MoeLiteForCausalLM", R"("mlp_layer_types":["dense"])"),
            "config.json: 'mlp_layer_types' must name the types of 8 layers, not of 1");
}

TEST(Mistral4, scales_whole_queries_by_their_positions_and_has_experts_in_one_tensor) {
  const ModelSpec spec = latent_spec_of("Mistral4ForCausalLM", R"("rope_parameters":{"type":"yarn","rope_theta":10000.0,
      "factor":128.0,"original_max_position_embeddings":8192,"max_position_embeddings":1048576,"beta_fast":32.0,
      "beta_slow":1.0,"mscale_all_dim":1.0,"mscale":1.0,"llama_4_scaling_beta":0.1,"partial_rotary_factor":0.5})");
  EXPECT_EQ(spec.layers[0].attention.latent, (LatentSpec{1024, 256, 64, 64, 128}));
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 128));
  EXPECT_EQ(spec.layers[0].feed_forward.routing, (RoutingRule{.renormalises = true}));
  EXPECT_FALSE(spec.layers[0].feed_forward.has_choice_bias);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  EXPECT_EQ(spec.ropes[0].query_beta, 0.1);
  EXPECT_EQ(spec.ropes[0].query_length, 8192);
  const double factor = 0.1 * std::log(128.0) + 1;
  EXPECT_FLOAT_EQ(spec.layers[0].attention.scale, static_cast<float>(factor * factor / std::sqrt(128.0)));
  EXPECT_FALSE(spec.names.has_transposed_experts);
  EXPECT_EQ(spec.max_position, 1048576);
}

TEST(MiniMaxM2, rotates_rotary_dim_elements_of_a_head_and_has_no_shared_expert) {
  const ModelSpec spec = spec_of("MiniMaxM2ForCausalLM", R"({"rotary_dim":64})");
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 256)) << "Transformers' defaults";
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  EXPECT_EQ(spec.ropes[0].theta, 5e6);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 128);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::width);
  const FeedForwardSpec& block = spec.layers[0].feed_forward;
  EXPECT_EQ(block.d_ff, 172) << "intermediate_size";
  EXPECT_EQ(block.n_experts_per_row, 8);
  EXPECT_TRUE(block.has_choice_bias);
  EXPECT_FALSE(block.has_shared_expert());
  EXPECT_EQ(block.routing, (RoutingRule{.score = RoutingRule::Score::sigmoid, .renormalises = true}));
  EXPECT_EQ(spec_of("MiniMaxM2ForCausalLM").ropes[0].rotary_dim, 128);
  EXPECT_EQ(error_of("MiniMaxM2ForCausalLM", R"({"scoring_func":"softmax"})"),
            "config.json: 'scoring_func' is \"softmax\", which is not supported; supported is \"sigmoid\"");
  EXPECT_EQ(error_of("MiniMaxM2ForCausalLM", R"({"shared_intermediate_size":64})"),
            "config.json: 'shared_intermediate_size' is 64, which is not supported; supported is 0");
}

TEST(Llama4, has_chunks_where_layers_rotate_and_a_temperature_where_they_do_not) {
  const ModelSpec spec = spec_of("Llama4ForCausalLM", R"({"max_position_embeddings":65536})");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{8192, 8192, 8192, 0, 8192, 8192, 8192, 0})) << "Transformers' defaults";
  EXPECT_EQ(experts(spec), std::vector<std::int32_t>(8, 16));
  EXPECT_EQ(spec.n_groups(), 2);
  const AttentionSpec& turning = spec.layers[0].attention;
  EXPECT_TRUE(turning.is_chunked && turning.norms_rotated && !turning.has_qk_norm_weights);
  EXPECT_EQ(turning.qk_norm, QkNorm::head);
  EXPECT_EQ(turning.rope, 0);
  EXPECT_TRUE(spec.ropes[0].is_interleaved);
  const AttentionSpec& still = spec.layers[3].attention;
  EXPECT_EQ(still.qk_norm, QkNorm::none);
  EXPECT_FALSE(still.is_chunked);
  ASSERT_EQ(still.rope, 1);
  EXPECT_FALSE(spec.ropes[1].turns);
  EXPECT_EQ(rope_frequencies(spec.ropes[1], 64), std::vector<float>(8, 0.0f));
  EXPECT_EQ(spec.ropes[1].query_beta, 0.1);
  EXPECT_EQ(spec.ropes[1].query_length, 8192);
  EXPECT_EQ(spec.ropes[1].query_shift, 1);
  const FeedForwardSpec& block = spec.layers[0].feed_forward;
  EXPECT_TRUE(block.weighs_inputs);
  EXPECT_EQ(block.d_ff, 172);
  EXPECT_EQ(block.d_ff_shared, 172);
  EXPECT_EQ(block.routing, (RoutingRule{.score = RoutingRule::Score::sigmoid}));
  const ModelSpec other = spec_of("Llama4ForCausalLM", R"({"no_rope_layers":[0,1,1,1,1,1,1,1],"interleave_moe_layer_step":2,
      "attn_temperature_tuning":0,"use_qk_norm":false,"attention_chunk_size":64,"intermediate_size_mlp":300})");
  EXPECT_EQ(experts(other), (std::vector<std::int32_t>{0, 16, 0, 16, 0, 16, 0, 16}));
  EXPECT_EQ(other.layers[0].feed_forward.d_ff, 300);
  EXPECT_EQ(other.layers[0].attention.rope, AttentionSpec::kNoRope);
  EXPECT_EQ(other.ropes.size(), 1u);
  EXPECT_EQ(other.layers[1].attention.qk_norm, QkNorm::none);
  EXPECT_EQ(windows(other), (std::vector<std::int32_t>{0, 64, 64, 64, 64, 64, 64, 64}));
  EXPECT_EQ(experts(spec_of("Llama4ForCausalLM", R"({"moe_layers":[1]})")),
            (std::vector<std::int32_t>{0, 16, 0, 0, 0, 0, 0, 0}));
  const ModelSpec whole = spec_of("Llama4ForCausalLM", R"({"attention_chunk_size":null,"attn_temperature_tuning":4})");
  EXPECT_EQ(windows(whole), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(whole.ropes.size(), 2u) << "published files have a number there";
  EXPECT_EQ(error_of("Llama4ForCausalLM", R"({"num_experts_per_tok":2})"),
            "config.json: 'num_experts_per_tok' is 2, which is not supported; supported is 1");
  EXPECT_EQ(error_of("Llama4ForCausalLM", R"({"no_rope_layers":[1]})"),
            "config.json: 'no_rope_layers' must have a number for each of the 8 layers, not 1");
  EXPECT_EQ(
      error_of("Llama4ForCausalLM", R"({"layer_types":["sliding_attention","a","a","a","a","a","a","a"]})"),
      "config.json: 'layer_types' is \"sliding_attention\", which is not supported; supported is \"chunked_attention\" or "
      "\"full_attention\"");
}

TEST(Glm4, has_norms_around_both_blocks_and_rotates_neighbours_in_half_of_a_head) {
  const ModelSpec spec = spec_of("Glm4ForCausalLM");
  EXPECT_TRUE(spec.ropes[0].is_interleaved);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  const LayerSpec& layer = spec.layers[3];
  EXPECT_TRUE(layer.has_pre_norms && layer.has_post_norms);
  EXPECT_EQ(layer.norm.epsilon, 1.5625e-7f);
  EXPECT_TRUE(layer.attention.has_qkv_bias);
  EXPECT_FALSE(layer.attention.has_out_bias || layer.feed_forward.has_bias);
  EXPECT_EQ(spec.names.gate_up, "model.layers.{}.mlp.gate_up_proj");
  EXPECT_EQ(spec_of("Glm4ForCausalLM", R"({"partial_rotary_factor":0.25,"head_dim":64})").ropes[0].rotary_dim, 16);
  EXPECT_FALSE(spec_of("Glm4ForCausalLM", R"({"attention_bias":false})").layers[0].attention.has_qkv_bias);
}

TEST(HunyuanDense, has_norms_of_heads_after_a_rotation_that_alpha_slows_down) {
  const ModelSpec spec = spec_of("HunYuanDenseV1ForCausalLM", R"({"head_dim":128,"attention_head_dim":128,"use_qk_norm":true,
      "rope_theta":10000.0,"rope_scaling":{"alpha":1000.0,"beta_fast":32,"beta_slow":1,"factor":1.0,"mscale":1.0,
      "mscale_all_dim":1.0,"type":"dynamic"}})");
  const AttentionSpec& attention = spec.layers[3].attention;
  EXPECT_EQ(attention.qk_norm, QkNorm::head);
  EXPECT_TRUE(attention.norms_rotated);
  EXPECT_FALSE(attention.has_qkv_bias || attention.has_out_bias);
  EXPECT_EQ(spec.layers[3].norm.epsilon, 1e-5f);
  EXPECT_EQ(spec.ropes[0].scaling.kind, RopeScaling::Kind::none);
  EXPECT_EQ(spec.ropes[0].theta, 10000 * std::pow(1000.0, 128.0 / 126));
  EXPECT_EQ(spec_of("HunYuanDenseV1ForCausalLM", R"({"rope_scaling":{"type":"dynamic","factor":2.0}})").ropes[0].scaling.kind,
            RopeScaling::Kind::dynamic);
  EXPECT_EQ(spec_of("HunYuanDenseV1ForCausalLM", R"({"rope_parameters":{"rope_type":"dynamic","alpha":2,"rope_theta":500,
      "factor":1}})")
                .ropes[0]
                .theta,
            500 * std::pow(2.0, 8.0 / 6));
  EXPECT_EQ(error_of("HunYuanDenseV1ForCausalLM", R"({"rope_scaling":{"type":"dynamic","alpha":0.5}})"),
            "config.json: 'alpha' must be from 1 to 1000000, not 0.5");
  EXPECT_EQ(
      error_of("HunYuanDenseV1ForCausalLM", R"({"rope_scaling":{"type":"yarn","factor":4.0,"attention_factor":1.5}})"),
      "config.json: 'attention_factor' is 1.5, which is not supported; supported is 1, as the norms of a Hunyuan come after "
      "it");
  for (const auto& [field, value] : {std::pair{"use_cla", "true"},
                                     {"use_qk_norm", "false"},
                                     {"mlp_bias", "true"},
                                     {"num_experts", "16"},
                                     {"attention_head_dim", "128"}})
    EXPECT_NE(error_of("HunYuanDenseV1ForCausalLM", fmt::format(R"({{"{}":{}}})", field, value)).find("which is not supported"),
              std::string::npos)
        << field;
}

TEST(Starcoder2, has_layer_norms_a_plain_feed_forward_block_and_one_window_or_none) {
  const ModelSpec spec = spec_of("Starcoder2ForCausalLM");
  const LayerSpec& layer = spec.layers[3];
  EXPECT_EQ(layer.norm.kind, NormSpec::Kind::layer);
  EXPECT_TRUE(layer.norm.has_bias && spec.final_norm.has_bias && spec.tie_embeddings);
  EXPECT_EQ(layer.feed_forward.kind, FeedForwardSpec::Kind::gelu_tanh);
  EXPECT_TRUE(layer.attention.has_qkv_bias && layer.attention.has_out_bias && layer.feed_forward.has_bias);
  EXPECT_EQ(windows(spec), std::vector<std::int32_t>(8, 0));
  const ModelSpec other = spec_of("Starcoder2ForCausalLM",
                                  R"({"sliding_window":32,"use_bias":false,"norm_epsilon":0.001,"norm_type":"layer_norm"})");
  EXPECT_EQ(windows(other), std::vector<std::int32_t>(8, 32));
  EXPECT_FALSE(other.layers[0].attention.has_qkv_bias || other.layers[0].feed_forward.has_bias);
  EXPECT_TRUE(other.layers[0].norm.has_bias);
  EXPECT_EQ(other.layers[0].norm.epsilon, 0.001f);
  EXPECT_EQ(error_of("Starcoder2ForCausalLM", R"({"mlp_type":"llama"})"),
            "config.json: 'mlp_type' is \"llama\", which is not supported; supported is \"default\"");
}

TEST(Granite, has_four_factors) {
  const ModelSpec spec = spec_of("GraniteForCausalLM", R"({"embedding_multiplier":12,"logits_scaling":16,
      "residual_multiplier":0.22,"attention_multiplier":0.015625})");
  EXPECT_EQ(spec.embedding_scale, 12);
  EXPECT_FALSE(spec.rounds_embedding_scale);
  EXPECT_EQ(spec.logits_scale, 1.0f / 16);
  EXPECT_EQ(spec.layers[7].residual_scale, 0.22f);
  EXPECT_EQ(spec.layers[7].attention.scale, 0.015625f);
  EXPECT_EQ(spec_of("GraniteForCausalLM").layers[0].attention.scale, 1) << "Transformers' default";
  EXPECT_EQ(error_of("GraniteForCausalLM", R"({"logits_scaling":0})"),
            "config.json: 'logits_scaling' must be from 1e-06 to 1000000, not 0");
}

TEST(SmolLm3, leaves_every_fourth_layer_unrotated_or_the_layers_that_its_config_lists) {
  const auto rotated = [](const ModelSpec& spec) {
    std::vector<bool> rotated;
    for (const LayerSpec& layer : spec.layers) rotated.push_back(layer.attention.rope != AttentionSpec::kNoRope);
    return rotated;
  };
  const ModelSpec spec = spec_of("SmolLM3ForCausalLM");
  EXPECT_EQ(rotated(spec), (std::vector<bool>{true, true, true, false, true, true, true, false}));
  EXPECT_TRUE(spec.tie_embeddings);
  EXPECT_EQ(spec.ropes[0].theta, 2000000);
  EXPECT_EQ(rotated(spec_of("SmolLM3ForCausalLM", R"({"num_hidden_layers":3,"no_rope_layers":[0,1,0]})")),
            (std::vector<bool>{false, true, false}));
  EXPECT_EQ(
      windows(spec_of("SmolLM3ForCausalLM",
                      R"({"num_hidden_layers":3,"no_rope_layers":[0,1,0],"use_sliding_window":true,"sliding_window":16})")),
      (std::vector<std::int32_t>{16, 0, 16}));
  EXPECT_EQ(error_of("SmolLM3ForCausalLM", R"({"no_rope_layers":[0,1,0]})"),
            "config.json: 'no_rope_layers' must hold a number for each of 8 layers, not 3");
}

TEST(Gemma2, has_four_norms_soft_caps_and_a_window_in_every_other_layer) {
  const ModelSpec spec = spec_of("Gemma2ForCausalLM");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{4096, 0, 4096, 0, 4096, 0, 4096, 0}));
  const LayerSpec& layer = spec.layers[0];
  EXPECT_TRUE(layer.has_pre_norms && layer.has_post_norms);
  EXPECT_EQ(layer.norm.weight_offset, 1);
  EXPECT_EQ(spec.final_norm.weight_offset, 1);
  EXPECT_EQ(layer.feed_forward.kind, FeedForwardSpec::Kind::gated_gelu_tanh);
  EXPECT_EQ(layer.attention.head_dim, 256);
  EXPECT_EQ(layer.attention.scale, 1.0f / 16) << "of query_pre_attn_scalar, not of the head size";
  EXPECT_EQ(layer.attention.softcap, 50);
  EXPECT_EQ(spec.logits_softcap, 30);
  EXPECT_EQ(spec.embedding_scale, 8);
  EXPECT_TRUE(spec.rounds_embedding_scale && spec.tie_embeddings);
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::none);
  const ModelSpec uncapped = spec_of(
      "Gemma2ForCausalLM", R"({"attn_logit_softcapping":null,"final_logit_softcapping":null,"query_pre_attn_scalar":64})");
  EXPECT_EQ(uncapped.layers[0].attention.softcap, 0);
  EXPECT_EQ(uncapped.logits_softcap, 0);
  EXPECT_EQ(uncapped.layers[0].attention.scale, 0.125f);
  EXPECT_EQ(error_of("Gemma2ForCausalLM", R"({"use_bidirectional_attention":true})"),
            "config.json: 'use_bidirectional_attention' is true, which is not supported; supported is false");
}

TEST(Gemma3, has_norms_of_heads_five_windows_of_six_and_two_rotations) {
  const ModelSpec spec = spec_of("Gemma3ForCausalLM", R"({"sliding_window":512,"rope_theta":500000,"rope_local_base_freq":2000,
      "rope_scaling":{"rope_type":"linear","factor":8}})");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{512, 512, 512, 512, 512, 0, 512, 512}));
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::head);
  EXPECT_EQ(spec.layers[0].attention.qk_norm_spec.weight_offset, 1);
  EXPECT_EQ(spec.layers[0].attention.softcap, 0);
  EXPECT_EQ(spec.logits_softcap, 0);
  const ModelSpec capped = spec_of(
      "Gemma3ForCausalLM", R"({"attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,"query_pre_attn_scalar":64})");
  for (const LayerSpec& layer : capped.layers) {
    EXPECT_EQ(layer.attention.softcap, 0) << "Transformers gives it to no attention function of a Gemma 3";
    EXPECT_EQ(layer.attention.scale, 0.125f);
  }
  EXPECT_EQ(capped.logits_softcap, 30);
  EXPECT_EQ(error_of("Gemma3ForCausalLM", R"({"attn_logit_softcapping":-1})"),
            "config.json: 'attn_logit_softcapping' must be from 1e-06 to 1000000, not -1");
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].theta, 500000);
  EXPECT_EQ(spec.ropes[0].scaling.factor, 8);
  EXPECT_EQ(spec.ropes[1].theta, 2000);
  EXPECT_EQ(spec.ropes[1].scaling.kind, RopeScaling::Kind::none);
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.attention.rope, layer.attention.window > 0 ? 1 : 0);

  const ModelSpec later = spec_of("Gemma3ForCausalLM", R"({"rope_parameters":{"full_attention":{"rope_theta":7000,
      "rope_type":"linear","factor":4},"sliding_attention":{"rope_theta":300}}})");
  EXPECT_EQ(later.ropes[0].theta, 7000);
  EXPECT_EQ(later.ropes[0].scaling.factor, 4);
  EXPECT_EQ(later.ropes[1].theta, 300);
  EXPECT_EQ(spec_of("Gemma3ForCausalLM").ropes[0].theta, 1000000) << "Transformers' default";
  EXPECT_EQ(spec_of("Gemma3ForCausalLM").ropes[1].theta, 10000) << "Transformers' default";
  EXPECT_EQ(error_of("Gemma3ForCausalLM", R"({"rope_parameters":{"rope_theta":7000}})"),
            "config.json: 'rope_parameters' is {\"rope_theta\":7000}, which is not supported; supported is an object for "
            "\"full_attention\" and for \"sliding_attention\"");
}

TEST(Cohere2, rotates_neighbouring_elements_in_layers_with_a_window) {
  const ModelSpec spec = spec_of("Cohere2ForCausalLM");
  EXPECT_EQ(windows(spec), (std::vector<std::int32_t>{4096, 4096, 4096, 0, 4096, 4096, 4096, 0}));
  EXPECT_TRUE(spec.ropes[0].is_interleaved);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.attention.rope, layer.attention.window > 0 ? 0 : AttentionSpec::kNoRope);
    EXPECT_TRUE(layer.is_parallel);
    EXPECT_EQ(layer.norm.kind, NormSpec::Kind::layer);
    EXPECT_FALSE(layer.norm.has_bias);
  }
  EXPECT_EQ(spec.logits_scale, 0.0625f);
  EXPECT_TRUE(spec.tie_embeddings);
  EXPECT_EQ(error_of("Cohere2ForCausalLM", R"({"head_dim":16})"),
            "config.json: 'head_dim' is 16, which is not supported; supported is 'hidden_size' / 'num_attention_heads'");
  EXPECT_EQ(error_of("Cohere2ForCausalLM", R"({"use_qk_norm":true})"),
            "config.json: 'use_qk_norm' is true, which is not supported; supported is false");
}

TEST(TextModels, are_read_from_the_configs_of_models_that_take_images) {
  const auto whole = [](std::string_view architecture, std::string_view fields) {
    json::Value config = json::parse(fields, "the test").value();
    config["architectures"] = json::Value::array({architecture});
    return parse_model_spec(json::dump(config), "config.json");
  };
  const auto gemma = whole("Gemma3ForConditionalGeneration", R"({"torch_dtype":"bfloat16","eos_token_id":[1,106],
      "vision_config":{"hidden_size":1152},"text_config":{"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,
      "model_type":"gemma3_text","rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024,
      "attn_logit_softcapping":50.0,"final_logit_softcapping":30.0}})");
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_EQ(gemma->layers[0].attention.softcap, 0);
  EXPECT_EQ(gemma->logits_softcap, 0) << "Gemma3ForConditionalGeneration applies none";
  EXPECT_EQ(gemma->family, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(gemma->n_vocab, 262208) << "Transformers' default";
  EXPECT_EQ(gemma->layers.size(), 34u);
  EXPECT_EQ(gemma->layers[0].attention.n_heads, 8);
  EXPECT_EQ(gemma->dtype, DType::bf16);
  EXPECT_EQ(gemma->eos_token_ids, (std::vector<TokenId>{1, 106}));
  EXPECT_TRUE(gemma->tie_embeddings);
  EXPECT_EQ(gemma->other_roots.size(), 2u);
  const std::string sizes = R"("hidden_size":64,"intermediate_size":172,"num_hidden_layers":2,"num_attention_heads":8,
      "vocab_size":512})";
  const auto mistral =
      whole("Mistral3ForConditionalGeneration",
            R"({"vision_config":{},"text_config":{"model_type":"mistral","sliding_window":null,)" + sizes + "}");
  ASSERT_TRUE(mistral) << mistral.error().message;
  EXPECT_EQ(mistral->layers[0].attention.window, 0);
  const std::string scaled = R"("rope_parameters":{"rope_type":"yarn","factor":48.0,"original_max_position_embeddings":8192,
      "llama_4_scaling_beta":0.1,"mscale":1.0,"mscale_all_dim":1.0,"rope_theta":100000000.0},)";
  const auto ministral = whole("Mistral3ForConditionalGeneration",
                               R"({"vision_config":{},"text_config":{"model_type":"ministral3",)" + scaled + sizes + "}");
  ASSERT_TRUE(ministral) << ministral.error().message;
  EXPECT_EQ(ministral->ropes[0].query_beta, 0.1);
  EXPECT_EQ(ministral->ropes[0].query_length, 8192);
  EXPECT_EQ(ministral->other_roots.size(), 2u);
  const auto mistral4 = whole("Mistral3ForConditionalGeneration",
                              R"({"vision_config":{},"text_config":{"model_type":"mistral4",)" + scaled + sizes + "}");
  ASSERT_TRUE(mistral4) << mistral4.error().message;
  EXPECT_EQ(mistral4->layers[0].attention.latent->rank, 256);
  EXPECT_EQ(mistral4->other_roots.size(), 2u);
  EXPECT_EQ(
      whole("Mistral3ForConditionalGeneration", R"({"text_config":{"model_type":"mistral5",)" + sizes + "}").error().message,
      "config.json: 'model_type' is \"mistral5\", which is not supported; supported is \"mistral\", \"ministral3\" or "
      "\"mistral4\"");
  const auto kimi =
      whole("KimiK25ForConditionalGeneration", R"({"vision_config":{},"text_config":{"model_type":"kimi_k2",)" + sizes + "}");
  ASSERT_TRUE(kimi) << kimi.error().message;
  EXPECT_EQ(kimi->layers[0].attention.latent->rank, 512);
  EXPECT_EQ(kimi->other_roots.size(), 2u);
  EXPECT_EQ(whole("Gemma3ForConditionalGeneration", "{}").error().message, "config.json: 'text_config' is missing");
  EXPECT_EQ(
      whole("Gemma3ForConditionalGeneration", R"({"text_config":{},"quantization_config":{"quant_method":"hqq"}})")
          .error()
          .message,
      "config.json: the weights are quantised with 'hqq' ('quantization_config'), which is not supported; supported are "
      "float32, bfloat16 and float16; fp8, fbgemm_fp8, mxfp4 (gpt-oss), compressed-tensors (float-quantized, mxfp8-quantized, "
      "nvfp4-pack-quantized, mxfp4-pack-quantized, int-quantized and pack-quantized), gptq and awq (gemm) in 8 or 4 bits, "
      "and modelopt's FP8, MXFP8, NVFP4 and W4A16_NVFP4");
}

// Three random changes of characters at most: an error, or a spec inside the limits that the rest of the program relies on.
TEST(Families, random_damage_of_a_config_gives_an_error_or_a_sound_spec) {
  std::mt19937 random(7);
  for (const testing::GoldenCase& golden : testing::golden_cases()) {
    SCOPED_TRACE(golden.name);
    const std::string whole = read_file(golden.folder / "config.json").value();
    for (int round = 0; round < 600; ++round) {
      std::string text = whole;
      for (unsigned i = 0; i <= random() % 3; ++i)
        text[random() % text.size()] = static_cast<char>("0123456789-.e,:{}[]\"nul "[random() % 24]);
      const auto spec = parse_model_spec(text, "it");
      if (!spec) continue;
      ASSERT_FALSE(spec->layers.empty());
      ASSERT_GT(spec->n_parameters(), 0);
      for (const LayerSpec& layer : spec->layers) {
        ASSERT_EQ(layer.attention.n_heads % layer.attention.n_kv_heads, 0);
        ASSERT_LT(layer.attention.rope, static_cast<std::int32_t>(spec->ropes.size()));
      }
      for (const RopeSpec& rope : spec->ropes)
        for (const float frequency : rope_frequencies(rope, spec->max_position)) ASSERT_TRUE(std::isfinite(frequency));
    }
  }
}

}  // namespace
}  // namespace baton
