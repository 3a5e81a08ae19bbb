/// The blocks of one windowed layer group that the prefix tree holds, and the order in which it drops them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "core/ids.h"

namespace baton {

/// A block that a sequence uses or a pin covers is not dropped. Of the others, blocks that sequences left behind their
/// window go first: a prompt that ends elsewhere does not need them. Blocks at an end of text, where another prompt may
/// continue, follow. Within each of these two classes the block with the lowest eviction priority (`claim`, see
/// PrefixTree) goes first, as of when its last user left it. Of equal ones those go first that have the lowest `serial`
/// number. An end without one of its blocks is worth nothing, so its blocks have one number: they go one after another,
/// and not in turn with those of other ends.
///
/// Invariant (check_invariants): a block is listed for dropping exactly if the tree holds it, no sequence uses it and
/// no pin covers it. Thread: engine only.
class WindowBlocks {
 public:
  explicit WindowBlocks(std::int32_t n_blocks) : blocks_(static_cast<std::size_t>(n_blocks)) {}

  /// Adds a block that a sequence uses.
  void add(BlockId block);
  void remove(BlockId block);
  bool has(BlockId block) const;

  /// A sequence begins to use the block. Does nothing if another sequence uses it.
  void hold(BlockId block);
  /// The last sequence that used the block stops using it.
  void unhold(BlockId block, bool is_behind_window, std::uint64_t claim, std::uint64_t serial);
  void pin(BlockId block);
  void unpin(BlockId block);

  bool is_held(BlockId block) const;
  bool is_droppable(BlockId block) const;
  /// The block to drop next.
  std::optional<BlockId> next() const;

  std::int32_t n_blocks() const { return n_blocks_; }
  std::int32_t n_droppable() const { return static_cast<std::int32_t>(droppable_.size()); }
  std::int32_t n_pinned() const { return n_pinned_; }

  /// Aborts if an invariant does not hold.
  void check_invariants() const;

 private:
  struct Block {
    bool is_cached = false;
    bool is_held = false;
    bool is_behind_window = false;
    std::int32_t n_pins = 0;
    std::uint64_t claim = 0;
    std::uint64_t serial = 0;
  };
  using Key = std::tuple<bool, std::uint64_t, std::uint64_t, std::int32_t>;  ///< at end, priority, serial number, block

  static Key key_of(const Block& block, BlockId id) { return {!block.is_behind_window, block.claim, block.serial, id.value}; }
  Block& at(BlockId block);
  const Block& at(BlockId block) const;

  std::vector<Block> blocks_;  ///< by block number
  std::set<Key> droppable_;
  std::int32_t n_blocks_ = 0;
  std::int32_t n_pinned_ = 0;
};

}  // namespace baton
