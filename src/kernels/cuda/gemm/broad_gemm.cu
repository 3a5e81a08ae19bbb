/// Broad GEMM: one persistent block a multiprocessor. x is wgmma's M (a warpgroup for each 64 rows), and a tile's 48 to 224
/// rows of the weight are its N, so that x comes from the L2 once for many bytes of the weight. A thread copies stages of the
/// weight to a ring in shared memory, another one x. broad_layout.h says which tiles a block has.
///
/// A block starts as soon as its multiprocessor has room, which may be before the kernel before starts to compute, and fills
/// its ring with weights meanwhile.
///
/// Where k has two parts, the block of the second passes its sums through the L2 (partial_sums.cuh) to that of the first, which
/// adds them to its own and stores. All words of partial sums are kNotWritten again when the kernel ends. They are touched only
/// after wait_for_kernel_before, so the next matmul, whose blocks may start earlier, finds them reset. No block waits for one
/// that cannot start: items of cut tiles are at most as many as multiprocessors, and the next kernel starts only when all of
/// them run.
#include "kernels/cuda/gemm/broad_gemm.h"

#include <algorithm>
#include <array>
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
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/gemm/partial_memory.h"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

static_assert(kBroadBoxK == kBoxK);
constexpr int kMaxStages = 24;
constexpr int kBarrierBytes = 3 * kMaxStages * 8;

constexpr int box_bytes(int n_rows) { return n_rows * kBoxBytes; }
constexpr int n_multipliers(int row_groups) { return row_groups * 128; }
/// The multipliers, and a warp for each copying thread.
constexpr int n_threads(int row_groups) { return n_multipliers(row_groups) + 2 * 32; }

struct BroadGemmParams {
  const void* bias;  ///< [n] of out's type, or null
  void* out;         ///< [n_rows, n]
  uint4* partials;   ///< [n_tiles, width / 8, multipliers]
  BroadSchedule schedule;
  int n_rows;
  int n;
  int x_rows;       ///< of a box of x
  int n_stages;     ///< of the ring
  int fill_stages;  ///< weight stages that a block requests at once while it fills its ring
  bool f32_out;
};

#ifdef BATON_SM90A

/// Calls `body(tile, part)` for each of the block's items.
template <class Body>
__device__ __forceinline__ void for_each_item(const BroadGemmParams& p, Body&& body) {
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x); item < p.schedule.n_items(); item += static_cast<int>(gridDim.x))
    body(item % p.schedule.n_tiles, item / p.schedule.n_tiles);
}
/// Calls `body(tile, k, slot, i)` for the block's i-th stage, stage k of its tile, as soon as its slot is empty.
template <class Body>
__device__ __forceinline__ void for_each_stage(const BroadGemmParams& p, const Ring& ring, Body&& body) {
  RingPlace place;
  int i = 0;
  for_each_item(p, [&](int tile, int part) {
    const int end = p.schedule.begin(part + 1);
#pragma unroll 1
    for (int k = p.schedule.begin(part); k < end; ++k) {
      if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
      body(tile, k, place.slot, i++);
      place.advance(p.n_stages);
    }
  });
}

template <int kWidth>
__device__ void copy_weights(const BroadGemmParams& p, const Ring& ring, const CUtensorMap* map, int stage_bytes) {
  constexpr int kBoxes = broad_boxes(kWidth);
  const std::uint64_t policy = read_once_policy();
  for_each_stage(p, ring, [&](int tile, int k, int slot, int i) {
    if (i >= p.fill_stages && i < p.n_stages) barrier_wait(ring.has_weight + 8 * (i - p.fill_stages), 0);
    const std::uint32_t barrier = ring.has_weight + 8 * slot;
    barrier_expect(barrier, kBoxes * box_bytes(kWidth));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      copy_box(ring.stages + slot * stage_bytes + box * box_bytes(kWidth), map, (k * kBoxes + box) * kBoxK, tile * kWidth,
               barrier, policy);
  });
}

template <int kWidth>
__device__ void copy_x(const BroadGemmParams& p, const Ring& ring, const CUtensorMap* map, int stage_bytes) {
  constexpr int kBoxes = broad_boxes(kWidth);
  for_each_stage(p, ring, [&](int /*tile*/, int k, int slot, int /*i*/) {
    const std::uint32_t x = ring.stages + slot * stage_bytes + kBoxes * box_bytes(kWidth);
    const std::uint32_t barrier = ring.has_x + 8 * slot;
    barrier_expect(barrier, kBoxes * box_bytes(p.x_rows));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) copy_box(x + box * box_bytes(p.x_rows), map, (k * kBoxes + box) * kBoxK, 0, barrier);
  });
}

