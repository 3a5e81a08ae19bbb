/// Launches of the grouped matmul that streams weights: which it takes, the rings of a weight's stages, and whether warps share
/// units.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_stream.cuh"

namespace baton::cuda {
namespace {

/// Units, at most, for each multiprocessor, from which weights in 8 and 4 bits are streamed.
constexpr std::int64_t kFewUnits = 4;
/// Columns of a dense weight from which warps divide the stages of a unit: else what one has left at the end is waited for.
constexpr std::int64_t kFewestShared = 1024;
constexpr int kStageAlignment = 128;

/// Bytes of a stage's scales, or of its zeros, with `element` bytes a row and group.
int group_bytes(const SchemeView& weight, std::size_t element) {
  const int n_groups = std::max(1, kStreamColumns >> std::min(weight.group_shift, 30));
  return n_groups * kSchemeTileRows * static_cast<int>(element);
}

/// For a block with rings in `ring_bytes` of shared memory.
GroupedStreamParams stream_params(const GroupedMatmulArgs& args, const CudaExperts& experts, int ring_bytes) {
  GroupedStreamParams params{};
  params.scheme = grouped_scheme_params(args);
  params.reads_ahead = args.routed_earlier;
  int value_bytes = kStreamRows * kStreamColumns * static_cast<int>(sizeof(std::uint16_t));
  if (experts.scheme != WeightScheme::dense) {
    const SchemeView& weight = experts.view;
    value_bytes = kStreamColumns / chunk_columns(experts.scheme) * kPieceBytes;
    if (weight.scales != nullptr) params.scale_bytes = group_bytes(weight, size_bytes(weight.scale_dtype));
    if (weight.zeros != nullptr) params.zero_bytes = group_bytes(weight, 1);
  }
  const int stage_bytes = value_bytes + params.scale_bytes + params.zero_bytes;
  params.stage_bytes = (stage_bytes + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
  params.n_ring_stages = std::min(kMostRingStages, ring_bytes / (stream_warps(experts.scheme) * params.stage_bytes));
  return params;
}

template <class T, WeightScheme kScheme, int kShares>
void launch_stream(const Device& device, const GroupedMatmulArgs& args, const CudaExperts& experts) {
  constexpr int kWarps = stream_warps(kScheme);
  constexpr auto kMemoryBytes = static_cast<int>(sizeof(StreamMemoryOf<kScheme, kShares>));
  const GroupedStreamParams params = stream_params(args, experts, static_cast<int>(device.max_shared_bytes) - kMemoryBytes);
  const int shared_bytes = kWarps * params.n_ring_stages * params.stage_bytes + kMemoryBytes;
  auto* const kernel = grouped_stream_kernel<T, kScheme, kShares>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "grouped_matmul");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(device.n_multiprocessors)), kWarps * kWarpSize, shared_bytes,
                    "grouped_matmul", params, experts.map.value_or(CUtensorMap{}));
}

/// Of all experts that places may be of.
std::int64_t most_units(const GroupedMatmulArgs& args) {
  const std::int64_t n_slices = (args.experts->n + kStreamRows - 1) / kStreamRows;
  return std::min(args.out.shape[0], args.experts->n_experts) * n_slices;
}

}  // namespace

bool fits_stream_units(const Device& device, const GroupedMatmulArgs& args) {
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  if (device.compute_capability != 90 || !is_aligned(args.x.data, 16)) return false;
  if (experts.scheme == WeightScheme::dense) return experts.map.has_value();
  return fits_scheme_units(args) && most_units(args) >= kFewUnits * device.n_multiprocessors;
}

void grouped_stream(const Device& device, const GroupedMatmulArgs& args) {
  check(fits_stream_units(device, args), "grouped_stream: a matmul that it does not take");
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  visit_x(args.x.dtype, [&]<class T>(T) {
    constexpr WeightScheme kDense = WeightScheme::dense;
    if (experts.scheme == kDense && experts.k >= kFewestShared)
      return launch_stream<T, kDense, stream_warps(kDense)>(device, args, experts);
    if (experts.scheme == kDense) return launch_stream<T, kDense, 1>(device, args, experts);
    visit_expert_scheme(experts.scheme, [&]<WeightScheme kScheme>(std::integral_constant<WeightScheme, kScheme>) {
      launch_stream<T, kScheme, 1>(device, args, experts);
    });
  });
}

}  // namespace baton::cuda
