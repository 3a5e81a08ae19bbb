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

constexpr int kSharingWarps = 4;  ///< of a unit that warps share
/// Units, at most, for each multiprocessor, from which warps may have units of 8 and 4 bits of their own. Fewer are streamed in
/// FP8 only, by warps that share them.
constexpr std::int64_t kFewUnits = 4;
/// Columns from which warps share units nevertheless: what one that has a whole unit has left at the end is waited for.
constexpr std::int64_t kManyColumns = 1024;
/// Places per expert, on average, up to which units have 8: of the few experts with more, a second unit reads the weight from
/// the L2. From there on, dense units have 16.
constexpr std::int64_t kOneTilePlaces = 4;
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

template <class T, WeightScheme kScheme, int kTiles, int kShares>
void launch_stream(const Device& device, const GroupedMatmulArgs& args, const CudaExperts& experts) {
  constexpr int kWarps = stream_warps(kScheme);
  constexpr auto kMemoryBytes = static_cast<int>(sizeof(StreamMemoryOf<kScheme, kTiles, kShares>));
  const GroupedStreamParams params = stream_params(args, experts, static_cast<int>(device.max_shared_bytes) - kMemoryBytes);
  const int shared_bytes = kWarps * params.n_ring_stages * params.stage_bytes + kMemoryBytes;
  auto* const kernel = grouped_stream_kernel<T, kScheme, kTiles, kShares>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "grouped_matmul");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(device.n_multiprocessors)), kWarps * kWarpSize, shared_bytes,
                    "grouped_matmul", params, experts.map.value_or(CUtensorMap{}));
}

/// Of all experts that places may be of.
bool has_few_units(const Device& device, const GroupedMatmulArgs& args) {
  const std::int64_t n_slices = (args.experts->n + kStreamRows - 1) / kStreamRows;
  return std::min(args.out.shape[0], args.experts->n_experts) * n_slices < kFewUnits * device.n_multiprocessors;
}

}  // namespace

bool fits_stream_units(const Device& device, const GroupedMatmulArgs& args) {
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  if (device.compute_capability != 90 || !is_aligned(args.x.data, 16)) return false;
  if (experts.scheme == WeightScheme::dense) return experts.map.has_value();
  return fits_scheme_units(args) && (experts.scheme == WeightScheme::f8 || !has_few_units(device, args));
}

void grouped_stream(const Device& device, const GroupedMatmulArgs& args) {
  check(fits_stream_units(device, args), "grouped_stream: a matmul that it does not take");
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  visit_x(args.x.dtype, [&]<class T>(T) {
    constexpr WeightScheme kDense = WeightScheme::dense;
    if (experts.scheme == kDense && args.out.shape[0] <= kOneTilePlaces * experts.n_experts)
      return launch_stream<T, kDense, 1, kSharingWarps>(device, args, experts);
    if (experts.scheme == kDense) return launch_stream<T, kDense, 2, kSharingWarps>(device, args, experts);
    visit_expert_scheme(experts.scheme, [&]<WeightScheme kScheme>(std::integral_constant<WeightScheme, kScheme>) {
      if (has_few_units(device, args) || experts.k >= kManyColumns)
        return launch_stream<T, kScheme, 1, kSharingWarps>(device, args, experts);
      launch_stream<T, kScheme, 1, 1>(device, args, experts);
    });
  });
}

}  // namespace baton::cuda
