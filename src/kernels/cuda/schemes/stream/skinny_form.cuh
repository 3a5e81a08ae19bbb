/// How the threads of a block of skinny_kernel.cuh share a stage, and where its ring lies in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/scheme_layout.h"
#include "kernels/cuda/schemes/scheme_stream.h"

namespace baton::cuda {

inline constexpr int kSkinnyWidth = 8;  ///< rows of x; fewer are padded
/// A block requests so many stages before the first one has arrived. With more, few rows of x arrive later.
inline constexpr int kSkinnyFillStages = 3;
/// x that stays in shared memory for all tiles of a block leaves room for a ring.
inline constexpr int kMostBytesOfAllX = 96 << 10;
/// Bytes of the next matmul's weight that are brought into the L2, for all blocks together. So much is read while a matmul
/// computes what it has read, waits for the kernel before, and ends.
inline constexpr std::int64_t kMostBytesAhead = 16 << 20;

struct SkinnyParams : SchemeStreamParams {
  bool x_stays = false;      ///< x has a slot for each stage of a tile; otherwise it is in the ring
  int next_run_bytes = 0;    ///< of next_values, for each block
  int next_ahead_bytes = 0;  ///< of a run, brought into the L2
};

/// A stage is of one tile. The warps of a set share it, a pair of chunks each; the sets take the stages in turn.
template <WeightScheme kScheme>
struct SkinnyForm {
  static constexpr int kChunkK = chunk_columns(kScheme);
  static constexpr int kChunks = 8;            ///< of a stage
  static constexpr int kSteps = kChunkK / 16;  ///< of a chunk
  static constexpr int kStageK = kChunks * kChunkK;
  static constexpr int kBoxes = kStageK / kBoxK;
  static constexpr int kXBytes = kSkinnyWidth * kStageK * 2;  ///< of a stage
  static constexpr int kValueBytes = kChunks * kPieceBytes;
  static constexpr int kWarps = 8;
  static constexpr int kPairs = kChunks / 2;  ///< of chunks in a stage
  static constexpr int kSets = kWarps / kPairs;
  static constexpr int kReaders = kPairs;  ///< warps that empty a stage
  static constexpr int kMultipliers = 32 * kWarps;
  static constexpr int kThreads = kMultipliers + 2 * 32;
  /// From one row of x to the next in the sums that warps join: the threads of a warp write them to different banks.
  static constexpr int kJoinStride = kSchemeTileRows + 4;
  static constexpr int kJoinBytes = kWarps * kSkinnyWidth * kJoinStride * 4;
  static_assert(kSets * kPairs == kWarps);
};

/// Scales and zeros of a stage.
__host__ __device__ inline int skinny_group_bytes(const SkinnyParams& p) {
  return p.groups_of_stage * kSchemeTileRows * (p.scale_bytes + p.zero_bytes);
}

#ifdef BATON_SM90A

__device__ __forceinline__ std::uint32_t load_byte(std::uint32_t at) {
  std::uint32_t bits;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(bits) : "r"(at) : "memory");
  return bits;
}
__device__ __forceinline__ std::uint32_t load_half_word(std::uint32_t at) {
  std::uint16_t bits;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(at) : "memory");
  return bits;
}
__device__ __forceinline__ std::uint32_t load_word(std::uint32_t at) {
  std::uint32_t bits;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(at) : "memory");
  return bits;
}

#endif  // BATON_SM90A

}  // namespace baton::cuda
