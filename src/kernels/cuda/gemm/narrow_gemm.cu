/// The GEMM of narrow weights, those with few outputs, by up to 128 rows. A cluster of blocks multiplies a tile of outputs by a tile of
/// rows: its warps divide k. Operands go from memory straight to the matrix units, the first weights before the kernel before has
/// ended. The blocks then exchange their sums through each other's shared memory, and each adds a part of the tile in order.
/// direct_chunks.cuh says in which order a step's numbers are taken.
#include "kernels/cuda/gemm/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/direct_chunks.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch_clusters.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kOutputs = 16;    ///< of one multiplication
constexpr int kRows = 8;        ///< of one multiplication
constexpr int kStep = 32;       ///< numbers of k that a warp multiplies at once
constexpr int kChunk = 8;       ///< numbers of one load
constexpr int kPadding = 4;     ///< after a row of sums, so that the lanes of a warp write to different banks
constexpr int kMostBlocks = 8;  ///< of a cluster
constexpr int kResidents = 2;   ///< blocks of a multiprocessor

struct NarrowGemmParams {
  const void* x;
  const void* weight;
  const void* bias;  ///< [n], or null
  void* out;
  int n_rows;
  int n;
  int k;
  DType bias_dtype;
};

#ifdef BATON_SM90A

