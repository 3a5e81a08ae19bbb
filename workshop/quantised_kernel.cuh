/// A weight-streaming GEMM whose weights are 8-bit floats or 4-bit integers: out = x W^T for 1 to 32 rows of x in bf16.
///
/// As in stream_gemm.cu, each block takes an equal run of stages, a thread copies the weight's stages to a ring and
/// another one x's, and rows of the weight are wgmma's M. Here a stage is 16 KB of weight, packed so that one load of 16
/// bytes gives a lane the numbers of its fragments. Several warpgroups turn them into bf16 by arithmetic in registers while
/// the matrix units work on the chunk before.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/stream_layout.h"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace workshop {

using namespace baton::cuda;

enum class Format { e4m3, int4 };
enum class Scales { rows, blocks, groups };  ///< [n] f32; [n / 128, k / 128] f32; 16 bits a row and 128 of k, in the stages

constexpr int kStageWeightBytes = 16 << 10;
constexpr int kGroupK = 128;
constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 3 * kMaxStages * 8;
constexpr int kFillStages = 4;
constexpr std::uint32_t kNotWritten = 0xffffffffu;

/// `kParts` warpgroups share a stage, with 64 rows each; `kSets` sets of warpgroups take the stages in turn.
template <Format kFormat, int kParts, int kSets>
struct Form {
  static constexpr int kTileRows = 64 * kParts;
  static constexpr int kSetThreads = 128 * kParts;
  static constexpr int kMultipliers = kSetThreads * kSets;
  static constexpr int kThreads = kMultipliers + 2 * 32;
  static constexpr int kChunks = 8 / kParts;  ///< of 16 bytes a lane
  static constexpr int kBits = kFormat == Format::e4m3 ? 8 : 4;
  static constexpr int kStageK = kStageWeightBytes * 8 / kBits / kTileRows;
  static constexpr int kChunkK = kStageK / kChunks;
  static constexpr int kSteps = kChunkK / 16;  ///< of a chunk
  static constexpr int kBoxes = kStageK / kBoxK;
  static constexpr int kGroups = kStageK / kGroupK;
  static constexpr int kChunksOfGroup = kChunks / kGroups;
};

template <class F, Scales kScales>
constexpr int stage_weight_bytes() {
  return kStageWeightBytes + (kScales == Scales::groups ? F::kGroups * F::kTileRows * 2 : 0);
}
template <class F>
constexpr int stage_x_bytes(int width) {
  return width * F::kStageK * 2;
}
/// Sums that sets hand to the first one.
template <class F>
constexpr int scratch_bytes(int width) {
  return (F::kMultipliers - F::kSetThreads) * width / 8 * 16;
}

struct QuantParams {
  const std::byte* weight;  ///< packed stages
  const float* scales;      ///< rows or blocks
  void* out;                ///< [n_rows, n] bf16
  uint4* partials;          ///< [n_blocks, width / 8, kMultipliers]
  StreamSchedule schedule;
  int n_rows;
  int n;
  int n_stages;  ///< of the ring
  bool scales_are_bf16;
};

#ifdef BATON_SM90A

__device__ __forceinline__ void copy_bytes(std::uint32_t to, const void* from, int n_bytes, std::uint32_t barrier,
                                           std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(n_bytes), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared_16(std::uint32_t at) {
  std::uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(at) : "memory");
  return value;
}

template <int kGroups>
__device__ __forceinline__ void wgmma_registers(float (&c)[kGroups][4], const std::uint32_t (&a)[4], std::uint64_t b,
                                                int accumulate) {
#define BATON_C(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define BATON_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
  if constexpr (kGroups == 1)
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %9, 0;\n\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;\n\t}"
        : BATON_C(0)
        : BATON_A);
  if constexpr (kGroups == 2)
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %13, 0;\n\twgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0;\n\t}"
        : BATON_C(0), BATON_C(1)
        : BATON_A);
  if constexpr (kGroups == 4)
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %21, 0;\n\twgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n\t}"
        : BATON_C(0), BATON_C(1), BATON_C(2), BATON_C(3)
        : BATON_A);
  if constexpr (kGroups == 8)
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\twgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%"
        "31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n\t}"
        : BATON_C(0), BATON_C(1), BATON_C(2), BATON_C(3), BATON_C(4), BATON_C(5), BATON_C(6), BATON_C(7)
        : BATON_A);
