/// config.json of a Gemma to its spec.
#include "model/families/readers.h"

#include <cmath>
#include <utility>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kGemma2Defaults{.n_vocab = 256000,
                                           .d_model = 2304,
                                           .n_layers = 26,
                                           .d_ff = 9216,
                                           .n_heads = 8,
                                           .n_kv_heads = 4,
                                           .head_dim = 256,
                                           .max_position = 8192,
                                           .tie_embeddings = true};
constexpr fields::Defaults kGemma3Defaults = [] {
  fields::Defaults defaults = kGemma2Defaults;
  defaults.n_vocab = 262208;
  defaults.max_position = 131072;
  return defaults;
}();
constexpr std::int32_t kGemmaWindow = 4096;  // if the field is absent

/// The bound of a soft-cap: 0 if the field is null, `fallback` if it is absent.
Result<float> read_softcap(const json::Value& config, std::string_view key, float fallback) {
  const json::Value* found = json::find(config, key);
  if (found == nullptr) return fallback;
  if (found->is_null()) return 0.0f;
  BATON_TRY(const double bound, fields::optional_number(config, key, 1e-6, 1e6, 1));
  return static_cast<float>(bound);
}

/// What Gemma 2 and 3 share; without windows, rotations and the soft-cap of the scores.
Result<ModelSpec> read_gemma_layers(const json::Value& config, const fields::Defaults& defaults, float logits_bound) {
  BATON_TRY_VOID(fields::expect(config, "use_bidirectional_attention", false));
  BATON_TRY(ModelSpec spec, read_llama_layers(config, defaults));
  spec.names.attention_post_norm = "model.layers.{}.post_attention_layernorm";
  spec.names.feed_forward_norm = "model.layers.{}.pre_feedforward_layernorm";
  spec.names.feed_forward_post_norm = "model.layers.{}.post_feedforward_layernorm";
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.d_model));
  spec.rounds_embedding_scale = true;
  BATON_TRY(spec.logits_softcap, read_softcap(config, "final_logit_softcapping", logits_bound));
  BATON_TRY(const double scalar, fields::optional_number(config, "query_pre_attn_scalar", 1e-6, 1e6, 256));
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const FeedForwardSpec::Kind gelu, fields::read_gelu(config, "hidden_activation", FeedForwardSpec::Kind::gelu_tanh));
  spec.final_norm.weight_offset = 1;
  for (LayerSpec& layer : spec.layers) {
    layer.norm.weight_offset = 1;
    layer.has_post_norms = true;
    layer.attention.scale = static_cast<float>(1 / std::sqrt(scalar));
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
    layer.feed_forward.kind =
        gelu == FeedForwardSpec::Kind::gelu ? FeedForwardSpec::Kind::gated_gelu : FeedForwardSpec::Kind::gated_gelu_tanh;
  }
  return spec;
}

/// Transformers 4 names the theta of layers with a window `rope_local_base_freq`.
Result<void> read_gemma3_ropes(const json::Value& config, ModelSpec& spec) {
  fields::RopeContext full = rope_context(kGemma3Defaults, spec);
  fields::RopeContext sliding = full;
  BATON_TRY(full.theta, fields::optional_number(config, "rope_theta", 1, 1e12, 1000000));
  BATON_TRY(sliding.theta, fields::optional_number(config, "rope_local_base_freq", 1, 1e12, 10000));
  return read_ropes_of_types(config, full, sliding, spec);
}

}  // namespace

/// Norms with an offset of 1 before and after both blocks, a gated feed-forward block with GELU, scaled embeddings,
/// soft-caps of scores and logits, a window in every other layer. The defaults are those of Gemma2Config.
Result<ModelSpec> read_gemma2(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_gemma_layers(config, kGemma2Defaults, 30));
  BATON_TRY(const float softcap, read_softcap(config, "attn_logit_softcapping", 50));
  for (LayerSpec& layer : spec.layers) layer.attention.softcap = softcap;
  BATON_TRY(const std::int32_t window, fields::read_window(config, kGemmaWindow));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [](std::size_t i) { return i % 2 == 0; }, spec));
  BATON_TRY(RopeSpec rope, fields::read_rope(config, rope_context(kGemma2Defaults, spec)));
  spec.ropes.push_back(std::move(rope));
  return spec;
}

/// The same with norms of queries and keys, a window in five of six layers, and a rotation of its own for those, and without
/// a soft-cap of scores: Gemma3Attention of Transformers (5.17) reads `attn_logit_softcapping` and gives it to no attention
/// function. The defaults are those of Gemma3TextConfig.
Result<ModelSpec> read_gemma3(const json::Value& config) {
  BATON_TRY_VOID(read_softcap(config, "attn_logit_softcapping", 0));  // checked only
  BATON_TRY(ModelSpec spec, read_gemma_layers(config, kGemma3Defaults, 0));
  BATON_TRY(const std::int32_t window, fields::read_window(config, kGemmaWindow));
  BATON_TRY(const std::int32_t period, fields::optional_size(config, "sliding_window_pattern", fields::kMaxLayers, 6));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [period](std::size_t i) { return (i + 1) % static_cast<std::size_t>(period) != 0; }, spec));
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
  }
  BATON_TRY_VOID(read_gemma3_ropes(config, spec));
  return spec;
}

/// The text model inside a Gemma 3 that also takes images: `text_config`. Gemma3ForConditionalGeneration leaves the logits as
/// they are, where Gemma3ForCausalLM applies `final_logit_softcapping`.
Result<ModelSpec> read_gemma3_with_images(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_text_model(config, read_gemma3));
  spec.logits_softcap = 0;
  return spec;
}

}  // namespace baton
