/// Names the tensors of a model and cuts them for a rank.
#include "model/model_tensors.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "model/split.h"

namespace baton {
namespace {

/// One matrix [n, k] of a checkpoint: its name without the last part, and the runs of its rows that a rank holds.
struct Rows {
  std::string_view name;
  std::int64_t n;
  std::vector<IndexRange> held;
  std::int32_t interleaved_dim = 0;  ///< as in ExpectedTensor, and head_dim
  std::int64_t n_zero_rows = 0;
  std::int32_t head_dim = 0;
};

/// A matrix of which a rank holds every row.
Rows all_rows(std::string_view name, std::int64_t n) { return {name, n, {{0, n}}}; }

/// Joins adjacent ranges.
std::vector<IndexRange> joined_runs(std::initializer_list<IndexRange> runs) {
  std::vector<IndexRange> joined;
  for (const IndexRange& run : runs) {
    if (!joined.empty() && joined.back().end == run.begin)
      joined.back().end = run.end;
    else
      joined.push_back(run);
  }
  return joined;
}

IndexRange times(IndexRange range, std::int64_t factor) { return {range.begin * factor, range.end * factor}; }
IndexRange plus(IndexRange range, std::int64_t offset) { return {range.begin + offset, range.end + offset}; }

/// Names the tensors of layer `layer`. Names of tensors outside the layers have no "{}", so any number does for them.
class Namer {
 public:
  Namer(const TensorNames& names, std::size_t layer) : names_(names), layer_(layer) {}

