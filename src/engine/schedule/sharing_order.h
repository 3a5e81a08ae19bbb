/// The order in which waiting sequences are admitted so that those with common beginnings run together.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/running_blocks.h"
#include "engine/schedule/sequence.h"

namespace baton {

/// Common beginnings longer than this many blocks are not told apart.
inline constexpr std::int32_t kMostSharedBlocks = 512;

/// Reorders the sequences, which come in the order of arrival: those whose prompts begin with the same blocks stand one
/// after another. Among such groups, the ones that share with running sequences come first, then the one of the first
/// arrival. The same holds within a group for longer common beginnings. Sequences that share nothing keep their order.
///
/// Beginnings are compared at 1, 2, 3, 4, 6, 8, 12, ... kMostSharedBlocks blocks, by the hashes that the sequences' tables
/// have. Complexity: O(n) hash look-ups for each of these lengths that several sequences have in common.
void gather_sharers(std::vector<Sequence*>& sequences, const RunningBlocks& running);

}  // namespace baton
