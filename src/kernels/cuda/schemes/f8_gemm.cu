/// Rows of the weight are wgmma's M, as in the streaming GEMM, so its tiles are read as they lie: a thread finds in 16 bytes of a
/// piece its operand of 64 x 32, but for the order of bytes and of x's columns. Two blocks are a pair: each has 128 rows of the
/// weight, both the same 256 rows of x, of which each copies one half to both. Two warpgroups multiply 64 rows of the weight
/// each, 128 rows of x at once, in turns: while one adds its sums in f32, the matrix units work for the other.
#include "kernels/cuda/schemes/f8_gemm.h"

#include <algorithm>
#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch_clusters.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/f8_instructions.cuh"

namespace baton::cuda {
namespace {

constexpr int kGroups = 2;  // warpgroups that multiply
constexpr int kPair = 2;
constexpr int kXRows = 256;  // of a tile of x
constexpr int kThreads = (kGroups + 1) * 128;
constexpr int kWeightBytes = kGroups * kSchemeTileRows * kF8Columns;  // of a stage
constexpr int kXBytes = kXRows * kF8Columns;
constexpr int kStageBytes = kWeightBytes + kXBytes;
constexpr int kStages = 4;
constexpr int kScaleBytes = kXRows * 4;  // of x, for each warpgroup
constexpr int kSharedBytes = kStages * kStageBytes + kGroups * kScaleBytes + 2 * 8 * kStages;

#ifdef BATON_SM90A

constexpr int kXRowsAtOnce = 128;
constexpr int kHalves = kXRows / kXRowsAtOnce;
constexpr int kChunks = kF8Columns / chunk_columns(WeightScheme::f8);
/// Tiles of x that take turns with one tile of the weight, so that both stay in the L2.
constexpr int kXTilesOfBand = 8;
/// Named barriers: of the warpgroups' turns, and of each warpgroup.
constexpr int kTurn = 1;
constexpr int kOwn = kTurn + kGroups;

/// Stages in shared memory and their barriers.
struct F8Ring {
  std::uint32_t x;
  std::uint32_t weight;
  std::uint32_t x_scales;
  std::uint32_t full;
  std::uint32_t empty;
};

struct F8Place {
  int slot = 0;
  int parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot < kStages) return;
    slot = 0;
    parity ^= 1;
  }
};

/// Which tiles an item has.
struct F8Item {
  __device__ __forceinline__ F8Item(const F8GemmParams& p, int item, int rank) {
    const int n_pairs = p.n_items / p.n_x_tiles;
    const int band = item / (n_pairs * kXTilesOfBand);
    const int n_x_tiles = min(kXTilesOfBand, p.n_x_tiles - band * kXTilesOfBand);
    const int of_band = item - band * n_pairs * kXTilesOfBand;
    first_tile = (of_band / n_x_tiles * kPair + rank) * kGroups;
    first_x_row = (band * kXTilesOfBand + of_band % n_x_tiles) * kXRows;
  }
  int first_tile;  ///< of the weight
  int first_x_row;
};

/// Which items a block has.
struct F8Block {
  __device__ __forceinline__ F8Block()
      : rank(static_cast<int>(rank_in_cluster())),
        first_item(static_cast<int>(blockIdx.x) / kPair),
        item_step(static_cast<int>(gridDim.x) / kPair) {}
  int rank;  ///< in the pair
  int first_item;
  int item_step;
};

/// One thread's copies. Weights do not depend on the kernel before.
class F8Copier {
 public:
  __device__ __forceinline__ F8Copier(const F8GemmParams& p, const F8Ring& ring, const F8Block& block, const CUtensorMap& x_map)
      : p_(p), ring_(ring), block_(block), x_map_(x_map) {}

  __device__ __forceinline__ void run() {
    const int n_first = min(kStages, p_.n_stages_of_k);
    if (block_.first_item < p_.n_items) {
      const F8Item item(p_, block_.first_item, block_.rank);
      for (int i = 0; i < n_first; ++i) copy_weight(item, i, i);
      wait_for_kernel_before();
      let_next_kernel_start();
      for (int i = 0; i < n_first; ++i) copy_x(item, i, i);
    }
    F8Place place;
    int n_copied = 0;
#pragma unroll 1
    for (int i = block_.first_item; i < p_.n_items; i += block_.item_step) {
      const F8Item item(p_, i, block_.rank);
#pragma unroll 1
      for (int k = 0; k < p_.n_stages_of_k; ++k, ++n_copied) {
        if (n_copied >= n_first) {
          if (n_copied >= kStages) barrier_wait(ring_.empty + 8 * place.slot, place.parity ^ 1);
          copy_weight(item, k, place.slot);
          copy_x(item, k, place.slot);
        }
        place.advance();
      }
    }
  }

