/// Chain GEMM: persistent blocks take tiles of the weight's rows in turn. Up to 64 rows of x are wgmma's M and the tile's
/// rows its N, so that a block has all of k even where a weight has few rows, and no sum is split. A thread copies stages
/// of the weight (the tile's rows, 128 numbers of each) to a ring in shared memory, another one x; a warpgroup multiplies.
///
/// A block starts as soon as its multiprocessor has room, which may be before the kernel before starts to compute, and
/// fills its ring with weights meanwhile.
#include "kernels/cuda/gemm/chain_gemm.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/gated_columns.cuh"
#include "kernels/cuda/gemm/gated_map.h"
#include "kernels/cuda/gemm/ring_multiply.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

constexpr int kMultipliers = 128;                ///< threads of the warpgroup
constexpr int kThreads = kMultipliers + 2 * 32;  ///< and a warp for each copying thread
constexpr int kTileRows = 64;                    ///< wgmma's M: rows of x that a block multiplies
constexpr int kBoxes = 2;                        ///< of a stage, for the weight and for x
constexpr int kStageK = kBoxes * kBoxK;
constexpr int kMaxStages = 24;
constexpr int kBarrierBytes = 3 * kMaxStages * 8;

/// Bytes of a box of `n_rows` rows, and of a stage.
constexpr int box_bytes(int n_rows) { return n_rows * kBoxK * 2; }
constexpr int stage_bytes(int width, int x_rows) { return kBoxes * (box_bytes(width) + box_bytes(x_rows)); }

/// wgmma reads kTileRows rows of x where a box holds fewer; what it finds there gives rows of out that are not stored.
/// After the last stage there must be memory to read.
constexpr int kReadBehind = box_bytes(kTileRows);

struct ChainGemmParams {
  const void* bias;  ///< [n] of out's type, or null
  void* out;         ///< [n_rows, n]
  int n_rows;
  int n;
  int n_tiles;     ///< of the weight
  int k_stages;    ///< of a tile
  int x_rows;      ///< of a box of x: a multiple of 8, at most 64
  int n_stages;    ///< of the ring
  FusedGate gate;  ///< of kernels with a gate: out is [n_rows, n / 2], and there is no bias
};

#ifdef BATON_SM90A

/// Weight stages that a block requests at once while it fills its ring. With more, the kernel before, which may still run,
/// would wait after them for memory.
constexpr int kFillStages = 4;

/// Calls `body(tile, k)` for each stage of the block, in the order of the ring.
template <class Body>
__device__ __forceinline__ void for_each_stage(const ChainGemmParams& p, Body&& body) {
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < p.n_tiles; tile += static_cast<int>(gridDim.x))
#pragma unroll 1
    for (int k = 0; k < p.k_stages; ++k) body(tile, k);
}

template <int kWidth, bool kIsGated>
__device__ void copy_weights(const ChainGemmParams& p, const Ring& ring, const CUtensorMap* map) {
  const std::uint64_t policy = read_once_policy();
  RingPlace place;
  int i = 0;
  for_each_stage(p, [&](int tile, int k) {
    if (i >= p.n_stages)
      barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
    else if (i >= kFillStages)
      barrier_wait(ring.has_weight + 8 * (i - kFillStages), 0);
    ++i;
    const std::uint32_t barrier = ring.has_weight + 8 * place.slot;
    barrier_expect(barrier, kBoxes * box_bytes(kWidth));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const std::uint32_t to = ring.stages + place.slot * stage_bytes(kWidth, p.x_rows) + box * box_bytes(kWidth);
      const int column = k * kStageK + box * kBoxK;
      if constexpr (kIsGated)
        copy_gated_box(to, map, column, tile * (kWidth / 2 / kGatedRunOfN), barrier, policy);
      else
        copy_box(to, map, column, tile * kWidth, barrier, policy);
    }
    place.advance(p.n_stages);
  });
}

