/// The operations that every backend offers, each with its formula, shapes, dtypes, aliasing and source.
///
/// Each function checks its arguments and passes checked views to the backend; a violation is a bug of ours and
/// aborts. All memory is the backend's. The operations of a backend run in the order of their calls. The host may read
/// their results after Backend::synchronize. A "float" tensor is f32, bf16 or f16, "null data" a view whose data is null. Formulas
/// without a source are their own definition. Thread: engine only.
///
/// Rows of "8 bits" are f8_e4m3 with a scale each, in f32, for a matmul by weights that take them (PackedMatrix): what makes the
/// rows rounds them, in the pass that writes them,
///
///     scale[r] = max(max |y[r]| / 448, 2^-126)     out[r, c] = y[r, c] * (1 / scale[r]), to nearest even
///
/// A row has a multiple of 16 columns, which a backend keeps in an order of its own.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/batch.h"
#include "kernels/kv_storage.h"
#include "kernels/state_storage.h"

namespace baton {

class Backend;
class PackedExperts;
class PackedHeads;
class PackedMatrix;

/// Rotations of RoPE: cos and sin of position * frequency_i, each times one factor of the model, in f32.
///
///     cos, sin  [n_positions, rotary_dim / 2] f32
///     q_factor  [n_positions] f32, or null data: what queries are multiplied by after the rotation, by their positions
struct RopeTable {
  ConstTensorView cos;
  ConstTensorView sin;
  ConstTensorView q_factor = {};
};

/// Prepares the rows and slots of a step: zeroes the SlotState of `reset_slots`, and writes for each row the token to
/// embed and the TokenRow, with empty bounds (kv_hi = kv_lo) for rows of finished sequences.
///
///     token_ids  [n_rows] i32 out     rows  [n_groups, n_rows] TokenRow out (as u8 [n_groups, n_rows, 16])
///     slots      [n_slots] SlotState in and out (as u8 [n_slots, 16])
struct ResolveRowsArgs {
  StepView step;
  TensorView slots;
  TensorView token_ids;
  TensorView rows;
};
void resolve_rows(Backend& backend, const ResolveRowsArgs& args);

/// out[r] = table[token_ids[r]] * scale.
///
///     out  [rows, d] f32     table  [n_vocab, d] float     token_ids  [rows] i32, each in [0, n_vocab)
struct EmbeddingArgs {
  TensorView out;
  ConstTensorView table;
  ConstTensorView token_ids;
  float scale = 1;
};
void embedding(Backend& backend, const EmbeddingArgs& args);

/// Outputs of the previous blocks. A norm adds them to the residual stream x before it reads it:
///
///     x[r] += scale * (first[r] + second[r])                                                  without norm_weight
///     x[r] += scale * (first[r] / sqrt(mean(first[r]^2) + norm_eps) * norm_weight)            with it: a post-norm
///
///     first, second  [rows, d] of the same float dtype, or null data: not added. second needs first
///     norm_weight    [d] f32, or null data; rms_norm only, and not with second
struct Deltas {
  ConstTensorView first;
  ConstTensorView second;
  float scale = 1;
  ConstTensorView norm_weight;
  float norm_eps = 1e-5f;
};

/// Root-mean-square norm of the residual stream, after adding the outputs of the previous blocks to it (Deltas):
///
///     out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight
///
///     x  [rows, d] f32, updated in place     out  [rows, d] float or 8 bits; no overlap with the others
///     weight  [d] f32, or null data: out = x
///     out_scales  [rows] f32 with out in 8 bits, otherwise null data
///     wide_out  [rows, d] float beside out in 8 bits, or null data: the same rows, rounded to its own dtype only
/// Sums in f32. Source: arXiv:1910.07467.
struct RmsNormArgs {
  TensorView x;
  Deltas deltas;
  ConstTensorView weight;
  TensorView out;
  float eps = 1e-5f;
  TensorView out_scales = {};
  TensorView wide_out = {};
};
void rms_norm(Backend& backend, const RmsNormArgs& args);

/// Layer norm of the residual stream, after the same addition:
///
///     out[r] = (x[r] - mean(x[r])) / sqrt(mean((x[r] - mean(x[r]))^2) + eps) * weight + bias
///
///     weight  [d] f32     bias  [d] f32, or null data     out  [rows, d] float     all others as in rms_norm
/// Sums in f32; the sum of squares is computed after the mean. Source: arXiv:1607.06450.
struct LayerNormArgs {
  TensorView x;
  Deltas deltas;
  ConstTensorView weight;
  ConstTensorView bias;
  TensorView out;
  float eps = 1e-5f;
};
void layer_norm(Backend& backend, const LayerNormArgs& args);

/// Selects rows: out[i] = in[rows[i]] for the rows whose logits are needed (StepHeader::samples).
///
///     in  [n_rows, d] float     out  [n_samples, d] of the same dtype; no overlap
struct GatherRowsArgs {
  StepView step;
  ConstTensorView in;
  TensorView out;
};
void gather_rows(Backend& backend, const GatherRowsArgs& args);

/// out = x W^T + bias: every linear layer.
///
///     x  [rows, k] of the dtype W was packed for    W  [n, k] packed by Backend::pack_matrix    out  [rows, n] float
///     bias  [n] float, or null data; fastest in out's dtype
///     x_scales  [rows] f32 where x is in 8 bits, which W takes from PackedMatrix::fewest_f8_rows rows on; otherwise null data
/// Where W has PackedMatrix::has_int8_x, x is rounded first, with a scale for each block of columns of a row: to
///     round(x / s) s,  s = max |x| / 127 of the block
/// A block has 128 columns, or the largest number of columns that divides both 128 and the columns that share a scale of W, and
/// the last of a row may have fewer.
/// Sums in f32. The bias may be added before or after the sum is rounded to out's dtype. With
/// BackendOptions::batch_invariant a row of out has the same bits for any number of rows.
struct MatmulArgs {
  ConstTensorView x;
  const PackedMatrix* weight = nullptr;
  TensorView out;
  ConstTensorView bias = {};
  ConstTensorView x_scales = {};
};
void matmul(Backend& backend, const MatmulArgs& args);

/// Rotates queries and keys by their positions and stores keys and values in the KV storage.
///
///     qkv  [rows, (n_heads + 2 n_kv_heads) * head_dim] float: queries, keys, values of each row, heads contiguous
///     q    [rows, n_heads, head_dim] float out: rotated queries
///     (a_i, a_{i + h}) -> (a_i cos - a_{i+h} sin, a_{i+h} cos + a_i sin),  h = rotary_dim / 2, at the row's position
///     q_norm, k_norm  f32, or null data, both or neither: an RMS norm before the rotation, over each head where they
///                     are [head_dim], over all heads of a row where they are [n_heads * head_dim] and [n_kv_heads *
///                     head_dim];   a_i -> a_i / sqrt(mean(a^2) + norm_eps) * norm_i,  sums in f32
///     norms_rotated   such norms, over heads, come after the rotation, which leaves the mean square as it was: needs a
///                     rope whose cosines and sines have no factor
/// A rope without data rotates nothing. Keys are rotated in f32 and rounded once to the storage's dtype. Row r is
/// stored at kv_indices[r] of `layer`; kNoKvIndex stores nothing. Source: arXiv:2104.09864 in the half-split order of
/// Llama checkpoints.
struct RopeAppendArgs {
  ConstTensorView qkv;
  TensorView q;
  RopeTable rope;
  ConstTensorView rows;  ///< TokenRow [n_rows] as u8 [n_rows, 16], from resolve_rows at least two operations ago
  StepView step;
  int group = 0;
  int layer = 0;  ///< index in the group's storage
  KvStorage* kv = nullptr;
  ConstTensorView q_norm = {};
  ConstTensorView k_norm = {};
  float norm_eps = 1e-6f;
  bool norms_rotated = false;
};
void rope_append(Backend& backend, const RopeAppendArgs& args);

/// Root-mean-square norm of some columns:
///
///     out[r, i] = y[i] / sqrt(mean(y^2) + eps) * weight[i]   with y[i] = x[r, first + i]
///
///     x  [rows, at least first + n] float     weight  [n] f32     out  [rows, n] float or 8 bits; no overlap
///     out_scales  [rows] f32 with out in 8 bits, otherwise null data
/// Sums in f32.
struct NormColumnsArgs {
  ConstTensorView x;
  std::int64_t first = 0;
  ConstTensorView weight;
  TensorView out;
  float eps = 1e-6f;
  TensorView out_scales = {};
};
void norm_columns(Backend& backend, const NormColumnsArgs& args);

/// A matrix for each head, which multiplies that head's columns of each row:
///
///     out[r, h, j] = sum over i of x[r, h * x_stride + i] * W_h[j, i]   for j < n
///
///     x    [rows, at least n_heads * x_stride] of the dtype W was packed for, x_stride >= k; further columns are not read
///     W    [n_heads, n, k] by Backend::pack_heads
///     out  [rows, n_heads, at least n] float; the elements of a head from n on are not written; no overlap with x
/// Sums in f32. With BackendOptions::batch_invariant a row of out has the same bits for any number of rows.
struct HeadMatmulArgs {
  ConstTensorView x;
  std::int64_t x_stride = 0;
  const PackedHeads* weights = nullptr;
  TensorView out;
};
void head_matmul(Backend& backend, const HeadMatmulArgs& args);

/// Multi-head latent attention: stores a token's latent vector, normalised, and its rotated key, which all heads share, and
/// rotates the queries' last elements. With c = latent_dim and d = rotary_dim, head_dim = c + d of the storage:
///
///     key of row r         [ norm(compressed[r, first .. first + c)) | rotate(compressed[r, first + c .. first + c + d)) ]
///     q[r, h, c .. c + d)  rotate(x[r, h * x_stride + x_first .. + d))
///     norm(y)_i            y_i / sqrt(mean(y^2) + norm_eps) * norm_i,  sums in f32
///     rotate               as in rope_append; with pairs_are_neighbours of elements (2i, 2i + 1) in place of (i, i + d / 2)
///
///     compressed  [rows, at least first + c + d] float     norm  [c] f32
///     x           [rows, at least n_heads * x_stride] float, x_first + d <= x_stride
///     q           [rows, n_heads, c + d] float in and out. The elements before c are there already (head_matmul); with
///                 RopeTable::q_factor all elements are multiplied by the row's factor
/// Keys are rounded once to the storage's dtype. Row r is stored as by rope_append. Source: arXiv:2405.04434, with the matrices
/// that expand the latent vector absorbed into queries and outputs.
struct LatentAppendArgs {
  ConstTensorView x;
  std::int64_t x_stride = 0;
  std::int64_t x_first = 0;
  ConstTensorView compressed;
  std::int64_t first = 0;
  ConstTensorView norm;
  float norm_eps = 1e-6f;
  TensorView q;
  RopeTable rope;
  bool pairs_are_neighbours = false;
  ConstTensorView rows;  ///< TokenRow [n_rows] as u8 [n_rows, 16], from resolve_rows at least two operations ago
  StepView step;
  int group = 0;
  int layer = 0;  ///< index in the group's storage
  KvStorage* kv = nullptr;
};
void latent_append(Backend& backend, const LatentAppendArgs& args);

/// Partial attention states of a step: f32, not normalised. m is the maximum of the scaled scores times log2(e); l and
/// o are sums of exp2(score - m). m = -inf, l = 0, o = 0 marks an empty run.
///
///     o  [n_partials, n_heads, v_dim] f32     m, l  [n_partials, n_heads] f32     v_dim = KvShape::v_dim()
struct PartialStates {
  TensorView o;
  TensorView m;
  TensorView l;
};

/// Attention of every token row over its keys, as the step's work list says: prefix nodes and contexts, decode and
/// prefill.
///
///     for each item, row in item, query head h (KV head h / (n_heads / n_kv_heads)):
///         s_t = c(scale * q . k_t) * log2(e)   for t in [kv_begin, kv_end) and in the row's [kv_lo, kv_hi)
///         c(x) = softcap tanh(x / softcap) if softcap > 0, else x
///         state = (m, l, o) of softmax(s) V; with batch_invariant (and always on the CPU) computed for each chunk
///         (kAttentionChunk, absolute positions) and folded from left to right
///     direct items write o / l to `out`, all others their state to `partials`
///
///     q  [rows, n_heads, head_dim] float; on CUDA KvShape::matmul_dtype
///     out  [rows, n_heads, v_dim] float (on CUDA q's dtype or f32); no overlap with q
///     sinks  [n_heads] f32, or null data: logits, neither scaled nor bounded, of keys without values. Where o / l of a row is
///            written, and nowhere else, l is l + exp2(sink * log2(e) - m)
/// Rows without a direct item are finished by attention_merge or, if `merge` is set, here with the same bits. A row
/// without keys gives 0. With a bf16 cache the matmuls take bf16 operands (q and exp2(s - m) rounded to nearest even)
/// and sum in f32; with an f32 cache they take f32. Sources: arXiv:2402.14808 (relay), 2309.06180 (paged),
/// Flash-Decoding (split runs), 2408.00118 (softcap), 2508.10925 (sinks).
struct AttentionArgs {
  ConstTensorView q;
  TensorView out;
  PartialStates partials;
  ConstTensorView rows;  ///< TokenRow [n_rows] as u8 [n_rows, 16], from resolve_rows at least two operations ago
  StepView step;
  int group = 0;
  int layer = 0;
  const KvStorage* kv = nullptr;  ///< settled granules of items may be read while the previous operation still runs
  float scale = 0;
  float softcap = 0;   ///< bound of the scores; 0: no bound
  bool merge = false;  ///< also does what attention_merge does with these partial states
  ConstTensorView sinks = {};
};
void attention(Backend& backend, const AttentionArgs& args);

/// Combines partial attention over disjoint runs of keys into attention over their union, for every row that has merge
/// inputs (indices of partial states):
///
///     state = fold of merge(a, b):  m = max(a.m, b.m), l = a.l 2^(a.m - m) + b.l 2^(b.m - m), o in the same way
///     out = o / l
///
///     out  [rows, n_heads, v_dim] float; rows without merge inputs are not written
///     sinks  as for attention: l of the folded state is changed
///
/// The fold runs from left to right in the order of merge_inputs, which is the order of positions, so the result does
/// not depend on which state was finished first. (Without batch_invariant CUDA sums up to 32 states against their common
/// maximum, and more states in four parts; the number of states alone decides.) On the CPU, and with batch_invariant, the
/// same fold joins the chunks of an item.
/// Folds do not associate, so cutting an item at chunk boundaries keeps every bit only if each piece after the first
/// is one chunk. Rows without keys give 0, never NaN. Source: RelayAttention, arXiv:2402.14808, Eq. 7 and 11.
struct AttentionMergeArgs {
  TensorView out;
  PartialStates partials;
  StepView step;
  int group = 0;
  ConstTensorView sinks = {};
};
void attention_merge(Backend& backend, const AttentionMergeArgs& args);

/// Recurrent layers: the rows of each sequence of the step in turn, as its StateRun says. Rows without a run are neither read nor
/// written. What one row leaves is what the next row begins with, wherever a sequence's rows are cut into steps; all is computed in
/// f32. An operation may compute the rows of a run in chunks that begin at multiples of kStateChunk positions, whose result differs
/// from the recurrence in rounding only; with BackendOptions::batch_invariant a row has the same bits however its sequence is cut. Of
/// drafts, short_conv keeps its inputs and outputs, which are what the other two have as inputs, and these keep the gates (b and a, or
/// dt).
inline constexpr std::int32_t kStateChunk = 64;

/// What the operations on states have in common. The backend must have BackendCapabilities::has_recurrent_layers.
struct StateArgs {
  StepView step;
  int layer = 0;  ///< index in the storage
  StateStorage* storage = nullptr;
};

/// Short causal convolution of each channel over the tokens of a sequence:
///
///     y[r, c] = bias[c] + sum over j < k of weight[c, j] * u[t - (k - 1) + j, c]
///
///     silu    u = x[r, first + c]                                  out[r, c] = y / (1 + exp(-y))
///     gated   u = x[r, first + c] * x[r, first + 2n + c]           out[r, c] = y * x[r, first + n + c]
///
/// at row r of position t. The u before the first row are the state's, which keeps the last k - 1.
///
///     x       [rows, at least first + n, gated: + 3n] float     out  [rows, n] float; no overlap with x
///     weight  [n, k] f32, n = StateShape::n_channels, k = conv_len + 1     bias  [n] f32, or null data
/// Sums in f32, from j = 0 on, after the bias. Sources: arXiv:2312.00752 (silu; without a bias arXiv:2412.06464), arXiv:2511.23404
/// (gated).
enum class ConvKind { silu, gated };
struct ShortConvArgs {
  StateArgs state;
  ConstTensorView x;
  ConstTensorView weight;
  TensorView out;
  std::int64_t first = 0;
  ConstTensorView bias = {};
  ConvKind kind = ConvKind::silu;
};
void short_conv(Backend& backend, const ShortConvArgs& args);

/// The gated delta rule: each value head h has a matrix S [key_dim, value_dim], which row r turns into
///
///     q = unit(q[r, h / m]) / sqrt(key_dim)     k = unit(k[r, h / m])     unit(x) = x / sqrt(sum(x^2) + 1e-6)
///     S = exp(-exp(a_log[h]) softplus(a[r, h] + dt_bias[h])) S     softplus(x) = ln(1 + exp(x))
///     S = S + k (sigmoid(b[r, h]) (v[r, h] - S^T k))^T             out[r, h] = S^T q
///
/// with m = n_heads / n_key_heads value heads for each key head.
///
///     qkv    [rows, 2 n_key_heads key_dim + n_heads value_dim] float: queries, keys and values, heads contiguous
///     gates  [rows, 2 n_heads] f32: b, then a     a_log, dt_bias  [n_heads] f32
///     out    [rows, n_heads, value_dim] float; no overlap with the others
/// In f32. Sources: arXiv:2412.06464 (the rule and its chunked form), arXiv:2406.06484 (chunks of delta rules).
struct GatedDeltaRuleArgs {
  StateArgs state;
  ConstTensorView qkv;
  std::int64_t n_key_heads = 0;
  ConstTensorView gates;
  ConstTensorView a_log;
  ConstTensorView dt_bias;
  TensorView out;
};
void gated_delta_rule(Backend& backend, const GatedDeltaRuleArgs& args);

/// The scan of Mamba-2: each head h has a matrix S [key_dim, value_dim], which row r turns into
///
///     t = softplus(dt[r, first_dt + h] + dt_bias[h])     softplus(x) = ln(1 + exp(x))
///     S = exp(-exp(a_log[h]) t) S + B[r, h / m] (t x[r, h])^T
///     out[r, h] = S^T C[r, h / m] + skip[h] x[r, h]
///
/// with m = n_heads / n_groups heads for each group of B and C, whose size is key_dim, the size of the state.
///
///     xbc    [rows, n_heads value_dim + 2 n_groups key_dim] float: x, B and C, heads and groups contiguous
///     dt     [rows, at least first_dt + n_heads] float     a_log, dt_bias, skip  [n_heads] f32
///     out    [rows, n_heads, value_dim] float; no overlap with the others
/// In f32. Time steps have no bounds. Source: arXiv:2405.21060 (the scan, and its form in chunks).
struct Mamba2ScanArgs {
  StateArgs state;
  ConstTensorView xbc;
  std::int64_t n_groups = 1;
  ConstTensorView dt;
  std::int64_t first_dt = 0;
  ConstTensorView a_log;
  ConstTensorView dt_bias;
  ConstTensorView skip;
  TensorView out;
};
void mamba2_scan(Backend& backend, const Mamba2ScanArgs& args);

/// Root-mean-square norm of each head or group, times the SiLU of a gate or after it:
///
///     norm_first    out[r, h, i] = norm(x[r, h])_i * silu(g[h, i])     gate_first    out[r, h, i] = norm(x[r, h] * silu(g[h]))_i
///     norm(y)_i = y_i / sqrt(mean(y^2) + eps) * weight[i]     silu(g) = g / (1 + exp(-g))     g[h, i] = gate[r, first + h d + i]
///
///     x       [rows, n_heads, d] float     gate  [rows, at least first + n_heads d] float
///     weight  [d] f32, or [n_heads d]: heads have weights of their own
///     out     [rows, n_heads, d] float; no overlap with gate; may be x. Or [rows, n_heads d] in 8 bits; no overlap
///     out_scales  [rows] f32 with out in 8 bits, otherwise null data
/// In f32. Sources: arXiv:2412.06464 (norm_first), arXiv:2405.21060 (gate_first).
enum class GatedNormOrder { norm_first, gate_first };
struct GatedNormArgs {
  ConstTensorView x;
  ConstTensorView gate;
  std::int64_t first = 0;
  ConstTensorView weight;
  TensorView out;
  float eps = 1e-6f;
  GatedNormOrder order = GatedNormOrder::norm_first;
  TensorView out_scales = {};
};
void gated_norm(Backend& backend, const GatedNormArgs& args);

/// out = x / (1 + exp(-gate)), element by element: the gate of an attention block's output.
///
///     x, gate  [rows, n] float     out  [rows, n] float, may be x; or in 8 bits, no overlap
///     out_scales  [rows] f32 with out in 8 bits, otherwise null data
/// In f32. Source: arXiv:2505.06708.
struct SigmoidGateArgs {
  ConstTensorView x;
  ConstTensorView gate;
  TensorView out;
  TensorView out_scales = {};
};
void sigmoid_gate(Backend& backend, const SigmoidGateArgs& args);

/// Most experts of a layer, and most experts that compute one row.
inline constexpr std::int32_t kMaxExperts = 512;
inline constexpr std::int32_t kMaxExpertsPerRow = 32;

/// The experts that compute each row. A choice is a pair (row, one of its experts); the place of a choice is its index
/// among all choices sorted by expert, and by row for each expert. Written by route_experts.
///
///     experts  [rows, n_chosen] i32, in the order of choice     weights  [rows, n_chosen] f32
///     places   [rows, n_chosen] i32
///     rows     [rows * n_chosen] i32: the row of the choice at each place
///     offsets  [n_experts + 1] i32: expert e has the places [offsets[e], offsets[e + 1])
struct ExpertChoices {
  TensorView experts;
  TensorView weights;
  TensorView places;
  TensorView rows;
  TensorView offsets;
};

/// How a router's logits become choices and weights: see route_experts.
struct RoutingRule {
  enum class Score { softmax, sigmoid };
  enum class GroupScore { two_best, best };
  Score score = Score::softmax;
  std::int32_t n_groups = 1;          ///< groups of neighbouring experts, of equal sizes
  std::int32_t n_groups_per_row = 1;  ///< groups that the experts of a row come from
  GroupScore group_score = GroupScore::two_best;
  bool renormalises = false;
  float least_sum = 0;
  float added_to_sum = 0;
  float scale = 1;
  bool operator==(const RoutingRule&) const = default;
};

/// Most groups of a layer's experts.
inline constexpr std::int32_t kMaxExpertGroups = 32;

/// Chooses experts for each row of the step, and sorts the choices by expert:
///
///     score_e        softmax: exp(logits[r, e]) / sum of exp(logits[r, i]) over all experts i
///                    sigmoid: 1 / (1 + exp(-logits[r, e]))
///     choice_e       score_e + choice_bias[e]; without a bias and groups logits[r, e], which has the same order
///     group g        its score is the sum of its two largest choices (of one expert: that choice), or its largest one; the
///                    n_groups_per_row groups with the largest scores are kept, with ties the smaller index first
///     experts[r]     the n_chosen experts of these groups with the largest choices, in this order; with ties the smaller index
///     weights[r, c]  scale * score_e of experts[r, c]; with `renormalises` divided by max(sum of the row's n_chosen scores,
///                    least_sum) + added_to_sum
///
///     logits       [rows, at least n_experts] f32, the router's; further columns are not read. Rows are the step's or, in a
///                  captured graph, at least as many
///     choice_bias  [n_experts] f32, or null data
/// A NaN counts as the smallest choice or group score. Rows after the step's have no choices: experts and places are -1,
/// weights 0. Sources: arXiv:1701.06538, arXiv:2401.04088, arXiv:2412.19437 (sigmoid, bias and groups).
struct RouteExpertsArgs {
  StepView step;
  ConstTensorView logits;
  ExpertChoices choices;
  RoutingRule rule = {};
  ConstTensorView choice_bias = {};

