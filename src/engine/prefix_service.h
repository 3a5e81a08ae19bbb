/// The registered prefixes of an engine: their names, their prefills and their pins.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/cache/kv_cache.h"
#include "engine/engine_options.h"
#include "engine/schedule/sequence.h"

namespace baton {

/// The registration of a prefix in progress. It lives on the stack of the caller that waits for it. The engine's mutex
/// guards all members but `tokens` and `scope`: PrefixService alone uses them until `wait` has returned.
struct PrefixPrefill {
  std::vector<TokenId> tokens;
  CacheScope scope = {};                    ///< of the requests that are to find them
  bool is_cancelled = false;                ///< its prefix was removed, or the engine drains
  std::optional<Result<KvCache::Pin>> pin;  ///< set when it has ended; a pin without a node: no full block
  std::list<KvCache::Pin> unpinned = std::list<KvCache::Pin>(1);  ///< where the pin goes if it is given up: it must not fail
};

/// Creates the sequence that prefills all full blocks of a prefix. It generates nothing.
std::unique_ptr<Sequence> make_prefix_prefill(const PrefixPrefill& prefill, std::int32_t block_len, SequenceId id);

/// A name is taken as soon as its prefill is requested. The pin is kept as soon as the prefill has ended.
///
/// Callers register and remove prefixes. The engine's thread takes their requests (take_changes), adds a sequence for
/// each prefill, and reports its end. Thread: the holder of the engine's mutex.
class PrefixService {
 public:
  explicit PrefixService(std::int32_t block_len) : block_len_(block_len) {}

  /// Takes the name and requests the prefill, which must live until `wait` returns. Error: invalid_request if the name
  /// is taken.
  Result<void> begin(const std::string& name, PrefixPrefill& prefill);
  /// Waits until the prefill, which was requested at `begun`, has ended, and keeps its pin under info.name. Sets
  /// info's pinned tokens and time. Errors, and then the name is free again: the prefill's own; unavailable if it was
  /// cancelled.
  Result<PrefixInfo> wait(Mutex& mutex, PrefixInfo info, PrefixPrefill& prefill, Sequence::Clock::time_point begun)
      BATON_REQUIRES(mutex);
  /// Cancels the prefill of this name, or removes the prefix and gives up its pin. Errors: not_found.
  Result<void> remove(const std::string& name);
  /// Gives up a pin from the next step on. It may be one without a node.
  void give_up(const KvCache::Pin& pin);
  /// Cancels all prefills.
  void cancel_prefills();
  /// Registered prefixes, by name.
  std::vector<PrefixInfo> list() const;
  std::vector<KvCache::Pin> pins() const;

  /// What callers requested since the last call.
  struct Changes {
    std::vector<PrefixPrefill*> begun;
    std::list<KvCache::Pin> unpins;  ///< all have a node
    bool has_cancelled = false;      ///< the caller must end the sequences of cancelled prefills

    bool is_empty() const { return begun.empty() && unpins.empty() && !has_cancelled; }
  };
  Changes take_changes() { return std::exchange(changes_, {}); }
  bool has_changes() const { return !changes_.is_empty(); }

  /// Tells the waiting caller that its prefill has ended.
  void end(PrefixPrefill& prefill, Result<KvCache::Pin> pin);

 private:
  struct Registered {
    PrefixInfo info;
    KvCache::Pin pin;
  };

  const std::int32_t block_len_;
  std::map<std::string, PrefixPrefill*> waited_for_;  ///< by name
  std::map<std::string, Registered> registered_;
  Changes changes_;
  Condition ended_;
};

/// Which sequence computes which prefill. Thread: engine only.
class RunningPrefills {
 public:
  void started(SequenceId sequence, PrefixPrefill& prefill) { by_sequence_[sequence] = &prefill; }
  /// Returns and forgets the prefill of a sequence that has ended; null if it had none.
  PrefixPrefill* take_ended(SequenceId sequence);
  /// Sequences of cancelled prefills. The caller holds the engine's mutex.
  std::vector<SequenceId> cancelled() const;

 private:
  std::unordered_map<SequenceId, PrefixPrefill*> by_sequence_;
};

}  // namespace baton
