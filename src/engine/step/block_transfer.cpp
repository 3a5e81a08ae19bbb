/// The engine's side of copies of blocks.
#include "engine/step/block_transfer.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {

bool TransferQueue::has_work() const {
  return !added_.empty() || std::ranges::any_of(known_, [](const BlockTransfer* transfer) {
    const bool is_import = transfer->direction == BlockTransfer::Direction::into_cache;
    return transfer->is_abandoned || transfer->has_piece == is_import;
  });
}

std::vector<BlockTransfer*> TransferQueue::take_added() {
  std::vector<BlockTransfer*> added = std::exchange(added_, {});
  known_.insert(known_.end(), added.begin(), added.end());
  return added;
}

void TransferQueue::end(BlockTransfer& transfer, Result<KvCache::Pin> result) {
  std::erase(known_, &transfer);
  transfer.ended = std::move(result);
  changed_.notify_all();
}

void TransferQueue::end_all() {
  take_added();
  for (BlockTransfer* transfer : std::exchange(known_, {}))
    transfer->ended = fail(ErrorCode::unavailable, "the engine stopped while keys and values were being copied");
  changed_.notify_all();
}

std::vector<const BlockTable*> BlockTransfers::tables() const {
  std::vector<const BlockTable*> tables;
  for (const Running& running : running_)
    if (!running.table.is_empty()) tables.push_back(&running.table);
  return tables;
}

/// Whether the blocks that it lacks could be pinned beside those of all other copies into the cache.
Result<void> BlockTransfers::check_room(const Running& running) const {
  for (int g = 0; g < cache_.n_groups(); ++g) {
    // In a group with a window it holds one block more for a moment.
    std::int32_t n_new = 1;
    for (const Running& other : running_) {
      if (!other.is_import()) continue;
      n_new += static_cast<std::int32_t>(std::ranges::count_if(other.blocks, [&](const PrefixLayout::Block& block) {
        return block.group == g && block.entry >= other.table.n_found_blocks;
      }));
    }
    const std::int32_t n_pinned = cache_.n_pinned(g) + n_new;
    const bool is_over_cap = limits_.max_pinned_blocks > 0 && n_pinned > limits_.max_pinned_blocks;
    if (is_over_cap || cache_.n_blocks(g) - n_pinned < cache_.n_needed_alone(g, limits_.max_model_len))
      return fail(ErrorCode::out_of_memory,
                  fmt::format("the cache has no room for the stored keys and values of {} tokens", running.n_tokens()));
  }
  if (!layout_.has_states()) return {};
  const auto n_imports = static_cast<std::int32_t>(std::ranges::count_if(running_, &Running::is_import));
  if (cache_.states()->n_pinned() + n_imports > cache_.n_snapshot_slots())
    return fail(ErrorCode::out_of_memory, "there is no room for the stored state of recurrent layers");
  return {};
}

/// Looks up what the cache has. Out of the cache: pins it.
Result<void> BlockTransfers::begin(Running& running, std::int64_t step) {
  const BlockTransfer& transfer = *running.transfer;
  running.blocks = layout_.blocks(n_entries(running));
  running.table.scope = transfer.scope;
  cache_.begin(running.table, transfer.tokens, running.n_tokens(), step);
  if (running.is_import()) return check_room(running);
  const bool is_whole = running.table.n_cached_blocks == n_entries(running);
  if (is_whole) {
    for (const auto& [entry, group, piece] : running.blocks)
      running.ids.push_back(group == PrefixLayout::kStates ? BlockId{}
                                                           : running.table.blocks_of(group)[static_cast<std::size_t>(entry)]);
    running.pin = cache_.pin(transfer.scope, transfer.tokens);
  }
  cache_.release(running.table, transfer.tokens, running.table.n_cached_blocks * layout_.block_len, step);
  if (!is_whole) return fail(ErrorCode::not_found, "the cache no longer has the keys and values that were to be copied");
  if (layout_.has_states() && running.pin.snapshot == StateSlots::kNone)
    return fail(ErrorCode::not_found, "the cache has no state of recurrent layers at the end of what was to be copied");
  return {};
}

/// Whether a copy into the cache is of what the cache has already.
bool BlockTransfers::is_there(const Running& running) const {
  return running.is_import() && running.table.n_found_blocks == n_entries(running) &&
         (!layout_.has_states() || cache_.n_blocks_on_device(running.table) == n_entries(running));
}

void BlockTransfers::copy_out(Running& running) {
  const std::size_t piece = running.blocks[running.n_done].piece;
  running.piece.clear();
  for (; running.n_done < running.blocks.size() && running.blocks[running.n_done].piece == piece; ++running.n_done) {
    const auto [entry, group, number] = running.blocks[running.n_done];
    const std::int64_t n_bytes = layout_.block_bytes(group);
    const std::size_t at = running.piece.size();
    running.piece.resize(at + static_cast<std::size_t>(n_bytes));
    std::byte* const out = running.piece.data() + at;
    if (group == PrefixLayout::kStates)
      executor_.states()->export_slot(running.pin.snapshot, {out, DType::u8, {n_bytes}}, entry);
    else
      executor_.storages()[static_cast<std::size_t>(group)]->export_block(running.ids[running.n_done],
                                                                          {out, DType::u8, {n_bytes}});
  }
}

