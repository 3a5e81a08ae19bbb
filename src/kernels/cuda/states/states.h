/// The operations on recurrent states on a CUDA device: see the functions of the same names in kernels/ops.h.
///
/// They read runs from the uploaded step through its header, so a captured launch serves later steps of at most as many rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Whether launches are captured. What a captured launch serves has other runs, none of which is empty.
inline bool is_capturing(const Device& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(device.stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}
/// The most runs that a launch must cover.
inline std::int64_t most_runs(const StateArgs& state, bool is_captured) {
  if (!is_captured) return state.step.count(SectionKind::state_runs);
  return std::min(state.step.header->n_rows, state.storage->shape().n_slots);
}

/// A row's bits do not depend on how its sequence is cut into steps.
void short_conv(const Device& device, const ShortConvArgs& args);

/// Memory that recurrent layers need to compute long runs in chunks; 0: they compute all row by row.
std::size_t chunk_memory_bytes(const Device& device, const StateShape& shape);
/// Without `memory` all rows are computed row by row, and then a row's bits do not depend on how its sequence is cut into steps.
void gated_delta_rule(const Device& device, const GatedDeltaRuleArgs& args, std::span<std::byte> memory);
/// The same.
void mamba2_scan(const Device& device, const Mamba2ScanArgs& args, std::span<std::byte> memory);

}  // namespace baton::cuda