  /// Whether choices are scores and biases, not logits.
  bool chooses_by_score() const { return choice_bias.data != nullptr || rule.n_groups_per_row < rule.n_groups; }
  /// Whether a result depends on the sum of the softmax over all experts, which otherwise cancels.
  bool needs_softmax_sum() const {
    const bool cancels = rule.renormalises && rule.least_sum == 0 && rule.added_to_sum == 0 && !chooses_by_score();
    return rule.score == RoutingRule::Score::softmax && !cancels;
  }
};
void route_experts(Backend& backend, const RouteExpertsArgs& args);

/// The linear layers of several experts, each for the choices of its own:
///
///     out[p] = x[rows[p]] W_e^T + bias[e]   for the places p of expert e, [offsets[e], offsets[e + 1])
///
///     x        [rows, k] of the dtype W was packed for     experts  W [n_experts, n, k], by Backend::pack_experts
///     rows     [places] i32, or null data: row p of x, which then is [places, k]     offsets  [n_experts + 1] i32
///     out      [places, n] float; places from offsets[n_experts] on are not written; no overlap with x
///     bias     [n_experts, n] f32, or null data
///     routed_earlier  whether another grouped_matmul by the same offsets came before, with an operation between; weights may
///                     then be read while that operation still runs
/// Offsets begin with 0 and do not decrease. The device reads them; nothing depends on them before that. Sums in f32.
/// With BackendOptions::batch_invariant a place of out has the same bits whatever the other places are.
struct GroupedMatmulArgs {
  ConstTensorView x;
  ConstTensorView rows;
  ConstTensorView offsets;
  const PackedExperts* experts = nullptr;
  TensorView out;
  ConstTensorView bias = {};
  bool routed_earlier = false;
};
void grouped_matmul(Backend& backend, const GroupedMatmulArgs& args);

/// The weighted sum of what the experts of a row computed, in the order of its choices, and of the shared expert's output:
///
///     out[r] = sum over c of weights[r, c] * in[places[r, c]] + gate(r) * shared[r]
///
///     in  [rows * n_chosen, d] float     out  [rows, d] float; no overlap
///     shared       [rows, d] of the dtype of `in`, or null data: not added; may be `out` itself, otherwise no overlap
///     gate_logits  [rows, n] f32, or null data: gate(r) = 1 / (1 + exp(-gate_logits[r, n - 1])), else 1
/// In f32. A row without choices gives the part of `shared`, or 0.
struct CombineExpertsArgs {
  ConstTensorView in;
  ExpertChoices choices;
  TensorView out;
  ConstTensorView shared = {};
  ConstTensorView gate_logits = {};
};
void combine_experts(Backend& backend, const CombineExpertsArgs& args);

/// Activation of a feed-forward block without a gate: out[r, i] = f(in[r, i]).
///
///     gelu           x (1 + erf(x / sqrt(2))) / 2
///     gelu_tanh      x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
///     relu_squared   max(x, 0)^2
///
///     in, out  [rows, n] float; no overlap
/// In f32. A NaN stays one. Sources: arXiv:1606.08415 (GELU), arXiv:2109.08668 (squared ReLU).
enum class ActivationKind { gelu, gelu_tanh, relu_squared };
struct ActivationArgs {
  ConstTensorView in;
  TensorView out;
  ActivationKind kind = ActivationKind::gelu;
};
void activation(Backend& backend, const ActivationArgs& args);

/// Activation of a gated feed-forward block: out[r, i] = f(gate[r, i]) * up[r, i].
///
///     silu              f(x) = x / (1 + exp(-x))
///     gelu, gelu_tanh   f as for activation
///     clamped_silu      f(x) = x / (1 + exp(-alpha x)) of min(gate, limit); in place of up: max(-limit, min(up, limit)) + 1
///
///     gate_up  [rows, 2 n] float: gate, then up     out  [rows, n] float or 8 bits; no overlap
///     out_scales  [rows] f32 with out in 8 bits, otherwise null data
/// In f32. A NaN stays one. Source: arXiv:2002.05202 (SwiGLU, GeGLU), arXiv:2508.10925 (clamped_silu).
enum class GateKind { silu, gelu, gelu_tanh, clamped_silu };
struct GatedActivationArgs {
  ConstTensorView gate_up;
  TensorView out;
  GateKind kind = GateKind::silu;
  TensorView out_scales = {};
  float alpha = 1;  ///< of clamped_silu
  float limit = 0;  ///< of clamped_silu, over 0
};
void gated_activation(Backend& backend, const GatedActivationArgs& args);

/// The first matmul of a gated feed-forward block and its activation: the bits of `matmul`, then `gated_activation`.
///
///     activation.gate_up  the matmul's out: working memory, which a backend that does both in one pass does not write
///     activation.out      must not overlap the matmul's x
struct GatedMatmulArgs {
  MatmulArgs matmul;
  GatedActivationArgs activation;
};
void gated_matmul(Backend& backend, const GatedMatmulArgs& args);

/// Changes logits in place before anything reads them: x = scale x, then x = softcap tanh(x / softcap) if softcap > 0
///
///     logits  [n_samples, n_vocab] f32
/// In f32. Source: arXiv:2408.00118 (softcap).
struct ScaleLogitsArgs {
  TensorView logits;
  float scale = 1;
  float softcap = 0;
};
void scale_logits(Backend& backend, const ScaleLogitsArgs& args);

/// The tokens that samples may choose, as sets of bits. Null data: no sample has a mask.
///
///     row_of  [n] i32: the row of bits of a sample whose SamplingMetadata::mask is n; -1: every token is allowed
///     bits    [n_rows, ceil(n_vocab / 32)] i32: bit id % 32 of word id / 32 is 1 for a token that is allowed
struct TokenMasks {
  ConstTensorView row_of;
  ConstTensorView bits;
};

/// Samples the next token of every sample, updates its SlotState, and reports log-probabilities.
///
///     logits  [n_samples, n_vocab] f32, may be changed     slots  [n_slots] SlotState (u8 [n_slots, 16])
///     results  [n_samples] SampleResult (u8 [n_samples, sizeof(SampleResult)])
/// Log-probabilities are those of softmax(logits) before any change. Then, in this order, in f32:
///
///     mask        x = -infinity where the sample's mask has a 0
///     biases      x += bias
///     penalties   for a listed token with count n:  x = x > 0 ? x / repetition : x * repetition
///                                                   if n > 0:  x -= presence + frequency n
///                 With counts_last_token the slot's last token counts once more, and is added if it is not listed.
///     forbidden   bans (without `after`, or whose `after` is the slot's last token), stop ids before min_tokens, and,
///                 if `allowed` is not empty, all tokens outside it
///
/// Temperature 0 takes the largest logit, with ties the smaller id. Otherwise the probabilities are softmax(x /
/// temperature). min_p keeps tokens of at least min_p times the largest probability; of these top_k keeps the most
/// likely ones; of these top_p keeps the smallest set whose share reaches top_p (ties by smaller id). The token is the
/// argmax of log p + Gumbel noise from Philox4x32-10 with the seed as key and (n_generated, token id) as counter, so
/// it is the same in any batch. A NaN among the logits ends the sequence with FinishedBy::not_a_number. A sample with
/// `scored` reports that token's log-probability and rank; it neither reads nor changes a slot. Sources: arXiv:1909.05858
/// (repetition), arXiv:2407.01082 (min_p), arXiv:1904.09751 (top_p), Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3" (Philox).
struct SampleArgs {
  StepView step;
  TensorView logits;
  TensorView slots;
  TensorView results;
  TokenMasks masks = {};
};
void sample(Backend& backend, const SampleArgs& args);

/// Sum over all ranks, in place: x = x of rank 0 + x of rank 1 + ..., the same bits on every rank. In f32, rounded once,
/// in this order on the CPU and with BackendOptions::batch_invariant; without it the order of CUDA's sums depends on the
/// size of x. No change at world size 1.
///
///     x  any shape, float, the same on all ranks
void all_reduce(Backend& backend, TensorView x);

/// Joins the columns of all ranks: out[r] = parts[0][r], parts[1][r], ..., as many as out has; a copy at world size 1.
///
///     parts  [world size, rows, n] float: this rank's part stands at its index, the others are working memory
///     out    [rows, n_out] of the same dtype, n_out <= world size * n; must not overlap parts
struct AllGatherArgs {
  TensorView parts;
  TensorView out;
};
void all_gather(Backend& backend, const AllGatherArgs& args);

}  // namespace baton