  NormTensors norm(const NormSpec& spec, std::string_view name, std::int64_t n) const {
    const std::string stem = checkpoint_name(names_, name, layer_);
    const auto whole = [&](const char* end, ExpectedTensor::Kind kind) {
      return TensorPart{{stem + end, {n}, kind}, {0, n}, {}};
    };
    NormTensors made{whole(".weight", ExpectedTensor::Kind::norm), std::nullopt, spec.weight_offset};
    if (spec.has_bias) made.bias = whole(".bias", ExpectedTensor::Kind::bias);
    return made;
  }
  /// A vector whose whole name is `name`.
  NormTensors vector(std::string_view name, std::int64_t n, IndexRange held) const {
    return {TensorPart{{checkpoint_name(names_, name, layer_), {n}, ExpectedTensor::Kind::bias}, held, {}}, std::nullopt, 0};
  }
  /// The bias beside the weights `name`.
  NormTensors bias_of(std::string_view name, std::int64_t n) const {
    return {TensorPart{{checkpoint_name(names_, name, layer_) + ".bias", {n}, ExpectedTensor::Kind::bias}, {0, n}, {}},
            std::nullopt, 0};
  }
  /// The weights of a convolution of each channel, as one vector.
  NormTensors convolution(std::string_view name, std::int64_t n_channels, std::int32_t n_taps) const {
    const std::int64_t n = n_channels * n_taps;
    ExpectedTensor tensor{checkpoint_name(names_, name, layer_) + ".weight", {n}, ExpectedTensor::Kind::bias};
    tensor.n_taps = n_taps;
    return {TensorPart{std::move(tensor), {0, n}, {}}, std::nullopt, 0};
  }
  /// A matrix [n, k] of an expert in a tensor of all of them, and its bias beside it. `rows` are pairs if `are_pairs`.
  LinearTensors of_all_experts(std::string_view name, const Shape& shape, IndexRange rows, IndexRange columns, bool are_pairs,
                               bool has_bias, std::int32_t n_experts, std::int32_t expert) const {
    const std::string whole = checkpoint_name(names_, name, layer_);
    const std::int32_t pairs = are_pairs ? static_cast<std::int32_t>(rows.size()) : 0;
    using Kind = ExpectedTensor::Kind;
    LinearTensors made;
    const bool is_transposed = names_.has_transposed_experts;
    made.weights.push_back({{whole, shape, Kind::matrix, pairs, pairs, n_experts, expert, is_transposed}, rows, columns});
    if (has_bias) made.biases.push_back({{whole + "_bias", {shape[0]}, Kind::bias, pairs, pairs, n_experts, expert}, rows, {}});
    return made;
  }
  LinearTensors linear(std::span<const Rows> parts, std::int64_t k, IndexRange columns, bool has_bias) const {
    LinearTensors made;
    for (const Rows& part : parts) {
      const std::string stem = checkpoint_name(names_, part.name, layer_);
      const ExpectedTensor weight{
          stem + ".weight", {part.n, k}, ExpectedTensor::Kind::matrix, part.interleaved_dim, part.head_dim};
      const ExpectedTensor bias{stem + ".bias", {part.n}, ExpectedTensor::Kind::bias, part.interleaved_dim, part.head_dim};
      for (std::size_t i = 0; i < part.held.size(); ++i) {
        const std::int64_t n_zero_rows = i + 1 == part.held.size() ? part.n_zero_rows : 0;
        made.weights.push_back({weight, part.held[i], columns, n_zero_rows});
        if (has_bias) made.biases.push_back({bias, part.held[i], {}, n_zero_rows});
      }
    }
    return made;
  }
  LinearTensors linear(std::initializer_list<Rows> parts, std::int64_t k, bool has_bias) const {
    return linear(std::span(parts.begin(), parts.size()), k, {0, k}, has_bias);
  }
  /// The columns that meet a rank's inputs. The ranks' results are added, so only the first adds the bias.
  LinearTensors split_by_columns(const Rows& part, std::int64_t k, IndexRange columns, bool has_bias, ModelRank rank) const {
    LinearTensors made = linear(std::span(&part, 1), k, columns, has_bias && rank.rank == 0);
    if (rank.world_size > 1) made.split = Linear::Split::row;
    return made;
  }
  /// Stacked matrices whose outputs the ranks gather.
  LinearTensors gathered(std::vector<Rows> parts, std::int64_t k, bool has_bias, ModelRank rank) const {
    std::int64_t n = 0;
    for (const Rows& part : parts) n += part.n;
    const IndexRange share = gathered_share(n, rank);
    std::int64_t begin = 0;
    for (Rows& part : parts) {
      const auto inside = [&](std::int64_t row) { return std::clamp<std::int64_t>(row - begin, 0, part.n); };
      part.held = {{inside(share.begin), inside(share.end)}};
      begin += part.n;
    }
    parts.back().n_zero_rows = gathered_width(n, rank) - share.size();
    LinearTensors made = linear(parts, k, {0, k}, has_bias);
    if (rank.world_size > 1) made.split = Linear::Split::column;
    return made;
  }

