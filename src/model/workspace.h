/// Memory that the steps of a model work in, made once for the largest step, and its tables of rotations.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "model/spec.h"

namespace baton {

/// Buffers for the widest layer; a layer takes views of them of its own widths.
struct Workspace {
  /// Errors: out_of_memory.
  static Result<std::unique_ptr<Workspace>> make(const ModelSpec& spec, DType dtype, Backend& backend,
                                                 const StepBounds& bounds);

  DType dtype = DType::f32;         ///< of weights, and of what matmuls take
  DType matmul_dtype = DType::f32;  ///< of what the matmuls inside a layer write: delta, qkv and up
  std::int64_t max_partials = 0;
  Buffer token_ids;
  Buffer rows;  ///< TokenRow [n_groups, rows]
  Buffer x;     ///< the residual stream
  Buffer normed, delta, qkv, q, attended, up, activated, gathered, logits;
  Buffer second_delta;  ///< of the feed-forward part of a parallel block; empty where no layer is one
  Buffer partial_o, partial_m, partial_l;
  std::vector<RopeTable> ropes;  ///< one for each of ModelSpec::ropes, of max_positions positions

  std::vector<Buffer> rope_buffers;
};

}  // namespace baton
