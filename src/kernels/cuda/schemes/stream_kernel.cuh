/// The kernels of scheme_stream.h, which one source for each scheme instantiates. As in stream_gemm.cu, each block takes an
/// equal run of stages, a thread copies the weight's stages to a ring and another one x's, and rows of the weight are
/// wgmma's M. Warpgroups widen a chunk in registers while the matrix units work on the chunk before. Up to 32 rows of x,
/// two sets of one warpgroup take the stages in turn; with more, two warpgroups share the x of a stage, because x is then
/// most of what a block reads.
///
/// The f32 sums of a group of columns are scaled once. So a sum depends on the weight's shape, the device and the kernel,
/// not on the other rows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/scheme_stream.h"
#include "kernels/cuda/schemes/widen.cuh"

namespace baton::cuda {

inline constexpr int kMostSchemeStages = 16;
inline constexpr int kSchemeBarrierBytes = 3 * kMostSchemeStages * 8;
/// As kFillStages of stream_gemm.cu.
inline constexpr int kSchemeFillStages = 4;

/// `kParts` warpgroups share a stage, a tile each; `kSets` sets of them take the stages in turn.
template <WeightScheme kScheme, int kWidth>
struct SchemeForm {
  static constexpr int kParts = kWidth <= 32 ? 1 : 2;
  static constexpr int kSets = kWidth <= 32 ? 2 : 1;
  static constexpr int kSetThreads = 128 * kParts;
  static constexpr int kMultipliers = kSetThreads * kSets;
  /// The widest kernel's sums need registers that a warpgroup of copying threads gives up; others have two warps of them.
  static constexpr bool kMovesRegisters = kWidth > 64;
  static constexpr int kThreads = kMultipliers + (kMovesRegisters ? 128 : 2 * 32);
  static constexpr int kChunks = kWidth <= 32 ? 8 : kWidth <= 64 ? 4 : 2;  ///< of a stage
  static constexpr int kChunkK = chunk_columns(kScheme);
  static constexpr int kSteps = kChunkK / 16;  ///< of a chunk
  static constexpr int kStageK = kChunks * kChunkK;
  static constexpr int kBoxes = kStageK / kBoxK;
  static constexpr int kXBytes = kWidth * kStageK * 2;  ///< of a stage
  static constexpr int kValueBytes = kParts * kChunks * kPieceBytes;
  static constexpr int kJoinBytes = (kMultipliers - kSetThreads) * (kWidth / 8) * 16;  ///< sums that sets hand to the first one
};

/// Scales and zeros of a stage.
template <class Form>
__host__ __device__ inline int group_bytes(const SchemeStreamParams& p) {
  return Form::kParts * p.groups_of_stage * kSchemeTileRows * (p.scale_bytes + p.zero_bytes);
}

#ifdef BATON_SM90A

__device__ __forceinline__ void arrive_named(int barrier, int n_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

/// Where a block's ring lies in shared memory: x, values, scales and zeros of the stages, then the sums of sets.
template <class Form>
struct SchemeRing {
  Ring ring;  ///< stages: values
  std::uint32_t x;
  std::uint32_t groups;
  std::uint32_t join;
  int group_bytes;
};

template <WeightScheme kScheme, class T, int kWidth, int kScaledSteps>
class SchemeMultiplier {
  using Form = SchemeForm<kScheme, kWidth>;
  static constexpr int kColumns = kWidth / 8;
  static constexpr int kUnits = Form::kSteps / kScaledSteps;  ///< of a chunk
  /// Blocks whose sums are requested at once, and groups of 8 columns of each.
  static constexpr int kBlocksAtOnce = kColumns <= 1 ? 4 : kColumns <= 2 ? 2 : 1;
  static constexpr int kColumnsAtOnce = kColumns <= 4 ? kColumns : 4;

 public:
  __device__ SchemeMultiplier(const SchemeStreamParams& p, const SchemeRing<Form>& memory)
      : p_(p),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x) % Form::kSetThreads),
        set_(static_cast<int>(threadIdx.x) / Form::kSetThreads),
        part_(thread_ / 128) {}