 private:
  const TensorNames& names_;
  std::size_t layer_;
};

/// `pattern` with the expert's number in the place of its last "{}"; the first one stands for the layer's.
std::string expert_name(std::string_view pattern, std::int32_t expert) {
  const std::size_t place = pattern.rfind("{}");
  if (place == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, place), expert, pattern.substr(place + 2));
}

/// The matrices of experts that share tensors (TensorNames::expert_gate_up).
void add_experts_of_one_tensor(const Namer& make, const ModelSpec& whole, const FeedForwardSpec& spec, ModelRank rank,
                               LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const std::int64_t d = whole.d_model;
  const IndexRange width = even_share(spec.d_ff, rank);
  const bool is_split = rank.world_size > 1;
  const std::vector<IndexRange> rows_of_up =
      names.has_gate_up_in_halves ? joined_runs({width, plus(width, spec.d_ff)}) : std::vector<IndexRange>{times(width, 2)};
  for (std::int32_t e = 0; e < spec.n_experts; ++e) {
    LinearTensors& up = layer.expert_up.emplace_back();
    for (const IndexRange& rows : rows_of_up) {
      const LinearTensors part = make.of_all_experts(names.expert_gate_up, {spec.up_width(), d}, rows, {0, d},
                                                     !names.has_gate_up_in_halves, spec.has_bias, spec.n_experts, e);
      up.weights.insert(up.weights.end(), part.weights.begin(), part.weights.end());
      up.biases.insert(up.biases.end(), part.biases.begin(), part.biases.end());
    }
    layer.expert_up.back().split = is_split ? Linear::Split::column : Linear::Split::none;
    // The ranks' results are added, so only the first adds the bias.
    layer.expert_down.push_back(make.of_all_experts(names.expert_down, {d, spec.d_ff}, {0, d}, width, false,
                                                    spec.has_bias && rank.rank == 0, spec.n_experts, e));
    layer.expert_down.back().split = is_split ? Linear::Split::row : Linear::Split::none;
  }
}

void add_experts(const Namer& make, const ModelSpec& whole, const FeedForwardSpec& spec, ModelRank rank, LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const std::int64_t d = whole.d_model;
  const IndexRange width = even_share(spec.d_ff, rank);
  const Linear::Split by_rows = rank.world_size > 1 ? Linear::Split::column : Linear::Split::none;
  std::vector<Rows> router{all_rows(names.router, spec.n_experts)};
  if (spec.has_shared_gate) router.push_back(all_rows(names.shared_expert_gate, 1));
  layer.router = make.gathered(std::move(router), d, spec.has_bias, rank);
  if (spec.has_choice_bias) layer.choice_bias = make.vector(names.choice_bias, spec.n_experts, {0, spec.n_experts});
  if (!names.expert_gate_up.empty()) return add_experts_of_one_tensor(make, whole, spec, rank, layer);
  for (std::int32_t expert = 0; expert < spec.n_experts; ++expert) {
    const std::string gate = spec.is_gated() ? expert_name(names.expert_gate, expert) : "";
    const std::string up = expert_name(names.expert_up, expert);
    const std::string down = expert_name(names.expert_down, expert);
    const Rows up_rows{up, spec.d_ff, {width}};
    layer.expert_up.push_back(spec.is_gated() ? make.linear({{gate, spec.d_ff, {width}}, up_rows}, d, spec.has_bias)
                                              : make.linear({up_rows}, d, spec.has_bias));
    layer.expert_up.back().split = by_rows;
    layer.expert_down.push_back(make.split_by_columns(all_rows(down, d), spec.d_ff, width, spec.has_bias, rank));
  }
}

/// Adds what latent attention has in the place of queries, keys and values. What keys and values are expanded from is the same for
/// all heads, so each rank has it.
void add_latent_parts(const Namer& make, const ModelSpec& whole, const AttentionSpec& spec, ModelRank rank,
                      LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const LatentSpec& latent = *spec.latent;
  const IndexRange heads = query_heads_of(spec, rank);
  const Rows queries{latent.q_rank > 0 ? names.q_b : names.q, spec.latent_q_width(), {times(heads, latent.q_dim())}};
  const Rows expanded = all_rows(names.kv_a, spec.head_dim);
  const Linear::Split by_rows = rank.world_size > 1 ? Linear::Split::column : Linear::Split::none;
  if (latent.q_rank > 0) {
    layer.qkv = make.linear({all_rows(names.q_a, latent.q_rank), expanded}, whole.d_model, false);
    layer.q_norm = make.norm(spec.qk_norm_spec, names.q_norm, spec.q_norm_width());
    layer.q_b = make.linear({queries}, latent.q_rank, false);
    layer.q_b.split = by_rows;
  } else {
    layer.qkv = make.linear({queries, expanded}, whole.d_model, false);
    layer.qkv.split = by_rows;
  }
  layer.k_norm = make.norm(spec.qk_norm_spec, names.k_norm, spec.k_norm_width());
  const std::int64_t rows_of_head = latent.nope_dim + latent.v_dim;
  Rows keys{names.kv_b, spec.n_heads * rows_of_head, {}};
  Rows values = keys;
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    keys.held.push_back(plus({0, latent.nope_dim}, head * rows_of_head));
    values.held.push_back(plus({latent.nope_dim, rows_of_head}, head * rows_of_head));
  }
  layer.keys_of_heads = {make.linear({keys}, latent.rank, false).weights, /*is_transposed=*/true};
  layer.values_of_heads = {make.linear({values}, latent.rank, false).weights, /*is_transposed=*/false};
}

