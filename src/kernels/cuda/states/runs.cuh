/// The runs of a step on the device, and the work that blocks find in them.
#pragma once

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/cuda/device/step_sections.cuh"
#include "kernels/cuda/device/warp.cuh"

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

}  // namespace baton::cuda
