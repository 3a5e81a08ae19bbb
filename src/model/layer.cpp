/// The attention, recurrent and feed-forward blocks of a layer, operation by operation.
#include "model/layer.h"

#include <algorithm>
#include <array>

namespace baton {
namespace {

/// Where rows that matmuls read are written: in the model's dtype, or in 8 bits with their scales. `wide` and `f8` may be
/// one buffer if there is one reader.
struct RowBuffers {
  const Buffer& wide;
  const Buffer& f8;
  const Buffer& scales;
};

/// Memory for [rows, n] for matmuls by `readers`, without empty ones: in 8 bits if one takes them, and then in the model's
/// dtype, too, if another does not.
MatmulRows rows_for(std::span<const Linear* const> readers, const Workspace& work, const RowBuffers& buffers,
                    const Shape& shape) {
  bool in_8_bits = false;
  bool is_wide = false;
  for (const Linear* const reader : readers) {
    if (reader->is_empty()) continue;
    const bool takes_f8 = work.has_f8_rows && reader->takes_f8(shape[0]);
    in_8_bits = in_8_bits || takes_f8;
    is_wide = is_wide || !takes_f8;
  }
  if (!in_8_bits) return {buffers.wide.view(work.dtype, shape), {}};
  return {buffers.f8.view(DType::f8_e4m3, shape), buffers.scales.view(DType::f32, {shape[0]}),
          is_wide ? buffers.wide.view(work.dtype, shape) : TensorView{}};
}

/// The same for one reader and one buffer.
MatmulRows rows_for(const Linear& reader, const Workspace& work, const Buffer& buffer, const Shape& shape) {
  const Linear* const readers[] = {&reader};
  return rows_for(readers, work, {buffer, buffer, work.row_scales}, shape);
}

/// Adds what the ranks computed, each from some of a matrix's inputs.
void add_ranks(Backend& backend, Linear::Split split, const TensorView& x) {
  if (split == Linear::Split::row) all_reduce(backend, x);
}

/// What the operations of an attention block read and write beside the outputs of matrices.
struct AttentionViews {
  AttentionViews(const LayerStep& step, const LayerSpec& layer) : kv(step.kv_of_group[static_cast<std::size_t>(layer.group)]) {
    const AttentionSpec& spec = layer.attention;
    const Workspace& work = step.work;
    const std::int64_t n_rows = step.x.shape[0];
    const std::size_t rows_bytes = static_cast<std::size_t>(n_rows) * sizeof(TokenRow);
    rows = {step.rows.data + static_cast<std::size_t>(layer.group) * rows_bytes, DType::u8, {n_rows, sizeof(TokenRow)}};
    q = work.q.view(kv->shape().query_dtype(), {n_rows, spec.n_heads, spec.head_dim});
    attended = work.attended.view(work.dtype, {n_rows, spec.n_heads, spec.v_dim()});
    partials = {work.partial_o.view(DType::f32, {work.max_partials, spec.n_heads, spec.v_dim()}),
                work.partial_m.view(DType::f32, {work.max_partials, spec.n_heads}),
                work.partial_l.view(DType::f32, {work.max_partials, spec.n_heads})};
    if (spec.rope != AttentionSpec::kNoRope) rope = work.ropes[static_cast<std::size_t>(spec.rope)];
  }

