/// config.json of a Llama 4's text model to its spec.
#include "model/families/readers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/families/llama.h"

namespace baton {
namespace {

using json::Value;

constexpr fields::Defaults kLlama4Defaults{
    .n_kv_heads = 8, .head_dim = 128, .max_position = 131072, .epsilon = 1e-5, .rope = {.theta = 500000}};

void name_llama4_tensors(TensorNames& names) {
  names.gate = "model.layers.{}.feed_forward.gate_proj";
  names.up = "model.layers.{}.feed_forward.up_proj";
  names.down = "model.layers.{}.feed_forward.down_proj";
  names.router = "model.layers.{}.feed_forward.router";
  names.expert_gate_up = "model.layers.{}.feed_forward.experts.gate_up_proj";
  names.expert_down = "model.layers.{}.feed_forward.experts.down_proj";
  names.has_gate_up_in_halves = true;
  names.shared_gate = "model.layers.{}.feed_forward.shared_expert.gate_proj";
  names.shared_up = "model.layers.{}.feed_forward.shared_expert.up_proj";
  names.shared_down = "model.layers.{}.feed_forward.shared_expert.down_proj";
}

/// Which of `n` layers rotate: `no_rope_layers` has a 1 for each that does. Without the list those do whose number, counted from
/// 1, is no multiple of `no_rope_layer_interval`.
Result<std::vector<bool>> read_rotating_layers(const Value& config, std::size_t n) {
  BATON_TRY(const auto listed, json::get_optional<std::vector<std::int32_t>>(config, "no_rope_layers"));
  BATON_TRY(const std::int32_t interval, fields::optional_size(config, "no_rope_layer_interval", fields::kMaxLayers, 4));
  const bool is_listed = listed && !listed->empty();
  if (is_listed && listed->size() < n)
    return fields::bad_value("no_rope_layers", "'no_rope_layers' must have a number for each of the {} layers, not {}", n,
                             listed->size());
  std::vector<bool> rotates;
  for (std::size_t i = 0; i < n; ++i)
    rotates.push_back(is_listed ? (*listed)[i] != 0 : (i + 1) % static_cast<std::size_t>(interval) != 0);
  return rotates;
}

/// Gives layers of the type "chunked_attention", without `layer_types` all that rotate, chunks of `attention_chunk_size`
/// positions.
Result<void> read_chunks(const Value& config, const std::vector<bool>& rotates, ModelSpec& spec) {
  const Value* const size = json::find(config, "attention_chunk_size");
  if (size != nullptr && size->is_null()) return {};
  BATON_TRY(const std::int32_t chunk, fields::optional_size(config, "attention_chunk_size", fields::kMaxPositions, 8192));
  const Value* const given = json::find(config, "layer_types");
  const bool has_types = given != nullptr && !given->is_null();
  std::vector<std::string> types;
  if (has_types) {
    BATON_TRY(types, json::get<std::vector<std::string>>(config, "layer_types"));
    if (types.size() != spec.layers.size())
      return fields::bad_value("layer_types", "'layer_types' must have one entry for each of the {} layers, not {}",
                               spec.layers.size(), types.size());
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (has_types && types[i] != "chunked_attention" && types[i] != "full_attention")
      return fields::unsupported("layer_types", types[i], R"("chunked_attention" or "full_attention")");
    if (has_types ? types[i] == "full_attention" : !rotates[i]) continue;
    spec.layers[i].attention.window = chunk;
    spec.layers[i].attention.is_chunked = true;
  }
  return {};
}

/// The factor of queries in layers that do not rotate, as a rotation by nothing; no value where `attn_temperature_tuning` is off.
/// Published files have a number there.
Result<std::optional<RopeSpec>> read_temperature(const Value& config, std::int32_t head_dim) {
  const Value* const tuning = json::find(config, "attn_temperature_tuning");
  const bool is_number = tuning != nullptr && tuning->is_number();
  bool is_on = is_number && *tuning != 0;
  if (!is_number) {
    BATON_TRY(is_on, fields::optional_flag(config, "attn_temperature_tuning", true));
  }
  if (!is_on) return std::optional<RopeSpec>();
  RopeSpec spec;
  spec.rotary_dim = head_dim % 16 == 0 ? 16 : 2;  // a multiple of what kernels take at once
  spec.turns = false;
  BATON_TRY(spec.query_beta, fields::optional_number(config, "attn_scale", 0, 1e6, 0.1));
  BATON_TRY(spec.query_length, fields::optional_size(config, "floor_scale", fields::kMaxPositions, 8192));
  spec.query_shift = 1;
  return std::optional<RopeSpec>(std::move(spec));
}

/// The layers with experts, one of which computes a row, and a shared expert of the same width. The others are wider.
Result<void> read_feed_forward(const Value& config, ModelSpec& spec) {
  const auto n_layers = static_cast<std::int32_t>(spec.layers.size());
  FeedForwardSpec experts = spec.layers.front().feed_forward;
  BATON_TRY_VOID(read_experts(config, experts, 16, 1));
  if (experts.n_experts_per_row != 1) return fields::unsupported("num_experts_per_tok", experts.n_experts_per_row, "1");
  experts.routing.score = RoutingRule::Score::sigmoid;
  experts.weighs_inputs = true;
  experts.d_ff_shared = experts.d_ff;
  BATON_TRY(const std::int32_t dense_width,
            fields::optional_size(config, "intermediate_size_mlp", fields::kMaxFeedForward, 16384));
  BATON_TRY(const auto listed, json::get_optional<std::vector<std::int32_t>>(config, "moe_layers"));
  BATON_TRY(const std::int32_t step, fields::optional_size(config, "interleave_moe_layer_step", fields::kMaxLayers, 1));
  for (std::int32_t i = 0; i < n_layers; ++i) {
    FeedForwardSpec& block = spec.layers[static_cast<std::size_t>(i)].feed_forward;
    const bool has_experts = listed ? std::ranges::find(*listed, i) != listed->end() : (i + 1) % step == 0;
    if (has_experts)
      block = experts;
    else
      block.d_ff = dense_width;
  }
  return {};
}

}  // namespace

/// Llama with experts that weigh what they read, attention in chunks where layers rotate (neighbouring elements, then norms
/// without weights), and a factor of queries by their position where they do not. The defaults are those of Transformers'
/// Llama4TextConfig.
Result<ModelSpec> read_llama4(const Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kLlama4Defaults));
  name_llama4_tensors(spec.names);
  spec.ropes[0].is_interleaved = true;
  BATON_TRY(const bool has_norms, fields::optional_flag(config, "use_qk_norm", true));
  if (has_norms && spec.ropes[0].scaling.attention_factor != 1)
    return fields::unsupported("use_qk_norm", true, "false where a rotation has an attention factor");
  BATON_TRY(const std::vector<bool> rotates, read_rotating_layers(config, spec.layers.size()));
  BATON_TRY(std::optional<RopeSpec> temperature, read_temperature(config, spec.layers.front().attention.head_dim));
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    attention.has_qkv_bias = attention.has_out_bias = has_biases;
    attention.rope = rotates[i] ? 0 : temperature ? 1 : AttentionSpec::kNoRope;
    if (!rotates[i] || !has_norms) continue;
    attention.qk_norm = QkNorm::head;
    attention.qk_norm_spec = spec.layers[i].norm;
    attention.has_qk_norm_weights = false;
    attention.norms_rotated = true;
  }
  if (temperature) spec.ropes.push_back(std::move(*temperature));
  BATON_TRY_VOID(read_chunks(config, rotates, spec));
  BATON_TRY_VOID(read_feed_forward(config, spec));
  return spec;
}

/// The text model of a Llama 4 that also takes images.
Result<ModelSpec> read_llama4_with_images(const Value& config) { return read_text_model(config, read_llama4); }

}  // namespace baton
