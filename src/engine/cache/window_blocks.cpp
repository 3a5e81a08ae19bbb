/// The users of each block of a windowed layer group, and the list of blocks without users.
#include "engine/cache/window_blocks.h"

#include "core/check.h"

namespace baton {

WindowBlocks::Block& WindowBlocks::at(BlockId block) {
  check(has(block), "WindowBlocks: the tree does not hold this block");
  return blocks_[static_cast<std::size_t>(block.value)];
}
const WindowBlocks::Block& WindowBlocks::at(BlockId block) const {
  check(has(block), "WindowBlocks: the tree does not hold this block");
  return blocks_[static_cast<std::size_t>(block.value)];
}

bool WindowBlocks::has(BlockId block) const {
  check(block.is_valid() && static_cast<std::size_t>(block.value) < blocks_.size(), "WindowBlocks: no such block");
  return blocks_[static_cast<std::size_t>(block.value)].is_cached;
}

void WindowBlocks::add(BlockId block) {
  check(!has(block), "WindowBlocks: the tree holds this block already");
  blocks_[static_cast<std::size_t>(block.value)] = {.is_cached = true, .is_held = true};
  ++n_blocks_;
}

void WindowBlocks::remove(BlockId block) {
  Block& removed = at(block);
  check(removed.n_pins == 0, "WindowBlocks: a pinned block is removed");
  droppable_.erase(key_of(removed, block));
  removed = {};
  --n_blocks_;
}

void WindowBlocks::hold(BlockId block) {
  Block& held = at(block);
  droppable_.erase(key_of(held, block));
  held.is_held = true;
}

void WindowBlocks::unhold(BlockId block, bool is_behind_window, std::uint64_t claim, std::uint64_t serial) {
  Block& left = at(block);
  check(left.is_held, "WindowBlocks: a block is left that no sequence uses");
  left.is_held = false;
  left.is_behind_window = is_behind_window;
  left.claim = claim;
  left.serial = serial;
  if (left.n_pins == 0) droppable_.insert(key_of(left, block));
}

void WindowBlocks::pin(BlockId block) {
  Block& pinned = at(block);
  droppable_.erase(key_of(pinned, block));
  if (pinned.n_pins++ == 0) ++n_pinned_;
}

void WindowBlocks::unpin(BlockId block) {
  Block& pinned = at(block);
  check(pinned.n_pins > 0, "WindowBlocks: a block is unpinned more often than pinned");
  if (--pinned.n_pins > 0) return;
  --n_pinned_;
  if (!pinned.is_held) droppable_.insert(key_of(pinned, block));
}

bool WindowBlocks::is_held(BlockId block) const { return at(block).is_held; }

bool WindowBlocks::is_droppable(BlockId block) const {
  const Block& of = at(block);
  return !of.is_held && of.n_pins == 0;
}

std::optional<BlockId> WindowBlocks::next() const {
  if (droppable_.empty()) return std::nullopt;
  return BlockId{std::get<std::int32_t>(*droppable_.begin())};
}

void WindowBlocks::check_invariants() const {
  std::int32_t n_cached = 0, n_pinned = 0;
  std::size_t n_droppable = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    check(block.is_cached || (!block.is_held && block.n_pins == 0), "WindowBlocks: a block that is not cached is in use");
    n_cached += block.is_cached ? 1 : 0;
    n_pinned += block.n_pins > 0 ? 1 : 0;
    if (!block.is_cached || block.is_held || block.n_pins > 0) continue;
    ++n_droppable;
    check(droppable_.contains(key_of(block, BlockId{static_cast<std::int32_t>(i)})),
          "WindowBlocks: an unused block is not listed");
  }
  check(n_droppable == droppable_.size(), "WindowBlocks: a block in use is listed for dropping");
  check(n_cached == n_blocks_ && n_pinned == n_pinned_, "WindowBlocks: a count is wrong");
}

}  // namespace baton
