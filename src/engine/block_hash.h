/// Chained 128-bit hashes of full blocks: what tree, store and events know a block by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/request.h"

namespace baton {

/// Hash of a block's tokens, of every block before it, and of the cache scope as it applies at each of them. The same
/// on every machine and in every process.
struct BlockHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const BlockHash&) const = default;
};

/// Appends to `hashes` those of the full blocks of `tokens` that it lacks. The salt counts in a block of which any
/// position is at or after salt_from; the adapter counts everywhere.
void extend_hashes(const CacheScope& scope, std::span<const TokenId> tokens, std::int32_t block_len,
                   std::vector<BlockHash>& hashes);

}  // namespace baton

template <>
struct std::hash<baton::BlockHash> {
  std::size_t operator()(const baton::BlockHash& hash) const noexcept { return static_cast<std::size_t>(hash.low); }
};