/// Rows of a rank's queries (`part` 0) or their output gates (1) in a tensor that has both for each head.
Rows query_or_gate_rows(const TensorNames& names, const AttentionSpec& spec, ModelRank rank, std::int32_t pairs, int part) {
  Rows rows{names.q, 2 * spec.q_width(), {}, pairs, 0, spec.head_dim};
  const IndexRange heads = query_heads_of(spec, rank);
  for (std::int64_t head = heads.begin; head < heads.end; ++head)
    rows.held.push_back(plus({0, spec.head_dim}, (2 * head + part) * spec.head_dim));
  return rows;
}

LinearTensors qkv_tensors(const Namer& make, const ModelSpec& whole, const AttentionSpec& spec, ModelRank rank) {
  const TensorNames& names = whole.names;
  const RopeSpec* const rope =
      spec.rope == AttentionSpec::kNoRope ? nullptr : &whole.ropes[static_cast<std::size_t>(spec.rope)];
  const std::int32_t pairs = rope != nullptr && rope->is_interleaved ? rope->rotary_dim : 0;
  const IndexRange q = times(query_heads_of(spec, rank), spec.head_dim);
  const IndexRange kv = times(kv_heads_of(spec, rank), spec.head_dim);
  if (spec.has_output_gate)
    return make.linear({query_or_gate_rows(names, spec, rank, pairs, 0),
                        {names.k, spec.kv_width(), {kv}, pairs, 0, spec.head_dim},
                        {names.v, spec.kv_width(), {kv}}},
                       whole.d_model, spec.has_qkv_bias);
  if (names.qkv.empty())
    return make.linear({{names.q, spec.q_width(), {q}, pairs, 0, spec.head_dim},
                        {names.k, spec.kv_width(), {kv}, pairs, 0, spec.head_dim},
                        {names.v, spec.kv_width(), {kv}}},
                       whole.d_model, spec.has_qkv_bias);
  const std::int64_t v_begin = spec.q_width() + spec.kv_width();
  return make.linear({{names.qkv, spec.qkv_width(), joined_runs({q, plus(kv, spec.q_width()), plus(kv, v_begin)})}},
                     whole.d_model, spec.has_qkv_bias);
}

/// The first matrix of the block that all rows pass through, one without experts or a shared expert.
LinearTensors up_tensors(const Namer& make, const ModelSpec& whole, const FeedForwardSpec& spec, ModelRank rank) {
  const TensorNames& names = whole.names;
  const std::int64_t d = whole.d_model;
  const std::int32_t d_ff = spec.common_d_ff();
  const IndexRange width = even_share(d_ff, rank);
  const bool is_shared = spec.has_experts();
  const Rows up{is_shared ? names.shared_up : names.up, d_ff, {width}};
  const Rows gate{is_shared ? names.shared_gate : names.gate, d_ff, {width}};
  if (!spec.is_gated()) return make.linear({up}, d, spec.has_bias);
  const std::string_view both = is_shared ? names.shared_gate_up : names.gate_up;
  if (both.empty()) return make.linear({gate, up}, d, spec.has_bias);
  return make.linear({{both, spec.up_width_of(d_ff), joined_runs({width, plus(width, d_ff)})}}, d, spec.has_bias);
}

void append(std::vector<TensorPart>& all, const std::optional<NormTensors>& norm) {
  if (!norm) return;
  all.push_back(norm->weight);
  if (norm->bias) all.push_back(*norm->bias);
}

void append(std::vector<TensorPart>& all, const LinearTensors& linear) {
  all.insert(all.end(), linear.weights.begin(), linear.weights.end());
  all.insert(all.end(), linear.biases.begin(), linear.biases.end());
}

void append(std::vector<TensorPart>& all, const std::vector<LinearTensors>& experts) {
  for (const LinearTensors& expert : experts) append(all, expert);
}

void append(std::vector<TensorPart>& all, const HeadTensors& heads) {
  all.insert(all.end(), heads.heads.begin(), heads.heads.end());
}

