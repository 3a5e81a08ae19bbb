/// Streaming GEMM: one persistent block a multiprocessor. A thread copies stages of the weight (64 rows of 128 numbers) to
/// a ring in shared memory, another one x; a warpgroup multiplies. Rows of the weight are wgmma's M, so that few rows of x
/// waste little of the matrix units.
///
/// A block starts as soon as its multiprocessor has room, which may be before the kernel before starts to compute, and
/// fills its ring with weights meanwhile. Small kernels leave room for it (prefer_shared_memory).
///
/// Each block takes an equal run of all stages (stream_layout.h), so a tile of 64 weight rows may belong to several blocks.
/// The block with the tile's first stages adds the partial sums of the others (partial_sums.cuh), in the order of k. All
/// words of partial sums are kNotWritten again when the kernel ends. They are touched only after wait_for_kernel_before, so the next matmul, whose blocks
/// may start earlier, finds them reset. No block waits for one that cannot start: there are no more blocks than
/// multiprocessors, and the next kernel starts only when all of them run.
#include "kernels/cuda/gemm/stream_gemm.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/partial_memory.h"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/ring_multiply.cuh"
#include "kernels/cuda/gemm/stream_layout.h"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

constexpr int kMaxRows = StreamGemm::kMostRows;
constexpr int kMultipliers = 128;                ///< threads of the warpgroup
constexpr int kThreads = kMultipliers + 2 * 32;  ///< and a warp for each copying thread
constexpr int kBoxes = kStreamStageK / kBoxK;
constexpr int kWeightBoxBytes = kStreamTileRows * kBoxK * 2;
constexpr int kStreamChunk = 8;  ///< k is a multiple; what copies find after its end is zero
constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 3 * kMaxStages * 8;
/// Fewest stages of a block's run for which this kernel is used.
constexpr int kFewestStages = 4;

/// Bytes of x in a box, and of a stage, for `width` rows.
constexpr int x_box_bytes(int width) { return width * kBoxK * 2; }
constexpr int stage_bytes(int width) { return kBoxes * (kWeightBoxBytes + x_box_bytes(width)); }

struct StreamGemmParams {
  const void* bias;  ///< [n] of out's type, or null
  void* out;         ///< [n_rows, n]
  uint4* partials;   ///< [n_blocks, width / 8, kMultipliers]
  StreamSchedule schedule;
  int n_rows;
  int n;
  int n_stages;  ///< of the ring
};

#ifdef BATON_SM90A

/// Weight stages that a block requests at once while it fills its ring. With more, the kernel before, which may still run,
/// would wait after them for memory.
constexpr int kFillStages = 4;

/// What the copying threads do, one for the weight and one for x, so that x need not wait for the weights of the ring.
template <int kWidth>
class StreamCopier {
 public:
  __device__ StreamCopier(const StreamGemmParams& p, const Ring& ring) : p_(p), ring_(ring) {
    const int first = p.schedule.begin(static_cast<int>(blockIdx.x));
    first_ = {first / p.schedule.k_stages, first % p.schedule.k_stages};
    n_stages_ = p.schedule.begin(static_cast<int>(blockIdx.x) + 1) - first;
  }

  __device__ void copy_weights(const CUtensorMap* map) {
    const std::uint64_t policy = read_once_policy();
    copy_stages([&](const StreamStage& stage, int i, int slot) {
      if (i >= kFillStages && i < p_.n_stages) barrier_wait(ring_.has_weight + 8 * (i - kFillStages), 0);
      const std::uint32_t barrier = ring_.has_weight + 8 * slot;
      barrier_expect(barrier, kBoxes * kWeightBoxBytes);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        copy_box(ring_.stages + slot * stage_bytes(kWidth) + box * kWeightBoxBytes, map, stage.k * kStreamStageK + box * kBoxK,
                 stage.tile * kStreamTileRows, barrier, policy);
    });
  }

  __device__ void copy_x(const CUtensorMap* map) {
    copy_stages([&](const StreamStage& stage, int /*i*/, int slot) {
      const std::uint32_t x = ring_.stages + slot * stage_bytes(kWidth) + kBoxes * kWeightBoxBytes;
      const std::uint32_t barrier = ring_.has_x + 8 * slot;
      barrier_expect(barrier, kBoxes * x_box_bytes(kWidth));
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        copy_box(x + box * x_box_bytes(kWidth), map, stage.k * kStreamStageK + box * kBoxK, 0, barrier);
    });
  }

 private:
  /// Calls `copy` for each stage of the block's run, as soon as its slot is empty.
  template <class Copy>
  __device__ __forceinline__ void copy_stages(Copy&& copy) {
    StreamStage stage = first_;
    RingPlace place;
#pragma unroll 1
    for (int i = 0; i < n_stages_; ++i, stage.advance(p_.schedule.k_stages)) {
      if (i >= p_.n_stages) barrier_wait(ring_.empty + 8 * place.slot, place.parity ^ 1);
      copy(stage, i, place.slot);
      place.advance(p_.n_stages);
    }
  }

