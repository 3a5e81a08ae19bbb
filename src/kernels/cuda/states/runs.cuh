/// The runs of a step on the device, and the work that blocks find in them.
#pragma once

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/cuda/device/step_sections.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {

struct Runs {
  const StateRun* first;
  int n;
};

__device__ __forceinline__ Runs runs_of(const std::byte* step) {
  const Section& runs = step_header(step).section(SectionKind::state_runs);
  return {section<StateRun>(step, runs), runs.count};
}

/// Part `part` of run `run`; run -1: there are fewer parts.
struct RunPart {
  int run = -1;
  int part = 0;
};

/// Finds part `index` among the parts of all runs, of which a run has parts_of(run). All lanes of a warp call it.
template <class PartsOf>
__device__ __forceinline__ RunPart find_part(const Runs& runs, int index, PartsOf&& parts_of) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int base = 0; base < runs.n; base += kWarpSize) {
    const int own = base + lane < runs.n ? parts_of(runs.first[base + lane]) : 0;
    int end = own;  // of the lane's parts
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int others = __shfl_up_sync(kAll, end, distance);
      if (lane >= distance) end += others;
    }
    const unsigned has_it = __ballot_sync(kAll, end > index);
    if (has_it != 0) {
      const int holder = __ffs(static_cast<int>(has_it)) - 1;
      return {base + holder, index - __shfl_sync(kAll, end - own, holder)};
    }
    index -= __shfl_sync(kAll, end, kWarpSize - 1);
  }
  return {};
}

/// Row `i` of a run, counted from the first replayed one.
struct RunRow {
  bool is_replayed;
  std::int64_t row;  ///< of the step; 0 if it is replayed
  float* kept;       ///< of a replayed row and of a draft; else null

  /// Where its inputs are; `rows`: those of the step.
  __device__ const void* inputs(const void* rows, const KeptRowsOfLayer& layer) const {
    return is_replayed ? kept + layer.output : rows;
  }
};
__device__ __forceinline__ RunRow row_of(const StateRun& run, const KeptRowsOfLayer& layer, int i) {
  const bool is_replayed = i < run.n_replayed;
  const int draft = i - run.n_replayed - run.n_written();
  const int at = is_replayed ? run.first_replayed + i : run.first_kept + draft;
  return {is_replayed, is_replayed ? 0 : static_cast<std::int64_t>(run.first_row) + i - run.n_replayed,
          is_replayed || draft >= 0 ? layer.first + at * layer.stride : nullptr};
}

}  // namespace baton::cuda
