/// The working memory of a model's steps, allocated once for the largest step, and its RoPE tables.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "model/linear.h"
#include "model/spec.h"

namespace baton {

/// Buffers for the widest layer. Each layer uses views of its own width.
struct Workspace {
  /// Errors: out_of_memory.
  static Result<std::unique_ptr<Workspace>> make(const ModelSpec& spec, DType dtype, bool has_f8_rows, Backend& backend,
                                                 const StepBounds& bounds);

  ModelRank rank;
  DType dtype = DType::f32;         ///< of weights, and of the inputs of matmuls
  DType matmul_dtype = DType::f32;  ///< output dtype of the matmuls inside a layer: delta, qkv and up
  bool has_f8_rows = false;         ///< see ModelWeights
  std::int64_t max_rows = 0;
  std::int64_t max_partials = 0;
  Buffer token_ids;
  Buffer rows;  ///< TokenRow [n_groups, rows]
  Buffer x;     ///< the residual stream
  Buffer normed, qkv, q, attended, up, activated, gathered, logits;
  /// Empty without has_f8_rows: what the norms of `normed` give in 8 bits, and scales [rows] f32 of these rows and of others.
  Buffer normed_f8, norm_scales, row_scales;
  /// Of recurrent layers, otherwise empty: what the convolution gives, and outputs of the delta rule or of the scan;
  /// for the delta rule also b and a of each head in f32.
  Buffer conv_out, recurrent_out, recurrent_gates;
  Buffer of_heads;  ///< of latent attention: the expanded queries, then the outputs of heads; empty without such layers
  Buffer delta;     ///< what a block adds to the residual stream; has room for both blocks of parallel ones
  Buffer parts;     ///< of all ranks, of what they gather; empty with one rank
  /// Of layers with experts, empty without such layers: the router's logits, ExpertChoices, and what the experts
  /// compute for each choice. `up` and `activated` have a row for each choice.
  Buffer router_logits, experts, expert_weights, expert_places, expert_rows, expert_offsets, expert_out;
  Buffer weighed;      ///< rows times their weights, of layers that weigh what experts read
  Buffer ones;         ///< f32: weights of norms without weights, and of choices whose experts weigh what they read
  Buffer row_numbers;  ///< i32: 0, 1, ... with `weighed`
  Buffer partial_o, partial_m, partial_l;
  std::vector<RopeTable> ropes;  ///< one for each of ModelSpec::ropes, with max_positions positions

  /// Memory for parts [n_rows, n] in f32; without data with one rank.
  RankParts rank_parts(std::int64_t n_rows, std::int64_t n) const;
  /// The choices of `n_rows` rows in a layer with experts.
  ExpertChoices expert_choices(const FeedForwardSpec& spec, std::int64_t n_rows) const;

  std::vector<Buffer> rope_buffers;
};

}  // namespace baton
