/// The pins of an engine: prompts whose full blocks stay in the cache, and the prefills that compute them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/cache/kv_cache.h"
#include "engine/schedule/sequence.h"

namespace baton {

using PinId = Id<struct PinKind, std::int64_t>;

/// A pinned prompt: its full blocks are computed, and stay in the cache until it is unpinned.
struct PinInfo {
  PinId id;
  std::int32_t n_tokens = 0;         ///< of the prompt
  std::int32_t n_pinned_tokens = 0;  ///< tokens in its full blocks; each request computes the tail
  double prefill_ms = 0;
};

struct Pinned {
  PinInfo info;
  std::vector<TokenId> tokens = {};
  CacheScope scope = {};  ///< of the requests that are to find them
  KvCache::Pin pin = {};
};
using Pins = std::map<PinId, Pinned>;

/// A pin in progress. It lives on the stack of the caller that waits for it. The engine's mutex guards all members but the
/// row's tokens and scope, which do not change.
struct PinPrefill {
  std::stop_token stop = {};                     ///< ends the prefill
  SequenceId sequence = {};                      ///< computes it
  bool is_cancelled = false;                     ///< by `stop`, or because the engine drains
  Pins::node_type row = {};                      ///< made before anything is computed: keeping a pin needs no memory
  std::optional<Result<KvCache::Pin>> pin = {};  ///< set when it has ended; a pin without a node: no full block
};

/// Creates the sequence that prefills all full blocks of a prefix. It generates nothing.
std::unique_ptr<Sequence> make_prefix_prefill(const PinPrefill& prefill, std::int32_t block_len);

/// Callers pin and unpin. The engine's thread takes their requests (take_changes), adds a sequence for each prefill,
/// and reports its end. Thread: the holder of the engine's mutex.
class PinTable {
 public:
  explicit PinTable(std::int32_t block_len) : block_len_(block_len) {}

  /// Makes the row of a pin, which is not in the table yet.
  Pins::node_type make_row(std::vector<TokenId> tokens, CacheScope scope);
  /// Requests the prefill of a prompt. `prefill` must live until `wait` returns.
  void begin(PinPrefill& prefill, std::vector<TokenId> tokens, CacheScope scope);
  /// Waits until the prefill, which was requested at `begun`, has ended, and keeps its pin. Errors, and then there is
  /// no such pin: the prefill's own; unavailable if it was cancelled.
  Result<PinInfo> wait(Mutex& mutex, PinPrefill& prefill, Sequence::Clock::time_point begun) BATON_REQUIRES(mutex);
  /// Gives up a pin from the next step on. Aborts if there is none of this id.
  void unpin(PinId id);
  /// The same for a pin that is not in the table.
  void give_up(Pins::node_type row);
  /// All pins, in the order in which they were requested.
  const Pins& pins() const { return pins_; }

  /// What the engine's thread has to do for callers.
  struct Changes {
    std::vector<PinPrefill*> begun;
    Pins unpins;                        ///< all have a node
    std::vector<SequenceId> cancelled;  ///< sequences to end

    bool is_empty() const { return begun.empty() && unpins.empty() && cancelled.empty(); }
  };
  /// What callers requested since the last call. Each begun prefill gets `next_sequence`, which advances.
  /// `cancels_all`: every prefill ends.
  Changes take_changes(SequenceId& next_sequence, bool cancels_all);
  bool has_changes() const { return has_begun_ || !given_up_.empty(); }

  PinPrefill& prefill_of(SequenceId sequence) const;
  /// Tells the waiting caller that its prefill has ended.
  void end(PinPrefill& prefill, Result<KvCache::Pin> pin);

 private:
  const std::int32_t block_len_;
  std::int64_t n_made_ = 0;            ///< rows
  bool has_begun_ = false;             ///< one of prefills_ has no sequence yet
  std::vector<PinPrefill*> prefills_;  ///< that have not ended
  Pins pins_;
  Pins given_up_;  ///< since the last take_changes
  Condition ended_;
};

}  // namespace baton