  __device__ void run() {
    const auto block = static_cast<int>(blockIdx.x);
    StreamWalk walk(p_.schedule, block);
    StreamSegment segment;
    n_ = p_.schedule.begin(block + 1) - p_.schedule.begin(block);
    next_ = set_;
    for (int i = 0; i < set_; ++i) place_.advance(p_.n_stages);
    if (next_ < n_) fetch();
    int end = 0;  // of the segment, in stages of the run
    while (walk.next(segment)) {
      end += segment.end - segment.begin;
      multiply(end);
      if constexpr (Form::kSets > 1) join();
      if (set_ != 0) continue;
      if (segment.begin > 0) {
        give_sums();
      } else {
        if (segment.end < p_.schedule.k_stages) add_other_sums((segment.tile + 1) * p_.schedule.k_stages);
        store((static_cast<std::int64_t>(segment.tile) * Form::kParts + part_) * kSchemeTileRows);
      }
    }
  }

 private:
  /// Waits for the set's next stage and loads what this thread has of its values.
  __device__ __forceinline__ void fetch() {
    barrier_wait(memory_.ring.has_weight + 8 * place_.slot, place_.parity);
    const std::uint32_t values = memory_.ring.stages + place_.slot * Form::kValueBytes + part_ * Form::kChunks * kPieceBytes;
#pragma unroll
    for (int c = 0; c < Form::kChunks; ++c) raw_[c] = load_shared(values + c * kPieceBytes + thread_ % 128 * 16);
    fetched_groups_ = memory_.groups + place_.slot * memory_.group_bytes;
  }
  /// Of this thread's first row in the scales and zeros of the stage, for the group of a unit of columns.
  __device__ __forceinline__ int group_row(int unit) const {
    return (part_ * p_.groups_of_stage + (unit >> p_.unit_shift)) * kSchemeTileRows + stream_row(thread_ % 128, 0);
  }
  /// The fragments of a chunk whose stage has its scales and zeros at `groups`.
  __device__ __forceinline__ void widen_chunk(int c, std::uint32_t groups, std::uint32_t (&a)[Form::kSteps][4]) {
    std::uint32_t offsets[kUnits][2];
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t zero = kScheme == WeightScheme::i4 ? 8 : 128;
        if (kScheme != WeightScheme::f8 && p_.zero_bytes != 0) {
          const std::uint32_t zeros = groups + Form::kParts * p_.groups_of_stage * kSchemeTileRows * p_.scale_bytes;
          asm volatile("ld.shared.u8 %0, [%1];" : "=r"(zero) : "r"(zeros + group_row(c * kUnits + unit) + half * 8) : "memory");
        }
        offsets[unit][half] = offset_of<T, kScheme>(zero);
      }
    widen<T, kScheme>(raw_[c], offsets, a);
    // Widened here, while matmuls run, and not after the wait for them.
#pragma unroll
    for (int step = 0; step < Form::kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[step][i])::"memory");
  }
  /// The scales of this thread's two rows.
  __device__ __forceinline__ void load_scales(int unit, std::uint32_t groups, float (&scales)[2]) const {
    const std::uint32_t at = groups + group_row(unit) * p_.scale_bytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (p_.scale_bytes == 4) {
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scales[half]) : "r"(at + half * 32) : "memory");
      } else {
        std::uint16_t bits;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(at + half * 16) : "memory");
        scales[half] = p_.weight.scale_dtype == DType::bf16 ? __uint_as_float(static_cast<std::uint32_t>(bits) << 16)
                                                            : __half2float(__ushort_as_half(bits));
      }
    }
  }

  /// The set's sums over its stages before stage `end` of the run.
  __device__ __forceinline__ void multiply(int end) {
    float sums[kColumns][4];  // of a group
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[g][i] = sums[g][i] = 0;
    const int last_unit = (1 << p_.unit_shift) - 1;  // of a group
    std::uint32_t a[2][Form::kSteps][4];
    if (next_ < end) widen_chunk(0, fetched_groups_, a[0]);
#pragma unroll 1
    while (next_ < end) {
      const int slot = __shfl_sync(0xffffffffu, place_.slot, 0);
      const std::uint32_t x = memory_.x + slot * Form::kXBytes;
      const std::uint32_t groups = fetched_groups_;
      barrier_wait(memory_.ring.has_x + 8 * slot, place_.parity);
#pragma unroll
      for (int i = 0; i < Form::kSets; ++i) place_.advance(p_.n_stages);
      next_ += Form::kSets;
#pragma unroll
      for (int c = 0; c < Form::kChunks; ++c) {
#pragma unroll
        for (int part = 0; part < kUnits; ++part) {
          const int unit = c * kUnits + part;
          const int begins = (unit & last_unit) == 0 ? 0 : 1;
          own_accumulators(sums);
          wgmma_fence();
#pragma unroll
          for (int i = 0; i < kScaledSteps; ++i) {
            const int step = part * kScaledSteps + i;
            const int at = c * Form::kSteps + step;  // of the stage
            const std::uint64_t b = wgmma_descriptor(x + at / 4 * (kWidth * kBoxK * 2), 16, 1024) + at % 4 * 2;
            wgmma_registers<T>(sums, a[c % 2][step], b, i == 0 ? begins : 1);
          }
          wgmma_commit();
          if (part + 1 == kUnits) {
            if (c + 1 < Form::kChunks) {
              widen_chunk(c + 1, groups, a[(c + 1) % 2]);
            } else if (next_ < n_) {
              fetch();
              widen_chunk(0, fetched_groups_, a[0]);
            }
          }
          const bool is_scaled = (unit & last_unit) == last_unit;
          float scales[2] = {1, 1};
          if (is_scaled && p_.scale_bytes != 0) load_scales(unit, groups, scales);
          wgmma_wait<0>();
          own_accumulators(sums);
          if (is_scaled)
#pragma unroll
            for (int g = 0; g < kColumns; ++g)
#pragma unroll
              for (int i = 0; i < 4; ++i) sums_[g][i] += scales[i >> 1] * sums[g][i];
        }
      }
      if (thread_ % 32 == 0) barrier_arrive(memory_.ring.empty + 8 * slot);
    }
  }

  /// Adds the sums of the other sets, in their order, to those of the first.
  __device__ __forceinline__ void join() {
    const auto at = [&](int set, int g) {
      return memory_.join + (((set - 1) * kColumns + g) * Form::kSetThreads + thread_) * 16;
    };
    if (set_ != 0) {
      if (has_given_) named_barrier(2, Form::kMultipliers);
      has_given_ = true;
#pragma unroll
      for (int g = 0; g < kColumns; ++g)
        store_shared(at(set_, g), {__float_as_uint(sums_[g][0]), __float_as_uint(sums_[g][1]), __float_as_uint(sums_[g][2]),
                                   __float_as_uint(sums_[g][3])});
      arrive_named(1, Form::kMultipliers);
      return;
    }
    named_barrier(1, Form::kMultipliers);
#pragma unroll
    for (int set = 1; set < Form::kSets; ++set)
#pragma unroll
      for (int g = 0; g < kColumns; ++g) add_partial(sums_[g], load_shared(at(set, g)));
    arrive_named(2, Form::kMultipliers);
  }

  __device__ __forceinline__ uint4* partials_of(int block) {
    return p_.partials + static_cast<std::int64_t>(block) * kColumns * Form::kSetThreads + thread_;
  }
  __device__ __forceinline__ void give_sums() {
    uint4* const to = partials_of(static_cast<int>(blockIdx.x));
#pragma unroll
    for (int g = 0; g < kColumns; ++g) store_partial(to + g * Form::kSetThreads, as_partial(sums_[g]));
  }
  /// Adds the sums of the blocks after this one, whose runs begin before stage `tile_end`, in the blocks' order.
  __device__ __forceinline__ void add_other_sums(int tile_end) {
    const auto gives = [&](int block) { return block < p_.schedule.n_blocks && p_.schedule.begin(block) < tile_end; };
#pragma unroll 1
    for (int block = static_cast<int>(blockIdx.x) + 1; gives(block); block += kBlocksAtOnce)
#pragma unroll
      for (int first = 0; first < kColumns; first += kColumnsAtOnce) {
        uint4 given[kBlocksAtOnce][kColumnsAtOnce];
        const auto from = [&](int i, int g) { return partials_of(block + i) + (first + g) * Form::kSetThreads; };
#pragma unroll
        for (int i = 0; i < kBlocksAtOnce; ++i)
          if (gives(block + i))
#pragma unroll
            for (int g = 0; g < kColumnsAtOnce; ++g) given[i][g] = load_partial(from(i, g));
#pragma unroll
        for (int i = 0; i < kBlocksAtOnce; ++i)
          if (gives(block + i))
#pragma unroll
            for (int g = 0; g < kColumnsAtOnce; ++g) {
              while (!is_written(given[i][g])) given[i][g] = load_partial(from(i, g));
              reset_partial(from(i, g));
              add_partial(sums_[first + g], given[i][g]);
            }
      }
  }

  /// The rows' scales, and the bias.
  __device__ __forceinline__ void finish(std::int64_t first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = first + stream_row(thread_ % 128, 2 * half);
      if (column >= p_.weight.n) continue;
      const float scale = p_.weight.row_scales != nullptr ? __ldg(p_.weight.row_scales + column) : 1.0f;
      float bias = 0;
      if (p_.bias != nullptr)
        bias = p_.out_is_f32 ? static_cast<const float*>(p_.bias)[column] : to_f32(static_cast<const T*>(p_.bias)[column]);
#pragma unroll
      for (int g = 0; g < kColumns; ++g) {
        sums_[g][2 * half] = sums_[g][2 * half] * scale + bias;
        sums_[g][2 * half + 1] = sums_[g][2 * half + 1] * scale + bias;
      }
    }
  }
  /// Writes the tile's columns of out, `first` and the 63 after it.
  __device__ __forceinline__ void store(std::int64_t first) {
    const std::int64_t n = p_.weight.n;
    const int thread = thread_ % 128;
    if (p_.bias != nullptr || p_.weight.row_scales != nullptr) finish(first);
    if (p_.out_is_f32) {
      auto* const out = static_cast<float*>(p_.out);
#pragma unroll
      for (int g = 0; g < kColumns; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = stream_column(thread, g, i);
          const std::int64_t column = first + stream_row(thread, i);
          if (row < p_.n_rows && column < n) out[row * n + column] = sums_[g][i];
        }
      return;
    }
    auto* const out = static_cast<T*>(p_.out);
#pragma unroll
    for (int g = 0; g < kColumns; ++g) {
      const int row = stream_transposed_column(thread, g);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t own = pack_pair<T>(sums_[g][2 * half], sums_[g][2 * half + 1]);
        __syncwarp();  // lanes may come from different waits
        const std::uint32_t pair = transpose_8x8(own);
        const std::int64_t column = first + stream_transposed_row(thread, half);
        if (row >= p_.n_rows || column >= n) continue;
        T* const to = out + row * n + column;
        if (p_.stores_pairs) {
          *reinterpret_cast<std::uint32_t*>(to) = pair;
        } else {
          reinterpret_cast<std::uint16_t*>(to)[0] = static_cast<std::uint16_t>(pair);
          if (column + 1 < n) reinterpret_cast<std::uint16_t*>(to)[1] = static_cast<std::uint16_t>(pair >> 16);
        }
      }
    }
  }

  const SchemeStreamParams& p_;
  const SchemeRing<Form>& memory_;
  const int thread_;  ///< of the set
  const int set_;
  const int part_;  ///< the warpgroup of the set, and its tile of the stage
  int n_ = 0;       ///< stages of the run
  int next_ = 0;    ///< the set's next one
  bool has_given_ = false;
  RingPlace place_;
  std::uint32_t fetched_groups_ = 0;  ///< of the stage in raw_
  uint4 raw_[Form::kChunks];
  float sums_[kColumns][4];
};