/// Adds queries, keys and values, and their norms.
void add_qkv(const Namer& make, const ModelSpec& whole, const AttentionSpec& spec, ModelRank rank, LayerTensors& layer) {
  if (spec.latent) return add_latent_parts(make, whole, spec, rank, layer);
  layer.qkv = qkv_tensors(make, whole, spec, rank);
  layer.qkv.split = rank.world_size > 1 ? Linear::Split::column : Linear::Split::none;
  if (spec.q_norm_width() == 0) return;
  layer.q_norm = make.norm(spec.qk_norm_spec, whole.names.q_norm, spec.q_norm_width());
  layer.k_norm = make.norm(spec.qk_norm_spec, whole.names.k_norm, spec.k_norm_width());
}

/// Rows of each key head in a tensor that holds several parts for each: `size` rows from `begin` of every `stride`.
Rows rows_of_key_heads(std::string_view name, const GatedDeltaSpec& spec, std::int64_t stride, std::int64_t begin,
                       std::int64_t size) {
  Rows rows{name, spec.n_key_heads * stride, {}};
  for (std::int64_t head = 0; head < spec.n_key_heads; ++head) rows.held.push_back(plus({begin, begin + size}, head * stride));
  return rows;
}

/// Adds what a recurrent layer has in the place of attention. There is one rank (split_spec).
void add_delta_parts(const Namer& make, const ModelSpec& whole, const GatedDeltaSpec& spec, LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const std::int64_t d = whole.d_model;
  if (names.delta_qkvz.empty()) {
    layer.recurrent_in =
        make.linear({all_rows(names.delta_qkv, spec.qkv_width()), all_rows(names.delta_z, spec.values_width())}, d, false);
    layer.recurrent_gates =
        make.linear({all_rows(names.delta_b, spec.n_heads), all_rows(names.delta_a, spec.n_heads)}, d, false);
  } else {
    const std::int64_t n_values = spec.n_heads / spec.n_key_heads;  // heads of one key head
    const std::int64_t values = n_values * spec.value_dim;
    const std::int64_t stride = 2 * (spec.key_dim + values);
    const auto part = [&](std::int64_t begin, std::int64_t size) {
      return rows_of_key_heads(names.delta_qkvz, spec, stride, begin, size);
    };
    layer.recurrent_in = make.linear({part(0, spec.key_dim), part(spec.key_dim, spec.key_dim), part(2 * spec.key_dim, values),
                                      part(2 * spec.key_dim + values, values)},
                                     d, false);
    layer.recurrent_gates = make.linear({rows_of_key_heads(names.delta_ba, spec, 2 * n_values, 0, n_values),
                                         rows_of_key_heads(names.delta_ba, spec, 2 * n_values, n_values, n_values)},
                                        d, false);
  }
  layer.conv = make.convolution(names.conv, spec.qkv_width(), spec.n_taps);
  layer.a_log = make.vector(names.a_log, spec.n_heads, {0, spec.n_heads});
  layer.dt_bias = make.vector(names.dt_bias, spec.n_heads, {0, spec.n_heads});
  layer.recurrent_norm = make.norm(spec.norm, names.recurrent_norm, spec.value_dim);
  layer.attention_out = make.linear({all_rows(names.recurrent_out, d)}, spec.values_width(), false);
}

/// The same of a gated short convolution.
void add_conv_parts(const Namer& make, const ModelSpec& whole, const ShortConvSpec& spec, LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const std::int64_t n = spec.n_channels;
  layer.recurrent_in = make.linear({all_rows(names.recurrent_in, 3 * n)}, whole.d_model, spec.has_bias);
  layer.conv = make.convolution(names.conv, n, spec.n_taps);
  if (spec.has_bias) layer.conv_bias = make.bias_of(names.conv, n);
  layer.attention_out = make.linear({all_rows(names.recurrent_out, whole.d_model)}, n, spec.has_bias);
}