#undef BATON_C
#undef BATON_A
}

__device__ __forceinline__ std::uint32_t times(std::uint32_t pair, std::uint32_t factor) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factor));
  return product;
}
__device__ __forceinline__ std::uint32_t minus(std::uint32_t pair, std::uint32_t other) {
  std::uint32_t difference;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(pair), "r"(other));
  return difference;
}

/// (word & mask) | bits as one instruction.
__device__ __forceinline__ std::uint32_t masked_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

/// The fragments of a chunk's steps from the lane's 16 bytes.
template <Format kFormat, int kSteps>
__device__ __forceinline__ void convert(const uint4& raw, std::uint32_t (&a)[kSteps][4]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (kFormat == Format::e4m3) {
    // A byte's exponent and mantissa become the low exponent bits and the high mantissa bits of a bf16: the number times 2^-120.
    constexpr std::uint32_t kSigns = 0x80008000u, kRest = 0x07f007f0u, kFactor = 0x7b807b80u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t w = words[i];
      a[i / 2][i % 2 * 2] = times(((w << 8) & kSigns) | ((w << 4) & kRest), kFactor);
      a[i / 2][i % 2 * 2 + 1] = times((w & kSigns) | ((w >> 4) & kRest), kFactor);
    }
  } else {
    // q | the bits of 128 is 128 + q; less 136 it is q - 8.
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[step][i] = minus(masked_or(words[step] >> (4 * i), 0x000f000fu, 0x43004300u), 0x43084308u);
  }
}

__device__ __forceinline__ uint4 load_partial(const uint4* at) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_partial(uint4* at, const uint4& v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ bool is_written(const uint4& v) {
  return v.x != kNotWritten && v.y != kNotWritten && v.z != kNotWritten && v.w != kNotWritten;
}
__device__ __forceinline__ std::uint32_t as_partial(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return bits == kNotWritten ? 0x7fffffffu : bits;
}

__device__ __forceinline__ void named_sync(int barrier, int n) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(n) : "memory");
}
__device__ __forceinline__ void named_arrive(int barrier, int n) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(n) : "memory");
}

template <Format kFormat, Scales kScales, int kWidth, int kParts, int kSets>
class QuantMultiplier {
  using F = Form<kFormat, kParts, kSets>;
  static constexpr int kChunks = F::kChunks;
  static constexpr int kColumns = kWidth / 8;
  static constexpr int kAtOnce = kColumns <= 1 ? 4 : kColumns <= 2 ? 2 : 1;

 public:
  __device__ QuantMultiplier(const QuantParams& p, const Ring& ring, std::uint32_t x_ring, std::uint32_t scratch)
      : p_(p),
        ring_(ring),
        x_ring_(x_ring),
        scratch_(scratch),
        thread_(static_cast<int>(threadIdx.x) % F::kSetThreads),
        set_(static_cast<int>(threadIdx.x) / F::kSetThreads),
        part_(thread_ / 128) {}

  __device__ void run() {
    StreamWalk walk(p_.schedule, static_cast<int>(blockIdx.x));
    StreamSegment segment;
    n_ = p_.schedule.begin(static_cast<int>(blockIdx.x) + 1) - p_.schedule.begin(static_cast<int>(blockIdx.x));
    next_ = set_;
    for (int i = 0; i < set_; ++i) place_.advance(p_.n_stages);
    if (next_ < n_) fetch();
    int begin = 0;  // of the segment, in stages of the run
    while (walk.next(segment)) {
      const int end = begin + segment.end - segment.begin;
      multiply(segment, begin, end);
      begin = end;
      if constexpr (kSets > 1) join();
      if (set_ != 0) continue;
      if (segment.begin > 0) {
        give_sums();
      } else {
        if (segment.end < p_.schedule.k_stages) add_other_sums((segment.tile + 1) * p_.schedule.k_stages);
        store(segment.tile * F::kTileRows + part_ * 64);
      }
    }
  }