 private:
  __device__ __forceinline__ void copy_weight(const F8Item& item, int k, int slot) {
    const std::uint32_t barrier = ring_.full + 8 * slot;
    barrier_expect(barrier, kStageBytes);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      // A tile that does not exist is the last again; its sums are not stored.
      const std::int64_t tile = min(item.first_tile + group, p_.weight.n_tiles - 1);
      copy_bytes(ring_.weight + slot * kWeightBytes + group * kChunks * kPieceBytes,
                 p_.weight.values + (tile * p_.weight.n_chunks + k * kChunks) * kPieceBytes, kChunks * kPieceBytes, barrier);
    }
  }
  __device__ __forceinline__ void copy_x(const F8Item& item, int k, int slot) {
    constexpr int kRowsOfBlock = kXRows / kPair;
    copy_box_to_all(ring_.x + slot * kXBytes + block_.rank * kRowsOfBlock * kF8Columns, &x_map_, k * kF8Columns,
                    item.first_x_row + block_.rank * kRowsOfBlock, ring_.full + 8 * slot, (1 << kPair) - 1);
  }

  const F8GemmParams& p_;
  const F8Ring& ring_;
  const F8Block& block_;
  const CUtensorMap& x_map_;
};

/// What a warpgroup does: 64 rows of the weight by kXRows rows of x.
class F8Multiplier {
 public:
  __device__ __forceinline__ F8Multiplier(const F8GemmParams& p, const F8Ring& ring, const F8Block& block)
      : p_(p),
        ring_(ring),
        block_(block),
        group_(static_cast<int>(threadIdx.x) / 128),
        thread_(static_cast<int>(threadIdx.x) % 128) {}

  __device__ __forceinline__ void run() {
    if (group_ == kGroups - 1) give_turn();
#pragma unroll 1
    for (int i = block_.first_item; i < p_.n_items; i += block_.item_step) {
      const F8Item item(p_, i, block_.rank);
      tile_ = item.first_tile + group_;
      first_x_ = item.first_x_row;
      load_x_scales();
      multiply(min(tile_, p_.weight.n_tiles - 1));
      show_x_scales();
      store();
    }
    // The turn that the other warpgroup gave last.
    if (group_ == 0) named_barrier(kTurn, kGroups * 128);
  }

 private:
  /// Lets the other warpgroup use the matrix units.
  __device__ __forceinline__ void give_turn() { named_barrier_arrive(kTurn + (group_ + 1) % kGroups, kGroups * 128); }

  /// The rows of a tile that the thread has sums of.
  __device__ __forceinline__ int row(int i) const { return fragment_row(thread_, i); }

