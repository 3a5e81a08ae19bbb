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
};

}  // namespace baton