/// In lane l of four, the l-th word of each of the four lanes.
__device__ __forceinline__ void transpose_in_four_lanes(std::uint32_t (&v)[4]) {
  const bool is_odd = (threadIdx.x & 1) != 0;
  const bool is_high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(~0u, is_odd ? v[i] : v[i + 1], 1);
    (is_odd ? v[i] : v[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t other = __shfl_xor_sync(~0u, is_high ? v[i] : v[i + 2], 2);
    (is_high ? v[i] : v[i + 2]) = other;
  }
}

/// The multiplying warpgroups. T is the type of x and of the weight.
template <class T, int kWidth, int kRowGroups>
class BroadMultiplier {
  static constexpr int kGroups = kWidth / 8;
  static constexpr int kMultipliers = n_multipliers(kRowGroups);
  static constexpr int kBoxes = broad_boxes(kWidth);

 public:
  __device__ BroadMultiplier(const BroadGemmParams& p, const Ring& ring, int stage_bytes)
      : p_(p), ring_(ring), stage_bytes_(stage_bytes), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    for_each_item(p_, [&](int tile, int part) {
      multiply(p_.schedule.begin(part + 1) - p_.schedule.begin(part));
      if (part > 0) return give_sums(tile);
      if (p_.schedule.n_parts > 1) add_other_sums(tile);
      if (p_.f32_out)
        store<float>(tile * kWidth);
      else
        store<T>(tile * kWidth);
    });
  }

 private:
  /// The sums of the next stages of the ring.
  __device__ __forceinline__ void multiply(int n_stages) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (float& sum : sums_[group]) sum = 0;
    int before = -1;  // the slot whose matmuls may still run
#pragma unroll 1
    for (int stage = 0; stage < n_stages; ++stage) {
      barrier_wait(ring_.has_weight + 8 * place_.slot, place_.parity);
      barrier_wait(ring_.has_x + 8 * place_.slot, place_.parity);
      const std::uint32_t weight = ring_.stages + place_.slot * stage_bytes_;
      const std::uint32_t x = weight + kBoxes * box_bytes(kWidth) + thread_ / 128 * box_bytes(kBroadRowGroup);
      own_accumulators(sums_);
      wgmma_fence();
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const std::uint64_t a = wgmma_descriptor(x + box * box_bytes(p_.x_rows), 16, 1024);
        const std::uint64_t b = wgmma_descriptor(weight + box * box_bytes(kWidth), 16, 1024);
#pragma unroll
        for (int step = 0; step < kBoxK / 16; ++step)  // of 16 numbers; descriptors count 16 bytes
          wgmma_shared<T>(sums_, a + step * 2, b + step * 2);
      }
      wgmma_commit();
      wgmma_wait<1>();
      release(before);
      before = place_.slot;
      place_.advance(p_.n_stages);
    }
    wgmma_wait<0>();
    own_accumulators(sums_);
    release(before);
  }
  /// This warp has read the stage.
  __device__ __forceinline__ void release(int slot) {
    if (slot >= 0 && thread_ % 32 == 0) barrier_arrive(ring_.empty + 8 * slot);
  }

  __device__ __forceinline__ uint4* partials_of(int tile) {
    return p_.partials + static_cast<std::int64_t>(tile) * kGroups * kMultipliers + thread_;
  }
  __device__ __forceinline__ void give_sums(int tile) {
    uint4* const to = partials_of(tile);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) store_partial(to + group * kMultipliers, as_partial(sums_[group]));
  }
  __device__ __forceinline__ void add_other_sums(int tile) {
    // As many at once as registers hold, because each time is a round trip.
    constexpr int kRegisters = kRowGroups == 1 ? 230 : 140;
    constexpr int kAtOnce = std::min(kGroups, kRegisters / 4 - kGroups);
    uint4* const from = partials_of(tile);
#pragma unroll
    for (int first = 0; first < kGroups; first += kAtOnce) {
      uint4 given[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i < kGroups) given[i] = load_partial(from + (first + i) * kMultipliers);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kGroups) continue;
        while (!is_written(given[i])) given[i] = load_partial(from + (first + i) * kMultipliers);
        reset_partial(from + (first + i) * kMultipliers);
        add_partial(sums_[first + i], given[i]);
      }
    }
  }

  /// A pair of columns' sums in one of the thread's two rows, and the bias.
  template <class Out>
  __device__ __forceinline__ float2 sums_of(int group, int half, int column) {
    float2 sums = make_float2(sums_[group][2 * half], sums_[group][2 * half + 1]);
    if (p_.bias != nullptr && column < p_.n) {
      const auto* const bias = static_cast<const Out*>(p_.bias) + column;
      sums.x += to_f32(bias[0]);
      sums.y += to_f32(bias[1]);
    }
    return sums;
  }
  /// Writes the tile's columns of out, `first` and those after it. Of 16 bits, four lanes write 64 adjacent bytes of a row.
  template <class Out>
  __device__ __forceinline__ void store(int first) {
    constexpr bool kIsFloat = std::is_same_v<Out, float>;
    constexpr int kTransposed = kIsFloat ? 0 : kGroups / 4 * 4;
    const int lane = thread_ % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = thread_ / 32 * 16 + thread_ % 32 / 4 + half * 8;
      Out* const out = static_cast<Out*>(p_.out) + static_cast<std::int64_t>(row) * p_.n + first;
      if constexpr (!kIsFloat) {
#pragma unroll
        for (int group = 0; group < kTransposed; group += 4) {
          std::uint32_t v[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 sums = sums_of<Out>(group + i, half, first + (group + i) * 8 + lane * 2);
            v[i] = pack_pair<Out>(sums.x, sums.y);
          }
          transpose_in_four_lanes(v);
          const int column = (group + lane) * 8;
          if (row < p_.n_rows && first + column < p_.n) *reinterpret_cast<uint4*>(out + column) = {v[0], v[1], v[2], v[3]};
        }
      }
#pragma unroll
      for (int group = kTransposed; group < kGroups; ++group) {
        const int column = group * 8 + lane * 2;
        const float2 sums = sums_of<Out>(group, half, first + column);
        if (row >= p_.n_rows || first + column >= p_.n) continue;
        if constexpr (kIsFloat)
          *reinterpret_cast<float2*>(out + column) = sums;
        else
          *reinterpret_cast<std::uint32_t*>(out + column) = pack_pair<Out>(sums.x, sums.y);
      }
    }
  }

  const BroadGemmParams& p_;
  const Ring& ring_;
  int stage_bytes_;
  int thread_;
  RingPlace place_;
  float sums_[kGroups][4];
};