template <int kWidth>
__device__ void copy_x(const ChainGemmParams& p, const Ring& ring, const CUtensorMap* map) {
  RingPlace place;
  int i = 0;
  for_each_stage(p, [&](int /*tile*/, int k) {
    if (i++ >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
    const std::uint32_t x = ring.stages + place.slot * stage_bytes(kWidth, p.x_rows) + kBoxes * box_bytes(kWidth);
    const std::uint32_t barrier = ring.has_x + 8 * place.slot;
    barrier_expect(barrier, kBoxes * box_bytes(p.x_rows));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      copy_box(x + box * box_bytes(p.x_rows), map, k * kStageK + box * kBoxK, static_cast<int>(blockIdx.y) * kTileRows,
               barrier);
    place.advance(p.n_stages);
  });
}

/// The multiplying warpgroup. T is the type of x and of the weight.
template <class T, class Out, int kWidth, bool kIsGated>
class ChainMultiplier {
  static constexpr int kGroups = kWidth / 8;

 public:
  __device__ ChainMultiplier(const ChainGemmParams& p, const Ring& ring)
      : p_(p), ring_(ring), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < p_.n_tiles; tile += static_cast<int>(gridDim.x)) {
      multiply();
      if constexpr (kIsGated)
        store_gated(tile * (kWidth / 2));
      else
        store(tile * kWidth);
    }
  }

 private:
  /// The sums of a tile.
  __device__ __forceinline__ void multiply() {
    multiply_stages<T, kBoxes>(ring_, place_, p_.n_stages, p_.k_stages, sums_, box_bytes(p_.x_rows), box_bytes(kWidth),
                               [&](int slot) {
                                 const std::uint32_t weight = ring_.stages + slot * stage_bytes(kWidth, p_.x_rows);
                                 return Operands{weight + kBoxes * box_bytes(kWidth), weight};
                               });
  }

  /// Writes the columns of out after `first`.
  __device__ __forceinline__ void store(int first) {
    const int row = static_cast<int>(blockIdx.y) * kTileRows + thread_ / 32 * 16 + thread_ % 32 / 4;
    const int column = first + thread_ % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + half * 8 >= p_.n_rows) continue;
      Out* const out = static_cast<Out*>(p_.out) + static_cast<std::int64_t>(row + half * 8) * p_.n + column;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (first + group * 8 >= p_.n) break;
        float low = sums_[0][group][2 * half];
        float high = sums_[0][group][2 * half + 1];
        if (p_.bias != nullptr) {
          const Out* const bias = static_cast<const Out*>(p_.bias) + column + group * 8;
          low += to_f32(bias[0]);
          high += to_f32(bias[1]);
        }
        if constexpr (std::is_same_v<Out, float>)
          *reinterpret_cast<float2*>(out + group * 8) = make_float2(low, high);
        else
          *reinterpret_cast<std::uint32_t*>(out + group * 8) = pack_pair<Out>(low, high);
      }
    }
  }

  /// The same for activations.
  __device__ __forceinline__ void store_gated(int first) {
    Out* const out = static_cast<Out*>(p_.out) + first;
    const GatedPlace place{static_cast<int>(blockIdx.y) * kTileRows + thread_ / 32 * 16 + thread_ % 32 / 4, p_.n_rows,
                           p_.n / 2 - first, p_.n / 2};
    store_gated_columns(p_.gate, sums_[0], out, place);
  }

  const ChainGemmParams& p_;
  const Ring& ring_;
  int thread_;
  RingPlace place_;
  float sums_[1][kGroups][4];
};

#endif  // BATON_SM90A

/// With a gate `weight_map` is a gated_map.
template <class T, class Out, int kWidth, bool kIsGated>
__global__ void __launch_bounds__(kThreads, 1)
    chain_gemm_kernel([[maybe_unused]] const __grid_constant__ ChainGemmParams p,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap weight_map) {
#ifdef BATON_SM90A
  extern __shared__ __align__(1024) std::byte memory[];
  const std::uint32_t stages = shared_address(memory);
  const std::uint32_t barriers = stages + p.n_stages * stage_bytes(kWidth, p.x_rows) + kReadBehind;
  const Ring ring{stages, barriers, barriers + 8 * kMaxStages, barriers + 16 * kMaxStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(ring, p.n_stages, kMultipliers / 32);
  __syncthreads();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    ChainMultiplier<T, Out, kWidth, kIsGated>(p, ring).run();
  } else if (thread == kMultipliers) {
    copy_weights<kWidth, kIsGated>(p, ring, &weight_map);
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_x<kWidth>(p, ring, &x_map);
  }
#endif
}

/// Calls `body` with the width as a constant.
template <class Body>
void visit_width(int width, Body&& body) {
  switch (width) {
    case 16: return body(std::integral_constant<int, 16>{});
    case 32: return body(std::integral_constant<int, 32>{});
    case 48: return body(std::integral_constant<int, 48>{});
    case 56: return body(std::integral_constant<int, 56>{});
    case 96: return body(std::integral_constant<int, 96>{});
    default: check_failed("chain_gemm: a width that has no kernel");
  }
}

/// Rows of a weight [n, k] that the busiest multiprocessor multiplies, in tiles of `width`.
std::int64_t most_rows(const Device& device, std::int64_t n, int width) {
  const std::int64_t n_tiles = (n + width - 1) / width;
  return (n_tiles + device.n_multiprocessors - 1) / device.n_multiprocessors * width;
}