  const StreamGemmParams& p_;
  const Ring& ring_;
  StreamStage first_;
  int n_stages_;
};

/// The multiplying warpgroup. T is the type of x and of the weight.
template <class T, class Out, int kWidth>
class StreamMultiplier {
  static constexpr int kGroups = kWidth / 8;
  /// Accumulators that take the steps of 16 in turn, because a chain on one would wait for itself.
  static constexpr int kChains = kWidth <= 16 ? 4 : 2;

 public:
  __device__ StreamMultiplier(const StreamGemmParams& p, const Ring& ring)
      : p_(p), ring_(ring), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    StreamWalk walk(p_.schedule, static_cast<int>(blockIdx.x));
    StreamSegment segment;
    while (walk.next(segment)) {
      multiply(segment.end - segment.begin);
      if (segment.begin > 0) {
        give_sums();
      } else {
        if (segment.end < p_.schedule.k_stages) add_other_sums((segment.tile + 1) * p_.schedule.k_stages);
        store(segment.tile * kStreamTileRows);
      }
    }
  }

 private:
  /// The sums of the next stages of the ring, in sums_[0].
  __device__ __forceinline__ void multiply(int n_stages) {
    multiply_stages<T, kBoxes>(ring_, place_, p_.n_stages, n_stages, sums_, kWeightBoxBytes, x_box_bytes(kWidth),
                               [&](int slot) {
                                 const std::uint32_t weight = ring_.stages + slot * stage_bytes(kWidth);
                                 return Operands{weight, weight + kBoxes * kWeightBoxBytes};
                               });
#pragma unroll
    for (int distance = 1; distance < kChains; distance *= 2)
#pragma unroll
      for (int chain = 0; chain < kChains; chain += 2 * distance)
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums_[chain][group][i] += sums_[chain + distance][group][i];
  }

  __device__ __forceinline__ uint4* partials_of(int block) {
    return p_.partials + static_cast<std::int64_t>(block) * kGroups * kMultipliers + thread_;
  }
  /// To the block that has the tile's first stages. A block has at most one such segment, its first.
  __device__ __forceinline__ void give_sums() {
    uint4* const to = partials_of(static_cast<int>(blockIdx.x));
#pragma unroll
    for (int group = 0; group < kGroups; ++group) store_partial(to + group * kMultipliers, as_partial(sums_[0][group]));
  }
  /// Adds the sums of the blocks after this one, whose runs begin before stage `tile_end`.
  __device__ __forceinline__ void add_other_sums(int tile_end) {
#pragma unroll 1
    for (int block = static_cast<int>(blockIdx.x) + 1; block < p_.schedule.n_blocks && p_.schedule.begin(block) < tile_end;
         ++block) {
      uint4* const from = partials_of(block);
      uint4 given[kGroups];
#pragma unroll
      for (int group = 0; group < kGroups; ++group) given[group] = load_partial(from + group * kMultipliers);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        while (!is_written(given[group])) given[group] = load_partial(from + group * kMultipliers);
        reset_partial(from + group * kMultipliers);
        add_partial(sums_[0][group], given[group]);
      }
    }
  }

  /// Writes the tile's columns of out, `first` and the 63 after it.
  __device__ __forceinline__ void store(int first) {
    if (p_.bias != nullptr) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float bias = to_f32(static_cast<const Out*>(p_.bias)[first + stream_row(thread_, 2 * half)]);
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          sums_[0][group][2 * half] += bias;
          sums_[0][group][2 * half + 1] += bias;
        }
      }
    }
    Out* const out = static_cast<Out*>(p_.out) + first;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if constexpr (std::is_same_v<Out, float>) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = stream_column(thread_, group, i);
          if (row < p_.n_rows) out[static_cast<std::int64_t>(row) * p_.n + stream_row(thread_, i)] = sums_[0][group][i];
        }
      } else {
        const int row = stream_transposed_column(thread_, group);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t pair =
              transposed_in_warp(pack_pair<Out>(sums_[0][group][2 * half], sums_[0][group][2 * half + 1]));
          if (row < p_.n_rows)
            *reinterpret_cast<std::uint32_t*>(out + static_cast<std::int64_t>(row) * p_.n +
                                              stream_transposed_row(thread_, half)) = pair;
        }
      }
    }
  }

  const StreamGemmParams& p_;
  const Ring& ring_;
  int thread_;
  RingPlace place_;
  float sums_[kChains][kGroups][4];
};

#endif  // BATON_SM90A

