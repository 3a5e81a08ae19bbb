/// How the kernels of recurrent layers walk over the matrices of states: a head at a time, some rows of a run in turn, and for those
/// some columns of the matrix, copied together so that they stay in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/states/state_storage.h"
#include "kernels/ops.h"

namespace baton::cpu {

inline constexpr std::int64_t kStateColumns = 32;  ///< of a copy: with 128 rows it has 16 KB
inline constexpr std::int64_t kStateRows = 16;     ///< rows of a run that go over a copy in turn
inline constexpr std::int64_t kFewStateRows = 4;   ///< for fewer nothing is copied
static_assert(kMaxDraftTokens <= kStateRows);

/// Numbers of rows that are computed in turn.
using StateRowNumbers = std::array<std::array<float, kMaxStateDim>, kStateRows>;
using StateColumnsCopy = std::array<float, kMaxStateDim * kStateColumns>;

/// Some rows of a run that are computed in turn, counted from the first replayed one. The state has the first n_written of them.
struct StateRows {
  std::int64_t first = 0;
  std::int64_t n_rows = 0;  ///< at most kStateRows
  std::int64_t n_written = 0;
};

/// Calls update(first row, n_rows, first column, n_columns, matrix, stride) for all rows and all columns of `state` [key_dim,
/// value_dim]: `matrix` begins with the first column, and its rows are `stride` apart. Rows are counted from the first.
template <class Update>
void update_columns(const StateRows& rows, std::int64_t key_dim, std::int64_t value_dim, float* state, StateColumnsCopy& copy,
                    const Update& update) {
  if (rows.n_rows < kFewStateRows && rows.n_written == rows.n_rows)
    return update(std::int64_t{0}, rows.n_rows, std::int64_t{0}, value_dim, state, value_dim);
  for (std::int64_t column = 0; column < value_dim; column += kStateColumns) {
    const std::int64_t n = std::min(kStateColumns, value_dim - column);
    for (std::int64_t j = 0; j < key_dim; ++j) std::copy_n(state + j * value_dim + column, n, copy.data() + j * kStateColumns);
    update(std::int64_t{0}, rows.n_written, column, n, copy.data(), kStateColumns);
    for (std::int64_t j = 0; j < key_dim; ++j) std::copy_n(copy.data() + j * kStateColumns, n, state + j * value_dim + column);
    update(rows.n_written, rows.n_rows - rows.n_written, column, n, copy.data(), kStateColumns);
  }
}

/// The rows of a run with the replayed ones before them, and where each has what matrices are updated with.
class RunRows {
 public:
  RunRows(const StateArgs& args, const StateRun& run)
      : states_(static_cast<const CpuStateStorage&>(*args.storage)), layer_(args.layer), run_(run) {}

  std::int64_t size() const { return std::int64_t{run_.n_replayed} + run_.n_rows; }
  /// The next rows to compute in turn after the first `n_done`. Drafts go together, because no state is left between them.
  StateRows next(std::int64_t n_done) const {
    const std::int64_t n_written = run_.n_replayed + run_.n_written();
    std::int64_t n = std::min(kStateRows, size() - n_done);
    if (n_done + n < size()) n = std::min(n, n_written - n_done);
    return {n_done, n, std::min(n, n_written - n_done)};
  }
  bool is_replayed(std::int64_t i) const { return i < run_.n_replayed; }
  /// Which row of the step it is, if it is not replayed.
  std::int64_t row(std::int64_t i) const { return run_.first_row + i - run_.n_replayed; }
  /// The convolution's output: the tensor, and the element that it begins with. `rows`: those of the step.
  std::pair<ConstTensorView, std::int64_t> output(const ConstTensorView& rows, std::int64_t i) const {
    if (!is_replayed(i)) return {rows, row(i) * rows.shape[1]};
    return {states_.kept_output(layer_, run_.first_replayed + static_cast<std::int32_t>(i), rows.dtype), 0};
  }
  /// Gate `index`, which load(row of the step) returns unless the row is replayed. That of a draft is kept.
  template <class Load>
  float gate(std::int64_t i, std::int64_t index, const Load& load) const {
    const auto at = static_cast<std::int32_t>(i);
    if (is_replayed(i)) return states_.kept(layer_, run_.first_replayed + at)[states_.shape().kept_gates() + index];
    const float value = load(row(i));
    const std::int32_t draft = at - run_.n_replayed - run_.n_written();
    if (draft >= 0) states_.kept(layer_, run_.first_kept + draft)[states_.shape().kept_gates() + index] = value;
    return value;
  }

 private:
  const CpuStateStorage& states_;
  int layer_;
  const StateRun& run_;
};

/// Computes every run for every head: Head(args, rows of the run, head).run_rows(rows, matrix) for some rows in turn.
template <class Head, class Args>
void run_heads(Parallel& parallel, const Args& args) {
  const std::span<const StateRun> runs = args.state.step.template span<StateRun>(SectionKind::state_runs);
  const auto& states = static_cast<const CpuStateStorage&>(*args.state.storage);
  const auto n_runs = static_cast<std::int64_t>(runs.size());
  parallel.for_ranges(states.shape().n_heads * n_runs, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> copy;
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t head = part / n_runs;
      const StateRun& run = runs[static_cast<std::size_t>(part % n_runs)];
      const RunRows rows(args.state, run);
      Head of_head(args, rows, head);
      float* const matrix = states.begin_run(args.state.layer, run, head, copy);
      for (std::int64_t n_done = 0; n_done < rows.size();) {
        const StateRows next = rows.next(n_done);
        of_head.run_rows(next, matrix);
        n_done += next.n_rows;
      }
      states.end_run(args.state.layer, run, head, matrix);
    }
  });
}

}  // namespace baton::cpu
