/// One decoder layer: its attention block and its feed-forward block.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "model/spec.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace baton {

/// A step as the layers see it, with what they work in.
struct LayerStep {
  Backend& backend;
  const Workspace& work;
  StepView view;
  TensorView x;       ///< [rows, d_model] f32, the residual stream
  TensorView normed;  ///< [rows, d_model], what a block takes in
  TensorView rows;    ///< TokenRow [n_groups, rows]
  std::span<KvStorage* const> kv_of_group;
};

/// What parts of a layer add to the residual stream, [rows, d_model] each. The next norm adds it, so that it takes
/// no pass of its own. Before the first layer both are without data; the second has data behind a parallel block only.
struct Deltas {
  ConstTensorView first;
  ConstTensorView second;
};

/// Adds `added` to the residual stream, and writes the norm of the sum to step.normed.
void run_norm(const LayerStep& step, const NormSpec& spec, const NormWeights& weights, const Deltas& added);

/// Runs a layer. `added` is what the layer before adds to the residual stream; returns what this layer adds, valid
/// until the next call. `index` is the layer's place among those of its group.
Deltas run_layer(const LayerStep& step, const LayerSpec& spec, const LayerWeights& weights, int index, const Deltas& added);

}  // namespace baton