/// T is the type of x and of the weight; kWidth is the number of rows, padded.
template <class T, class Out, int kWidth>
__global__ void __launch_bounds__(kThreads, 1)
    stream_gemm_kernel([[maybe_unused]] const __grid_constant__ StreamGemmParams p,
                       [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                       [[maybe_unused]] const __grid_constant__ CUtensorMap weight_map) {
#ifdef BATON_SM90A
  extern __shared__ __align__(1024) std::byte memory[];
  const std::uint32_t stages = shared_address(memory);
  const std::uint32_t barriers = stages + p.n_stages * stage_bytes(kWidth);
  const Ring ring{stages, barriers, barriers + 8 * kMaxStages, barriers + 16 * kMaxStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(ring, p.n_stages, kMultipliers / 32);
  __syncthreads();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    StreamMultiplier<T, Out, kWidth>(p, ring).run();
  } else if (thread == kMultipliers) {
    StreamCopier<kWidth>(p, ring).copy_weights(&weight_map);
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    StreamCopier<kWidth>(p, ring).copy_x(&x_map);
  }
#endif
}

StreamSchedule schedule_of(const Device& device, std::int64_t n, std::int64_t k) {
  return {static_cast<int>(n / kStreamTileRows), static_cast<int>((k + kStreamStageK - 1) / kStreamStageK),
          device.n_multiprocessors};
}

}  // namespace

StreamGemm::StreamGemm(const Device& device, void* encode, std::byte* partials)
    : device_(device), encode_(encode), partials_(partials) {}
StreamGemm::~StreamGemm() { cudaFree(partials_); }

Result<std::unique_ptr<StreamGemm>> StreamGemm::make(const Device& device) {
  void* const encode = device.compute_capability == 90 ? tensor_map_encoder() : nullptr;
  std::byte* partials = nullptr;
  if (encode != nullptr) {
    BATON_TRY(partials, partial_sums_memory(device, static_cast<std::size_t>(device.n_multiprocessors) * kStreamTileRows *
                                                        kMaxRows * sizeof(float)));
  }
  return std::unique_ptr<StreamGemm>(new StreamGemm(device, encode, partials));
}

std::optional<StreamWeight> StreamGemm::describe(const ConstTensorView& weight) const {
  constexpr std::int64_t kMost = 1 << 22;  // columns: stages are counted in 32 bits
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  if (encode_ == nullptr || (weight.dtype != DType::bf16 && weight.dtype != DType::f16) || n % kStreamTileRows != 0 ||
      k % kStreamChunk != 0 || n > kMost || k > 1 << 16 || !is_aligned(weight.data, 16))
    return std::nullopt;
  const StreamSchedule schedule = schedule_of(device_, n, k);
  if (schedule.n_tiles * schedule.k_stages < kFewestStages * schedule.n_blocks) return std::nullopt;
  return StreamWeight{weight, matrix_map(encode_, weight, kStreamTileRows)};
}

void StreamGemm::multiply(const ConstTensorView& x, const StreamWeight& weight, const ConstTensorView& bias,
                          const TensorView& out) const {
  check(x.shape[0] >= 1 && x.shape[0] <= kMaxRows && x.dtype == weight.matrix.dtype && is_aligned(x.data, 16) &&
            (out.dtype == x.dtype || out.dtype == DType::f32) && is_aligned(out.data, 4),
        "stream_gemm: a matmul that it does not take");
  check(bias.data == nullptr || bias.dtype == out.dtype, "stream_gemm: a bias of another dtype than out's");
  const StreamSchedule schedule = schedule_of(device_, weight.matrix.shape[0], weight.matrix.shape[1]);
  const auto launch = [&](auto* kernel, int width) {
    const int n_stages =
        std::min(kMaxStages, (static_cast<int>(device_.max_shared_bytes) - kBarrierBytes) / stage_bytes(width));
    const int shared_bytes = n_stages * stage_bytes(width) + kBarrierBytes;
    const StreamGemmParams params{bias.data,
                                  out.data,
                                  reinterpret_cast<uint4*>(partials_),
                                  schedule,
                                  static_cast<int>(x.shape[0]),
                                  static_cast<int>(weight.matrix.shape[0]),
                                  n_stages};
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "stream_gemm");
    launch_overlapped(device_, kernel, dim3(static_cast<unsigned>(schedule.n_blocks)), kThreads, shared_bytes, "stream_gemm",
                      params, matrix_map(encode_, x, width), weight.map);
  };
  visit_operands(x.dtype, out.dtype, [&]<class T, class Out>(T, Out) {
    if (x.shape[0] <= 8) return launch(stream_gemm_kernel<T, Out, 8>, 8);
    if (x.shape[0] <= 16) return launch(stream_gemm_kernel<T, Out, 16>, 16);
    return launch(stream_gemm_kernel<T, Out, kMaxRows>, kMaxRows);
  });
}

}  // namespace baton::cuda