/// The same of Mamba-2.
void add_mamba2_parts(const Namer& make, const ModelSpec& whole, const Mamba2Spec& spec, LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const IndexRange heads{0, spec.n_heads};
  layer.recurrent_in = make.linear({all_rows(names.recurrent_in, spec.in_width())}, whole.d_model, spec.has_bias);
  layer.conv = make.convolution(names.conv, spec.conv_width(), spec.n_taps);
  if (spec.has_conv_bias) layer.conv_bias = make.bias_of(names.conv, spec.conv_width());
  layer.a_log = make.vector(names.a_log, spec.n_heads, heads);
  layer.dt_bias = make.vector(names.dt_bias, spec.n_heads, heads);
  layer.skip = make.vector(names.skip, spec.n_heads, heads);
  layer.recurrent_norm = make.norm(spec.norm, names.recurrent_norm, spec.inner_width());
  layer.attention_out = make.linear({all_rows(names.recurrent_out, whole.d_model)}, spec.inner_width(), spec.has_bias);
}

/// Adds an attention block.
void add_attention(const Namer& make, const ModelSpec& whole, const AttentionSpec& attention, ModelRank rank,
                   LayerTensors& layer) {
  const TensorNames& names = whole.names;
  const IndexRange heads = query_heads_of(attention, rank);
  add_qkv(make, whole, attention, rank, layer);
  if (attention.has_sinks) layer.sinks = make.vector(names.sinks, attention.n_heads, heads);
  if (attention.has_output_gate) {
    layer.attention_gate =
        make.linear({query_or_gate_rows(names, attention, rank, 0, 1)}, whole.d_model, attention.has_qkv_bias);
    layer.attention_gate.split = rank.world_size > 1 ? Linear::Split::column : Linear::Split::none;
  }
  layer.attention_out = make.split_by_columns(all_rows(names.attention_out, whole.d_model), attention.out_width(),
                                              times(heads, attention.out_dim()), attention.has_out_bias, rank);
}

/// Adds a layer's first block.
void add_mixer(const Namer& make, const ModelSpec& whole, const LayerSpec& spec, ModelRank rank, LayerTensors& layer) {
  if (spec.delta) return add_delta_parts(make, whole, *spec.delta, layer);
  if (spec.conv) return add_conv_parts(make, whole, *spec.conv, layer);
  if (spec.mamba2) return add_mamba2_parts(make, whole, *spec.mamba2, layer);
  add_attention(make, whole, spec.attention, rank, layer);
}

}  // namespace

std::int64_t LinearTensors::n() const {
  std::int64_t total = 0;
  for (const TensorPart& part : weights) total += part.shape()[0];
  return total;
}

std::int64_t LinearTensors::n_elements() const {
  std::int64_t total = 0;
  for (const TensorPart& part : weights) total += part.shape().n_elements();
  return total;
}

LayerTensors layer_tensors(const ModelSpec& whole, ModelRank rank, std::size_t index) {
  const LayerSpec& layer = whole.layers[index];
  const FeedForwardSpec& feed_forward = layer.feed_forward;
  const TensorNames& names = whole.names;
  const std::int64_t d = whole.d_model;
  const Linear::Split by_rows = rank.world_size > 1 ? Linear::Split::column : Linear::Split::none;
  const Namer make(names, index);
  LayerTensors made;
  if (layer.has_pre_norms && layer.has_mixer) made.attention_norm = make.norm(layer.norm, names.attention_norm, d);
  if (layer.has_mixer) add_mixer(make, whole, layer, rank, made);
  if (layer.has_post_norms) {
    made.attention_post_norm = make.norm(layer.norm, names.attention_post_norm, d);
    made.feed_forward_post_norm = make.norm(layer.norm, names.feed_forward_post_norm, d);
  }
  if (!layer.has_feed_forward) return made;
  if (layer.has_pre_norms && !layer.is_parallel) made.feed_forward_norm = make.norm(layer.norm, names.feed_forward_norm, d);
  if (feed_forward.has_experts()) add_experts(make, whole, feed_forward, rank, made);
  const std::int32_t d_ff = feed_forward.common_d_ff();
  if (d_ff == 0) return made;
  made.up = up_tensors(make, whole, feed_forward, rank);
  made.up.split = by_rows;
  made.down = make.split_by_columns(all_rows(feed_forward.has_experts() ? names.shared_down : names.down, d), d_ff,
                                    even_share(d_ff, rank), feed_forward.has_bias, rank);
  return made;
}

