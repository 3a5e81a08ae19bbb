/// A layer group as the KV cache sees it: its number of blocks and its attention window.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

/// Layers with the same window and KV shape. Every group has its own block numbers, from 0 to n_blocks - 1.
struct CacheGroup {
  std::int32_t n_blocks = 0;
  std::int32_t window = 0;  ///< keys that a row sees, its own included; 0: all earlier keys

  bool has_window() const { return window > 0; }
  /// Index of the first block that holds a key which the row at `position` sees.
  std::int32_t first_block_seen(std::int32_t position, std::int32_t block_len) const {
    return has_window() ? std::max(0, position + 1 - window) / block_len : 0;
  }
  /// The most blocks that a sequence holds at once in a group with a window: they cover its rows in flight and the
  /// keys that the oldest of these rows sees. One is added because this range may begin and end inside a block.
  std::int32_t n_held_at_once(std::int32_t max_rows_in_flight, std::int32_t block_len) const {
    return n_blocks_for(window + max_rows_in_flight, block_len) + 1;
  }
  /// Blocks that guarantee that a sequence running alone reaches `n_positions`, whatever it finds in the cache: a
  /// sequence with a reserve holds the blocks that it found in addition (KvCache::reserve).
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
