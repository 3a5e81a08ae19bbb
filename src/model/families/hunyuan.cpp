/// config.json of a dense Hunyuan to its spec.
#include "model/families/readers.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kHunyuanDefaults{.epsilon = 1e-5};

/// The rotation. In a `dynamic` one with an `alpha`, theta is larger by alpha^(head_dim / (head_dim - 2)) at every length.
Result<RopeSpec> read_hunyuan_rope(const json::Value& config, const fields::RopeContext& context) {
  const json::Value* parameters = json::find(config, "rope_scaling");
  const bool is_older = parameters != nullptr && !parameters->is_null();
  if (!is_older) parameters = json::find(config, "rope_parameters");
  if (parameters == nullptr || !parameters->is_object()) return fields::read_rope(config, context);
  BATON_TRY(auto type, json::get_optional<std::string>(*parameters, "rope_type"));
  if (!type) {
    BATON_TRY(type, json::get_optional<std::string>(*parameters, "type"));
  }
  BATON_TRY(const auto alpha, json::get_optional<double>(*parameters, "alpha"));
  if (type != "dynamic" || !alpha || *alpha == 0) return fields::read_rope(config, context);
  BATON_TRY_VOID(fields::optional_number(*parameters, "alpha", 1, 1e6, 1));
  if (context.head_dim < 4) return fields::unsupported("rope_type", "dynamic", "\"default\" where heads have two elements");
  json::Value plain = config;
  plain[is_older ? "rope_scaling" : "rope_parameters"]["rope_type"] = "default";
  BATON_TRY(RopeSpec rope, fields::read_rope(plain, context));
  const double dim = context.head_dim;
  rope.theta *= std::pow(*alpha, dim / (dim - 2));
  return rope;
}

}  // namespace

/// Llama with norms of queries and keys in each head after the rotation. The defaults are those of Transformers'
/// HunYuanDenseV1Config. Tencent's own code has options that Transformers does not read.
Result<ModelSpec> read_hunyuan_dense(const json::Value& config) {
  BATON_TRY_VOID(fields::expect_silu(config, "hidden_act"));
  BATON_TRY_VOID(fields::expect(config, "use_qk_norm", true));
  BATON_TRY_VOID(fields::expect(config, "use_cla", false));
  BATON_TRY_VOID(fields::expect(config, "mlp_bias", false));
  BATON_TRY_VOID(fields::expect(config, "num_experts", 1));
  BATON_TRY(ModelSpec spec, read_llama_layers(config, kHunyuanDefaults));
  BATON_TRY_VOID(fields::expect(config, "attention_head_dim", spec.layers[0].attention.head_dim));
  spec.names.q_norm = "model.layers.{}.self_attn.query_layernorm";
  spec.names.k_norm = "model.layers.{}.self_attn.key_layernorm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.norms_rotated = true;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  BATON_TRY(RopeSpec rope, read_hunyuan_rope(config, rope_context(kHunyuanDefaults, spec)));
  if (rope.scaling.attention_factor != 1)
    return fields::unsupported("attention_factor", rope.scaling.attention_factor, "1, as the norms of a Hunyuan come after it");
  spec.ropes.push_back(std::move(rope));
  return spec;
}

}  // namespace baton