 private:
  /// Waits for the set's next stage and loads what this lane has of it.
  __device__ __forceinline__ void fetch() {
    barrier_wait(ring_.has_weight + 8 * place_.slot, place_.parity);
    const std::uint32_t weight = ring_.stages + place_.slot * stage_weight_bytes<F, kScales>();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) raw_[c] = load_shared(weight + (part_ * kChunks + c) * 2048 + thread_ % 128 * 16);
    if constexpr (kScales == Scales::groups) {
      const std::uint32_t scales = weight + kStageWeightBytes + (part_ * 64 + stream_row(thread_ % 128, 0)) * 2;
#pragma unroll
      for (int g = 0; g < F::kGroups; ++g)
#pragma unroll
        for (int half = 0; half < 2; ++half) raw_scale_[g][half] = load_shared_16(scales + g * F::kTileRows * 2 + half * 16);
    }
  }
  __device__ __forceinline__ float as_scale(std::uint32_t bits) const {
    return p_.scales_are_bf16 ? __uint_as_float(bits << 16) : __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }

  __device__ __forceinline__ void multiply(const StreamSegment& segment, int begin, int end) {
    float sums[kColumns][4];
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[g][i] = sums[g][i] = 0;
    std::uint32_t a[2][F::kSteps][4];
    if (next_ < end) convert<kFormat>(raw_[0], a[0]);
#pragma unroll 1
    while (next_ < end) {
      float scale[F::kGroups][2];
      if constexpr (kScales == Scales::groups) {
#pragma unroll
        for (int g = 0; g < F::kGroups; ++g)
#pragma unroll
          for (int half = 0; half < 2; ++half) scale[g][half] = as_scale(raw_scale_[g][half]);
      } else if constexpr (kScales == Scales::blocks) {
#pragma unroll
        for (int g = 0; g < F::kGroups; ++g)
          scale[g][0] = scale[g][1] =
              __ldg(p_.scales + segment.tile * F::kTileRows / 128 * (p_.schedule.k_stages * F::kGroups) +
                    (segment.begin + next_ - begin) * F::kGroups + g);
      }
      const int slot = __shfl_sync(0xffffffffu, place_.slot, 0);
      const std::uint32_t x = x_ring_ + slot * stage_x_bytes<F>(kWidth);
      barrier_wait(ring_.has_x + 8 * slot, place_.parity);
#pragma unroll
      for (int i = 0; i < kSets; ++i) place_.advance(p_.n_stages);
      next_ += kSets;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        own(sums);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < F::kSteps; ++step) {
          const int at = c * F::kSteps + step;  // in steps of 16
          const std::uint64_t b = wgmma_descriptor(x + at / 4 * (kWidth * kBoxK * 2), 16, 1024) + at % 4 * 2;
          const bool is_first = kScales != Scales::rows && c % F::kChunksOfGroup == 0 && step == 0;
          wgmma_registers<kColumns>(sums, a[c % 2][step], b, is_first ? 0 : 1);
        }
        wgmma_commit();
        if (c + 1 < kChunks) {
          convert<kFormat>(raw_[c + 1], a[(c + 1) % 2]);
        } else if (next_ < n_) {
          fetch();
          convert<kFormat>(raw_[0], a[0]);
        }
        wgmma_wait<0>();
        own(sums);
        if constexpr (kScales != Scales::rows)
          if ((c + 1) % F::kChunksOfGroup == 0) {
            const int g = c / F::kChunksOfGroup;
#pragma unroll
            for (int column = 0; column < kColumns; ++column)
#pragma unroll
              for (int i = 0; i < 4; ++i) sums_[column][i] += scale[g][i >> 1] * sums[column][i];
          }
      }
      if (thread_ % 32 == 0) barrier_arrive(ring_.empty + 8 * slot);
    }
    if constexpr (kScales == Scales::rows)