/// Makes the table cover `n_entries` blocks. Blocks that the row after the prefix does not see are given back at once,
/// and what is evicted for them goes to the host tier before they are written.
Result<void> BlockTransfers::extend(Running& running, std::int32_t n_entries) {
  BlockTable& table = running.table;
  while (table.n_entries < n_entries) {
    if (!cache_.extend(table, (table.n_entries + 1) * layout_.block_len))
      return fail(ErrorCode::out_of_memory, "the cache has no free blocks for stored keys and values");
    cache_.free_behind_window(table, running.n_tokens(), running.n_tokens());
  }
  executor_.copy(cache_.take_copies());
  return {};
}

Result<void> BlockTransfers::copy_in(Running& running) {
  const std::size_t piece = running.blocks[running.n_done].piece;
  std::size_t at = 0;
  for (; running.n_done < running.blocks.size() && running.blocks[running.n_done].piece == piece; ++running.n_done) {
    const auto [entry, group, number] = running.blocks[running.n_done];
    const std::int64_t n_bytes = layout_.block_bytes(group);
    check(at + static_cast<std::size_t>(n_bytes) <= running.piece.size(), "BlockTransfers: a piece is too short");
    if (group == PrefixLayout::kStates) {
      executor_.states()->import_slot(running.table.state.own, {running.piece.data() + at, DType::u8, {n_bytes}}, entry);
      at += static_cast<std::size_t>(n_bytes);
      continue;
    }
    BATON_TRY_VOID(extend(running, entry + 1));
    if (entry >= running.table.n_found_blocks)
      executor_.storages()[static_cast<std::size_t>(group)]->import_block(
          running.table.blocks_of(group)[static_cast<std::size_t>(entry)], {running.piece.data() + at, DType::u8, {n_bytes}});
    at += static_cast<std::size_t>(n_bytes);
  }
  check(at == running.piece.size(), "BlockTransfers: a piece is too long");
  return {};
}

/// Gives a copy into the cache a slot for the state.
Result<void> BlockTransfers::take_state(Running& running, std::int64_t step) {
  if (!cache_.can_begin_state(step))
    return fail(ErrorCode::out_of_memory, "no slot is free for a stored state of recurrent layers");
  cache_.begin_empty_state(running.table, step);
  executor_.copy(cache_.take_copies());
  return {};
}

/// Ends a copy into the cache that is complete.
KvCache::Pin BlockTransfers::publish(Running& running, std::int64_t step) {
  const BlockTransfer& transfer = *running.transfer;
  if (running.table.state.own != StateSlots::kNone) cache_.fill_state(running.table, running.n_tokens());
  cache_.release(running.table, transfer.tokens, running.n_tokens(), step);
  return cache_.pin(transfer.scope, transfer.tokens);
}

/// Ends a copy that is not complete: its blocks go, as far as they are not of the cache.
void BlockTransfers::give_back(Running& running, std::int64_t step) {
  if (running.pin.node != nullptr) cache_.unpin(running.pin);
  if (running.table.is_empty()) return;
  const std::int32_t n_found = running.table.n_found_blocks * layout_.block_len;
  cache_.release(running.table, running.transfer->tokens, n_found, step);
}

/// Returns the transfer's result if it has ended.
std::optional<Result<KvCache::Pin>> BlockTransfers::advance(Running& running, std::int64_t step) {
  BlockTransfer& transfer = *running.transfer;
  {
    const MutexLock lock(mutex_);
    if (transfer.is_abandoned) return fail(ErrorCode::unavailable, "the caller gave up the copy");
    if (transfer.has_piece != running.is_import()) return std::nullopt;
    if (running.is_import()) {
      std::swap(running.piece, transfer.piece);
      transfer.has_piece = false;
      queue_.tell_callers();
    }
  }
  if (running.is_import()) {
    if (auto copied = copy_in(running); !copied) return tl::unexpected<Error>(std::move(copied.error()));
    if (running.n_done < running.blocks.size()) return std::nullopt;
    // With windows only, the row after the prefix may see none of its last blocks.
    if (auto extended = extend(running, n_entries(running)); !extended)
      return tl::unexpected<Error>(std::move(extended.error()));
    return publish(running, step);
  }
  copy_out(running);
  {
    const MutexLock lock(mutex_);
    std::swap(running.piece, transfer.piece);
    transfer.has_piece = true;
    queue_.tell_callers();
  }
  if (running.n_done < running.blocks.size()) return std::nullopt;
  cache_.unpin(std::exchange(running.pin, {}));
  return KvCache::Pin{};
}

void BlockTransfers::end(Running& running, Result<KvCache::Pin> result, std::int64_t step) {
  give_back(running, step);
  const MutexLock lock(mutex_);
  queue_.end(*running.transfer, std::move(result));
}

void BlockTransfers::advance(std::int64_t step) {
  std::vector<BlockTransfer*> added;
  {
    const MutexLock lock(mutex_);
    added = queue_.take_added();
  }
  for (BlockTransfer* transfer : added) {
    Running& running = running_.emplace_back(Running{.transfer = transfer});
    auto begun = begin(running, step);
    const bool has_all = begun && is_there(running);
    if (begun && !has_all && running.is_import() && layout_.has_states()) begun = take_state(running, step);
    if (begun && !has_all) continue;
    end(running, begun ? Result<KvCache::Pin>(publish(running, step)) : tl::unexpected<Error>(std::move(begun.error())), step);
    running_.pop_back();
  }
  for (auto at = running_.begin(); at != running_.end();) {
    auto ended = advance(*at, step);
    if (ended) end(*at, std::move(*ended), step);
    at = ended ? running_.erase(at) : std::next(at);
  }
}

void BlockTransfers::end_all(std::int64_t step) {
  for (Running& running : running_) give_back(running, step);
  running_.clear();
  const MutexLock lock(mutex_);
  queue_.end_all();
}

}  // namespace baton