/// One thread's copies of all stages of a block's run: `copy(stage, i, slot)`.
template <class Copy>
__device__ __forceinline__ void copy_scheme_stages(const SchemeStreamParams& p, const Ring& ring, Copy&& copy) {
  const int first = p.schedule.begin(static_cast<int>(blockIdx.x));
  const int n = p.schedule.begin(static_cast<int>(blockIdx.x) + 1) - first;
  StreamStage stage{first / p.schedule.k_stages, first % p.schedule.k_stages};
  RingPlace place;
#pragma unroll 1
  for (int i = 0; i < n; ++i, stage.advance(p.schedule.k_stages)) {
    if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
    copy(stage, i, place.slot);
    place.advance(p.n_stages);
  }
}

/// A stage's values, scales and zeros.
template <class Form>
__device__ __forceinline__ void copy_scheme_weights(const SchemeStreamParams& p, const SchemeRing<Form>& memory) {
  const std::uint64_t policy = read_once_policy();
  const SchemeView& weight = p.weight;
  copy_scheme_stages(p, memory.ring, [&](const StreamStage& stage, int i, int slot) {
    if (i >= kSchemeFillStages && i < p.n_stages) barrier_wait(memory.ring.has_weight + 8 * (i - kSchemeFillStages), 0);
    const std::uint32_t barrier = memory.ring.has_weight + 8 * slot;
    barrier_expect(barrier, Form::kValueBytes + memory.group_bytes);
    const int group = (stage.k * Form::kStageK) >> weight.group_shift;
    const int n_rows = p.groups_of_stage * kSchemeTileRows;  // of scales and zeros
#pragma unroll
    for (int part = 0; part < Form::kParts; ++part) {
      // A second tile that does not exist is the first again; its sums are not stored.
      const std::int64_t tile = min(stage.tile * Form::kParts + part, weight.n_tiles - 1);
      copy_bytes(memory.ring.stages + slot * Form::kValueBytes + part * Form::kChunks * kPieceBytes,
                 weight.values + (tile * weight.n_chunks + stage.k * Form::kChunks) * kPieceBytes, Form::kChunks * kPieceBytes,
                 barrier, policy);
      const std::int64_t row = (tile * weight.n_groups + group) * kSchemeTileRows;
      const std::uint32_t groups = memory.groups + slot * memory.group_bytes;
      if (p.scale_bytes != 0)
        copy_bytes(groups + part * n_rows * p.scale_bytes, weight.scales + row * p.scale_bytes, n_rows * p.scale_bytes, barrier,
                   policy);
      if (p.zero_bytes != 0)
        copy_bytes(groups + Form::kParts * n_rows * p.scale_bytes + part * n_rows, weight.zeros + row, n_rows, barrier, policy);
    }
  });
}