#endif  // BATON_SM90A

template <class T, int kWidth, int kRowGroups>
__global__ void __launch_bounds__(n_threads(kRowGroups), 1)
    broad_gemm_kernel([[maybe_unused]] const __grid_constant__ BroadGemmParams p,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap weight_map) {
#ifdef BATON_SM90A
  constexpr int kMultipliers = n_multipliers(kRowGroups);
  extern __shared__ __align__(1024) std::byte memory[];
  const int stage_bytes = broad_boxes(kWidth) * (box_bytes(kWidth) + box_bytes(p.x_rows));
  const std::uint32_t stages = shared_address(memory);
  // Warpgroups read 64 rows of x where a box has fewer: there is memory after the last stage.
  const std::uint32_t barriers = stages + p.n_stages * stage_bytes + box_bytes(kRowGroups * kBroadRowGroup - p.x_rows);
  const Ring ring{stages, barriers, barriers + 8 * kMaxStages, barriers + 16 * kMaxStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(ring, p.n_stages, kMultipliers / 32);
  __syncthreads();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    BroadMultiplier<T, kWidth, kRowGroups>(p, ring, stage_bytes).run();
  } else if (thread == kMultipliers) {
    copy_weights<kWidth>(p, ring, &weight_map, stage_bytes);
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_x<kWidth>(p, ring, &x_map, stage_bytes);
  }
#endif
}

using BroadKernel = void (*)(BroadGemmParams, CUtensorMap, CUtensorMap);

template <class T, int kRowGroups, std::size_t... i>
BroadKernel kernel_of_width(int width, std::index_sequence<i...>) {
  BroadKernel found = nullptr;
  ((width == kBroadWidths[i] ? void(found = broad_gemm_kernel<T, kBroadWidths[i], kRowGroups>) : void()), ...);
  check(found != nullptr, "broad_gemm: a width that has no kernel");
  return found;
}
template <class T>
BroadKernel kernel_of(int width, int row_groups) {
  constexpr auto kWidths = std::make_index_sequence<std::size(kBroadWidths)>{};
  return row_groups == 1 ? kernel_of_width<T, 1>(width, kWidths) : kernel_of_width<T, 2>(width, kWidths);
}

