/// Copies the keys and values of prefixes out of the cache and into it, in pieces between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/prefix_layout.h"
#include "engine/step/executor.h"

namespace baton {

/// A copy that a caller waits for, on whose stack it lives. Caller and engine hand over one piece at a time, so that the caller
/// reads or writes a file while the engine copies the piece before. The engine's mutex guards all members but the first three:
/// caller and BlockTransfers use them only while they hold it.
struct BlockTransfer {
  enum class Direction { out_of_cache, into_cache };

  Direction direction = Direction::out_of_cache;
  std::vector<TokenId> tokens;  ///< of full blocks, at least one
  CacheScope scope;
  std::vector<std::byte> piece = {};
  bool has_piece = false;     ///< the piece waits for the other side
  bool is_abandoned = false;  ///< the caller wants no more
  /// Set when it has ended. Into the cache: a pin on the blocks, which the caller gives up. Out of it: a pin without a node.
  std::optional<Result<KvCache::Pin>> ended = {};
};

/// What a copy into the cache leaves for others: see pin_beside.
struct PinLimits {
  std::int32_t max_model_len = 0;
  std::int32_t max_pinned_blocks = 0;
};

/// The transfers as callers see them. Thread: the holder of the engine's mutex.
class TransferQueue {
 public:
  /// Adds a transfer, which must live until it has ended.
  void add(BlockTransfer& transfer) { added_.push_back(&transfer); }
  /// Whether BlockTransfers::advance would do something.
  bool has_work() const;
  /// Waits for what the engine does with any transfer. May return without it.
  void wait(Mutex& mutex) BATON_REQUIRES(mutex) { changed_.wait(mutex); }

  /// For the engine: those added since the last call.
  std::vector<BlockTransfer*> take_added();
  void tell_callers() { changed_.notify_all(); }
  /// Sets the result of a transfer, which may be gone as soon as the mutex is free.
  void end(BlockTransfer& transfer, Result<KvCache::Pin> result);
  /// Ends all with an error.
  void end_all();

 private:
  std::vector<BlockTransfer*> added_;  ///< since the last take_added
  std::vector<BlockTransfer*> known_;  ///< taken, and not ended
  Condition changed_;
};

/// The transfers of an engine.
///
/// Out of the cache: a pin keeps the blocks while they are copied. Into the cache: a block table holds private blocks, as a
/// sequence's does that computes the prefix, and publishes them when the last one is there, and the state after them with them. So a
/// copy that ends early leaves nothing. Blocks that the cache has already are not written. No more is copied in than could be pinned, so a sequence that
/// runs alone still has room.
///
/// Thread: the engine's, which does not hold the mutex.
class BlockTransfers {
 public:
  /// All but `layout` and `limits` must outlive it. `mutex` is the engine's, which guards `queue`.
  BlockTransfers(KvCache& cache, PrefixLayout layout, Executor& executor, PinLimits limits, Mutex& mutex, TransferQueue& queue)
      : cache_(cache), layout_(std::move(layout)), executor_(executor), limits_(limits), mutex_(mutex), queue_(queue) {}

  const PrefixLayout& layout() const { return layout_; }
  const PinLimits& limits() const { return limits_; }

  /// Copies at most one piece of each transfer. No step may be in flight, because it could still write to blocks that
  /// have become free. Steps from `step` on may read what is published.
  void advance(std::int64_t step) BATON_EXCLUDES(mutex_);
  /// Ends all transfers with an error: the engine stops.
  void end_all(std::int64_t step) BATON_EXCLUDES(mutex_);

  std::vector<const BlockTable*> tables() const;

 private:
  /// A transfer under way.
  struct Running {
    BlockTransfer* transfer = nullptr;
    std::vector<PrefixLayout::Block> blocks = {};
    std::vector<BlockId> ids = {};  ///< of `blocks`, if they leave the cache
    std::size_t n_done = 0;         ///< blocks
    BlockTable table = {};          ///< of a copy into the cache
    KvCache::Pin pin = {};          ///< of a copy out of the cache
    std::vector<std::byte> piece = {};

    bool is_import() const { return transfer->direction == BlockTransfer::Direction::into_cache; }
    std::int32_t n_tokens() const { return static_cast<std::int32_t>(transfer->tokens.size()); }
  };

  std::int32_t n_entries(const Running& running) const { return running.n_tokens() / layout_.block_len; }
  Result<void> check_room(const Running& running) const;
  Result<void> begin(Running& running, std::int64_t step);
  bool is_there(const Running& running) const;
  Result<void> take_state(Running& running, std::int64_t step);
  void copy_out(Running& running);
  Result<void> extend(Running& running, std::int32_t n_entries);
  Result<void> copy_in(Running& running);
  KvCache::Pin publish(Running& running, std::int64_t step);
  void give_back(Running& running, std::int64_t step);
  std::optional<Result<KvCache::Pin>> advance(Running& running, std::int64_t step) BATON_EXCLUDES(mutex_);
  void end(Running& running, Result<KvCache::Pin> result, std::int64_t step) BATON_EXCLUDES(mutex_);

  KvCache& cache_;
  PrefixLayout layout_;
  Executor& executor_;
  PinLimits limits_;
  std::list<Running> running_;
  Mutex& mutex_;
  TransferQueue& queue_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