#endif  // BATON_SM90A

template <WeightScheme kScheme, class T, int kWidth, int kScaledSteps>
__global__ void __launch_bounds__(SchemeForm<kScheme, kWidth>::kThreads, 1)
    scheme_stream_kernel([[maybe_unused]] const __grid_constant__ SchemeStreamParams p,
                         [[maybe_unused]] const __grid_constant__ CUtensorMap x_map) {
#ifdef BATON_SM90A
  using Form = SchemeForm<kScheme, kWidth>;
  extern __shared__ __align__(1024) std::byte shared[];
  const int n_group_bytes = group_bytes<Form>(p);
  const std::uint32_t x = shared_address(shared);
  const std::uint32_t values = x + p.n_stages * Form::kXBytes;
  const std::uint32_t groups = values + p.n_stages * Form::kValueBytes;
  const std::uint32_t join = groups + p.n_stages * n_group_bytes;
  const std::uint32_t barriers = join + Form::kJoinBytes;
  const SchemeRing<Form> memory{
      {values, barriers, barriers + 8 * kMostSchemeStages, barriers + 16 * kMostSchemeStages}, x, groups, join, n_group_bytes};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(memory.ring, p.n_stages, Form::kSetThreads / 32);
  __syncthreads();
  if constexpr (Form::kMovesRegisters) {
    if (thread < Form::kMultipliers)
      take_registers<240>();
    else
      give_registers<24>();
  }
  if (thread < Form::kMultipliers) {
    wait_for_kernel_before();
    SchemeMultiplier<kScheme, T, kWidth, kScaledSteps>(p, memory).run();
  } else if (thread == Form::kMultipliers) {
    copy_scheme_weights<Form>(p, memory);
  } else if (thread == Form::kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_scheme_stages(p, memory.ring, [&](const StreamStage& stage, int /*i*/, int slot) {
      const std::uint32_t barrier = memory.ring.has_x + 8 * slot;
      barrier_expect(barrier, Form::kXBytes);
#pragma unroll
      for (int box = 0; box < Form::kBoxes; ++box)
        copy_box(x + slot * Form::kXBytes + box * (kWidth * kBoxK * 2), &x_map, stage.k * Form::kStageK + box * kBoxK, 0,
                 barrier);
    });
  }
#endif
}

