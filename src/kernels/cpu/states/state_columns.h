/// How the kernels of recurrent layers walk over the matrices of states: a head at a time, some rows of a run in turn, and for those
/// some columns of the matrix, copied together so that they stay in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/state_storage.h"
#include "kernels/ops.h"

namespace baton::cpu {

inline constexpr std::int64_t kStateColumns = 32;  ///< of a copy: with 128 rows it has 16 KB
inline constexpr std::int64_t kStateRows = 16;     ///< rows of a run that go over a copy in turn
inline constexpr std::int64_t kFewStateRows = 4;   ///< for fewer nothing is copied

/// Numbers of rows that are computed in turn.
using StateRowNumbers = std::array<std::array<float, kMaxStateDim>, kStateRows>;
using StateColumnsCopy = std::array<float, kMaxStateDim * kStateColumns>;

/// Calls update(first, n_columns, matrix, stride) for all columns of `state` [key_dim, value_dim]: `matrix` begins with column
/// `first`, and its rows are `stride` apart.
template <class Update>
void update_columns(std::int64_t n_rows, std::int64_t key_dim, std::int64_t value_dim, float* state, StateColumnsCopy& copy,
                    const Update& update) {
  if (n_rows < kFewStateRows) return update(std::int64_t{0}, value_dim, state, value_dim);
  for (std::int64_t column = 0; column < value_dim; column += kStateColumns) {
    const std::int64_t n = std::min(kStateColumns, value_dim - column);
    for (std::int64_t j = 0; j < key_dim; ++j) std::copy_n(state + j * value_dim + column, n, copy.data() + j * kStateColumns);
    update(column, n, copy.data(), kStateColumns);
    for (std::int64_t j = 0; j < key_dim; ++j) std::copy_n(copy.data() + j * kStateColumns, n, state + j * value_dim + column);
  }
}

/// Computes every run for every head: Head(args, head).run_rows(first row, n_rows, matrix) for at most kStateRows rows in turn.
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
      Head of_head(args, head);
      float* const matrix = states.begin_run(args.state.layer, run, head, copy);
      for (std::int64_t done = 0; done < run.n_rows; done += kStateRows)
        of_head.run_rows(run.first_row + done, std::min<std::int64_t>(kStateRows, run.n_rows - done), matrix);
      states.end_run(args.state.layer, run, head, matrix);
    }
  });
}

}  // namespace baton::cpu
