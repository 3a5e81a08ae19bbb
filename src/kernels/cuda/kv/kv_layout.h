/// The layout of keys and values in device memory, shared by host and device code.
///
/// One layer is [block][K, then V][KV head], each (block, part, head) tile contiguous: [panel][token of the block][row
/// bytes]. A panel holds 128 bytes of each token (64 dimensions of a 16-bit type, 128 of an 8-bit type); the last
/// panel holds 64 if that suffices. Inside a panel the 16-byte chunks of a token's row are permuted by the token's
/// number, as Hopper's wgmma descriptors expect (128-byte and 64-byte swizzle). A plain copy of a run of tokens is
/// therefore free of bank conflicts in shared memory:
///
///     128-byte rows: chunk ^ (token & 7)          64-byte rows: chunk ^ ((token >> 1) & 3)
///
/// head_dim is padded to 64, 96, 128 or 256 (padded_row_bytes). Writing a token also writes zeros to its padding. A storage without
/// values (KvShape::latent_dim) has the part K only, of rows that are whole panels without padding.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/formulas.h"
#include "kernels/kv_storage.h"

namespace baton::cuda {

/// The head sizes kernels are compiled for.
BATON_HOST_DEVICE constexpr int padded_head_dim(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 96 ? 96 : head_dim <= 128 ? 128 : 256;
}

/// Bytes of a token's row: head_dim padded, then to whole 64 bytes (96 dimensions of an 8-bit type take 128).
BATON_HOST_DEVICE constexpr int padded_row_bytes(int head_dim, int element_bytes) {
  return (padded_head_dim(head_dim) * element_bytes + 63) / 64 * 64;
}

struct KvLayout {
  std::int32_t block_len = 16;
  std::int32_t n_kv_heads = 0;
  std::int32_t row_bytes = 0;  ///< of one token and head: padded_row_bytes, a multiple of 64
  std::int32_t n_parts = 2;    ///< K and V, or K

  static constexpr int kPanelBytes = 128;
  static constexpr int kChunkBytes = 16;

  BATON_HOST_DEVICE std::int64_t tile_bytes() const { return static_cast<std::int64_t>(block_len) * row_bytes; }
  BATON_HOST_DEVICE std::int64_t block_bytes() const { return static_cast<std::int64_t>(n_parts) * n_kv_heads * tile_bytes(); }
  /// First byte of the tile of (block, part, head) inside a layer; part 0 is K, 1 is V.
  BATON_HOST_DEVICE std::int64_t tile_offset(std::int64_t block, int part, int kv_head) const {
    return block * block_bytes() + (static_cast<std::int64_t>(part) * n_kv_heads + kv_head) * tile_bytes();
  }
  /// Inside a tile: the byte at `byte` of the row of token `token` of the block.
  BATON_HOST_DEVICE std::int32_t byte_in_tile(int token, int byte) const {
    const int panel = byte / kPanelBytes;
    const int panel_row = row_bytes - panel * kPanelBytes < kPanelBytes ? row_bytes - panel * kPanelBytes : kPanelBytes;
    const int in_row = byte - panel * kPanelBytes;
    const int swizzle = panel_row == kPanelBytes ? token & 7 : (token >> 1) & 3;
    const int chunk = (in_row / kChunkBytes) ^ swizzle;
    return panel * kPanelBytes * block_len + token * panel_row + chunk * kChunkBytes + in_row % kChunkBytes;
  }
};

inline KvLayout kv_layout(const KvShape& shape) {
  const auto element_bytes = static_cast<int>(size_bytes(shape.dtype));
  if (!shape.has_values()) return {shape.block_len, shape.n_kv_heads, shape.head_dim * element_bytes, 1};
  return {shape.block_len, shape.n_kv_heads, padded_row_bytes(shape.head_dim, element_bytes)};
}

}  // namespace baton::cuda
