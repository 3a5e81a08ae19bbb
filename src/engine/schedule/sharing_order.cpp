/// Groups by common beginning, from short ones to long ones.
#include "engine/schedule/sharing_order.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>

namespace baton {
namespace {

using Group = std::vector<Sequence*>;

/// The next length to compare after `n_blocks`: powers of two and the middles between them.
std::size_t next_length(std::size_t n_blocks) {
  std::size_t power = 1;
  while (2 * power <= n_blocks) power *= 2;
  return n_blocks == power ? std::max(n_blocks + 1, power + power / 2) : 2 * power;
}

/// Splits sequences by their first `n_blocks` blocks. Groups are in the order of their first members; a sequence without
/// so many hashed blocks is a group of its own.
std::vector<Group> split(std::span<Sequence* const> members, std::size_t n_blocks) {
  std::vector<Group> groups;
  std::unordered_map<BlockHash, std::size_t> group_of;
  for (Sequence* const member : members) {
    const std::vector<BlockHash>& hashes = member->schedule->table.hashes;
    const bool is_short = hashes.size() < n_blocks;
    const std::size_t group =
        is_short ? groups.size() : group_of.try_emplace(hashes[n_blocks - 1], groups.size()).first->second;
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(member);
  }
  return groups;
}

void gather(std::span<Sequence*> members, std::size_t n_blocks, const RunningBlocks& running) {
  if (members.size() < 2 || n_blocks > static_cast<std::size_t>(kMostSharedBlocks)) return;
  std::vector<Group> groups = split(members, n_blocks);
  if (groups.size() > 1)
    std::ranges::stable_partition(groups, [&](const Group& group) {
      const std::vector<BlockHash>& hashes = group.front()->schedule->table.hashes;
      return hashes.size() >= n_blocks && running.contains(hashes[n_blocks - 1]);
    });
  auto place = members.begin();
  for (const Group& group : groups) {
    const std::span<Sequence*> its(place, group.size());
    place = std::ranges::copy(group, place).out;
    gather(its, next_length(n_blocks), running);
  }
}

}  // namespace

void gather_sharers(std::vector<Sequence*>& sequences, const RunningBlocks& running) { gather(sequences, 1, running); }

}  // namespace baton