__device__ __forceinline__ float narrow_bias(const NarrowGemmParams& p, int column) {
  switch (p.bias_dtype) {
    case DType::bf16: return to_f32(static_cast<const __nv_bfloat16*>(p.bias)[column]);
    case DType::f16: return to_f32(static_cast<const __half*>(p.bias)[column]);
    default: return static_cast<const float*>(p.bias)[column];
  }
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
/// A barrier whose phase ends when `n_bytes` have come from the cluster. One thread calls it, and then all arrive at the cluster.
__device__ __forceinline__ void expect_from_cluster(std::uint32_t barrier, int n_bytes) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}
__device__ __forceinline__ void wait_for_bytes(std::uint32_t barrier) {
  asm volatile(
      "{\n\t.reg .pred done;\n\tagain:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n\t@!done bra again;\n\t}" ::
          "r"(barrier)
      : "memory");
}
/// Nothing that the threads wrote before need be seen after it, but barriers that they initialised.
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Sends a number to the place that `to` has in the shared memory of the cluster's block `rank`, whose `barrier` counts its bytes.
__device__ __forceinline__ void send_to(std::uint32_t rank, std::uint32_t to, float value, std::uint32_t barrier) {
  asm volatile(
      "{\n\t.reg .b32 there, counter;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\tmapa.shared::cluster.u32 counter, %3, "
      "%1;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %2, [counter];\n\t}" ::"r"(to),
      "r"(rank), "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}

#endif  // BATON_SM90A

/// A block's tile and how far it loads ahead.
template <int kOutputTiles, int kRowTiles>
struct NarrowTile {
  static constexpr int kTileOutputs = kOutputTiles * kOutputs;
  static constexpr int kTileRows = kRowTiles * kRows;
  static constexpr int kSums = kTileOutputs * kTileRows;
  /// Steps of a warp whose loads are in flight, as many as leave registers for two blocks of a multiprocessor.
  static constexpr int kAhead = kOutputTiles * kRowTiles <= 2 ? 4 : kOutputTiles == 1 ? 3 : 2;
  static constexpr int kSumsStride = kTileOutputs + kPadding;
  static constexpr int kSharedBytes = static_cast<int>(sizeof(float)) * (kWarps * kTileRows * kSumsStride + kSums);
};

/// T is the type of x and of the weight. Grid: [blocks of a cluster, tiles of outputs, tiles of rows]. In code for older devices the
/// kernel is empty.
template <class T, class Out, int kOutputTiles, int kRowTiles>
__global__ void __launch_bounds__(kThreads, kResidents)
    narrow_gemm_kernel([[maybe_unused]] const __grid_constant__ NarrowGemmParams p) {
#ifdef BATON_SM90A
  using Tile = NarrowTile<kOutputTiles, kRowTiles>;
  constexpr int kAhead = Tile::kAhead;
  extern __shared__ __align__(16) float of_warps[];                                  // [warp][row][output]
  float* const of_blocks = of_warps + kWarps * Tile::kTileRows * Tile::kSumsStride;  // [block][sum of this block's part]
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int group = thread % kWarpSize / 4;
  const int quarter = thread % 4;
  const auto n_blocks = static_cast<int>(gridDim.x);
  const int n_steps = (p.k + kStep - 1) / kStep;
  const int first_output = static_cast<int>(blockIdx.y) * Tile::kTileOutputs;
  const int first_row = static_cast<int>(blockIdx.z) * Tile::kTileRows;
  const int first_step = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int stride = n_blocks * kWarps;
  let_next_kernel_start();
  __shared__ std::uint64_t barrier_word;
  const std::uint32_t barrier = shared_address(&barrier_word);
  if (n_blocks > 1) {
    if (thread == 0) expect_from_cluster(barrier, Tile::kSums * static_cast<int>(sizeof(float)));
    __syncwarp();
    arrive_at_cluster();
  }
  // Weight rows after the last are the last; rows of x after the last are zero.
  const T* const weight = static_cast<const T*>(p.weight) + quarter * kChunk;
  const T* const x = static_cast<const T*>(p.x) + quarter * kChunk;
  uint4 weights[kAhead][2 * kOutputTiles];
  uint4 inputs[kAhead][kRowTiles];
  const auto exists = [&](int step) { return step * kStep + quarter * kChunk < p.k; };
  const auto load_weights = [&](int step, uint4(&to)[2 * kOutputTiles]) {
#pragma unroll
    for (int i = 0; i < 2 * kOutputTiles; ++i) {
      const int row = min(first_output + 8 * i + group, p.n - 1);
      to[i] =
          exists(step) ? load_chunk_once(weight + static_cast<std::int64_t>(row) * p.k + step * kStep) : make_uint4(0, 0, 0, 0);
    }
  };
  const auto load_inputs = [&](int step, uint4(&to)[kRowTiles]) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = first_row + kRows * i + group;
      to[i] = row < p.n_rows && exists(step)
                  ? __ldcg(reinterpret_cast<const uint4*>(x + static_cast<std::int64_t>(row) * p.k + step * kStep))
                  : make_uint4(0, 0, 0, 0);
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_weights(first_step + i * stride, weights[i]);
  wait_for_kernel_before();
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_inputs(first_step + i * stride, inputs[i]);
  float sums[kOutputTiles][kRowTiles][4] = {};
  for (int begin = first_step; begin < n_steps; begin += kAhead * stride) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int o = 0; o < kOutputTiles; ++o)
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          multiply_chunks<T>(sums[o][r], weights[i][2 * o], weights[i][2 * o + 1], inputs[i][r]);
      const int next = begin + (i + kAhead) * stride;  // after the last step: zeros
      load_weights(next, weights[i]);
      load_inputs(next, inputs[i]);
    }
  }
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o)
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp * Tile::kTileRows + kRows * r + 2 * quarter + i % 2;
        of_warps[row * Tile::kSumsStride + kOutputs * o + 8 * (i / 2) + group] = sums[o][r][i];
      }
  __syncthreads();
  const auto write = [&](int index, float sum) {
    const int row = first_row + index / Tile::kTileOutputs;
    const int output = first_output + index % Tile::kTileOutputs;
    if (row >= p.n_rows || output >= p.n) return;
    if (p.bias != nullptr) sum += narrow_bias(p, output);
    static_cast<Out*>(p.out)[static_cast<std::int64_t>(row) * p.n + output] = from_f32<Out>(sum);
  };
  const int n_part = Tile::kSums / n_blocks;
  if (n_blocks > 1) wait_for_cluster();  // all blocks have begun
  for (int index = thread; index < Tile::kSums; index += kThreads) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      sum += of_warps[(w * Tile::kTileRows + index / Tile::kTileOutputs) * Tile::kSumsStride + index % Tile::kTileOutputs];
    if (n_blocks == 1)
      write(index, sum);
    else
      send_to(static_cast<std::uint32_t>(index / n_part),
              shared_address(of_blocks + static_cast<int>(blockIdx.x) * n_part + index % n_part), sum, barrier);
  }
  if (n_blocks == 1) return;
  wait_for_bytes(barrier);
  for (int i = thread; i < n_part; i += kThreads) {
    float sum = 0;
    for (int block = 0; block < n_blocks; ++block) sum += of_blocks[block * n_part + i];
    write(static_cast<int>(blockIdx.x) * n_part + i, sum);
  }
#endif
}

template <int kOutputTiles, int kRowTiles>
void launch_narrow(const Device& device, const NarrowGemmParams& params, DType dtype, DType out_dtype, int n_blocks) {
  using Tile = NarrowTile<kOutputTiles, kRowTiles>;
  const dim3 grid(static_cast<unsigned>(n_blocks),
                  static_cast<unsigned>((params.n + Tile::kTileOutputs - 1) / Tile::kTileOutputs),
                  static_cast<unsigned>((params.n_rows + Tile::kTileRows - 1) / Tile::kTileRows));
  visit_operands(dtype, out_dtype, [&]<class T, class Out>(T, Out) {
    auto* const kernel = narrow_gemm_kernel<T, Out, kOutputTiles, kRowTiles>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes), "narrow_gemm");
    prefer_shared_memory(kernel);
    launch_clusters(device, kernel, grid, n_blocks, kThreads, Tile::kSharedBytes, "narrow_gemm", params);
  });
}

