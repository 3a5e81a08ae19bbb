/// Derives layer groups and sizes from a spec.
#include "model/spec.h"

#include <algorithm>
#include <array>

namespace baton {
namespace {

/// The values that all layers of a group have in common.
std::array<std::int32_t, 6> group_key(const AttentionSpec& attention) {
  return {attention.n_heads, attention.n_kv_heads, attention.head_dim,
          attention.v_dim(), attention.window,     attention.is_chunked ? 1 : 0};
}

std::int64_t norm_parameters(const NormSpec& norm, std::int64_t d_model) { return (norm.has_bias ? 2 : 1) * d_model; }

/// Those of its matrices, without biases.
std::int64_t attention_parameters(const AttentionSpec& spec, std::int64_t d_model) {
  const std::int64_t n = d_model * (spec.qkv_width() + spec.out_width());
  if (!spec.latent) return n;
  const LatentSpec& latent = *spec.latent;
  return n + latent.q_rank * spec.latent_q_width() +
         std::int64_t{latent.rank} * spec.n_heads * (latent.nope_dim + latent.v_dim);
}

/// Of a recurrent block.
std::int64_t recurrent_parameters(const LayerSpec& layer, std::int64_t d_model) {
  if (layer.delta) {
    const GatedDeltaSpec& delta = *layer.delta;
    return d_model * (delta.in_width() + 2 * delta.n_heads + delta.values_width()) + delta.qkv_width() * delta.n_taps +
           2 * delta.n_heads + delta.value_dim;
  }
  if (layer.conv) {
    const ShortConvSpec& conv = *layer.conv;
    const std::int64_t n = conv.n_channels;
    return d_model * 4 * n + n * conv.n_taps + (conv.has_bias ? 4 * n + d_model : 0);
  }
  const Mamba2Spec& mamba = *layer.mamba2;
  return d_model * (mamba.in_width() + mamba.inner_width()) + (mamba.has_bias ? mamba.in_width() + d_model : 0) +
         mamba.conv_width() * (mamba.n_taps + (mamba.has_conv_bias ? 1 : 0)) + 3 * mamba.n_heads + mamba.inner_width();
}

std::int64_t feed_forward_parameters(const FeedForwardSpec& feed_forward, std::int64_t d_model) {
  const std::int64_t n_blocks = feed_forward.has_experts() ? feed_forward.n_experts : 1;
  std::int64_t n = d_model * (n_blocks * (feed_forward.up_width() + feed_forward.d_ff) + feed_forward.n_router_logits());
  n += d_model * (feed_forward.up_width_of(feed_forward.d_ff_shared) + feed_forward.d_ff_shared);
  if (feed_forward.has_choice_bias) n += feed_forward.n_experts;
  if (feed_forward.has_bias) {
    n += n_blocks * (feed_forward.up_width() + d_model) + feed_forward.n_router_logits();
    if (feed_forward.has_shared_expert()) n += feed_forward.up_width_of(feed_forward.d_ff_shared) + d_model;
  }
  return n;
}

std::int64_t layer_parameters(const LayerSpec& layer, std::int64_t d_model) {
  const AttentionSpec& attention = layer.attention;
  const int n_blocks = (layer.has_mixer ? 1 : 0) + (layer.has_feed_forward ? 1 : 0);
  const int n_pre_norms = !layer.has_pre_norms ? 0 : layer.is_parallel ? 1 : n_blocks;
  std::int64_t n = (n_pre_norms + (layer.has_post_norms ? 2 : 0)) * norm_parameters(layer.norm, d_model);
  if (layer.is_recurrent()) n += recurrent_parameters(layer, d_model);
  if (layer.has_attention()) {
    n += attention.q_norm_width() + attention.k_norm_width();
    n += attention_parameters(attention, d_model);
    if (attention.has_output_gate) n += d_model * attention.out_width();
    if (attention.has_qkv_bias) n += attention.qkv_width();
    if (attention.has_out_bias) n += d_model;
    if (attention.has_sinks) n += attention.n_heads;
  }
  return layer.has_feed_forward ? n + feed_forward_parameters(layer.feed_forward, d_model) : n;
}

}  // namespace

std::string checkpoint_name(const TensorNames& names, std::string_view name, std::size_t layer) {
  constexpr std::string_view kModel = "model.";
  std::string full(name);
  if (!names.root.empty() && name.starts_with(kModel)) full.replace(0, kModel.size(), names.root);
  if (const std::size_t place = full.find("{}"); place != std::string::npos) full.replace(place, 2, std::to_string(layer));
  return full;
}

std::int64_t ModelSpec::n_parameters() const {
  const std::int64_t table = std::int64_t{d_model} * n_vocab;
  std::int64_t n = (tie_embeddings ? 1 : 2) * table + norm_parameters(final_norm, d_model) + (has_lm_head_bias ? n_vocab : 0);
  for (const LayerSpec& layer : layers) n += layer_parameters(layer, d_model);
  return n;
}

std::int32_t ModelSpec::n_groups() const {
  std::int32_t n = 0;
  for (const LayerSpec& layer : layers) n = std::max(n, layer.group + 1);
  return n;
}

const LayerSpec* ModelSpec::recurrent_layer() const {
  const auto found = std::ranges::find_if(layers, &LayerSpec::is_recurrent);
  return found == layers.end() ? nullptr : &*found;
}

std::int32_t ModelSpec::n_recurrent_layers() const {
  return static_cast<std::int32_t>(std::ranges::count_if(layers, &LayerSpec::is_recurrent));
}

void group_layers(ModelSpec& spec) {
  std::vector<decltype(group_key({}))> keys;
  for (LayerSpec& layer : spec.layers) {
    if (!layer.has_attention()) {
      layer.group = LayerSpec::kNoGroup;
      continue;
    }
    const auto key = group_key(layer.attention);
    const auto found = std::ranges::find(keys, key);
    layer.group = static_cast<std::int32_t>(found - keys.begin());
    if (found == keys.end()) keys.push_back(key);
  }
  if (!spec.mtp) return;
  const auto found = std::ranges::find(keys, group_key(spec.mtp->layer.attention));
  if (found == keys.end())
    spec.mtp.reset();
  else
    spec.mtp->layer.group = static_cast<std::int32_t>(found - keys.begin());
}

}  // namespace baton
