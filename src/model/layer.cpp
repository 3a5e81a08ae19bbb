/// The attention and feed-forward blocks of a layer, operation by operation.
#include "model/layer.h"

namespace baton {
namespace {

/// Adds what the ranks computed, each from some of a matrix's inputs.
void add_ranks(Backend& backend, Linear::Split split, const TensorView& x) {
  if (split == Linear::Split::row) all_reduce(backend, x);
}

/// The attention block: computes from step.normed, into `delta`, this rank's part of what attention adds to the residual
/// stream.
void attention_block(const LayerStep& step, const LayerSpec& layer, const LayerWeights& weights, int index,
                     const TensorView& delta) {
  const AttentionSpec& spec = layer.attention;
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const auto group = static_cast<std::size_t>(layer.group);
  KvStorage* const kv = step.kv_of_group[group];
  const std::int64_t n_rows = step.x.shape[0];
  const TensorView rows{
      step.rows.data + group * static_cast<std::size_t>(n_rows) * sizeof(TokenRow), DType::u8, {n_rows, sizeof(TokenRow)}};
  const TensorView qkv = work.qkv.view(work.matmul_dtype, {n_rows, spec.qkv_width()});
  const TensorView q = work.q.view(kv->shape().query_dtype(), {n_rows, spec.n_heads, spec.head_dim});
  const TensorView attended = work.attended.view(work.dtype, {n_rows, spec.n_heads, spec.head_dim});
  const PartialStates partials{work.partial_o.view(DType::f32, {work.max_partials, spec.n_heads, spec.head_dim}),
                               work.partial_m.view(DType::f32, {work.max_partials, spec.n_heads}),
                               work.partial_l.view(DType::f32, {work.max_partials, spec.n_heads})};
  const RopeTable rope = spec.rope == AttentionSpec::kNoRope ? RopeTable{} : work.ropes[static_cast<std::size_t>(spec.rope)];
  matmul(backend, weights.qkv.args(step.normed, qkv));
  rope_append(backend, {qkv, q, rope, rows, step.view, layer.group, index, kv, weights.q_norm.weight, weights.k_norm.weight,
                        spec.qk_norm_spec.epsilon});
  attention(backend, {q, attended, partials, rows, step.view, layer.group, index, kv, spec.scale, spec.softcap,
                      /*merge=*/true});
  matmul(backend, weights.attention_out.args({attended.data, work.dtype, {n_rows, spec.q_width()}}, delta));
}

void activate(const LayerStep& step, FeedForwardSpec::Kind kind, const TensorView& up, const TensorView& activated) {
  using Kind = FeedForwardSpec::Kind;
  switch (kind) {
    case Kind::gated_silu: return gated_activation(step.backend, {up, activated, GateKind::silu});
    case Kind::gated_gelu: return gated_activation(step.backend, {up, activated, GateKind::gelu});
    case Kind::gated_gelu_tanh: return gated_activation(step.backend, {up, activated, GateKind::gelu_tanh});
    case Kind::gelu: return gelu(step.backend, {up, activated, GeluKind::exact});
    case Kind::gelu_tanh: return gelu(step.backend, {up, activated, GeluKind::tanh});
  }
}

/// The feed-forward block with experts, as feed_forward_block.
void experts_block(const LayerStep& step, const FeedForwardSpec& spec, const LayerWeights& weights, const TensorView& delta) {
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const std::int64_t n_places = n_rows * spec.n_experts_per_row;
  const TensorView logits = work.router_logits.view(DType::f32, {n_rows, spec.n_experts});
  const ExpertChoices choices = work.expert_choices(spec, n_rows);
  const TensorView up = work.up.view(work.matmul_dtype, {n_places, spec.up_width()});
  const TensorView activated = work.activated.view(work.dtype, {n_places, spec.d_ff});
  const TensorView of_experts = work.expert_out.view(work.matmul_dtype, {n_places, step.x.shape[1]});
  weights.router.apply_gathered(backend, step.normed, work.rank_parts(n_rows, weights.router.n_out()), logits);
  route_experts(backend, {step.view, logits, choices, spec.weighs_chosen_experts ? ExpertSoftmax::chosen : ExpertSoftmax::all});
  grouped_matmul(backend, weights.expert_up.args(step.normed, choices, /*is_sorted=*/false, up));
  activate(step, spec.kind, up, activated);
  grouped_matmul(backend, weights.expert_down.args(activated, choices, /*is_sorted=*/true, of_experts));
  combine_experts(backend, {of_experts, choices, delta});
}

/// The feed-forward block: computes from step.normed, into `delta`, this rank's part of what it adds to the residual
/// stream.
void feed_forward_block(const LayerStep& step, const FeedForwardSpec& spec, const LayerWeights& weights,
                        const TensorView& delta) {
  if (spec.has_experts()) return experts_block(step, spec, weights, delta);
  const Workspace& work = step.work;
  Backend& backend = step.backend;
  const std::int64_t n_rows = step.x.shape[0];
  const TensorView up = work.up.view(work.matmul_dtype, {n_rows, spec.up_width()});
  const TensorView activated = work.activated.view(work.dtype, {n_rows, spec.d_ff});
  matmul(backend, weights.up.args(step.normed, up));
  activate(step, spec.kind, up, activated);
  matmul(backend, weights.down.args(activated, delta));
}

/// How the last matrix of the feed-forward block is split.
Linear::Split split_of_down(const LayerWeights& weights) {
  return weights.expert_down.is_empty() ? weights.down.split() : weights.expert_down.split();
}

}  // namespace

void run_norm(const LayerStep& step, const NormSpec& spec, const NormWeights& weights, const Deltas& added) {
  if (spec.kind == NormSpec::Kind::rms || weights.weight.data == nullptr)
    return rms_norm(step.backend, {step.x, added, weights.weight, step.normed, spec.epsilon});
  return layer_norm(step.backend, {step.x, added, weights.weight, weights.bias, step.normed, spec.epsilon});
}

Deltas run_layer(const LayerStep& step, const LayerSpec& spec, const LayerWeights& weights, int index, const Deltas& added) {
  run_norm(step, spec.norm, weights.attention_norm, added);
  const std::int64_t n_rows = step.x.shape[0];
  const std::int64_t d = step.x.shape[1];
  const float scale = spec.residual_scale;
  const Workspace& work = step.work;
  if (spec.is_parallel) {
    // Both blocks' outputs lie one after the other, so that ranks add them in one call.
    const TensorView both = work.delta.view(work.matmul_dtype, {2 * n_rows, d});
    const TensorView attended = both.rows(0, n_rows);
    const TensorView fed = both.rows(n_rows, 2 * n_rows);
    attention_block(step, spec, weights, index, attended);
    feed_forward_block(step, spec.feed_forward, weights, fed);
    add_ranks(step.backend, weights.attention_out.split(), both);
    return {attended, fed, scale, {}};
  }
  const TensorView delta = work.delta.view(work.matmul_dtype, {n_rows, d});
  attention_block(step, spec, weights, index, delta);
  add_ranks(step.backend, weights.attention_out.split(), delta);
  run_norm(step, spec.norm, weights.feed_forward_norm,
           {delta, {}, scale, weights.attention_post_norm.weight, spec.norm.epsilon});
  feed_forward_block(step, spec.feed_forward, weights, delta);
  add_ranks(step.backend, split_of_down(weights), delta);
  return {delta, {}, scale, weights.feed_forward_post_norm.weight, spec.norm.epsilon};
}

}  // namespace baton
