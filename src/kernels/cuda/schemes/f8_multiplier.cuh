/// How the threads of a block of f8_gemm.cu share work and memory, and what its multiplying warpgroups do. For that source alone.
#pragma once

#include <array>
#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/f8_gemm.h"
#include "kernels/cuda/schemes/f8_instructions.cuh"

namespace baton::cuda {

inline constexpr int kF8Groups = 2;  // warpgroups that multiply
inline constexpr int kF8Multipliers = kF8Groups * 128;
inline constexpr int kF8Threads = kF8Multipliers + 128;
inline constexpr int kF8TileBytes = kSchemeTileRows * kF8Columns;
inline constexpr int kF8WeightBytes = kF8Groups * kF8TileBytes;  // of a stage
inline constexpr int kF8BoxBytes = kF8BoxRows * kF8Columns;
inline constexpr int kF8MostStages = 8;
inline constexpr int kF8SlabRows = 16;  // of out: what a warp stores at once, and a box of copies to memory
inline constexpr int kF8SlabBytes = kF8SlabRows * kBoxBytes;
inline constexpr int kF8Slabs = 8;  // of a warpgroup: 128 rows
inline constexpr int kF8StoreBytes = kF8Groups * kF8Slabs * kF8SlabBytes;
inline constexpr int kF8ScaleBytes = kF8Groups * kF8XRows * 4;  // of x, for each warpgroup
inline constexpr int kF8BarrierBytes = 1024;                    // stages after them are aligned
inline constexpr int kF8FixedBytes = kF8StoreBytes + kF8ScaleBytes + kF8BarrierBytes;
inline constexpr int kF8MostSplits = 4;  // blocks of a cluster that divide an item
static_assert(std::tuple_size_v<WideClusters> == kF8MostSplits + 1);

#ifdef BATON_SM90A

inline constexpr int kF8Chunks = kF8Columns / chunk_columns(WeightScheme::f8);
inline constexpr int kF8Steps = kF8Columns / 32;  // of wgmma in a stage
/// Named barriers: of each warpgroup, and of both.
inline constexpr int kF8Own = 1;
inline constexpr int kF8Both = kF8Own + kF8Groups;

/// Where a block's shared memory has what: slabs of out, scales of x, barriers, and stages with the weight first.
struct F8Memory {
  __device__ __forceinline__ std::uint32_t x_scales() const { return base + kF8StoreBytes; }
  __device__ __forceinline__ std::uint32_t full(int slot) const { return base + kF8StoreBytes + kF8ScaleBytes + 8 * slot; }
  __device__ __forceinline__ std::uint32_t empty(int slot) const { return full(slot) + 8 * kF8MostStages; }
  __device__ __forceinline__ std::uint32_t stages() const { return base + kF8FixedBytes; }
  __device__ __forceinline__ std::uint32_t weight(const F8GemmParams& p, int slot) const {
    return stages() + slot * (kF8WeightBytes + p.n_boxes * kF8BoxBytes);
  }
  __device__ __forceinline__ std::uint32_t x(const F8GemmParams& p, int slot) const { return weight(p, slot) + kF8WeightBytes; }
  std::uint32_t base;
};

/// Which of the items and stages a block has.
struct F8Block {
  __device__ __forceinline__ explicit F8Block(const F8GemmParams& p)
      : rank(static_cast<int>(rank_in_cluster())),
        first_item(static_cast<int>(blockIdx.x) / p.plan.cluster),
        item_step(static_cast<int>(gridDim.x) / p.plan.cluster),
        stages(p.plan.shares_x ? WideStages{0, p.n_stages_of_k} : wide_stages(p.n_stages_of_k, rank, p.plan.cluster)) {}
  int rank;  ///< in the cluster
  int first_item;
  int item_step;
  WideStages stages;  ///< of each item
};

/// Which tiles an item has.
struct F8Item {
  __device__ __forceinline__ F8Item(const F8GemmParams& p, int item, int rank) {
    const WideGemmTile tile = wide_tile(item, p.n_items / p.n_x_tiles, p.n_x_tiles);
    first_tile = (p.plan.shares_x ? tile.weight * 2 + rank : tile.weight) * kF8Groups;
    first_x = tile.pass * kF8XRows;
    n_boxes = min(kMostF8Boxes, (p.n_rows - first_x + kF8BoxRows - 1) / kF8BoxRows);
  }
  int first_tile;  ///< of the weight
  int first_x;     ///< row
  int n_boxes;     ///< of x
};

/// What a warpgroup does: 64 rows of the weight by up to kF8XRows rows of x. `kHasGroups`: the weight has scales of groups.
template <bool kHasGroups>
class F8Multiplier {
 public:
  __device__ __forceinline__ F8Multiplier(const F8GemmParams& p, const F8Memory& memory, const F8Block& block,
                                          const CUtensorMap& out_map)
      : p_(p),
        memory_(memory),
        block_(block),
        out_map_(out_map),
        group_(static_cast<int>(threadIdx.x) / 128),
        thread_(static_cast<int>(threadIdx.x) % 128),
        n_readers_(p.plan.shares_x ? 2 : 1),
        release_(address_at(memory.empty(0), p.plan.shares_x ? thread_ % 2 : block.rank)) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int i = block_.first_item; i < p_.n_items; i += block_.item_step) {
      const F8Item item(p_, i, block_.rank);
      tile_ = item.first_tile + group_;
      first_x_ = item.first_x;
      n_boxes_ = item.n_boxes;
      request_x_scales();
      multiply();
      wait_for_copies();  // of the scales
      named_barrier(kF8Own + group_, 128);
      if (p_.plan.cluster > 1 && !p_.plan.shares_x)
        store_share();
      else
        store();
    }
    if (thread_ == 0) wait_for_boxes();
  }

 private:
  /// Adds to `sums` what a stage gives for 8 kColumns rows of x.
  template <int kColumns>
  __device__ __forceinline__ void add_products(float (&sums)[16][4], std::uint64_t weight, std::uint64_t x,
                                               const std::uint32_t (&scales)[2], bool is_last) {
    float products[kColumns][4];
    own_accumulators(products);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kF8Steps; ++step)
      wgmma_f8(products, weight + step / 2 * (2 * kPieceBytes >> 4) + step % 2 * 2, x + step * 2, step > 0);
    wgmma_commit();
    wgmma_wait<0>();
    own_accumulators(products);
    if (is_last && thread_ % 32 < n_readers_) barrier_arrive_there(release_ + 8 * place_.slot);
    if constexpr (kHasGroups) {
      const float factors[2] = {scale_of(scales[0]), scale_of(scales[1])};
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += products[i][j] * factors[j / 2];
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += products[i][j];
    }
  }

  /// The sums of an item with kBoxes boxes of x.
  template <int kBoxes>
  __device__ __forceinline__ void multiply(int tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 16; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums_[half][i][j] = 0;
    std::uint32_t next[2] = {0, 0};
    if constexpr (kHasGroups) load_scales(tile, block_.stages.begin, next);
#pragma unroll 1
    for (int k = block_.stages.begin; k < block_.stages.end; ++k) {
      const std::uint32_t scales[2] = {next[0], next[1]};
      if (kHasGroups && k + 1 < block_.stages.end) load_scales(tile, k + 1, next);
      barrier_wait(memory_.full(place_.slot), place_.parity);
      const std::uint32_t weight = memory_.weight(p_, place_.slot);
      const std::uint64_t a = wgmma_descriptor_of_64_bytes(weight + group_ * kF8TileBytes);
      const std::uint64_t b = wgmma_descriptor(weight + kF8WeightBytes, 16, 1024);
      add_products<kBoxes == 1 ? 8 : 16>(sums_[0], a, b, scales, kBoxes <= 2);
      if constexpr (kBoxes > 2) add_products<kBoxes == 3 ? 8 : 16>(sums_[1], a, b + (2 * kF8BoxBytes >> 4), scales, true);
      place_.advance(p_.n_stages);
    }
  }
  __device__ __forceinline__ void multiply() {
    const int tile = min(tile_, p_.weight.n_tiles - 1);
    switch (n_boxes_) {
      case 1: return multiply<1>(tile);
      case 2: return multiply<2>(tile);
      case 3: return multiply<3>(tile);
      default: return multiply<4>(tile);
    }
  }

  /// The scales of the thread's rows for a stage, in the bits of their dtype.
  __device__ __forceinline__ void load_scales(int tile, int stage, std::uint32_t (&scales)[2]) const {
    const SchemeView& weight = p_.weight;
    const int group = (stage * kF8Columns) >> weight.group_shift;
    const std::int64_t first = (static_cast<std::int64_t>(tile) * weight.n_groups + group) * kSchemeTileRows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = first + fragment_row(thread_, i);
      if (weight.scale_dtype == DType::f32)
        scales[i] = reinterpret_cast<const std::uint32_t*>(weight.scales)[at];
      else
        scales[i] = reinterpret_cast<const std::uint16_t*>(weight.scales)[at];
    }
  }
  __device__ __forceinline__ float scale_of(std::uint32_t bits) const {
    if (p_.weight.scale_dtype == DType::f32) return __uint_as_float(bits);
    if (p_.weight.scale_dtype == DType::bf16) return __uint_as_float(bits << 16);
    return __half2float(__ushort_as_half(static_cast<std::uint16_t>(bits)));
  }

  /// Copies the item's, long before they are needed.
  __device__ __forceinline__ void request_x_scales() const {
    named_barrier(kF8Own + group_, 128);  // the last item's were read
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int x = min(first_x_ + half * 128 + thread_, p_.n_rows - 1);
      copy_4(memory_.x_scales() + (group_ * kF8XRows + half * 128 + thread_) * 4, p_.x_scales + x);
    }
  }
  /// Of the two rows of 8 that the thread has sums of.
  __device__ __forceinline__ float2 x_scales_of(int eight) const {
    float2 scales;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(scales.x), "=f"(scales.y)
                 : "r"(memory_.x_scales() + (group_ * kF8XRows + eight * 8 + thread_ % 4 * 2) * 4));
    return scales;
  }

  /// What finishes the sums of the thread's two rows of the weight.
  struct Finish {
    float scale[2] = {1, 1};
    float bias[2] = {0, 0};
  };
  __device__ __forceinline__ Finish finish() const {
    Finish of_rows;
    float(&bias)[2] = of_rows.bias;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t n = column(i);
      if (!kHasGroups && n < p_.weight.n) of_rows.scale[i] = p_.weight.row_scales[n];
      if (p_.bias == nullptr || n >= p_.weight.n) continue;
      if (p_.out_dtype == DType::bf16)
        bias[i] = to_f32(static_cast<const __nv_bfloat16*>(p_.bias)[n]);
      else if (p_.out_dtype == DType::f16)
        bias[i] = to_f32(static_cast<const __half*>(p_.bias)[n]);
      else
        bias[i] = static_cast<const float*>(p_.bias)[n];
    }
    return of_rows;
  }
  /// Of out.
  __device__ __forceinline__ std::int64_t column(int i) const {
    return static_cast<std::int64_t>(tile_) * kSchemeTileRows + fragment_row(thread_, i);
  }
  __device__ __forceinline__ std::uint32_t slabs() const { return memory_.base + group_ * kF8Slabs * kF8SlabBytes; }

  /// Finishes sums of 16 rows of x, from row 16 `slab` of the item on, in a slab of shared memory.
  __device__ __forceinline__ void put_slab(const float (&first)[4], const float (&second)[4], const Finish& by, int slab,
                                           std::uint32_t to) const {
    const bool is_half = p_.out_dtype == DType::f16;
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& sums = i < 2 ? first : second;
      const float2 of_x = x_scales_of(2 * slab + i / 2);
      const int row = i % 2;
      const float low = sums[2 * row] * (of_x.x * by.scale[row]) + by.bias[row];
      const float high = sums[2 * row + 1] * (of_x.y * by.scale[row]) + by.bias[row];
      pairs[i] = is_half ? pack_pair<__half>(low, high) : pack_pair<__nv_bfloat16>(low, high);
    }
    const int lane = thread_ % 32;
    const int unit = thread_ / 32 * 2 + lane / 8 % 2;
    store_transposed(to + (lane / 16 * 8 + lane % 8) * kBoxBytes + (unit ^ lane % 8) * 16, pairs);
  }
  /// Copies slabs [begin, end) of the item, which lie one after the other, to memory.
  __device__ __forceinline__ void give_slabs(int begin, int end) const {
    show_to_copies();
    named_barrier(kF8Own + group_, 128);
    if (thread_ != 0 || tile_ >= p_.weight.n_tiles) return;
    for (int slab = begin; slab < end && first_x_ + slab * kF8SlabRows < p_.n_rows; ++slab)
      give_box(&out_map_, tile_ * kSchemeTileRows, first_x_ + slab * kF8SlabRows, slabs() + (slab - begin) * kF8SlabBytes);
    commit_boxes();
  }
  /// Where out is not written in boxes: sums of the rows of x from row 8 `eight` of the item on.
  __device__ __forceinline__ void store_ones(const uint4& bits, const Finish& by, int eight) const {
    const float2 scale = x_scales_of(eight);
    const std::uint32_t sums[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int x = first_x_ + eight * 8 + thread_ % 4 * 2 + j % 2;
      const std::int64_t n = column(j / 2);
      if (x >= p_.n_rows || n >= p_.weight.n) continue;
      const float sum = __uint_as_float(sums[j]) * ((j % 2 == 0 ? scale.x : scale.y) * by.scale[j / 2]) + by.bias[j / 2];
      const std::int64_t at = x * p_.weight.n + n;
      if (p_.out_dtype == DType::bf16)
        static_cast<__nv_bfloat16*>(p_.out)[at] = from_f32<__nv_bfloat16>(sum);
      else if (p_.out_dtype == DType::f16)
        static_cast<__half*>(p_.out)[at] = from_f32<__half>(sum);
      else
        static_cast<float*>(p_.out)[at] = sum;
    }
  }
  __device__ __forceinline__ static uint4 bits_of(const float (&sums)[4]) {
    return {__float_as_uint(sums[0]), __float_as_uint(sums[1]), __float_as_uint(sums[2]), __float_as_uint(sums[3])};
  }

  /// All sums of the item.
  __device__ __forceinline__ void store() const {
    const Finish by = finish();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half * 2 >= n_boxes_) break;
      if (p_.stores_boxes) {
        if (thread_ == 0) wait_for_boxes();
        named_barrier(kF8Own + group_, 128);
#pragma unroll
        for (int i = 0; i < kF8Slabs; ++i)
          put_slab(sums_[half][2 * i], sums_[half][2 * i + 1], by, half * kF8Slabs + i, slabs() + i * kF8SlabBytes);
        give_slabs(half * kF8Slabs, (half + 1) * kF8Slabs);
        continue;
      }
      const std::uint32_t own = slabs() + thread_ * 16;  // for a loop, because unrolled code runs once
