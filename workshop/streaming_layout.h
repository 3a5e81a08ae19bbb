/// Index arithmetic of the streaming GEMM, for its kernel and for the program that runs it.
///
/// Packed weight: W [n, k] of 16-bit numbers, n a multiple of 64 and k of 64, as [n / 64][k / 64] blocks of 8 KB. A
/// block is 64 rows of 128 bytes, swizzled as wgmma reads them: 16-byte chunk c of row r lies at chunk c ^ (r % 8).
/// Blocks of one row tile are consecutive in memory, so that a bulk copy brings a row tile's part of a stage.
#pragma once

#include <cstdint>

namespace workshop {

constexpr int kTileRows = 64;  // of weights: wgmma's M
constexpr int kTileK = 64;     // numbers in 128 bytes
constexpr int kTileBytes = kTileRows * kTileK * 2;

/// Byte of element (row, k) inside one block.
__host__ __device__ __forceinline__ std::uint32_t byte_in_block(int row, int k) {
  return static_cast<std::uint32_t>(row * 128 + (((k >> 3) ^ (row & 7)) << 4) + (k & 7) * 2);
}
/// Byte of element (row, k) of a packed weight with k_tiles blocks a row tile.
__host__ __device__ __forceinline__ std::int64_t packed_byte(std::int64_t row, std::int64_t k, std::int64_t k_tiles) {
  return ((row / kTileRows) * k_tiles + k / kTileK) * kTileBytes +
         byte_in_block(static_cast<int>(row % kTileRows), static_cast<int>(k % kTileK));
}
/// Row of the packed weight that holds row `row` of gate (is_up 0) or up (1). Groups of 8 alternate, so that a thread
/// has gate and up of the same outputs in its accumulators (fragment rows lane / 4 and lane / 4 + 8).
__host__ __device__ __forceinline__ std::int64_t gate_up_row(std::int64_t row, int is_up) {
  return row / 8 * 16 + is_up * 8 + row % 8;
}

/// Runs of nearly equal length that divide `total` things among `n`: the first `rest` have one more.
struct Parts {
  int base = 0;
  int rest = 0;
  __host__ __device__ __forceinline__ int begin(int i) const { return base * i + (i < rest ? i : rest); }
};
__host__ __device__ __forceinline__ Parts divide(int total, int n) { return {total / n, total % n}; }

/// Which stages of k each block multiplies. Depends on the weight's shape and the grid alone, never on the rows of x.
struct Schedule {
  int n_tiles = 0;   ///< of 64 * T weight rows; of 128 * T for pairs of blocks
  int k_stages = 0;  ///< of a tile
  int n_blocks = 0;  ///< or pairs of blocks that share x: then `block` below is a pair
  int cluster = 0;   ///< 0: block b takes run b of all tiles' stages, one tile's behind the other's.
                     ///< Q > 0: clusters of Q blocks take tiles in turn, rank r run r of the tile's stages
  Parts parts;       ///< of n_tiles * k_stages among n_blocks, or of k_stages among `cluster`
};
__host__ __device__ __forceinline__ Schedule make_schedule(int n_tiles, int k_stages, int n_blocks, int cluster) {
  return {n_tiles, k_stages, n_blocks, cluster,
          cluster == 0 ? divide(n_tiles * k_stages, n_blocks) : divide(k_stages, cluster)};
}
struct Segment {
  int tile = 0;
  int begin = 0;  ///< stages of the tile
  int end = 0;
};

/// A block's segments in order.
class Walk {
 public:
  __host__ __device__ __forceinline__ Walk(const Schedule& s, int block) : s_(s) {
    if (s.cluster == 0) {
      const int first = s.parts.begin(block);
      left_ = s.parts.begin(block + 1) - first;
      tile_ = first / s.k_stages;
      begin_ = first - tile_ * s.k_stages;
    } else {
      tile_ = block / s.cluster;
      const int rank = block - tile_ * s.cluster;
      begin_ = s.parts.begin(rank);
      left_ = s.parts.begin(rank + 1) - begin_;
    }
  }
  __host__ __device__ __forceinline__ bool next(Segment& segment) {
    if (s_.cluster == 0) {
      if (left_ <= 0) return false;
      const int of_tile = s_.k_stages - begin_;
      const int n = left_ < of_tile ? left_ : of_tile;
      segment = {tile_++, begin_, begin_ + n};
      begin_ = 0;
      left_ -= n;
      return true;
    }
    if (tile_ >= s_.n_tiles) return false;
    segment = {tile_, begin_, begin_ + left_};
    tile_ += s_.n_blocks / s_.cluster;
    return true;
  }

 private:
  const Schedule& s_;
  int tile_ = 0;
  int begin_ = 0;
  int left_ = 0;
};

/// All stages of a block, one after the other.
class Cursor {
 public:
  __host__ __device__ __forceinline__ Cursor(const Schedule& s, int block) : walk_(s, block) {
    valid_ = walk_.next(segment_);
    k_ = segment_.begin;
  }
  __host__ __device__ __forceinline__ bool valid() const { return valid_; }
  __host__ __device__ __forceinline__ int tile() const { return segment_.tile; }
  __host__ __device__ __forceinline__ int k() const { return k_; }
  __host__ __device__ __forceinline__ void advance() {
    if (++k_ < segment_.end) return;
    valid_ = walk_.next(segment_);
    k_ = segment_.begin;
  }

 private:
  Walk walk_;
  Segment segment_;
  int k_ = 0;
  bool valid_ = false;
};

// ---- Fragments of wgmma's D [64, N] f32: thread of the warpgroup, column tile j, value i of 4 ----------------------

__host__ __device__ __forceinline__ int fragment_row(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + (i >> 1) * 8;
}
__host__ __device__ __forceinline__ int fragment_column(int thread, int j, int i) { return j * 8 + thread % 4 * 2 + (i & 1); }

/// When movmatrix has transposed the pair (i = 2 half, 2 half + 1) of column tile j over the warp, a lane holds
/// outputs (m, n) and (m, n + 1), with n counted in the 64 rows of the tile.
__host__ __device__ __forceinline__ int transposed_m(int thread, int j) { return j * 8 + thread % 32 / 4; }
__host__ __device__ __forceinline__ int transposed_n(int thread, int half) {
  return thread / 32 * 16 + half * 8 + thread % 4 * 2;
}
/// The same where gate and up are joined: the tile has 32 outputs.
__host__ __device__ __forceinline__ int transposed_n_joined(int thread) { return thread / 32 * 8 + thread % 4 * 2; }

}  // namespace workshop
