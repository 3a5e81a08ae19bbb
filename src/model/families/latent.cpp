/// Reads what latent.h declares.
#include "model/families/latent.h"

#include <cmath>
#include <utility>

#include "model/families/llama.h"
#include "model/families/readers.h"

namespace baton {
namespace {

using json::Value;

/// `q_lora_rank` is null where queries are not expanded from a vector.
Result<std::int32_t> read_q_rank(const Value& config, std::int32_t fallback) {
  const Value* const found = json::find(config, "q_lora_rank");
  if (found != nullptr && found->is_null()) return 0;
  return fields::optional_size(config, "q_lora_rank", fields::kMaxWidth, fallback);
}

Result<LatentSpec> read_latent(const Value& config, const LatentDefaults& defaults) {
  LatentSpec spec;
  BATON_TRY(spec.q_rank, read_q_rank(config, defaults.q_rank));
  BATON_TRY(spec.rank, fields::optional_size(config, "kv_lora_rank", fields::kMaxHeadDim, defaults.rank));
  BATON_TRY(spec.nope_dim, fields::optional_size(config, "qk_nope_head_dim", fields::kMaxHeadDim, defaults.nope_dim));
  BATON_TRY(spec.rope_dim, fields::optional_size(config, "qk_rope_head_dim", fields::kMaxHeadDim, defaults.rope_dim));
  BATON_TRY(spec.v_dim, fields::optional_size(config, "v_head_dim", fields::kMaxHeadDim, defaults.v_dim));
  BATON_TRY(spec.rotates_neighbours, fields::optional_flag(config, "rope_interleave", true));
  if (spec.rank + spec.rope_dim > fields::kMaxHeadDim)
    return fields::bad_value("kv_lora_rank", "'kv_lora_rank' + 'qk_rope_head_dim' must be at most {}, not {}",
                             fields::kMaxHeadDim, spec.rank + spec.rope_dim);
  return spec;
}

/// The rotation of `latent.rope_dim` elements.
Result<RopeSpec> read_latent_rope(const Value& config, const LatentDefaults& defaults, const LatentSpec& latent,
                                  std::int32_t max_position) {
  fields::RopeContext context = defaults.model.rope;
  context.max_position = max_position;
  context.head_dim = defaults.factor_is_of_query ? latent.q_dim() : latent.rope_dim;
  context.rotary_factor = static_cast<double>(latent.rope_dim) / context.head_dim;
  context.allows_partial = true;
  BATON_TRY(RopeSpec rope, fields::read_rope(config, context));
  if (rope.rotary_dim != latent.rope_dim)
    return fields::bad_value("partial_rotary_factor",
                             "'partial_rotary_factor' must leave the {} elements of 'qk_rope_head_dim', not {}",
                             latent.rope_dim, rope.rotary_dim);
  using Kind = RopeScaling::Kind;
  if (rope.scaling.kind != Kind::none && rope.scaling.kind != Kind::yarn)
    return fail(ErrorCode::unsupported, "the rotations of latent attention are scaled by YaRN or not at all", "rope_scaling");
  return rope;
}

void name_latent_tensors(TensorNames& names) {
  names.k = names.v = "";
  names.q_a = "model.layers.{}.self_attn.q_a_proj";
  names.q_norm = "model.layers.{}.self_attn.q_a_layernorm";
  names.q_b = "model.layers.{}.self_attn.q_b_proj";
  names.kv_a = "model.layers.{}.self_attn.kv_a_proj_with_mqa";
  names.k_norm = "model.layers.{}.self_attn.kv_a_layernorm";
  names.kv_b = "model.layers.{}.self_attn.kv_b_proj";
}

}  // namespace

Result<ModelSpec> read_latent_layout(const Value& config, const LatentDefaults& defaults) {
  BATON_TRY_VOID(fields::expect_silu(config, "hidden_act"));
  BATON_TRY_VOID(fields::expect_null(config, "index_topk"));
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY_VOID(fields::expect(config, "mlp_bias", false));
  BATON_TRY(const LatentSpec latent, read_latent(config, defaults));
  fields::Defaults of_model = defaults.model;
  of_model.head_dim = 2;  // replaced
  BATON_TRY(ModelSpec spec, read_llama_layers(config, of_model));
  BATON_TRY(RopeSpec rope, read_latent_rope(config, defaults, latent, spec.max_position));
  AttentionSpec attention = spec.layers.front().attention;
  if (attention.n_kv_heads != attention.n_heads)
    return fields::unsupported("num_key_value_heads", attention.n_kv_heads, "'num_attention_heads'");
  attention.n_kv_heads = 1;
  attention.head_dim = latent.rank + latent.rope_dim;
  attention.latent = latent;
  attention.qk_norm_spec.epsilon = 1e-6f;
  attention.scale = static_cast<float>(rope.scaling.score_factor / std::sqrt(static_cast<double>(latent.q_dim())));
  for (const std::int64_t width : {attention.q_width(), attention.latent_q_width(), attention.out_width()})
    if (width > fields::kMaxWidth)
      return fields::bad_value("num_attention_heads", "heads of latent attention must have at most {} elements, not {}",
                               fields::kMaxWidth, width);
  for (LayerSpec& layer : spec.layers) layer.attention = attention;
  spec.ropes.push_back(std::move(rope));
  name_latent_tensors(spec.names);
  name_experts(spec.names);
  name_shared_experts(spec.names);
  BATON_TRY(const double n_draft, fields::optional_number(config, "num_nextn_predict_layers", 0, fields::kMaxLayers, 1));
  spec.n_draft_layers = static_cast<std::int32_t>(n_draft);
  return spec;
}

}  // namespace baton
