/// One decoder layer: its attention block and its feed-forward block.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "model/spec.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace baton {

/// The inputs of a step that all layers read, and their working memory.
struct LayerStep {
  Backend& backend;
  const Workspace& work;
  StepView view;
  TensorView x;     ///< [rows, d_model] f32, the residual stream
  TensorView rows;  ///< TokenRow [n_groups, rows]
  std::span<KvStorage* const> kv_of_group;
  StateStorage* states = nullptr;  ///< of a model with recurrent layers
};

/// Adds `added` to the residual stream and returns the norm of the sum; without weights, the sum itself. Valid until the next
/// call. In 8 bits if Workspace::has_f8_rows, the norm is an RMS norm and one of `readers` takes them; then in the model's
/// dtype, too, if another one does not. Empty ones do not count.
MatmulRows run_norm(const LayerStep& step, const NormSpec& spec, const NormWeights& weights, const Deltas& added,
                    std::span<const Linear* const> readers = {});

/// Runs a layer. `added` is what the previous layer adds to the residual stream (nothing before the first layer): the
/// next norm adds it, which saves a pass over memory. Returns what this layer adds, valid until the next call. `index`
/// is the layer's index in its group, or among the recurrent layers.
Deltas run_layer(const LayerStep& step, const LayerSpec& spec, const LayerWeights& weights, int index, const Deltas& added);

}  // namespace baton