#pragma unroll
      for (int g = 0; g < kColumns; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[g][i] = sums[g][i];
  }
  __device__ __forceinline__ static void own(float (&sums)[kColumns][4]) {
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[g][i])::"memory");
  }

  /// Adds the sums of the other sets, in their order, to those of the first.
  __device__ __forceinline__ void join() {
    const auto at = [&](int set, int g) { return scratch_ + (((set - 1) * kColumns + g) * F::kSetThreads + thread_) * 16; };
    if (set_ != 0) {
      if (has_given_) named_sync(2, F::kMultipliers);
      has_given_ = true;
#pragma unroll
      for (int g = 0; g < kColumns; ++g)
        store_shared(at(set_, g), {__float_as_uint(sums_[g][0]), __float_as_uint(sums_[g][1]), __float_as_uint(sums_[g][2]),
                                   __float_as_uint(sums_[g][3])});
      named_arrive(1, F::kMultipliers);
      return;
    }
    named_sync(1, F::kMultipliers);
#pragma unroll
    for (int set = 1; set < kSets; ++set)
#pragma unroll
      for (int g = 0; g < kColumns; ++g) {
        const uint4 other = load_shared(at(set, g));
        sums_[g][0] += __uint_as_float(other.x);
        sums_[g][1] += __uint_as_float(other.y);
        sums_[g][2] += __uint_as_float(other.z);
        sums_[g][3] += __uint_as_float(other.w);
      }
    named_arrive(2, F::kMultipliers);
  }

  __device__ __forceinline__ uint4* partials_of(int block) {
    return p_.partials + static_cast<std::int64_t>(block) * kColumns * F::kSetThreads + thread_;
  }
  __device__ __forceinline__ void give_sums() {
    uint4* const to = partials_of(static_cast<int>(blockIdx.x));
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
      store_partial(to + g * F::kSetThreads,
                    {as_partial(sums_[g][0]), as_partial(sums_[g][1]), as_partial(sums_[g][2]), as_partial(sums_[g][3])});
  }
  /// Several blocks' sums are asked for at once, and added in the blocks' order.
  __device__ __forceinline__ void add_other_sums(int tile_end) {
    int block = static_cast<int>(blockIdx.x) + 1;
    const auto gives = [&](int other) { return other < p_.schedule.n_blocks && p_.schedule.begin(other) < tile_end; };
#pragma unroll 1
    while (gives(block)) {
      uint4 given[kAtOnce][kColumns];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (gives(block + i))
#pragma unroll
          for (int g = 0; g < kColumns; ++g) given[i][g] = load_partial(partials_of(block + i) + g * F::kSetThreads);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (gives(block + i))
#pragma unroll
          for (int g = 0; g < kColumns; ++g) {
            uint4* const from = partials_of(block + i) + g * F::kSetThreads;
            while (!is_written(given[i][g])) given[i][g] = load_partial(from);
            store_partial(from, {kNotWritten, kNotWritten, kNotWritten, kNotWritten});
            sums_[g][0] += __uint_as_float(given[i][g].x);
            sums_[g][1] += __uint_as_float(given[i][g].y);
            sums_[g][2] += __uint_as_float(given[i][g].z);
            sums_[g][3] += __uint_as_float(given[i][g].w);
          }
      block += kAtOnce;
    }
  }
  __device__ __forceinline__ void store(int first) {
    const int thread = thread_ % 128;
    if constexpr (kScales == Scales::rows) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = __ldg(p_.scales + first + stream_row(thread, 2 * half));
#pragma unroll
        for (int g = 0; g < kColumns; ++g) {
          sums_[g][2 * half] *= scale;
          sums_[g][2 * half + 1] *= scale;
        }
      }
    }
    auto* const out = static_cast<__nv_bfloat16*>(p_.out) + first;