/// The width whose tiles keep the most multiprocessors busy to the end. A narrower one must leave the busiest at least 4%
/// less to do, because it reads x more often, and wgmma takes as long for 16 rows of the weight as for 56.
int width_for(const Device& device, std::int64_t n) {
  int best = 96;
  for (const int width : {56, 48, 32, 16})
    if (most_rows(device, n, width) * 25 < most_rows(device, n, best) * 24) best = width;
  return best;
}

}  // namespace

ChainGemm::ChainGemm(const Device& device)
    : device_(device), encode_(device.compute_capability == 90 ? tensor_map_encoder() : nullptr) {}

std::optional<ChainWeight> ChainGemm::describe(const ConstTensorView& weight) const {
  constexpr std::int64_t kMost = 1 << 24;
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  if (encode_ == nullptr || (weight.dtype != DType::bf16 && weight.dtype != DType::f16) || n % 8 != 0 || k % 8 != 0 ||
      n > kMost || k > kMost || !is_aligned(weight.data, 16))
    return std::nullopt;
  const int width = width_for(device_, n);
  const bool is_busy = n * 20 >= most_rows(device_, n, width) * device_.n_multiprocessors * 19;
  return ChainWeight{weight, width, width >= 32 && is_busy, matrix_map(encode_, weight, width),
                     gated_map(encode_, weight, width, kGatedRunOfN)};
}

template <bool kIsGated>
void ChainGemm::launch(const ConstTensorView& x, const ChainWeight& weight, const std::byte* bias, const TensorView& out,
                       FusedGate gate) const {
  const auto n_rows = static_cast<int>(x.shape[0]);
  if (n_rows == 0) return;
  const int x_rows = std::min((n_rows + 7) / 8 * 8, kTileRows);
  const auto n = static_cast<int>(weight.matrix.shape[0]);
  const auto k = static_cast<int>(weight.matrix.shape[1]);
  const int n_tiles = (n + weight.width - 1) / weight.width;
  const int one_stage = stage_bytes(weight.width, x_rows);
  const int n_stages =
      std::min(kMaxStages, (static_cast<int>(device_.max_shared_bytes) - kReadBehind - kBarrierBytes) / one_stage);
  const int shared_bytes = n_stages * one_stage + kReadBehind + kBarrierBytes;
  const ChainGemmParams params{bias, out.data, n_rows, n, n_tiles, (k + kStageK - 1) / kStageK, x_rows, n_stages, gate};
  const dim3 grid(static_cast<unsigned>(std::min(n_tiles, device_.n_multiprocessors)),
                  static_cast<unsigned>((n_rows + kTileRows - 1) / kTileRows));
  const CUtensorMap x_map = matrix_map(encode_, x, x_rows);
  const auto launch_of = [&]<class T, class Out>(T, Out) {
    visit_width(weight.width, [&](auto width) {
      auto* const kernel = chain_gemm_kernel<T, Out, decltype(width)::value, kIsGated>;
      check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "chain_gemm");
      launch_overlapped(device_, kernel, grid, kThreads, shared_bytes, "chain_gemm", params, x_map,
                        kIsGated ? *weight.gated_map : weight.map);
    });
  };
  if constexpr (kIsGated)
    x.dtype == DType::bf16 ? launch_of(__nv_bfloat16{}, __nv_bfloat16{}) : launch_of(__half{}, __half{});
  else
    visit_operands(x.dtype, out.dtype, launch_of);
}

void ChainGemm::multiply(const ConstTensorView& x, const ChainWeight& weight, const ConstTensorView& bias,
                         const TensorView& out) const {
  check(x.dtype == weight.matrix.dtype && (out.dtype == x.dtype || out.dtype == DType::f32) && is_aligned(x.data, 16) &&
            is_aligned(out.data, 16),
        "chain_gemm: a matmul that it does not take");
  check(bias.data == nullptr || bias.dtype == out.dtype, "chain_gemm: a bias of another dtype than out's");
  launch<false>(x, weight, bias.data, out, FusedGate::silu);
}

void ChainGemm::multiply_gated(const ConstTensorView& x, const ChainWeight& weight, FusedGate gate,
                               const TensorView& out) const {
  check(x.dtype == weight.matrix.dtype && out.dtype == x.dtype && is_aligned(x.data, 16) && is_aligned(out.data, 16) &&
            weight.gated_map.has_value(),
        "chain_gemm: a gated matmul that it does not take");
  launch<true>(x, weight, nullptr, out, gate);
}

}  // namespace baton::cuda