template <WeightScheme kScheme, class T, int kWidth, int kScaledSteps>
void launch_scheme_stream(const Device& device, SchemeStreamParams p, const CUtensorMap& x_map) {
  using Form = SchemeForm<kScheme, kWidth>;
  const SchemeView& weight = p.weight;
  const int group_columns = std::min(1 << weight.group_shift, Form::kStageK);
  p.schedule = {(weight.n_tiles + Form::kParts - 1) / Form::kParts,
                static_cast<int>((weight.k + Form::kStageK - 1) / Form::kStageK), device.n_multiprocessors};
  p.scale_bytes = weight.scales == nullptr ? 0 : static_cast<int>(size_bytes(weight.scale_dtype));
  p.zero_bytes = weight.zeros == nullptr ? 0 : 1;
  p.groups_of_stage = Form::kStageK / group_columns;
  p.unit_shift = std::countr_zero(static_cast<unsigned>(group_columns / (kScaledSteps * 16)));
  const int stage_bytes = Form::kXBytes + Form::kValueBytes + group_bytes<Form>(p);
  const int other_bytes = Form::kJoinBytes + kSchemeBarrierBytes;
  p.n_stages = std::min(kMostSchemeStages, (static_cast<int>(device.max_shared_bytes) - other_bytes) / stage_bytes);
  const int shared_bytes = p.n_stages * stage_bytes + other_bytes;
  auto* const kernel = scheme_stream_kernel<kScheme, T, kWidth, kScaledSteps>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "scheme_stream");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(p.schedule.n_blocks)), Form::kThreads, shared_bytes,
                    "scheme_stream", p, x_map);
}

/// Calls `body` with a value of x's type and the width as a constant.
template <class Body>
void visit_scheme_width(DType dtype, int width, Body&& body) {
  const auto visit = [&](auto zero) {
    switch (width) {
      case 8: return body(zero, std::integral_constant<int, 8>{});
      case 16: return body(zero, std::integral_constant<int, 16>{});
      case 32: return body(zero, std::integral_constant<int, 32>{});
      case 64: return body(zero, std::integral_constant<int, 64>{});
      case 128: return body(zero, std::integral_constant<int, 128>{});
      default: check_failed("scheme_stream: a width that has no kernel");
    }
  };
  dtype == DType::f16 ? visit(__half{}) : visit(__nv_bfloat16{});
}

}  // namespace baton::cuda
