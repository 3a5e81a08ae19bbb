/// Chooses the kernel of a grouped matmul by the sizes that the host knows, never by the offsets, and has the kernel
/// for dtypes and sizes that the matrix units do not take.
#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_units.cuh"
#include "kernels/cuda/experts/packed_experts.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kResidents = 4;  ///< blocks a multiprocessor
/// Places whose sums a warp has at once, so that a weight is read once for all of them.
constexpr int kPlaces = 8;
constexpr int kColumnsAWarp = 4;
constexpr int kColumns = kWarps * kColumnsAWarp;
/// Places per expert, on average, from which tiles in shared memory are used: fewer do not fill a tile of 64.
constexpr std::int64_t kFewPlaces = 32;
/// The same up to which dense weights are streamed, and those in 8 and 4 bits.
constexpr std::int64_t kFewDenseStreamPlaces = 12;
constexpr std::int64_t kFewStreamPlaces = 4;
/// The same for weights in 8 and 4 bits: up to which units of 8 places are used, and of 32.
constexpr std::int64_t kFewSchemePlaces = 4;
constexpr std::int64_t kSomeSchemePlaces = 24;

/// A warp computes one column at a time for the places of a unit; its lanes divide k among them.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads, kResidents) grouped_matmul_kernel(const __grid_constant__ GroupedParams p) {
  __shared__ UnitOffsets offsets;
  wait_for_kernel_before();
  count_units<kPlaces, kColumns>(p, offsets);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto* x = static_cast<const T*>(p.x);
  const auto* weight = static_cast<const T*>(p.weight);
  auto* out = static_cast<Out*>(p.out);
  for (int index = static_cast<int>(blockIdx.x); index < offsets[p.n_experts]; index += static_cast<int>(gridDim.x)) {
    const GroupedUnit unit = unit_at<kPlaces, kColumns>(p, offsets, index);
    const T* rows[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) rows[i] = x + row_at(p, unit.place + min(i, unit.n_places - 1)) * p.k;
    for (int c = 0; c < kColumnsAWarp; ++c) {
      const int column = unit.column + warp * kColumnsAWarp + c;
      if (column >= p.n) break;
      const float bias = bias_at(p, unit.expert, column);
      const T* of_column = weight + (static_cast<std::int64_t>(unit.expert) * p.n + column) * p.k;
      float sums[kPlaces] = {};
      for (int at = lane; at < p.k; at += kWarpSize) {
        const float factor = to_f32(of_column[at]);
#pragma unroll
        for (int i = 0; i < kPlaces; ++i) sums[i] = fmaf(factor, to_f32(rows[i][at]), sums[i]);
      }
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
          sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], distance);
        if (lane == i && i < unit.n_places)
          out[static_cast<std::int64_t>(unit.place + i) * p.n + column] = from_f32<Out>(sums[i] + bias);
      }
    }
  }
}

/// By weights in 8 and 4 bits. Units of as many places as an expert has on average, or more, read its weight once. The kernel with
/// tiles adds in one order for units of either size; the one for few places, whose warps divide k, in another.
void multiply_scheme(const Device& device, const GroupedMatmulArgs& args, bool batch_invariant) {
  if (!fits_scheme_units(args)) return grouped_scheme_general(device, args);
  const std::int64_t n_places = args.out.shape[0];
  const std::int64_t n_experts = args.experts->n_experts;
  if (!batch_invariant && n_places <= kFewSchemePlaces * n_experts) return grouped_scheme_skinny(device, args);
  grouped_scheme_tiles(device, args, n_places <= kSomeSchemePlaces * n_experts ? 32 : 64);
}

}  // namespace

bool fits_scheme_units(const GroupedMatmulArgs& args) {
  return static_cast<const CudaExperts&>(*args.experts).fits_scheme_units() && is_aligned(args.x.data, 16);
}

bool fits_matrix_units(const GroupedMatmulArgs& args, const std::byte* weight, std::int64_t k_step) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // elements that an int can number
  const DType dtype = args.x.dtype;
  return (dtype == DType::bf16 || dtype == DType::f16) && (args.out.dtype == dtype || args.out.dtype == DType::f32) &&
         args.x.shape.n_elements() < kMost && args.experts->n * args.experts->k < kMost && args.experts->k % k_step == 0 &&
         args.experts->n % 2 == 0 && is_aligned(args.x.data, 16) && is_aligned(weight, 16) &&
         is_aligned(args.out.data, 2 * size_bytes(args.out.dtype));
}

void grouped_matmul(const Device& device, const GroupedMatmulArgs& args, bool batch_invariant) {
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  const std::byte* const weight = experts.buffer.data();
  const std::int64_t n_places = args.out.shape[0];
  if (n_places == 0) return;
  const std::int64_t most_streamed = experts.scheme == WeightScheme::dense ? kFewDenseStreamPlaces : kFewStreamPlaces;
  if (!batch_invariant && n_places <= most_streamed * experts.n_experts && fits_stream_units(device, args))
    return grouped_stream(device, args);
  if (experts.scheme != WeightScheme::dense) return multiply_scheme(device, args, batch_invariant);
  // In batch-invariant mode every number of places goes through the kernel for few, which decode steps need.
  const bool has_many = !batch_invariant && n_places > kFewPlaces * experts.n_experts;
  if (has_many && fits_matrix_units(args, weight, kGroupedTilesStep)) return grouped_tiles(device, args, weight);
  if (fits_matrix_units(args, weight, kGroupedSkinnyStep)) return grouped_skinny(device, args, weight);
  const GroupedParams params = grouped_params(args, weight);
  const auto n_blocks = static_cast<unsigned>(kResidents * device.n_multiprocessors);
  visit_element(args.x.dtype, [&](auto in) {
    visit_element(args.out.dtype, [&](auto out) {
      launch_overlapped(device, grouped_matmul_kernel<decltype(in), decltype(out)>, dim3(n_blocks), kThreads, 0,
                        "grouped_matmul", params);
    });
  });
}

}  // namespace baton::cuda
