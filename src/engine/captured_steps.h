/// Decode steps without the launch of every operation: a model's forward and its sampling, captured once and replayed.
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

/// Graphs of forwards whose rows are all sampled (decodes, and drafts to be verified), and of sampling. Other forwards
/// are few and large, so that launches cost them little. A graph serves fewer rows than it was captured for too;
/// numbers of rows stand as close as the algorithms of matmuls do.
///
/// Thread: engine only. `forward` and `sample` allocate nothing.
class CapturedSteps {
 public:
  /// Captures the forward of `model` over these, and sampling from its logits into `results` (SampleResult [n], u8),
  /// for numbers of rows up to `max_rows`; all must outlive it. Errors: of Backend::capture.
  static Result<std::unique_ptr<CapturedSteps>> make(Backend& backend, Model& model, TensorView slots, TensorView results,
                                                     std::span<KvStorage* const> kv_of_group, std::int32_t max_rows);

  /// The numbers of rows that are captured when `max_rows` is the most: ascending, the last is max_rows.
  static std::vector<std::int32_t> sizes(std::int32_t max_rows);

  /// Enqueues the forward of an uploaded step: its logits [n_samples, n_vocab] f32, as Model::forward gives them.
  /// Nothing is enqueued for a step that no graph serves.
  std::optional<TensorView> forward(const StepView& step);
  /// Enqueues the sampling of a step from the logits that its forward, captured or not, leaves. False, and nothing is
  /// enqueued, for a step that no graph serves.
  bool sample(const StepView& step, TensorView logits);

  std::size_t n_graphs() const { return forwards_.size() + samples_.size(); }

 private:
  /// One graph, and what its operations read when they are called.
  struct Entry {
    std::int32_t n_rows = 0;
    bool has_partials = false;  ///< attention merges: it serves every step; else those without partial states
    StepView step;
    TensorView logits;
    std::unique_ptr<CapturedGraph> graph;
  };

  CapturedSteps() = default;
  std::vector<std::unique_ptr<Entry>> forwards_;  ///< ascending by rows, without partial states first
  std::vector<std::unique_ptr<Entry>> samples_;   ///< ascending by rows
};

}  // namespace baton
