/// Checks the arguments of every operation and calls the backend.
#include "kernels/ops.h"

#include "kernels/backend.h"

namespace baton {
namespace {

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

void check_shape(const ConstTensorView& tensor, const Shape& expected, std::string_view name) {
  check(tensor.shape == expected,
        [&] { return std::string(name) + " has shape " + to_string(tensor.shape) + ", expected " + to_string(expected); });
  check(tensor.data != nullptr || tensor.shape.n_elements() == 0, [&] { return std::string(name) + " has no memory"; });
}

void check_float(const ConstTensorView& tensor, std::string_view name) {
  check(is_float(tensor.dtype),
        [&] { return std::string(name) + " must be f32, bf16 or f16, is " + std::string(to_string(tensor.dtype)); });
}

void check_dtype(const ConstTensorView& tensor, DType expected, std::string_view name) {
  check(tensor.dtype == expected, [&] {
    return std::string(name) + " must be " + std::string(to_string(expected)) + ", is " + std::string(to_string(tensor.dtype));
  });
}

void check_group(const StepView& step, int group, const KvStorage* kv, int layer) {
  check(group >= 0 && group < step.header->n_groups, "the layer group is not in the step");
  check(kv != nullptr && layer >= 0 && layer < kv->shape().n_layers, "the layer is not in the KV storage");
}

void check_partials(const PartialStates& partials, std::int64_t n_heads, std::int64_t head_dim, std::int32_t n_needed) {
  if (n_needed == 0) return;
  check(partials.o.shape.rank() == 3 && partials.o.shape[0] >= n_needed, "fewer partial states than the plan writes");
  const std::int64_t n = partials.o.shape[0];
  check_shape(partials.o, {n, n_heads, head_dim}, "partial o");
  check_shape(partials.m, {n, n_heads}, "partial m");
  check_shape(partials.l, {n, n_heads}, "partial l");
  for (const TensorView& part : {partials.o, partials.m, partials.l}) check_dtype(part, DType::f32, "a partial state");
}

void check_sinks(const ConstTensorView& sinks, std::int64_t n_heads) {
  if (sinks.data == nullptr) return;
  check_dtype(sinks, DType::f32, "attention sinks");
  check_shape(sinks, {n_heads}, "attention sinks");
}

bool overlap(const ConstTensorView& a, const ConstTensorView& b) {
  return a.data < b.data + b.size_bytes() && b.data < a.data + a.size_bytes();
}

/// Memory of its own, or exactly that of x.
void check_in_place(const ConstTensorView& x, const ConstTensorView& out, std::string_view name) {
  check(!overlap(x, out) || (x.data == out.data && x.dtype == out.dtype),
        [&] { return std::string(name) + ": out overlaps x, and is not x"; });
}

/// Rows in float without scales, or in 8 bits with them.
void check_rows(const ConstTensorView& rows, const ConstTensorView& scales, std::string_view name) {
  check((rows.dtype == DType::f8_e4m3) == (scales.data != nullptr) || rows.shape.n_elements() == 0,
        [&] { return std::string(name) + " in 8 bits without scales, or the reverse"; });
  if (rows.dtype != DType::f8_e4m3) return check_float(rows, name);
  check_dtype(scales, DType::f32, std::string(name) + " scales");
  check_shape(scales, {rows.shape[0]}, std::string(name) + " scales");
  check(rows.shape[1] % kF8RowStep == 0, [&] { return std::string(name) + " in 8 bits must have a multiple of 16 columns"; });
}

/// The checks that all norms have in common, but for the dtype of `out`.
template <class Args>
void check_norm(const Args& args) {
  check(args.x.shape.rank() == 2, "norm: x [rows, d]");
  check_dtype(args.x, DType::f32, "norm x");
  const Deltas& deltas = args.deltas;
  check(deltas.second.data == nullptr || deltas.first.data != nullptr, "norm: a second delta without a first");
  for (const ConstTensorView& delta : {deltas.first, deltas.second}) {
    if (delta.data == nullptr) continue;
    check_float(delta, "norm delta");
    check_dtype(delta, deltas.first.dtype, "norm second delta");
    check_shape(delta, args.x.shape, "norm delta");
    check(!overlap(delta, args.out), "norm: out overlaps delta");
  }
  if (args.weight.data != nullptr) {
    check_dtype(args.weight, DType::f32, "norm weight");
    check_shape(args.weight, {args.x.shape[1]}, "norm weight");
  }
  check_shape(args.out, args.x.shape, "norm out");
  check(!overlap(args.x, args.out), "norm: out overlaps x");
  check(args.eps >= 0, "norm: eps is negative");
}

/// The table and the factors of positions, for heads of which at most `most` elements are rotated.
void check_rope(const RopeTable& rope, std::int64_t most, std::string_view name) {
  const auto failed = [&](const char* what) { return [=] { return std::string(name) + what; }; };
  if (rope.cos.data != nullptr) {
    check(rope.cos.shape.rank() == 2 && rope.cos.shape == rope.sin.shape,
          failed(": cos and sin [n_positions, rotary_dim / 2]"));
    check(2 * rope.cos.shape[1] <= most, failed(": the rotary dimension exceeds the head's"));
    check_dtype(rope.cos, DType::f32, "cos of a rotation");
    check_dtype(rope.sin, DType::f32, "sin of a rotation");
  }
  if (rope.q_factor.data == nullptr) return;
  check(rope.cos.data != nullptr, failed(": q_factor without cos"));
  check_shape(rope.q_factor, {rope.cos.shape[0]}, "q_factor of a rotation");
  check_dtype(rope.q_factor, DType::f32, "q_factor of a rotation");
}

/// The weights of the norms of queries and keys, both over a head or both over all heads.
void check_head_norms(const RopeAppendArgs& args, std::int64_t n_kv_heads) {
  check((args.q_norm.data == nullptr) == (args.k_norm.data == nullptr), "rope_append: q_norm without k_norm or the reverse");
  check(!args.norms_rotated || (args.q_norm.data != nullptr && args.rope.cos.data != nullptr),
        "rope_append: norms of rotated heads without norms or rotation");
  if (args.q_norm.data == nullptr) return;
  check_dtype(args.q_norm, DType::f32, "rope_append q_norm");
  check_dtype(args.k_norm, DType::f32, "rope_append k_norm");
  const std::int64_t head_dim = args.q.shape[2];
  const bool is_of_heads = args.q_norm.shape == Shape{head_dim} && args.k_norm.shape == Shape{head_dim};
  check_shape(args.q_norm, {is_of_heads ? head_dim : args.q.shape[1] * head_dim}, "rope_append q_norm");
  check_shape(args.k_norm, {is_of_heads ? head_dim : n_kv_heads * head_dim}, "rope_append k_norm");
  check(args.norm_eps >= 0, "rope_append: norm_eps is negative");
  check(!args.norms_rotated || is_of_heads, "rope_append: norms of rotated heads are over each head");
}

void check_choices(const ExpertChoices& choices, std::int64_t n_rows, std::int64_t n_experts) {
  check(choices.experts.shape.rank() == 2, "expert choices: experts [rows, n_chosen]");
  const std::int64_t n_chosen = choices.experts.shape[1];
  check(n_chosen >= 1 && n_chosen <= kMaxExpertsPerRow && n_chosen <= n_experts && n_experts <= kMaxExperts,
        "expert choices: more experts than a row or a layer may have");
  for (const TensorView& of_row : {choices.experts, choices.weights, choices.places})
    check_shape(of_row, {n_rows, n_chosen}, "expert choices of rows");
  check_shape(choices.rows, {n_rows * n_chosen}, "expert choices: rows");
  check_shape(choices.offsets, {n_experts + 1}, "expert choices: offsets");
  check_dtype(choices.weights, DType::f32, "expert weights");
  for (const TensorView& indices : {choices.experts, choices.places, choices.rows, choices.offsets})
    check_dtype(indices, DType::i32, "expert choices");
}

void check_states(const StateArgs& args, std::int64_t n_rows, std::string_view name) {
  check(args.storage != nullptr && args.layer >= 0 && args.layer < args.storage->shape().n_layers,
        [&] { return std::string(name) + ": the layer is not in the storage of states"; });
  check(n_rows >= args.step.header->n_rows, [&] { return std::string(name) + ": fewer rows than the step has"; });
}

/// Rows that matrices are updated with are outputs of the convolution, and kept as such.
void check_kept_width(const StateShape& states, std::int64_t width, std::string_view name) {
  check(states.n_kept_rows == 0 || width == states.n_channels,
        [&] { return std::string(name) + ": drafts cannot be kept, because the convolution has other channels"; });
}

void check_matmul(const MatmulArgs& args) {
  check(args.weight != nullptr, "matmul: no weight");
  check(args.x.shape.rank() == 2, "matmul: x [rows, k]");
  if (args.x.dtype == DType::f8_e4m3)
    check(args.x.shape[0] >= args.weight->fewest_f8_rows, "matmul: the weight does not take so few rows of x in 8 bits");
  else
    check_dtype(args.x, args.weight->dtype, "matmul x");
  check_rows(args.x, args.x_scales, "matmul x");
  check_shape(args.x, {args.x.shape[0], args.weight->k}, "matmul x");
  check_float(args.out, "matmul out");
  check_shape(args.out, {args.x.shape[0], args.weight->n}, "matmul out");
  check(!overlap(args.x, args.out), "matmul: out overlaps x");
  if (args.bias.data != nullptr) {
    check_float(args.bias, "matmul bias");
    check_shape(args.bias, {args.weight->n}, "matmul bias");
  }
}

void check_gated_activation(const GatedActivationArgs& args) {
  check(args.out.shape.rank() == 2, "gated_activation: out [rows, n]");
  check_float(args.gate_up, "gated_activation gate_up");
  check_rows(args.out, args.out_scales, "gated_activation out");
  check_shape(args.gate_up, {args.out.shape[0], 2 * args.out.shape[1]}, "gated_activation gate_up");
  check(!overlap(args.gate_up, args.out), "gated_activation: out overlaps gate_up");
  check(args.kind != GateKind::clamped_silu || args.limit > 0, "gated_activation: clamped_silu needs a limit");
}

}  // namespace

void resolve_rows(Backend& backend, const ResolveRowsArgs& args) {
  const std::int64_t n_rows = args.step.header->n_rows;
  check_shape(args.token_ids, {n_rows}, "token_ids");
  check_dtype(args.token_ids, DType::i32, "token_ids");
  check(args.slots.shape.rank() == 2 && args.slots.shape[1] == sizeof(SlotState),
        "slots must be u8 [n_slots, sizeof(SlotState)]");
  check_shape(args.rows, {args.step.header->n_groups, n_rows, sizeof(TokenRow)}, "rows");
  backend.resolve_rows(args);
}

void embedding(Backend& backend, const EmbeddingArgs& args) {
  check(args.table.shape.rank() == 2 && args.token_ids.shape.rank() == 1, "embedding: table [n_vocab, d], token_ids [rows]");
  check_float(args.table, "embedding table");
  check_dtype(args.token_ids, DType::i32, "token_ids");
  check_dtype(args.out, DType::f32, "embedding out");
  check_shape(args.out, {args.token_ids.shape[0], args.table.shape[1]}, "embedding out");
  backend.embedding(args);
}

void rms_norm(Backend& backend, const RmsNormArgs& args) {
  check_norm(args);
  check_rows(args.out, args.out_scales, "rms_norm out");
  if (args.wide_out.data != nullptr) {
    check(args.out.dtype == DType::f8_e4m3, "rms_norm: wide_out without out in 8 bits");
    check_float(args.wide_out, "rms_norm wide_out");
    check_shape(args.wide_out, args.x.shape, "rms_norm wide_out");
    for (const ConstTensorView& other :
         {ConstTensorView(args.out), ConstTensorView(args.x), args.deltas.first, args.deltas.second})
      check(!overlap(args.wide_out, other), "rms_norm: wide_out overlaps another tensor");
  }
  if (const Deltas& deltas = args.deltas; deltas.norm_weight.data != nullptr) {
    check((deltas.first.data != nullptr || args.x.shape[0] == 0) && deltas.second.data == nullptr,
          "rms_norm: the norm of a delta needs one delta");
    check_dtype(deltas.norm_weight, DType::f32, "rms_norm: weight of the delta's norm");
    check_shape(deltas.norm_weight, {args.x.shape[1]}, "rms_norm: weight of the delta's norm");
    check(deltas.norm_eps >= 0, "rms_norm: eps of the delta's norm is negative");
  }
  backend.rms_norm(args);
}

void layer_norm(Backend& backend, const LayerNormArgs& args) {
  check_norm(args);
  check_float(args.out, "layer_norm out");
  check(args.weight.data != nullptr, "layer_norm: no weight");
  check(args.deltas.norm_weight.data == nullptr, "layer_norm: the norm of a delta");
  if (args.bias.data != nullptr) {
    check_dtype(args.bias, DType::f32, "layer_norm bias");
    check_shape(args.bias, args.weight.shape, "layer_norm bias");
  }
  backend.layer_norm(args);
}

void gather_rows(Backend& backend, const GatherRowsArgs& args) {
  check(args.in.shape.rank() == 2 && args.in.shape[0] == args.step.header->n_rows, "gather_rows: in [n_rows, d]");
  check_shape(args.out, {args.step.n_samples(), args.in.shape[1]}, "gather_rows out");
  check_dtype(args.out, args.in.dtype, "gather_rows out");
  check(!overlap(args.in, args.out), "gather_rows: out overlaps in");
  backend.gather_rows(args);
}

void matmul(Backend& backend, const MatmulArgs& args) {
  check_matmul(args);
  backend.matmul(args);
}

void rope_append(Backend& backend, const RopeAppendArgs& args) {
  check_group(args.step, args.group, args.kv, args.layer);
  const std::int64_t n_rows = args.step.header->n_rows;
  const KvShape& kv = args.kv->shape();
  check(kv.has_values(), "rope_append: a storage without values");
  check(args.q.shape.rank() == 3 && args.q.shape[2] == kv.head_dim, "rope_append: q [rows, n_heads, head_dim]");
  check_float(args.q, "rope_append q");
  check_float(args.qkv, "rope_append qkv");
  check_shape(args.q, {n_rows, args.q.shape[1], kv.head_dim}, "rope_append q");
  check_shape(args.qkv, {n_rows, (args.q.shape[1] + 2LL * kv.n_kv_heads) * kv.head_dim}, "rope_append qkv");
  check_shape(args.rows, {n_rows, sizeof(TokenRow)}, "rope_append rows");
  check_rope(args.rope, kv.head_dim, "rope_append");
  check_head_norms(args, kv.n_kv_heads);
  check(!overlap(args.q, args.qkv), "rope_append: q overlaps qkv");
  backend.rope_append(args);
}

void norm_columns(Backend& backend, const NormColumnsArgs& args) {
  check(args.x.shape.rank() == 2 && args.out.shape.rank() == 2, "norm_columns: x and out have two dimensions");
  check_float(args.x, "norm_columns x");
  check_rows(args.out, args.out_scales, "norm_columns out");
  check(args.out.shape[0] == args.x.shape[0] && args.first >= 0 && args.first + args.out.shape[1] <= args.x.shape[1],
        "norm_columns: out has other rows than x, or more columns");
  check_dtype(args.weight, DType::f32, "norm_columns weight");
  check_shape(args.weight, {args.out.shape[1]}, "norm_columns weight");
  check(args.eps >= 0, "norm_columns: eps is negative");
  check(!overlap(args.x, args.out), "norm_columns: out overlaps x");
  backend.norm_columns(args);
}

void head_matmul(Backend& backend, const HeadMatmulArgs& args) {
  check(args.weights != nullptr, "head_matmul: no weights");
  const PackedHeads& weights = *args.weights;
  check(args.x.shape.rank() == 2 && args.out.shape.rank() == 3, "head_matmul: x [rows, n], out [rows, n_heads, n]");
  check_dtype(args.x, weights.dtype, "head_matmul x");
  check_float(args.out, "head_matmul out");
  check(args.x_stride >= weights.k && args.x.shape[1] >= weights.n_heads * args.x_stride, "head_matmul: x has too few columns");
  check_shape(args.out, {args.x.shape[0], weights.n_heads, args.out.shape[2]}, "head_matmul out");
  check(args.out.shape[2] >= weights.n, "head_matmul: out has too few elements a head");
  check(!overlap(args.x, args.out), "head_matmul: out overlaps x");
  backend.head_matmul(args);
}

void latent_append(Backend& backend, const LatentAppendArgs& args) {
  check_group(args.step, args.group, args.kv, args.layer);
  const std::int64_t n_rows = args.step.header->n_rows;
  const KvShape& kv = args.kv->shape();
  check(!kv.has_values() && kv.n_kv_heads == 1 && kv.latent_dim < kv.head_dim, "latent_append: a storage with values");
  const std::int64_t rotary_dim = kv.head_dim - kv.latent_dim;
  check(args.q.shape.rank() == 3, "latent_append: q [rows, n_heads, head_dim]");
  check_shape(args.q, {n_rows, args.q.shape[1], kv.head_dim}, "latent_append q");
  for (const ConstTensorView& tensor : {args.x, args.compressed}) {
    check(tensor.shape.rank() == 2 && tensor.shape[0] == n_rows, "latent_append: x and compressed [rows, n]");
    check_float(tensor, "latent_append x or compressed");
  }
  check_float(args.q, "latent_append q");
  check(args.x_first >= 0 && args.x_first + rotary_dim <= args.x_stride && args.x.shape[1] >= args.q.shape[1] * args.x_stride,
        "latent_append: x has too few columns");
  check(args.first >= 0 && args.first + kv.head_dim <= args.compressed.shape[1],
        "latent_append: compressed has too few columns");
  check_dtype(args.norm, DType::f32, "latent_append norm");
  check_shape(args.norm, {kv.latent_dim}, "latent_append norm");
  check(args.norm_eps >= 0, "latent_append: norm_eps is negative");
  check_shape(args.rows, {n_rows, sizeof(TokenRow)}, "latent_append rows");
  check(args.rope.cos.data != nullptr && 2 * args.rope.cos.shape[1] == rotary_dim,
        "latent_append: a rotation of other elements");
  check_rope(args.rope, rotary_dim, "latent_append");
  check(!overlap(args.q, args.x) && !overlap(args.q, args.compressed), "latent_append: q overlaps what is read");
  backend.latent_append(args);
}

void attention(Backend& backend, const AttentionArgs& args) {
  check_group(args.step, args.group, args.kv, args.layer);
  const KvShape& kv = args.kv->shape();
  check(args.q.shape.rank() == 3 && args.q.shape[1] % kv.n_kv_heads == 0,
        "attention: q [rows, n_heads, head_dim], heads a multiple of the KV heads");
  check_shape(args.q, {args.step.header->n_rows, args.q.shape[1], kv.head_dim}, "attention q");
  check_float(args.q, "attention q");
  check_shape(args.out, {args.q.shape[0], args.q.shape[1], kv.v_dim()}, "attention out");
  check_float(args.out, "attention out");
  check(!overlap(args.q, args.out), "attention: out overlaps q");
  check(args.softcap >= 0, "attention: the bound of the scores is negative");
  check_shape(args.rows, {args.step.header->n_rows, sizeof(TokenRow)}, "attention rows");
  check_partials(args.partials, args.q.shape[1], kv.v_dim(), args.step.group(args.group).n_partials);
  check_sinks(args.sinks, args.q.shape[1]);
  backend.attention(args);
}

void attention_merge(Backend& backend, const AttentionMergeArgs& args) {
  check(args.group >= 0 && args.group < args.step.header->n_groups, "the layer group is not in the step");
  check(args.out.shape.rank() == 3 && args.out.shape[0] == args.step.header->n_rows,
        "attention_merge: out [rows, n_heads, v_dim]");
  check_float(args.out, "attention_merge out");
  const std::int32_t n_partials = args.step.group(args.group).n_partials;
  if (n_partials == 0) return;
  check_partials(args.partials, args.out.shape[1], args.out.shape[2], n_partials);
  check(!overlap(args.out, args.partials.o), "attention_merge: out overlaps the partial states");
  check_sinks(args.sinks, args.out.shape[1]);
  backend.attention_merge(args);
}

void short_conv(Backend& backend, const ShortConvArgs& args) {
  check(args.x.shape.rank() == 2, "short_conv: x [rows, n]");
  check_states(args.state, args.x.shape[0], "short_conv");
  const StateShape& states = args.state.storage->shape();
  const std::int64_t n_read = (args.kind == ConvKind::gated ? 3 : 1) * std::int64_t{states.n_channels};
  check(args.first >= 0 && args.first + n_read <= args.x.shape[1], "short_conv: x has fewer columns than the channels read");
  check_float(args.x, "short_conv x");
  check_float(args.out, "short_conv out");
  check_shape(args.out, {args.x.shape[0], states.n_channels}, "short_conv out");
  check_dtype(args.weight, DType::f32, "short_conv weight");
  check_shape(args.weight, {states.n_channels, states.conv_len + 1}, "short_conv weight");
  if (args.bias.data != nullptr) {
    check_dtype(args.bias, DType::f32, "short_conv bias");
    check_shape(args.bias, {states.n_channels}, "short_conv bias");
  }
  check(!overlap(args.x, args.out), "short_conv: out overlaps x");
  backend.short_conv(args);
}

void gated_delta_rule(Backend& backend, const GatedDeltaRuleArgs& args) {
  check(args.qkv.shape.rank() == 2, "gated_delta_rule: qkv [rows, n]");
  const std::int64_t n_rows = args.qkv.shape[0];
  check_states(args.state, n_rows, "gated_delta_rule");
  const StateShape& states = args.state.storage->shape();
  check(args.n_key_heads > 0 && states.n_heads % args.n_key_heads == 0,
        "gated_delta_rule: the value heads are not a multiple of the key heads");
  check_float(args.qkv, "gated_delta_rule qkv");
  check_shape(args.qkv, {n_rows, 2 * args.n_key_heads * states.key_dim + std::int64_t{states.n_heads} * states.value_dim},
              "gated_delta_rule qkv");
  check_kept_width(states, args.qkv.shape[1], "gated_delta_rule");
  check_dtype(args.gates, DType::f32, "gated_delta_rule gates");
  check_shape(args.gates, {n_rows, 2LL * states.n_heads}, "gated_delta_rule gates");
  for (const ConstTensorView& of_heads : {args.a_log, args.dt_bias}) {
    check_dtype(of_heads, DType::f32, "gated_delta_rule a_log or dt_bias");
    check_shape(of_heads, {states.n_heads}, "gated_delta_rule a_log or dt_bias");
  }
  check_float(args.out, "gated_delta_rule out");
  check_shape(args.out, {n_rows, states.n_heads, states.value_dim}, "gated_delta_rule out");
  check(!overlap(args.out, args.qkv) && !overlap(args.out, args.gates), "gated_delta_rule: out overlaps what it is made from");
  backend.gated_delta_rule(args);
}

void mamba2_scan(Backend& backend, const Mamba2ScanArgs& args) {
  check(args.xbc.shape.rank() == 2 && args.dt.shape.rank() == 2, "mamba2_scan: xbc and dt [rows, n]");
  const std::int64_t n_rows = args.xbc.shape[0];
  check_states(args.state, n_rows, "mamba2_scan");
  const StateShape& states = args.state.storage->shape();
  check(args.n_groups > 0 && states.n_heads % args.n_groups == 0, "mamba2_scan: the heads are not a multiple of the groups");
  check_float(args.xbc, "mamba2_scan xbc");
  check_shape(args.xbc, {n_rows, std::int64_t{states.n_heads} * states.value_dim + 2 * args.n_groups * states.key_dim},
              "mamba2_scan xbc");
  check_kept_width(states, args.xbc.shape[1], "mamba2_scan");
  check_float(args.dt, "mamba2_scan dt");
  check(args.dt.shape[0] == n_rows && args.first_dt >= 0 && args.first_dt + states.n_heads <= args.dt.shape[1],
        "mamba2_scan: dt has other rows than xbc, or too few columns");
  for (const ConstTensorView& of_heads : {args.a_log, args.dt_bias, args.skip}) {
    check_dtype(of_heads, DType::f32, "mamba2_scan a_log, dt_bias or skip");
    check_shape(of_heads, {states.n_heads}, "mamba2_scan a_log, dt_bias or skip");
  }
  check_float(args.out, "mamba2_scan out");
  check_shape(args.out, {n_rows, states.n_heads, states.value_dim}, "mamba2_scan out");
  check(!overlap(args.out, args.xbc) && !overlap(args.out, args.dt), "mamba2_scan: out overlaps what it is made from");
  backend.mamba2_scan(args);
}

void gated_norm(Backend& backend, const GatedNormArgs& args) {
  check(args.x.shape.rank() == 3 && args.gate.shape.rank() == 2, "gated_norm: x [rows, n_heads, d], gate [rows, n]");
  check_float(args.x, "gated_norm x");
  check_float(args.gate, "gated_norm gate");
  const std::int64_t width = args.x.shape[1] * args.x.shape[2];
  const bool in_8_bits = args.out.dtype == DType::f8_e4m3;
  check_rows(args.out, args.out_scales, "gated_norm out");
  check_shape(args.out, in_8_bits ? Shape{args.x.shape[0], width} : args.x.shape, "gated_norm out");
  check(args.gate.shape[0] == args.x.shape[0] && args.first >= 0 && args.first + width <= args.gate.shape[1],
        "gated_norm: the gate has other rows than x, or too few columns");
  check_dtype(args.weight, DType::f32, "gated_norm weight");
  check_shape(args.weight, {args.weight.shape == Shape{width} ? width : args.x.shape[2]}, "gated_norm weight");
  check(args.eps >= 0, "gated_norm: eps is negative");
  check(!overlap(args.gate, args.out), "gated_norm: out overlaps the gate");
  check_in_place(args.x, args.out, "gated_norm");
  backend.gated_norm(args);
}

void sigmoid_gate(Backend& backend, const SigmoidGateArgs& args) {
  check(args.x.shape.rank() == 2, "sigmoid_gate: x [rows, n]");
  check_float(args.x, "sigmoid_gate x");
  check_float(args.gate, "sigmoid_gate gate");
  check_rows(args.out, args.out_scales, "sigmoid_gate out");
  check_shape(args.gate, args.x.shape, "sigmoid_gate gate");
  check_shape(args.out, args.x.shape, "sigmoid_gate out");
  check(!overlap(args.gate, args.out), "sigmoid_gate: out overlaps the gate");
  check_in_place(args.x, args.out, "sigmoid_gate");
  backend.sigmoid_gate(args);
}

void route_experts(Backend& backend, const RouteExpertsArgs& args) {
  check(args.logits.shape.rank() == 2, "route_experts: logits [rows, n_experts]");
  check_dtype(args.logits, DType::f32, "route_experts logits");
  check(args.logits.shape[0] >= args.step.header->n_rows, "route_experts: fewer rows than the step has");
  check(args.choices.offsets.shape.rank() == 1, "route_experts: offsets [n_experts + 1]");
  const std::int64_t n_experts = args.choices.offsets.shape[0] - 1;
  check(args.logits.shape[1] >= n_experts, "route_experts: fewer logits than experts");
  check_choices(args.choices, args.logits.shape[0], n_experts);
  if (args.choice_bias.data != nullptr) {
    check_dtype(args.choice_bias, DType::f32, "route_experts choice_bias");
    check_shape(args.choice_bias, {n_experts}, "route_experts choice_bias");
  }
  const RoutingRule& rule = args.rule;
  check(rule.n_groups >= 1 && rule.n_groups <= kMaxExpertGroups && n_experts % rule.n_groups == 0 &&
            rule.n_groups_per_row >= 1 && rule.n_groups_per_row <= rule.n_groups &&
            args.choices.experts.shape[1] <= n_experts / rule.n_groups * rule.n_groups_per_row,
        "route_experts: groups of different sizes, or with too few experts for a row");
  backend.route_experts(args);
}

void grouped_matmul(Backend& backend, const GroupedMatmulArgs& args) {
  check(args.experts != nullptr, "grouped_matmul: no weights");
  const PackedExperts& experts = *args.experts;
  check(args.x.shape.rank() == 2 && args.out.shape.rank() == 2, "grouped_matmul: x [n, k], out [places, n]");
  check_dtype(args.x, experts.dtype, "grouped_matmul x");
  check_shape(args.x, {args.x.shape[0], experts.k}, "grouped_matmul x");
  check_float(args.out, "grouped_matmul out");
  check_shape(args.out, {args.out.shape[0], experts.n}, "grouped_matmul out");
  check_dtype(args.offsets, DType::i32, "grouped_matmul offsets");
  check_shape(args.offsets, {experts.n_experts + 1}, "grouped_matmul offsets");
  if (args.rows.data != nullptr) {
    check_dtype(args.rows, DType::i32, "grouped_matmul rows");
    check_shape(args.rows, {args.out.shape[0]}, "grouped_matmul rows");
  } else {
    check_shape(args.x, {args.out.shape[0], experts.k}, "grouped_matmul x without rows");
  }
  check(!overlap(args.x, args.out), "grouped_matmul: out overlaps x");
  if (args.bias.data != nullptr) {
    check_dtype(args.bias, DType::f32, "grouped_matmul bias");
    check_shape(args.bias, {experts.n_experts, experts.n}, "grouped_matmul bias");
  }
  backend.grouped_matmul(args);
}

void combine_experts(Backend& backend, const CombineExpertsArgs& args) {
  check(args.out.shape.rank() == 2, "combine_experts: out [rows, d]");
  check(args.choices.offsets.shape.rank() == 1, "combine_experts: offsets [n_experts + 1]");
  check_choices(args.choices, args.out.shape[0], args.choices.offsets.shape[0] - 1);
  check_float(args.in, "combine_experts in");
  check_float(args.out, "combine_experts out");
  check_shape(args.in, {args.choices.rows.shape[0], args.out.shape[1]}, "combine_experts in");
  check(!overlap(args.in, args.out), "combine_experts: out overlaps in");
  if (args.shared.data != nullptr) {
    check_dtype(args.shared, args.in.dtype, "combine_experts shared");
    check_shape(args.shared, args.out.shape, "combine_experts shared");
    const bool is_out = args.shared.data == args.out.data && args.shared.dtype == args.out.dtype;
    check(is_out || !overlap(args.shared, args.out), "combine_experts: out overlaps a part of shared");
  }
  if (args.gate_logits.data != nullptr) {
    check(args.shared.data != nullptr, "combine_experts: a gate of nothing");
    check_dtype(args.gate_logits, DType::f32, "combine_experts gate_logits");
    check(args.gate_logits.shape.rank() == 2 && args.gate_logits.shape[0] == args.out.shape[0],
          "combine_experts: gate_logits [rows, n]");
  }
  backend.combine_experts(args);
}

void activation(Backend& backend, const ActivationArgs& args) {
  check(args.out.shape.rank() == 2, "activation: out [rows, n]");
  check_float(args.in, "activation in");
  check_float(args.out, "activation out");
  check_shape(args.in, args.out.shape, "activation in");
  check(!overlap(args.in, args.out), "activation: out overlaps in");
  backend.activation(args);
}

void gated_activation(Backend& backend, const GatedActivationArgs& args) {
  check_gated_activation(args);
  backend.gated_activation(args);
}

void gated_matmul(Backend& backend, const GatedMatmulArgs& args) {
  check_matmul(args.matmul);
  check_gated_activation(args.activation);
  const TensorView& made = args.matmul.out;
  const ConstTensorView& read = args.activation.gate_up;
  check(read.data == made.data && read.dtype == made.dtype && read.shape == made.shape,
        "gated_matmul: the activation is not of what the matmul makes");
  check(!overlap(args.matmul.x, args.activation.out), "gated_matmul: out overlaps x");
  backend.gated_matmul(args);
}

void scale_logits(Backend& backend, const ScaleLogitsArgs& args) {
  check(args.logits.shape.rank() == 2, "scale_logits: logits [n_samples, n_vocab]");
  check_dtype(args.logits, DType::f32, "scale_logits logits");
  check(args.softcap >= 0, "scale_logits: the soft-cap is negative");
  backend.scale_logits(args);
}

void sample(Backend& backend, const SampleArgs& args) {
  const std::int64_t n_samples = args.step.n_samples();
  check(args.logits.shape.rank() == 2 && args.logits.shape[0] == n_samples, "sample: logits [n_samples, n_vocab]");
  check_dtype(args.logits, DType::f32, "sample logits");
  check(args.slots.shape.rank() == 2 && args.slots.shape[1] == sizeof(SlotState),
        "slots must be u8 [n_slots, sizeof(SlotState)]");
  check(args.results.shape.rank() == 2 && args.results.shape[0] >= n_samples && args.results.shape[1] == sizeof(SampleResult),
        "sample: results u8 [n_samples, sizeof(SampleResult)]");
  if (args.masks.row_of.data != nullptr) {
    check_dtype(args.masks.row_of, DType::i32, "sample masks row_of");
    check_dtype(args.masks.bits, DType::i32, "sample masks bits");
    check(args.masks.bits.shape.rank() == 2 && args.masks.bits.shape[1] == (args.logits.shape[1] + 31) / 32,
          "sample: masks i32 [n_rows, ceil(n_vocab / 32)]");
  }
  backend.sample(args);
}

void all_reduce(Backend& backend, TensorView x) {
  check_float(x, "all_reduce x");
  backend.all_reduce(x);
}

void all_gather(Backend& backend, const AllGatherArgs& args) {
  check(args.parts.shape.rank() == 3 && args.out.shape.rank() == 2,
        "all_gather: parts [world size, rows, n], out [rows, n_out]");
  check_float(args.out, "all_gather out");
  check_dtype(args.parts, args.out.dtype, "all_gather parts");
  const Shape& parts = args.parts.shape;
  check_shape(args.parts, {parts[0], args.out.shape[0], parts[2]}, "all_gather parts");
  check(args.out.shape[1] <= parts[0] * parts[2], "all_gather: out is wider than the parts together");
  check(!overlap(args.out, args.parts), "all_gather: out overlaps parts");
  backend.all_gather(args);
}

}  // namespace baton