/// A way to divide a matmul.
struct NarrowDivision {
  int output_tiles = 1;
  int row_tiles = 1;
  int n_ahead = 0;
  int n_blocks = 1;  ///< of a cluster
  double us = 0;     ///< estimated
};

/// The microseconds of a division by figures of an H200: what a step of loads waits, what a multiprocessor loads in a microsecond, and what
/// blocks of a cluster cost one another.
void estimate_time(NarrowDivision& division, const NarrowGemmParams& p, int n_multiprocessors) {
  constexpr double kWaitUs = 1.5;
  constexpr double kBytesOfUs = 40e3;
  constexpr double kBlockUs = 0.04;
  const auto parts = [](int n, int of) { return (n + of - 1) / of; };
  const int n_steps = parts(p.k, kStep);
  const int n_tiles = parts(p.n, kOutputs * division.output_tiles) * parts(p.n_rows, kRows * division.row_tiles);
  const int n_of_warp = parts(n_steps, kWarps * division.n_blocks);
  const double bytes = 2.0 * kStep * kWarps * n_of_warp * (kOutputs * division.output_tiles + kRows * division.row_tiles);
  const double filled = static_cast<double>(n_tiles) * division.n_blocks / n_multiprocessors;
  const double rounds = std::ceil(filled / kResidents);
  division.us = kWaitUs * rounds * parts(n_of_warp, division.n_ahead) + std::max(filled, 1.0) * bytes / kBytesOfUs +
                kBlockUs * division.n_blocks;
}

/// Calls `launch(a kernel's launch_narrow, blocks of a cluster)` of the fastest division.
template <class Launch>
void launch_fastest(const NarrowGemmParams& p, int n_multiprocessors, Launch&& launch) {
  NarrowDivision best{.us = 1e9};
  const auto for_kernels = [](auto&& use) {
    const auto one = [&]<int kOutputTiles, int kRowTiles>() {
      use(NarrowDivision{kOutputTiles, kRowTiles, NarrowTile<kOutputTiles, kRowTiles>::kAhead},
          launch_narrow<kOutputTiles, kRowTiles>);
    };
    one.template operator()<1, 1>();
    one.template operator()<1, 2>();
    one.template operator()<1, 4>();
    one.template operator()<2, 4>();
  };
  for_kernels([&](NarrowDivision division, auto* /*launch*/) {
    for (division.n_blocks = 1; division.n_blocks <= kMostBlocks; division.n_blocks *= 2) {
      estimate_time(division, p, n_multiprocessors);
      if (division.us < best.us) best = division;
    }
  });
  for_kernels([&](const NarrowDivision& division, auto* launch_kernel) {
    if (division.output_tiles == best.output_tiles && division.row_tiles == best.row_tiles)
      launch(launch_kernel, best.n_blocks);
  });
}

}  // namespace

std::int64_t most_narrow_rows(const Device& device, const ConstTensorView& weight) {
  constexpr std::int64_t kMostRows = 128;
  constexpr std::int64_t kMostRowsOfMany = 8;  // with more, cuBLASLt is as fast
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const bool takes = device.compute_capability >= 90 && (weight.dtype == DType::bf16 || weight.dtype == DType::f16) &&
                     k % kChunk == 0 && n <= std::int64_t{kOutputs} * device.n_multiprocessors && k <= 1 << 20 &&
                     is_aligned(weight.data, 16);
  if (!takes) return 0;
  return n <= kFewOutputs ? kMostRows : kMostRowsOfMany;
}

void multiply_narrow(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                     const TensorView& out) {
  const std::int64_t n_rows = x.shape[0];
  check(n_rows >= 1 && n_rows <= most_narrow_rows(device, weight) && x.dtype == weight.dtype && is_aligned(x.data, 16) &&
            (out.dtype == x.dtype || out.dtype == DType::f32),
        "multiply_narrow: a matmul that it does not take");
  const NarrowGemmParams params{.x = x.data,
                                .weight = weight.data,
                                .bias = bias.data,
                                .out = out.data,
                                .n_rows = static_cast<int>(n_rows),
                                .n = static_cast<int>(weight.shape[0]),
                                .k = static_cast<int>(weight.shape[1]),
                                .bias_dtype = bias.dtype};
  launch_fastest(params, device.n_multiprocessors,
                 [&](auto* launch, int n_blocks) { launch(device, params, x.dtype, out.dtype, n_blocks); });
}

}  // namespace baton::cuda