/// An H200's rates, scaled by the device's memory.
BroadRates broad_rates_of(const Device& device) {
  const double ratio = rates_of(device.figures).memory_bytes_per_us / kH200Rates.memory_bytes_per_us;
  BroadRates rates = kBroadRatesOfH200;
  rates.memory_bytes_per_us *= ratio;
  rates.cublas_bytes_per_us *= ratio;
  return rates;
}

}  // namespace

BroadGemm::BroadGemm(const Device& device, void* encode, std::byte* partials)
    : device_(device), encode_(encode), partials_(partials) {}
BroadGemm::~BroadGemm() { cudaFree(partials_); }

Result<std::unique_ptr<BroadGemm>> BroadGemm::make(const Device& device) {
  void* const encode = device.compute_capability == 90 ? tensor_map_encoder() : nullptr;
  std::byte* partials = nullptr;
  if (encode != nullptr) {
    BATON_TRY(partials, partial_sums_memory(device, static_cast<std::size_t>(device.n_multiprocessors) / kMostBroadParts *
                                                        kMostBroadRows * kMostCutWidth * sizeof(float)));
  }
  return std::unique_ptr<BroadGemm>(new BroadGemm(device, encode, partials));
}

std::optional<BroadWeight> BroadGemm::describe(const ConstTensorView& weight) const {
  constexpr std::int64_t kMost = 1 << 24;
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  if (encode_ == nullptr || (weight.dtype != DType::bf16 && weight.dtype != DType::f16) || n % 8 != 0 || k % 8 != 0 ||
      n > kMost || k > kMost || !is_aligned(weight.data, 16))
    return std::nullopt;
  const BroadRates rates = broad_rates_of(device_);
  BroadWeight described{weight, {}};
  std::int64_t fewest = kFewestBroadRows;
  for (const std::int64_t most : {std::int64_t{48}, std::int64_t{64}, std::int64_t{96}, kMostBroadRows}) {
    const auto layout = best_broad_layout({most, n, k}, device_.n_multiprocessors, rates);
    if (layout) described.choices.push_back({fewest, most, *layout, matrix_map(encode_, weight, layout->width)});
    fewest = most + 1;
  }
  if (described.choices.empty()) return std::nullopt;
  return described;
}

void BroadGemm::multiply(const ConstTensorView& x, const BroadWeight& weight, const ConstTensorView& bias,
                         const TensorView& out) const {
  check(x.dtype == weight.matrix.dtype && (out.dtype == x.dtype || out.dtype == DType::f32) && is_aligned(x.data, 16) &&
            is_aligned(out.data, 16),
        "broad_gemm: a matmul that it does not take");
  check(bias.data == nullptr || bias.dtype == out.dtype, "broad_gemm: a bias of another dtype than out's");
  const BroadMatmul of{x.shape[0], weight.matrix.shape[0], weight.matrix.shape[1]};
  const auto choice = std::ranges::find_if(
      weight.choices, [&](const BroadChoice& one) { return of.n_rows >= one.fewest_rows && of.n_rows <= one.most_rows; });
  check(choice != weight.choices.end(), "broad_gemm: rows that it does not take");
  const int width = choice->layout.width;
  const int boxes = broad_boxes(width);
  const BroadSchedule schedule = broad_schedule(choice->layout, of.n, of.k);
  const int stage_bytes = boxes * (box_bytes(width) + box_bytes(of.x_rows()));
  const int other_bytes = box_bytes(of.row_groups() * kBroadRowGroup - of.x_rows()) + kBarrierBytes;
  const int n_stages = std::min(kMaxStages, (static_cast<int>(device_.max_shared_bytes) - other_bytes) / stage_bytes);
  const int shared_bytes = n_stages * stage_bytes + other_bytes;
  // With more, the kernel before, which may still run, would wait after them for memory.
  const int fill_stages = std::max(2, (64 << 10) / (boxes * box_bytes(width)));
  const BroadGemmParams params{bias.data,
                               out.data,
                               reinterpret_cast<uint4*>(partials_),
                               schedule,
                               static_cast<int>(of.n_rows),
                               static_cast<int>(of.n),
                               of.x_rows(),
                               n_stages,
                               fill_stages,
                               out.dtype == DType::f32};
  const BroadKernel kernel =
      x.dtype == DType::bf16 ? kernel_of<__nv_bfloat16>(width, of.row_groups()) : kernel_of<__half>(width, of.row_groups());
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "broad_gemm");
  launch_overlapped(device_, kernel, dim3(static_cast<unsigned>(std::min(schedule.n_items(), device_.n_multiprocessors))),
                    n_threads(of.row_groups()), shared_bytes, "broad_gemm", params, matrix_map(encode_, x, of.x_rows()),
                    choice->map);
}

}  // namespace baton::cuda
