/// e4m3 keys and values as f16 in shared memory, for tiles of many query rows: wgmma reads its operand B there, and
/// every 16 rows of mma.sync would convert it again.
///
/// A stage of f16 takes two slots of the ring: one for the keys, one for the values. Each producer thread copies 16
/// bytes of e4m3 to a place inside the 32 bytes that it will write as f16, and converts them in place when they are
/// there. So bytes in flight need no memory of their own, and threads do not wait for each other.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/e4m3.cuh"
#include "kernels/cuda/attention/tile.cuh"

namespace baton::cuda {

/// Whether a tile of `n_rows` query rows gets its keys and values as f16; in batch-invariant mode every tile does.
template <class Tile>
__device__ __forceinline__ bool is_wide(int n_rows) {
  return Tile::kWidens && (Tile::kAlignsStages || n_rows > 32);
}

/// The part of a producer thread in f16 stages: the slots whose copies are under way or not yet converted.
template <class Tile>
class Widener {
  using Wide = typename Tile::Wide;
  static constexpr int kChunks = Tile::kRowBytes / 16;  ///< of a token's row in e4m3
  static constexpr int kGranuleBytes = 16 * 128;        ///< of 16 tokens in f16, inside a panel
  static_assert(Wide::kPartBytes == Tile::kStageBytes && (kChunks == 4 || kChunks == 8));

 public:
  __device__ explicit Widener(int thread) : has_bytes_(thread < 16 * kChunks) {
    const int token = thread / kChunks % 16;
    const int chunk = (thread % kChunks) ^ (kChunks == 8 ? token & 7 : (token >> 1) & 3);
    const bool second_panel = chunk >= 4;
    // In the second panel the bytes arrive in the odd one of the two chunks, so that eight threads use all banks.
    at_ = Wide::chunk_address(0, token, 2 * chunk + (second_panel ? 1 : 0));
    first_ = second_panel ? 8 : 0;
  }

  __device__ __forceinline__ bool is_pending() const { return n_pending_ > 0; }

  /// Copies this thread's bytes of 16 tokens' keys or values to a slot.
  __device__ __forceinline__ void copy_granule(std::uint32_t slot, const std::byte* from, int granule) const {
    if (is_active()) copy_16(slot + at_ + granule * kGranuleBytes, from);
  }
  /// Ends the copies to a slot.
  __device__ __forceinline__ void end_slot(const SharedLayout<Tile>& shared, int slot) {
    arrive_with_copies(shared.landed + 8 * slot);
    if (n_pending_ == 0) oldest_ = slot;
    ++n_pending_;
  }

  /// Whether all bytes of the oldest slot are there. Called by whole warps.
  __device__ __forceinline__ bool has_landed(const SharedLayout<Tile>& shared) const {
    return __all_sync(~0u, barrier_has_ended(shared.landed + 8 * oldest_, (parities_ >> oldest_) & 1));
  }
  /// Converts this thread's bytes of the oldest slot and arrives at its barrier. Bytes after the last granule are
  /// converted too, and not used.
  __device__ __forceinline__ void convert_oldest(const SharedLayout<Tile>& shared, int n_stages) {
    barrier_wait(shared.landed + 8 * oldest_, (parities_ >> oldest_) & 1);
    parities_ ^= 1u << oldest_;
    if (is_active()) convert(shared.stages + oldest_ * Tile::kStageBytes + at_);
#ifdef BATON_SM90A
    wgmma_see_copies();
#endif
    barrier_arrive(shared.full + 8 * oldest_);
    if (++oldest_ == n_stages) oldest_ = 0;
    --n_pending_;
  }

 private:
  __device__ __forceinline__ bool is_active() const { return 16 * kChunks == kProducerThreads || has_bytes_; }

  __device__ __forceinline__ void convert(std::uint32_t at) const {
    constexpr int kTogether = 2;  // more would need more registers than producers have
#pragma unroll 1
    for (int first = 0; first < Tile::kGranules; first += kTogether, at += kTogether * kGranuleBytes) {
      uint2 bytes[kTogether][2];
#pragma unroll
      for (int granule = 0; granule < kTogether; ++granule)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                       : "=r"(bytes[granule][i].x), "=r"(bytes[granule][i].y)
                       : "r"(at + granule * kGranuleBytes + (first_ ^ (8 * i)))
                       : "memory");
#pragma unroll
      for (int granule = 0; granule < kTogether; ++granule)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          store_shared((at ^ (16 * i)) + granule * kGranuleBytes, e4m3_eight_to_half(bytes[granule][i]));
    }
  }

  bool has_bytes_;  ///< a granule has for this thread
  std::uint32_t at_;
  int first_;  ///< which eight of the 16 bytes belong where they arrived
  int oldest_ = 0;
  int n_pending_ = 0;
  unsigned parities_ = 0;  ///< of the slots' next phases
};

/// In place of a Widener where keys and values stay as they are stored.
struct NoWidener {
  __device__ explicit NoWidener(int) {}
};

}  // namespace baton::cuda
