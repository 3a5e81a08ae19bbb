/// Captured graphs of decode steps: a model's forward and its sampling are captured once and replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/kv_storage.h"
#include "model/decoder.h"

namespace baton {

/// Captured forwards whose rows are all sampled (decode rows and drafts to verify), and captured sampling. Other
/// forwards are few and large, so the time of their launches matters little. A graph also runs steps with fewer rows
/// than it was captured for; the captured sizes are as close together as the sizes at which matmuls change their
/// algorithm.
///
/// Thread: engine only. `forward` and `sample` allocate nothing.
class CapturedSteps {
 public:
  /// Captures the forward of `model` over these storages, and the sampling from its logits into `results`
  /// (SampleResult [n], u8), for several numbers of rows up to `max_rows`. Masks are those at the addresses of `masks`
  /// when a graph is replayed. `states` is as in Model::forward. All arguments must outlive it. Errors: those of Backend::capture.
  static Result<std::unique_ptr<CapturedSteps>> make(Backend& backend, Model& model, TensorView slots, TensorView results,
                                                     const TokenMasks& masks, std::span<KvStorage* const> kv_of_group,
                                                     StateStorage* states, std::int32_t max_rows);

  /// The numbers of rows that are captured for a maximum of `max_rows`: ascending, the last is max_rows.
  static std::vector<std::int32_t> sizes(std::int32_t max_rows);

  /// Enqueues the forward of an uploaded step. Returns its logits [n_samples, n_vocab] f32, as Model::forward does.
  /// Returns nothing, and enqueues nothing, if no graph fits the step.
  std::optional<TensorView> forward(const StepView& step);
  /// Enqueues the sampling of a step from the logits of its forward, which need not have been captured. Returns false,
  /// and enqueues nothing, if no graph fits the step.
  bool sample(const StepView& step, TensorView logits);

  std::size_t n_graphs() const { return forwards_.size() + samples_.size(); }

 private:
  /// One graph and the arguments that its operations read when they are called.
  struct Entry {
    std::int32_t n_rows = 0;
    std::size_t variant = 0;  ///< see graph_variant; of a forward
    StepView step;
    TensorView logits;
    std::unique_ptr<CapturedGraph> graph;
  };

  CapturedSteps() = default;
  std::vector<std::unique_ptr<Entry>> forwards_;  ///< ascending by rows, then by variant
  std::vector<std::unique_ptr<Entry>> samples_;   ///< ascending by rows
};

}  // namespace baton