#pragma unroll
      for (int first = 0; first < 16; first += kF8Slabs) {
#pragma unroll
        for (int i = 0; i < kF8Slabs; ++i) store_shared(own + i * 128 * 16, bits_of(sums_[half][first + i]));
#pragma unroll 1
        for (int i = 0; i < kF8Slabs; ++i) store_ones(load_shared(own + i * 128 * 16), by, half * 16 + first + i);
      }
    }
  }

  /// A part of the item's sums, which are those of all blocks of the cluster. They lie where the stages were, and all threads of a
  /// block meet the other blocks once: the cluster has no other item (multiply_f8 checks it).
  __device__ __forceinline__ void store_share() {
    const std::uint32_t own = memory_.stages() + static_cast<std::uint32_t>(threadIdx.x) * 16;
    named_barrier(kF8Both, kF8Multipliers);  // all have read the stages
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if ((half * 16 + i) / 8 < n_boxes_) store_shared(own + (half * 16 + i) * kF8Multipliers * 16, bits_of(sums_[half][i]));
    cluster_barrier();
    const WideStages share = wide_stages(n_boxes_ * (kF8BoxRows / kF8SlabRows), block_.rank, p_.plan.cluster);
    const Finish by = finish();
#pragma unroll 1
    for (int slab = share.begin; slab < share.end; ++slab) {
      float sums[2][4] = {};
      uint4 given[kF8MostSplits][2];
#pragma unroll
      for (int from = 0; from < kF8MostSplits; ++from)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (from < p_.plan.cluster) given[from][i] = load_at(own + (slab * 2 + i) * kF8Multipliers * 16, from);
#pragma unroll
      for (int from = 0; from < kF8MostSplits; ++from)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (from < p_.plan.cluster) add_partial(sums[i], given[from][i]);
      if (p_.stores_boxes) {
        put_slab(sums[0], sums[1], by, slab, slabs() + (slab - share.begin) * kF8SlabBytes);
      } else {
        store_ones(bits_of(sums[0]), by, 2 * slab);
        store_ones(bits_of(sums[1]), by, 2 * slab + 1);
      }
    }
    if (p_.stores_boxes) give_slabs(share.begin, share.end);
  }

  const F8GemmParams& p_;
  const F8Memory& memory_;
  const F8Block& block_;
  const CUtensorMap& out_map_;
  const int group_;
  const int thread_;
  const int n_readers_;          ///< blocks whose stages this one's x is in
  const std::uint32_t release_;  ///< the barriers of empty stages, in the block that the lane tells
  int tile_ = 0;
  int first_x_ = 0;
  int n_boxes_ = 0;
  RingPlace place_;
  float sums_[2][16][4];
};

#endif  // BATON_SM90A

}  // namespace baton::cuda
