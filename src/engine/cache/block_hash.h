/// Chained 128-bit hashes of full blocks: the prefix tree and the scheduler identify blocks by them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/request/request.h"

namespace baton {

/// Hash of a block's tokens, of all blocks before it, and of the part of the cache scope that applies to each of them.
/// It is the same on every machine and in every process.
struct BlockHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const BlockHash&) const = default;
};

/// Whether the salt affects block `index`, which has a position at or after salt_from.
inline bool is_salted_block(const CacheScope& scope, std::size_t index, std::int32_t block_len) {
  return !scope.salt.empty() && static_cast<std::int64_t>(index + 1) * block_len > scope.salt_from;
}

/// Appends the missing hashes of the full blocks of `tokens` to `hashes`. The salt affects every block that has a
/// position at or after salt_from; the adapter affects all blocks.
void extend_hashes(const CacheScope& scope, std::span<const TokenId> tokens, std::int32_t block_len,
                   std::vector<BlockHash>& hashes);

}  // namespace baton

template <>
struct std::hash<baton::BlockHash> {
  std::size_t operator()(const baton::BlockHash& hash) const noexcept { return static_cast<std::size_t>(hash.low); }
};