  __device__ __forceinline__ void multiply(int tile) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int i = 0; i < 16; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums_[half][i][j] = 0;
    const SchemeView& weight = p_.weight;
    const bool has_second_half = first_x_ + kXRowsAtOnce < p_.n_rows;
    float scales[2] = {1, 1};
    if (weight.scales == nullptr) {
      scales[0] = weight.row_scales[tile * kSchemeTileRows + row(0)];
      scales[1] = weight.row_scales[tile * kSchemeTileRows + row(1)];
    }
#pragma unroll 1
    for (int k = 0; k < p_.n_stages_of_k; ++k) {
      if (weight.scales != nullptr) load_scales(tile, (k * kF8Columns) >> weight.group_shift, scales);
      barrier_wait(ring_.full + 8 * place_.slot, place_.parity);
      std::uint32_t a[kChunks][4];
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const uint4 words =
            load_shared(ring_.weight + place_.slot * kWeightBytes + (group_ * kChunks + c) * kPieceBytes + thread_ * 16);
        a[c][0] = __byte_perm(words.x, words.y, 0x6420);
        a[c][1] = __byte_perm(words.x, words.y, 0x7531);
        a[c][2] = __byte_perm(words.z, words.w, 0x6420);
        a[c][3] = __byte_perm(words.z, words.w, 0x7531);
      }
      const std::uint32_t x = ring_.x + place_.slot * kXBytes;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        if (half > 0 && !has_second_half) break;
        float products[16][4];
        own_accumulators(products);
        named_barrier(kTurn + group_, kGroups * 128);
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
          wgmma_f8(products, a[c], wgmma_descriptor(x + half * kXRowsAtOnce * kF8Columns + c * 32, 16, 1024), c > 0);
        wgmma_commit();
        give_turn();
        wgmma_wait<0>();
        own_accumulators(products);
        if ((half == kHalves - 1 || !has_second_half) && thread_ % 32 < kPair)
          barrier_arrive_at(ring_.empty + 8 * place_.slot, static_cast<std::uint32_t>(thread_ % 32));
#pragma unroll
        for (int i = 0; i < 16; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sums_[half][i][j] += products[i][j] * scales[j / 2];
      }
      place_.advance();
    }
  }

  /// Reads the tile's from memory, long before they are needed.
  __device__ __forceinline__ void load_x_scales() {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int x = first_x_ + half * 128 + thread_;
      x_scales_[half] = x < p_.n_rows ? p_.x_scales[x] : 0;
    }
  }
  /// Shows them to the warpgroup.
  __device__ __forceinline__ void show_x_scales() const {
    named_barrier(kOwn + group_, 128);  // the last tile's were read
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(ring_.x_scales + group_ * kScaleBytes + (half * 128 + thread_) * 4),
                   "f"(x_scales_[half])
                   : "memory");
    named_barrier(kOwn + group_, 128);
  }
  /// Of the two rows of a unit that the thread has sums of.
  __device__ __forceinline__ float2 x_scales_of(int unit) const {
    float2 scales;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(scales.x), "=f"(scales.y)
                 : "r"(ring_.x_scales + group_ * kScaleBytes + (unit * 8 + thread_ % 4 * 2) * 4));
    return scales;
  }

  __device__ __forceinline__ void load_scales(int tile, int group, float (&scales)[2]) const {
    const SchemeView& weight = p_.weight;
    const std::int64_t first = (static_cast<std::int64_t>(tile) * weight.n_groups + group) * kSchemeTileRows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = first + row(i);
      if (weight.scale_dtype == DType::f32)
        scales[i] = reinterpret_cast<const float*>(weight.scales)[at];
      else if (weight.scale_dtype == DType::bf16)
        scales[i] = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(weight.scales)[at]);
      else
        scales[i] = __half2float(reinterpret_cast<const __half*>(weight.scales)[at]);
    }
  }

  template <class T>
  __device__ __forceinline__ float bias_of(std::int64_t n) const {
    return p_.bias == nullptr || n >= p_.weight.n ? 0.0f : to_f32(static_cast<const T*>(p_.bias)[n]);
  }

  /// Four neighbouring columns of out at once, after a transposition among the lanes of a warp.
  template <class T>
  __device__ __forceinline__ void store_fours(std::int64_t first_n) const {
    const int lane = thread_ % 32;
    const int warp = thread_ / 32;
    const float bias[2] = {bias_of<T>(first_n + row(0)), bias_of<T>(first_n + row(1))};
    const std::int64_t n = first_n + warp * 16 + lane % 2 * 8 + lane % 4 / 2 * 4;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int x = first_x_ + half * kXRowsAtOnce + i * 8;
        if (x >= p_.n_rows) return;
        const float2 scale = x_scales_of(half * 16 + i);
        const auto& sums = sums_[half][i];
        const std::uint32_t low = transpose_8x8(pack_pair<T>(sums[0] * scale.x + bias[0], sums[1] * scale.y + bias[0]));
        const std::uint32_t high = transpose_8x8(pack_pair<T>(sums[2] * scale.x + bias[1], sums[3] * scale.y + bias[1]));
        const bool is_even = lane % 2 == 0;
        const std::uint32_t other = __shfl_xor_sync(0xffffffffu, is_even ? high : low, 1);
        const uint2 fours = is_even ? uint2{low, other} : uint2{other, high};
        if (x + lane / 4 < p_.n_rows && n < p_.weight.n)
          *reinterpret_cast<uint2*>(static_cast<T*>(p_.out) + (x + lane / 4) * p_.weight.n + n) = fours;
      }
  }

  template <class T>
  __device__ __forceinline__ void store_ones(std::int64_t first_n) const {
    const float bias[2] = {bias_of<T>(first_n + row(0)), bias_of<T>(first_n + row(1))};
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 scale = x_scales_of(half * 16 + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int x = first_x_ + half * kXRowsAtOnce + i * 8 + thread_ % 4 * 2 + j % 2;
          const std::int64_t n = first_n + row(j / 2);
          if (x < p_.n_rows && n < p_.weight.n)
            static_cast<T*>(p_.out)[x * p_.weight.n + n] =
                from_f32<T>(sums_[half][i][j] * (j % 2 == 0 ? scale.x : scale.y) + bias[j / 2]);
        }
      }
  }

  template <class T>
  __device__ __forceinline__ void store_16_bits(std::int64_t first_n) const {
    if (p_.stores_fours)
      store_fours<T>(first_n);
    else
      store_ones<T>(first_n);
  }

  __device__ __forceinline__ void store() const {
    if (tile_ >= p_.weight.n_tiles) return;
    const std::int64_t first_n = static_cast<std::int64_t>(tile_) * kSchemeTileRows;
    if (p_.out_dtype == DType::bf16)
      store_16_bits<__nv_bfloat16>(first_n);
    else if (p_.out_dtype == DType::f16)
      store_16_bits<__half>(first_n);
    else
      store_ones<float>(first_n);
  }

  const F8GemmParams& p_;
  const F8Ring& ring_;
  const F8Block& block_;
  int group_;
  int thread_;
  int tile_ = 0;
  int first_x_ = 0;
  F8Place place_;
  float x_scales_[kHalves];
  float sums_[kHalves][16][4];
};