#pragma unroll
    for (int g = 0; g < kColumns; ++g) {
      const int row = stream_transposed_column(thread, g);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t own_pair = pack_pair<__nv_bfloat16>(sums_[g][2 * half], sums_[g][2 * half + 1]);
        __syncwarp();
        const std::uint32_t pair = transpose_8x8(own_pair);
        if (row < p_.n_rows)
          *reinterpret_cast<std::uint32_t*>(out + static_cast<std::int64_t>(row) * p_.n + stream_transposed_row(thread, half)) =
              pair;
      }
    }
  }

  const QuantParams& p_;
  const Ring& ring_;
  const std::uint32_t x_ring_;
  const std::uint32_t scratch_;
  const int thread_;  ///< of the set
  const int set_;
  const int part_;  ///< the warpgroup of the set, and its 64 rows of the tile
  int n_ = 0;       ///< stages of the run
  int next_ = 0;    ///< the set's next one
  bool has_given_ = false;
  RingPlace place_;
  uint4 raw_[kChunks];
  std::uint32_t raw_scale_[F::kGroups][2];
  float sums_[kColumns][4];
};

/// One thread's copies of all stages of a block's run: `copy(stage, i, slot)`.
template <class Copy>
__device__ __forceinline__ void copy_stages(const QuantParams& p, const Ring& ring, Copy&& copy) {
  const int first = p.schedule.begin(static_cast<int>(blockIdx.x));
  const int n = p.schedule.begin(static_cast<int>(blockIdx.x) + 1) - first;
  RingPlace place;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
    copy(first + i, i, place.slot);
    place.advance(p.n_stages);
  }
}

#endif  // BATON_SM90A

template <Format kFormat, Scales kScales, int kWidth, int kParts, int kSets>
__global__ void __launch_bounds__(Form<kFormat, kParts, kSets>::kThreads, 1)
    quant_gemm_kernel([[maybe_unused]] const __grid_constant__ QuantParams p,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap x_map) {
#ifdef BATON_SM90A
  using F = Form<kFormat, kParts, kSets>;
  constexpr int kMultipliers = F::kMultipliers;
  extern __shared__ __align__(1024) std::byte memory[];
  constexpr int kWeightBytes = stage_weight_bytes<F, kScales>();
  const std::uint32_t x_ring = shared_address(memory);
  const std::uint32_t weights = x_ring + p.n_stages * stage_x_bytes<F>(kWidth);
  const std::uint32_t scratch = weights + p.n_stages * kWeightBytes;
  const std::uint32_t barriers = scratch + scratch_bytes<F>(kWidth);
  const Ring ring{weights, barriers, barriers + 8 * kMaxStages, barriers + 16 * kMaxStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(ring, p.n_stages, F::kSetThreads / 32);
  __syncthreads();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    QuantMultiplier<kFormat, kScales, kWidth, kParts, kSets>(p, ring, x_ring, scratch).run();
  } else if (thread == kMultipliers) {
    const std::uint64_t policy = read_once_policy();
    copy_stages(p, ring, [&](int stage, int i, int slot) {
      if (i >= kFillStages && i < p.n_stages) barrier_wait(ring.has_weight + 8 * (i - kFillStages), 0);
      const std::uint32_t barrier = ring.has_weight + 8 * slot;
      barrier_expect(barrier, kWeightBytes);
      copy_bytes(weights + slot * kWeightBytes, p.weight + static_cast<std::int64_t>(stage) * kWeightBytes, kWeightBytes,
                 barrier, policy);
    });
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_stages(p, ring, [&](int stage, int /*i*/, int slot) {
      const int k = stage % p.schedule.k_stages;
      const std::uint32_t barrier = ring.has_x + 8 * slot;
      barrier_expect(barrier, stage_x_bytes<F>(kWidth));
#pragma unroll
      for (int box = 0; box < F::kBoxes; ++box)
        copy_box(x_ring + slot * stage_x_bytes<F>(kWidth) + box * (kWidth * kBoxK * 2), &x_map, k * F::kStageK + box * kBoxK, 0,
                 barrier);
    });
  }
#endif
}

}  // namespace workshop
