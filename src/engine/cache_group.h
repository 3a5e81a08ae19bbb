/// A layer group as the KV cache sees it: how many blocks it has, and how far back its rows see.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

/// Layers with one window and one KV shape. Every group has its own block numbers, from 0 to n_blocks - 1.
struct CacheGroup {
  std::int32_t n_blocks = 0;
  std::int32_t window = 0;  ///< keys that a row sees, its own included; 0: all keys before it too

  bool has_window() const { return window > 0; }
  /// The first block that holds a key which the row at `position` sees.
  std::int32_t first_block_seen(std::int32_t position, std::int32_t block_len) const {
    return has_window() ? std::max(0, position + 1 - window) / block_len : 0;
  }
  /// With a window: blocks that hold what the oldest of a sequence's rows in flight sees, and the positions of all of
  /// them. The run may begin and end within a block, hence one more.
  std::int32_t n_held_at_once(std::int32_t max_rows_in_flight, std::int32_t block_len) const {
    return n_blocks_for(window + max_rows_in_flight, block_len) + 1;
  }
  /// Blocks with which a sequence alone can always come to `n_positions`, whatever it finds cached: a sequence with a
  /// reserve holds what it found besides (KvCache::reserve).
  std::int32_t n_needed_alone(std::int32_t n_positions, std::int32_t max_rows_in_flight, std::int32_t block_len) const {
    const std::int32_t n_entries = n_blocks_for(n_positions, block_len);
    if (!has_window()) return n_entries;
    return std::min(n_entries, n_held_at_once(max_rows_in_flight, block_len) + n_blocks_for(window, block_len) + 1);
  }
  static std::int32_t n_blocks_for(std::int32_t n_positions, std::int32_t block_len) {
    return (n_positions + block_len - 1) / block_len;
  }
};

}  // namespace baton