  KvStorage* kv;
  TensorView rows, q, attended;
  PartialStates partials;
  RopeTable rope;
};

/// Writes queries to `q`, and keys and values to the cache.
void append_keys_and_values(const LayerStep& step, const LayerSpec& layer, const LayerWeights& weights, int index,
                            const MatmulRows& normed, const AttentionViews& views) {
  const AttentionSpec& spec = layer.attention;
  const Workspace& work = step.work;
  const TensorView qkv = work.qkv.view(work.matmul_dtype, {step.x.shape[0], spec.qkv_width()});
  const bool has_ones = spec.qk_norm != QkNorm::none && !spec.has_qk_norm_weights;
  const ConstTensorView ones = has_ones ? ConstTensorView(work.ones.view(DType::f32, {spec.head_dim})) : ConstTensorView{};
  matmul(step.backend, weights.qkv.args(normed, qkv));
  rope_append(step.backend, {qkv, views.q, views.rope, views.rows, step.view, layer.group, index, views.kv,
                             has_ones ? ones : weights.q_norm.weight, has_ones ? ones : weights.k_norm.weight,
                             spec.qk_norm_spec.epsilon, spec.norms_rotated});
}

/// The same of latent attention. Matrices of heads read the dtype of the weights, so other matrices write it for them.
void append_latent(const LayerStep& step, const LayerSpec& layer, const LayerWeights& weights, int index,
                   const MatmulRows& normed, const AttentionViews& views) {
  const AttentionSpec& spec = layer.attention;
  const LatentSpec& latent = *spec.latent;
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const TensorView compressed = work.qkv.view(work.dtype, {n_rows, spec.qkv_width()});
  TensorView queries = compressed;  // at its beginning
  matmul(backend, weights.qkv.args(normed, compressed));
  if (latent.q_rank > 0) {
    const MatmulRows q_normed = rows_for(weights.q_b, work, work.attended, {n_rows, latent.q_rank});
    queries = work.of_heads.view(work.dtype, {n_rows, spec.latent_q_width()});
    norm_columns(backend, {compressed, 0, weights.q_norm.weight, q_normed.values, spec.qk_norm_spec.epsilon, q_normed.scales});
    matmul(backend, weights.q_b.args(q_normed, queries));
  }
  head_matmul(backend, weights.keys_of_heads.args(queries, latent.q_dim(), views.q));
  latent_append(backend, {.x = queries,
                          .x_stride = latent.q_dim(),
                          .x_first = latent.nope_dim,
                          .compressed = compressed,
                          .first = spec.qkv_width() - spec.head_dim,
                          .norm = weights.k_norm.weight,
                          .norm_eps = spec.qk_norm_spec.epsilon,
                          .q = views.q,
                          .rope = views.rope,
                          .pairs_are_neighbours = latent.rotates_neighbours,
                          .rows = views.rows,
                          .step = step.view,
                          .group = layer.group,
                          .layer = index,
                          .kv = views.kv});
}

/// The attention block: computes from `normed`, into `delta`, this rank's part of what attention adds to the residual
/// stream.
void attention_block(const LayerStep& step, const LayerSpec& layer, const LayerWeights& weights, int index,
                     const MatmulRows& normed, const TensorView& delta) {
  const AttentionSpec& spec = layer.attention;
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const AttentionViews views(step, layer);
  if (spec.latent)
    append_latent(step, layer, weights, index, normed, views);
  else
    append_keys_and_values(step, layer, weights, index, normed, views);
  attention(backend, {views.q, views.attended, views.partials, views.rows, step.view, layer.group, index, views.kv, spec.scale,
                      spec.softcap, /*merge=*/true, weights.sinks.weight});
  if (spec.has_output_gate) {
    const TensorView attended{views.attended.data, work.dtype, {n_rows, spec.out_width()}};
    const TensorView gate = work.qkv.view(work.matmul_dtype, attended.shape);
    matmul(backend, weights.attention_gate.args(normed, gate));
    // Queries are not needed any more.
    const Linear* const readers[] = {&weights.attention_out};
    const MatmulRows gated = rows_for(readers, work, {work.attended, work.q, work.row_scales}, attended.shape);
    sigmoid_gate(backend, {attended, gate, gated.values, gated.scales});
    return matmul(backend, weights.attention_out.args(gated, delta));
  }
  ConstTensorView out{views.attended.data, work.dtype, {n_rows, spec.n_heads * spec.v_dim()}};
  if (spec.latent) {
    const TensorView values = work.of_heads.view(work.dtype, {n_rows, spec.n_heads, spec.out_dim()});
    head_matmul(backend, weights.values_of_heads.args(out, spec.v_dim(), values));
    out = {values.data, work.dtype, {n_rows, spec.out_width()}};
  }
  matmul(backend, weights.attention_out.args(out, delta));
}

/// A gated short convolution, as attention_block.
void conv_block(const LayerStep& step, const ShortConvSpec& spec, const LayerWeights& weights, int index,
                const MatmulRows& normed, const TensorView& delta) {
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const TensorView in = work.qkv.view(work.matmul_dtype, {n_rows, 3LL * spec.n_channels});
  const TensorView mixed = work.attended.view(work.dtype, {n_rows, spec.n_channels});
  const ConstTensorView taps{weights.conv.weight.data, DType::f32, {spec.n_channels, spec.n_taps}};
  matmul(backend, weights.recurrent_in.args(normed, in));
  short_conv(backend, {.state = {step.view, index, step.states},
                       .x = in,
                       .weight = taps,
                       .out = mixed,
                       .bias = weights.conv_bias.weight,
                       .kind = ConvKind::gated});
  matmul(backend, weights.attention_out.args(mixed, delta));
}

/// The end of a recurrent block: `norm`, whose `out` is not set yet, then the last matrix.
void project_normed(const LayerStep& step, const LayerWeights& weights, GatedNormArgs norm, const TensorView& delta) {
  const Shape shape{norm.x.shape[0], norm.x.shape[1] * norm.x.shape[2]};
  const MatmulRows rows = rows_for(weights.attention_out, step.work, step.work.attended, shape);
  const bool in_8_bits = rows.scales.data != nullptr;
  norm.out = {rows.values.data, rows.values.dtype, in_8_bits ? shape : norm.x.shape};
  norm.out_scales = rows.scales;
  gated_norm(step.backend, norm);
  matmul(step.backend, weights.attention_out.args(rows, delta));
}

/// Mamba-2, as attention_block. The first matrix writes the gate, the convolution's inputs and the time steps, in this order.
void mamba2_block(const LayerStep& step, const Mamba2Spec& spec, const LayerWeights& weights, int index,
                  const MatmulRows& normed, const TensorView& delta) {
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const StateArgs state{step.view, index, step.states};
  const TensorView in = work.qkv.view(work.matmul_dtype, {n_rows, spec.in_width()});
  const TensorView xbc = work.conv_out.view(work.matmul_dtype, {n_rows, spec.conv_width()});
  const TensorView out = work.recurrent_out.view(work.matmul_dtype, {n_rows, spec.n_heads, spec.head_dim});
  const Shape in_groups{n_rows, spec.n_norm_groups, spec.inner_width() / spec.n_norm_groups};
  const ConstTensorView taps{weights.conv.weight.data, DType::f32, {spec.conv_width(), spec.n_taps}};
  matmul(backend, weights.recurrent_in.args(normed, in));
  short_conv(backend, {state, in, taps, xbc, spec.inner_width(), weights.conv_bias.weight});
  mamba2_scan(backend, {state, xbc, spec.n_groups, in, spec.inner_width() + spec.conv_width(), weights.a_log.weight,
                        weights.dt_bias.weight, weights.skip.weight, out});
  const GatedNormArgs norm{.x = {out.data, out.dtype, in_groups},
                           .gate = in,
                           .weight = weights.recurrent_norm.weight,
                           .out = {},
                           .eps = spec.norm.epsilon,
                           .order = GatedNormOrder::gate_first};
  project_normed(step, weights, norm, delta);
}

/// Gated DeltaNet, as attention_block.
void delta_block(const LayerStep& step, const GatedDeltaSpec& spec, const LayerWeights& weights, int index,
                 const MatmulRows& normed, const TensorView& delta) {
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const StateArgs state{step.view, index, step.states};
  const TensorView in = work.qkv.view(work.matmul_dtype, {n_rows, spec.in_width()});
  const TensorView gates = work.recurrent_gates.view(DType::f32, {n_rows, 2LL * spec.n_heads});
  const TensorView qkv = work.conv_out.view(work.matmul_dtype, {n_rows, spec.qkv_width()});
  const TensorView out = work.recurrent_out.view(work.matmul_dtype, {n_rows, spec.n_heads, spec.value_dim});
  const ConstTensorView taps{weights.conv.weight.data, DType::f32, {spec.qkv_width(), spec.n_taps}};
  matmul(backend, weights.recurrent_in.args(normed, in));
  matmul(backend, weights.recurrent_gates.args(normed, gates));
  short_conv(backend, {state, in, taps, qkv});
  gated_delta_rule(backend, {state, qkv, spec.n_key_heads, gates, weights.a_log.weight, weights.dt_bias.weight, out});
  const GatedNormArgs norm{.x = out,
                           .gate = in,
                           .first = spec.qkv_width(),
                           .weight = weights.recurrent_norm.weight,
                           .out = {},
                           .eps = spec.norm.epsilon};
  project_normed(step, weights, norm, delta);
}

/// The layer's first block.
void mixer_block(const LayerStep& step, const LayerSpec& layer, const LayerWeights& weights, int index,
                 const MatmulRows& normed, const TensorView& delta) {
  if (layer.delta) return delta_block(step, *layer.delta, weights, index, normed, delta);
  if (layer.conv) return conv_block(step, *layer.conv, weights, index, normed, delta);
  if (layer.mamba2) return mamba2_block(step, *layer.mamba2, weights, index, normed, delta);
  attention_block(step, layer, weights, index, normed, delta);
}

/// The formula of a gated block.
GateKind gate_of(FeedForwardSpec::Kind kind) {
  using Kind = FeedForwardSpec::Kind;
  switch (kind) {
    case Kind::gated_silu: return GateKind::silu;
    case Kind::gated_gelu: return GateKind::gelu;
    case Kind::gated_gelu_tanh: return GateKind::gelu_tanh;
    case Kind::gated_clamped_silu: return GateKind::clamped_silu;
    case Kind::gelu:
    case Kind::gelu_tanh:
    case Kind::relu_squared: break;
  }
  check_failed("gate_of: the block has no gate");
}

/// The formula of a block without a gate.
ActivationKind activation_of(FeedForwardSpec::Kind kind) {
  using Kind = FeedForwardSpec::Kind;
  if (kind == Kind::gelu) return ActivationKind::gelu;
  return kind == Kind::gelu_tanh ? ActivationKind::gelu_tanh : ActivationKind::relu_squared;
}

/// For the operation gated_activation of a gated block.
GatedActivationArgs gated_args(const FeedForwardSpec& spec, const TensorView& up, const MatmulRows& activated) {
  return {up, activated.values, gate_of(spec.kind), activated.scales, spec.gate_alpha, spec.gate_limit};
}

/// `activated` is in 8 bits only if the activation is gated.
void activate(const LayerStep& step, const FeedForwardSpec& spec, const TensorView& up, const MatmulRows& activated) {
  if (spec.is_gated()) return gated_activation(step.backend, gated_args(spec, up, activated));
  activation(step.backend, {up, activated.values, activation_of(spec.kind)});
}

/// One feed-forward block for all rows, d_ff wide: computes from `normed` into `out`.
void common_block(const LayerStep& step, const FeedForwardSpec& spec, const LayerWeights& weights, const MatmulRows& normed,
                  const TensorView& out) {
  const Workspace& work = step.work;
  const std::int64_t n_rows = step.x.shape[0];
  const std::int32_t d_ff = spec.common_d_ff();
  const TensorView up = work.up.view(work.matmul_dtype, {n_rows, spec.up_width_of(d_ff)});
  const Linear* const down = &weights.down;
  const std::span<const Linear* const> readers(&down, spec.is_gated() ? 1 : 0);
  const MatmulRows activated = rows_for(readers, work, {work.activated, work.activated, work.row_scales}, {n_rows, d_ff});
  if (spec.is_gated()) {
    gated_matmul(step.backend, {weights.up.args(normed, up), gated_args(spec, up, activated)});
  } else {
    matmul(step.backend, weights.up.args(normed, up));
    activate(step, spec, up, activated);
  }
  matmul(step.backend, weights.down.args(activated, out));
}

/// Multiplies each row by the weight of its one expert, and makes this weight 1.
TensorView weighed_rows(const LayerStep& step, const TensorView& normed, ExpertChoices& choices) {
  const Workspace& work = step.work;
  const std::int64_t n_rows = step.x.shape[0];
  const TensorView weighed = work.weighed.view(work.dtype, normed.shape);
  ExpertChoices of_itself = choices;  // a sum of one term: the row itself
  of_itself.places = work.row_numbers.view(DType::i32, {n_rows, 1});
  combine_experts(step.backend, {normed, of_itself, weighed});
  choices.weights = work.ones.view(DType::f32, {n_rows, 1});
  return weighed;
}

/// The feed-forward block with experts, as feed_forward_block. The shared expert's output waits in `delta` for the others'.
void experts_block(const LayerStep& step, const FeedForwardSpec& spec, const LayerWeights& weights, const TensorView& normed,
                   const TensorView& delta) {
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const std::int64_t n_places = n_rows * spec.n_experts_per_row;
  const TensorView logits = work.router_logits.view(DType::f32, {n_rows, spec.n_router_logits()});
  ExpertChoices choices = work.expert_choices(spec, n_rows);
  const TensorView up = work.up.view(work.matmul_dtype, {n_places, spec.up_width()});
  const MatmulRows activated{work.activated.view(work.dtype, {n_places, spec.d_ff}), {}};
  const TensorView of_experts = work.expert_out.view(work.matmul_dtype, {n_places, step.x.shape[1]});
  if (spec.has_shared_expert()) common_block(step, spec, weights, {normed, {}}, delta);
  weights.router.apply_gathered(backend, normed, work.rank_parts(n_rows, weights.router.n_out()), logits);
  route_experts(backend, {step.view, logits, choices, spec.routing, weights.choice_bias.weight});
  const TensorView read = spec.weighs_inputs ? weighed_rows(step, normed, choices) : normed;
  grouped_matmul(backend, weights.expert_up.args(read, choices, /*is_sorted=*/false, up));
  activate(step, spec, up, activated);
  grouped_matmul(backend, weights.expert_down.args(activated.values, choices, /*is_sorted=*/true, of_experts));
  combine_experts(backend, {of_experts, choices, delta, spec.has_shared_expert() ? delta : TensorView{},
                            spec.has_shared_gate ? logits : TensorView{}});
}

/// The feed-forward block: computes from `normed`, into `delta`, this rank's part of what it adds to the residual
/// stream.
void feed_forward_block(const LayerStep& step, const FeedForwardSpec& spec, const LayerWeights& weights,
                        const MatmulRows& normed, const TensorView& delta) {
  if (spec.has_experts()) return experts_block(step, spec, weights, normed.values, delta);
  common_block(step, spec, weights, normed, delta);
}

/// How the last matrix of the feed-forward block is split.
Linear::Split split_of_down(const LayerWeights& weights) {
  return weights.expert_down.is_empty() ? weights.down.split() : weights.expert_down.split();
}

}  // namespace

MatmulRows run_norm(const LayerStep& step, const NormSpec& spec, const NormWeights& weights, const Deltas& added,
                    std::span<const Linear* const> readers) {
  const bool is_rms = spec.kind == NormSpec::Kind::rms || weights.weight.data == nullptr;
  if (!is_rms) readers = {};
  const Workspace& work = step.work;
  const MatmulRows normed = rows_for(readers, work, {work.normed, work.normed_f8, work.norm_scales}, step.x.shape);
  if (is_rms)
    rms_norm(step.backend, {step.x, added, weights.weight, normed.values, spec.epsilon, normed.scales, normed.wide});
  else
    layer_norm(step.backend, {step.x, added, weights.weight, weights.bias, normed.values, spec.epsilon});
  return normed;
}

Deltas run_layer(const LayerStep& step, const LayerSpec& spec, const LayerWeights& weights, int index, const Deltas& added) {
  // Experts and their router read 16 or 32 bits.
  const std::array<const Linear*, 5> readers{&weights.qkv, &weights.attention_gate, &weights.recurrent_in,
                                             &weights.recurrent_gates, &weights.up};
  const bool has_experts = spec.feed_forward.has_experts();
  const auto of_mixer = std::span(readers).first(!spec.is_parallel ? 4 : has_experts ? 0 : 5);
  const std::int64_t n_rows = step.x.shape[0];
  const std::int64_t d = step.x.shape[1];
  const float scale = spec.residual_scale;
  const Workspace& work = step.work;
  if (spec.is_parallel) {
    const MatmulRows normed = run_norm(step, spec.norm, weights.attention_norm, added, of_mixer);
    // Both blocks' outputs lie one after the other, so that ranks add them in one call.
    const TensorView both = work.delta.view(work.matmul_dtype, {2 * n_rows, d});
    const TensorView attended = both.rows(0, n_rows);
    const TensorView fed = both.rows(n_rows, 2 * n_rows);
    mixer_block(step, spec, weights, index, normed, attended);
    feed_forward_block(step, spec.feed_forward, weights, normed, fed);
    add_ranks(step.backend, weights.attention_out.split(), both);
    return {attended, fed, scale, {}};
  }
  const TensorView delta = work.delta.view(work.matmul_dtype, {n_rows, d});
  Deltas from_mixer = added;
  if (spec.has_mixer) {
    const MatmulRows normed = run_norm(step, spec.norm, weights.attention_norm, added, of_mixer);
    mixer_block(step, spec, weights, index, normed, delta);
    add_ranks(step.backend, weights.attention_out.split(), delta);
    from_mixer = {delta, {}, scale, weights.attention_post_norm.weight, spec.norm.epsilon};
  }
  if (!spec.has_feed_forward) return from_mixer;
  const MatmulRows fed =
      run_norm(step, spec.norm, weights.feed_forward_norm, from_mixer, std::span(readers).last(has_experts ? 0 : 1));
  feed_forward_block(step, spec.feed_forward, weights, fed, delta);
  add_ranks(step.backend, split_of_down(weights), delta);
  return {delta, {}, scale, weights.feed_forward_post_norm.weight, spec.norm.epsilon};
}

}  // namespace baton