#endif  // BATON_SM90A

__global__ void __launch_bounds__(kThreads, 1) f8_gemm_kernel([[maybe_unused]] const __grid_constant__ F8GemmParams p,
                                                              [[maybe_unused]] const __grid_constant__ CUtensorMap x_map) {
#ifdef BATON_SM90A
  extern __shared__ __align__(1024) std::byte shared[];
  const std::uint32_t x = shared_address(shared);
  const std::uint32_t weight = x + kStages * kXBytes;
  const std::uint32_t x_scales = weight + kStages * kWeightBytes;
  const std::uint32_t barriers = x_scales + kGroups * kScaleBytes;
  const F8Ring ring{x, weight, x_scales, barriers, barriers + 8 * kStages};
  const F8Block block;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool multiplies = thread < kGroups * 128;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, kGroups * 4 * kPair);
    }
    show_barriers_to_copies();
  }
  cluster_barrier();
  if (!multiplies) {
    give_registers<24>();
    if (thread == kGroups * 128) F8Copier(p, ring, block, x_map).run();
    __syncwarp();
  } else {
    take_registers<240>();
    wait_for_kernel_before();
    F8Multiplier(p, ring, block).run();
  }
  cluster_barrier();  // a block's memory is the other's until both are done
#endif
}

}  // namespace

void multiply_f8(const Device& device, const F8GemmParams& params, void* encode_map, const ConstTensorView& x) {
  F8GemmParams p = params;
  const SchemeView& weight = p.weight;
  constexpr int kTilesOfPair = kPair * kGroups;
  p.n_stages_of_k = static_cast<int>((weight.k + kF8Columns - 1) / kF8Columns);
  p.n_x_tiles = (p.n_rows + kXRows - 1) / kXRows;
  p.n_items = (weight.n_tiles + kTilesOfPair - 1) / kTilesOfPair * p.n_x_tiles;
  const int n_pairs = std::min(p.n_items, device.n_multiprocessors / kPair);
  check_cuda(cudaFuncSetAttribute(f8_gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "multiply_f8");
  launch_clusters(device, f8_gemm_kernel, dim3(static_cast<unsigned>(n_pairs * kPair)), kPair, kThreads, kSharedBytes,
                  "multiply_f8", p, matrix_map(encode_map, x, kXRows / kPair));
}

}  // namespace baton::cuda
