/// The one page of kernels: every operation a backend offers, with its formula, shapes, dtypes, aliasing and source.
///
/// Each function checks its arguments (a violation aborts: it is a bug of ours) and hands checked views to the
/// backend. All memory is the backend's. Operations of one backend run in the order of the calls; their results are
/// the host's to read after Backend::synchronize. A "float" tensor is f32, bf16 or f16. Thread: engine only.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/batch.h"
#include "kernels/kv_storage.h"

namespace baton {

class Backend;
class PackedMatrix;

/// Rotation frequencies of RoPE: cos and sin of position * frequency_i, in f32.
///
///     cos, sin  [n_positions, rotary_dim / 2] f32
struct RopeTable {
  ConstTensorView cos;
  ConstTensorView sin;
};

/// Makes this step's truth from its plan: zeroes the SlotState of `reset_slots`, and writes for each row the token it
/// embeds and the attention rows with the bounds of finished sequences emptied (kv_hi = kv_lo).
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

/// out[r] = table[token_ids[r]].
///
///     out  [rows, d] f32     table  [n_vocab, d] float     token_ids  [rows] i32, each in [0, n_vocab)
struct EmbeddingArgs {
  TensorView out;
  ConstTensorView table;
  ConstTensorView token_ids;
};
void embedding(Backend& backend, const EmbeddingArgs& args);

/// Root-mean-square norm of the residual stream, after adding to it what parts of a layer give:
///
///     x[r] += delta[r] + second_delta[r] (those that there are)     out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight
///
///     x  [rows, d] f32, updated in place     weight  [d] float     out  [rows, d] float; no overlap with the others
///     delta, second_delta  [rows, d] of one float dtype, or null data; no second without a first
/// Sums in f32. Source: arXiv:1910.07467.
struct RmsNormArgs {
  TensorView x;
  ConstTensorView delta;
  ConstTensorView weight;
  TensorView out;
  float eps = 1e-5f;
  ConstTensorView second_delta = {};
};
void rms_norm(Backend& backend, const RmsNormArgs& args);

/// Layer norm of the residual stream, after the same additions:
///
///     out[r] = (x[r] - mean(x[r])) / sqrt(mean((x[r] - mean(x[r]))^2) + eps) * weight + bias
///
///     weight  [d] float     bias  [d] of weight's dtype, or null data     the others as for rms_norm
/// Sums in f32, those of squares behind those of the mean. Source: arXiv:1607.06450.
struct LayerNormArgs {
  TensorView x;
  ConstTensorView delta;
  ConstTensorView weight;
  ConstTensorView bias;
  TensorView out;
  float eps = 1e-5f;
  ConstTensorView second_delta = {};
};
void layer_norm(Backend& backend, const LayerNormArgs& args);

/// Chooses rows: out[i] = in[rows[i]] for the rows whose logits are wanted (StepHeader::samples).
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
///     x  [rows, k] of the dtype W was packed for     W  [n, k] packed by Backend::pack_matrix     out  [rows, n] float
///     bias  [n] float, or null data; of out's dtype where speed counts
/// Sums in f32. The bias may be added to the sum or to the rounded product. With BackendOptions::batch_invariant a
/// row of out is the same bits whatever the number of rows.
struct MatmulArgs {
  ConstTensorView x;
  const PackedMatrix* weight = nullptr;
  TensorView out;
  ConstTensorView bias = {};
};
void matmul(Backend& backend, const MatmulArgs& args);

/// Rotates queries and keys to their positions, and stores keys and values in the cache.
///
///     qkv  [rows, (n_heads + 2 n_kv_heads) * head_dim] float: queries, keys, values of each row, heads contiguous
///     q    [rows, n_heads, head_dim] float out: rotated queries
///     (a_i, a_{i + h}) -> (a_i cos - a_{i+h} sin, a_{i+h} cos + a_i sin),  h = rotary_dim / 2, at the row's position
/// Keys are rotated in f32 and rounded once to the storage's dtype. Row r is stored at kv_indices[r] of `layer`;
/// kNoKvIndex stores nothing. Source: arXiv:2104.09864 in the half-split order of Llama checkpoints.
struct RopeAppendArgs {
  ConstTensorView qkv;
  TensorView q;
  RopeTable rope;
  ConstTensorView rows;  ///< TokenRow [n_rows] as u8 [n_rows, 16]
  StepView step;
  int group = 0;
  int layer = 0;  ///< index inside the group's storage
  KvStorage* kv = nullptr;
};
void rope_append(Backend& backend, const RopeAppendArgs& args);

/// Partial attention states of a step: fp32, un-normalised. m is the maximum of the scaled scores times log2(e); l and
/// o are sums of exp2(score - m). m = -inf, l = 0, o = 0 marks an empty run.
///
///     o  [n_partials, n_heads, head_dim] f32     m, l  [n_partials, n_heads] f32
struct PartialStates {
  TensorView o;
  TensorView m;
  TensorView l;
};

/// Attention of every token row over its keys, by the step's work list: prefix nodes and contexts, decode and prefill
/// alike.
///
///     for each item, row in item, query head h (KV head h / (n_heads / n_kv_heads)):
///         s_t = c(scale * q . k_t) * log2(e)   for t in [kv_begin, kv_end) and in the row's [kv_lo, kv_hi)
///         c(x) = softcap tanh(x / softcap) if softcap > 0, else x
///         state = (m, l, o) of softmax(s) V; with batch_invariant (and always on the CPU) built chunk by chunk
///         (kAttentionChunk, absolute positions), folded left to right
///     direct items write o / l to `out`, others their state to `partials`.
///
///     q  [rows, n_heads, head_dim] float, on CUDA KvShape::matmul_dtype     out  the same shape, float (on CUDA q's or f32);
///     may not overlap q
/// Rows that no direct item covers are left to attention_merge, or merged here with the same bits if `merge` is set. A
/// row without keys gives 0. Products of a bf16 cache take bf16 operands (q and exp2(s - m) rounded to nearest even)
/// with f32 sums; an f32 cache f32. Sources: arXiv:2402.14808 (relay), 2309.06180 (paged), Flash-Decoding (split
/// runs).
struct AttentionArgs {
  ConstTensorView q;
  TensorView out;
  PartialStates partials;
  ConstTensorView rows;  ///< TokenRow [n_rows] as u8 [n_rows, 16], as resolve_rows left them, not by the operation right before
  StepView step;
  int group = 0;
  int layer = 0;
  const KvStorage* kv = nullptr;  ///< what items call settled may be read while the operation right before still runs
  float scale = 0;
  float softcap = 0;   ///< bound of the scores, 0: none
  bool merge = false;  ///< also do what attention_merge does with these partial states
};
void attention(Backend& backend, const AttentionArgs& args);

/// Combines partial attention over disjoint runs of keys into attention over their union, for every row that has merge
/// inputs (partial states, named by their index):
///
///     state = fold of merge(a, b):  m = max(a.m, b.m), l = a.l 2^(a.m - m) + b.l 2^(b.m - m), o alike;   out = o / l
///
/// in the order of merge_inputs, which is the order of positions, so that the result does not depend on who came first
/// (CUDA sums up to 32 states against their maximum, more in four parts; their number alone says how). On the CPU the
/// same fold joins chunks inside an item, so cutting an item at chunk boundaries changes no bit if each piece behind
/// the first is one chunk
/// (folds run left to right and do not associate). Empty rows give 0, never NaN. out  [rows, n_heads, head_dim] float; rows
/// without merge inputs are left alone. Source: RelayAttention, arXiv:2402.14808, Eq. 7 and 11.
struct AttentionMergeArgs {
  TensorView out;
  PartialStates partials;
  StepView step;
  int group = 0;
};
void attention_merge(Backend& backend, const AttentionMergeArgs& args);

/// Gated activation: out[r, i] = silu(gate[r, i]) * up[r, i], silu(a) = a / (1 + exp(-a)).
///
///     gate_up  [rows, 2 n] float: gate, then up     out  [rows, n] float; no overlap
struct SiluMulArgs {
  ConstTensorView gate_up;
  TensorView out;
};
void silu_mul(Backend& backend, const SiluMulArgs& args);

/// Activation of a feed-forward part without a gate: out[r, i] = gelu(in[r, i]).
///
///     exact   x (1 + erf(x / sqrt(2))) / 2
///     tanh    x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
///
///     in, out  [rows, n] float; no overlap
/// In f32. Source: arXiv:1606.08415.
enum class GeluKind { exact, tanh };
struct GeluArgs {
  ConstTensorView in;
  TensorView out;
  GeluKind kind = GeluKind::exact;
};
void gelu(Backend& backend, const GeluArgs& args);

/// Chooses the next token of every sample, updates its SlotState, and reports log-probabilities.
///
///     logits  [n_samples, n_vocab] f32, may be changed     slots  [n_slots] SlotState (u8 [n_slots, 16])
///     results  [n_samples] SampleResult (u8 [n_samples, sizeof(SampleResult)])
/// Log-probabilities are those of softmax(logits) as they came. Then, in this order, in f32:
///
///     biases      x += bias
///     penalties   of a listed token with count n:  x = x > 0 ? x / repetition : x * repetition
///                                                  if n > 0:  x -= presence + frequency n
///                 With counts_last_token the slot's last token counts once more, and joins the list if it is not there.
///     forbidden   bans (with any `after`, or with the slot's last token), stop ids before min_tokens, and all tokens
///                 but `allowed` if there are any
///
/// Temperature 0 takes the largest logit, the smaller id on a tie. Otherwise the probabilities are softmax(x /
/// temperature). min_p keeps those of at least min_p times the largest; of these top_k keeps the largest; of these top_p
/// keeps the smallest set whose share reaches top_p (ties by smaller id). The token is the maximum of log p + Gumbel
/// noise, with Philox4x32-10 numbers of key seed and counter (n_generated, token id), so it is the same in any batch. A
/// NaN among the logits ends the sequence with FinishedBy::not_a_number. A sample with `scored` reports that token's
/// log-probability and rank; it neither reads nor changes a slot.
struct SampleArgs {
  StepView step;
  TensorView logits;
  TensorView slots;
  TensorView results;
};
void sample(Backend& backend, const SampleArgs& args);

/// Sum over all ranks, in rank order, in place; identity at world size 1.   x  any shape, float
void all_reduce(Backend& backend, TensorView x);
/// out = the ranks' parts one after the other along the last axis; a copy at world size 1.
///     part  [rows, n] float     out  [rows, n * world size]
void all_gather(Backend& backend, TensorView out, ConstTensorView part);

}  // namespace baton