MtpTensors mtp_tensors(const ModelSpec& whole) {
  const MtpSpec& spec = *whole.used_mtp();
  ModelSpec named = whole;  // with the layer at its number, and under its names
  if (!spec.root.empty()) named.names.root = spec.root;
  named.layers.resize(spec.number);
  named.layers.push_back(spec.layer);
  const Namer make(named.names, spec.number);
  const std::int64_t d = whole.d_model;
  const Rows projection = all_rows(spec.projection, d);
  const auto half = [&](std::int64_t begin) {
    return make.linear(std::span(&projection, 1), 2 * d, {begin, begin + d}, false);
  };
  return {.embedding_norm = make.norm(spec.norm, spec.embedding_norm, d),
          .hidden_norm = make.norm(spec.norm, spec.hidden_norm, d),
          .of_embedding = half(0),
          .of_hidden = half(d),
          .layer = layer_tensors(named, {}, spec.number),
          .output_norm = make.norm(spec.norm, spec.output_norm, d)};
}

LinearTensors embedding_tensors(const ModelSpec& whole, ModelRank rank) {
  const Rows rows = all_rows(whole.names.embedding, whole.n_vocab);
  return Namer(whole.names, 0).linear(std::span(&rows, 1), whole.d_model, even_share(whole.d_model, rank), false);
}

NormTensors final_norm_tensors(const ModelSpec& whole) {
  return Namer(whole.names, 0).norm(whole.final_norm, whole.names.final_norm, whole.d_model);
}

LinearTensors lm_head_tensors(const ModelSpec& whole, ModelRank rank) {
  const Namer make(whole.names, 0);
  LinearTensors made =
      make.gathered({all_rows(whole.names.lm_head, whole.n_vocab)}, whole.d_model, whole.has_lm_head_bias, rank);
  if (whole.tie_embeddings)
    made.weights = make.gathered({all_rows(whole.names.embedding, whole.n_vocab)}, whole.d_model, false, rank).weights;
  return made;
}

std::set<std::string> unrounded_matrices(const ModelSpec& whole, bool rounds_lm_head) {
  std::set<std::string> names{embedding_tensors(whole, {}).weights.front().tensor.name};
  const auto leave_out = [&](const LayerTensors& layer) {
    for (const TensorPart& router : layer.router.weights) names.insert(router.tensor.name);
    for (const TensorPart& head : layer.keys_of_heads.heads) names.insert(head.tensor.name);
    for (const TensorPart& gate : layer.recurrent_gates.weights) names.insert(gate.tensor.name);
  };
  for (std::size_t i = 0; i < whole.layers.size(); ++i) leave_out(layer_tensors(whole, {}, i));
  if (whole.used_mtp() != nullptr) {
    const MtpTensors mtp = mtp_tensors(whole);
    names.insert(mtp.of_embedding.weights.front().tensor.name);
    leave_out(mtp.layer);
  }
  const std::string lm_head = lm_head_tensors(whole, {}).weights.front().tensor.name;
  if (rounds_lm_head)
    names.erase(lm_head);
  else
    names.insert(lm_head);
  return names;
}

std::vector<TensorPart> tensor_parts(const ModelSpec& whole, ModelRank rank) {
  std::vector<TensorPart> parts;
  for_each_weight(whole, rank, [&](const auto& tensors) { append(parts, tensors); });
  if (whole.tie_embeddings)  // the output layer reads the embedding again
    parts.erase(std::remove_if(parts.begin() + 1, parts.end(),
                               [&](const TensorPart& part) { return part.tensor.name == parts.front().tensor.name; }),
                parts.end());
  return parts;
}

}  // namespace baton
