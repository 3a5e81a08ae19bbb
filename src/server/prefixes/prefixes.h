/// Registered prefixes by name: their texts and ids, lifetimes and pinned tokens.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/prefixes/prefix_definition.h"
#include "server/prefixes/prefix_store.h"
#include "server/served/served_model.h"

namespace baton {

struct PrefixTokens {
  std::vector<TokenId> tokens;
  EncodedHead head;  ///< of the text that the chat template writes; empty without a template
};

/// The tokens with which every conversation begins that begins with the prefix: the common beginning of two renderings
/// with different user messages and with the prefix's tools. Without a chat template: the tokens of the messages'
/// texts.
Result<PrefixTokens> prefix_tokens(const ServedModel& model, const PrefixDefinition& definition,
                                   const std::function<bool()>& is_cancelled = {});

/// Ends the registration of a prefix before its time. Thread: any.
class PrefixCancel {
 public:
  /// `reason`: a literal. The last one counts.
  void request(std::string_view reason) {
    const MutexLock lock(mutex_);
    reason_ = reason;
    stop_.request_stop();
  }
  /// Empty: not cancelled.
  std::string_view reason() const {
    const MutexLock lock(mutex_);
    return reason_;
  }
  std::stop_token token() const { return stop_.get_token(); }

 private:
  mutable Mutex mutex_;
  std::string_view reason_ BATON_GUARDED_BY(mutex_);
  std::stop_source stop_;
};

/// What the prefixes that are registered through the API may be together.
struct PrefixLimits {
  std::size_t max_number = 1000;
  std::size_t max_bytes = std::size_t{64} << 20;  ///< of messages, texts and token ids
};

/// Numbers of prefixes, for /metrics.
struct PrefixCounts {
  std::array<std::int64_t, 3> by_source = {};   ///< indexed by PrefixSource
  std::int64_t n_refused_files = 0;             ///< files of the folder whose contents are not served
  std::optional<PrefixStoreCounts> store = {};  ///< absent: prefixes are not stored
};

/// The prefixes of a running server.
///
/// Prefixes are computed one after another. A computation can be cancelled; its caller then gets an error. A request
/// keeps the entry that it got from `find`, so a prefix that is replaced or removed meanwhile serves the request to
/// its end. Thread: one at a time calls `add`, `add_within` and `restore`; any for the others.
class Prefixes {
 public:
  using Clock = std::chrono::steady_clock;  ///< of lifetimes: setting the time of day neither ends nor prolongs one

  /// One version of a prefix. Its contents do not change; its counters are guarded.
  struct Entry {
    PrefixDefinition definition;
    std::string text;                              ///< see prefix_text; empty if given as tokens
    EncodedHead chat_head;                         ///< of the rendered conversation
    EncodedHead text_head;                         ///< of the text, if it contains special tokens
    std::array<std::vector<TokenId>, 2> text_ids;  ///< ids of the text, without and with special tokens
    std::vector<TokenId> tokens;
    PinInfo info;
    std::int64_t created = 0;                       ///< Unix time in seconds
    std::optional<Clock::time_point> expires = {};  ///< its ttl after it was created
    bool is_loaded = false;                         ///< its keys and values came from its file
    bool is_stored = false;                         ///< its file is on the disk
    std::string store_error = {};                   ///< why it is not

    std::size_t n_bytes = 0;  ///< of its contents: messages, texts and token ids
    std::int64_t n_hits = 0;  ///< requests that named it

    /// The first tokens, whose blocks are pinned: public.
    std::span<const TokenId> pinned() const { return std::span(tokens).first(static_cast<std::size_t>(info.n_pinned_tokens)); }
  };
  /// Keeps an entry (or none) alive.
  using Use = std::shared_ptr<const Entry>;

  /// From now on prefixes are loaded from `store` and stored in it. Call it before the first `add`; the store must
  /// outlive this.
  void use_store(PrefixStore& store) { store_ = &store; }

  /// Computes and pins a prefix in the engine, or loads it from the store, with one log line. Waits until that is done
  /// and until it is stored; that it cannot be stored is not an error. Another version replaces the registered one,
  /// which serves until the new one is ready. Contents of a file replace earlier contents of that file, whatever the
  /// version. Errors name the prefix: the version is registered already, the name belongs to the folder or to another
  /// source (param "id"), the prompt is too long or cannot be rendered, the owner's prefixes would pin more than they
  /// may, no room to pin it, cancelled.
  Result<PinInfo> add(const ServedModel& model, Engine& engine, PrefixDefinition definition);
  /// The same for a prefix that comes through the API, which must stay within `limits`. Calls `end_of_texts` when the
  /// text work is done: the engine and the disk do the rest.
  Result<PinInfo> add_within(const PrefixLimits& limits, const ServedModel& model, Engine& engine, PrefixDefinition definition,
                             PrefixCancel& cancel, const std::function<void()>& end_of_texts);
  /// Adds every prefix of the API that is in the store, with log lines about the progress. One that cannot be added
  /// (its name belongs to a flag now, or there is no room) gets one log line, and its file stays.
  void restore(const PrefixLimits& limits, const ServedModel& model, Engine& engine);
  /// Unpins a prefix, or cancels its computation. Requests that use it keep it. Errors: not_found, with the known
  /// names; invalid_request if it belongs to the folder and `by` is another source.
  Result<void> remove(Engine& engine, std::string_view name, PrefixSource by);
  /// Cancels the running computation of an older version that `newer` will replace.
  void make_way(const PrefixDefinition& newer);
  /// Cancels the running computation, because the server ends.
  void cancel_prefill();
  /// Removes the prefixes that have expired by `now`, with one log line each. Returns when the next one expires, if
  /// any.
  std::optional<Clock::time_point> remove_expired(Engine& engine, Clock::time_point now);

  /// How many of a prompt's first tokens are those of a registered prefix, whose blocks all may share.
  std::int32_t n_public(std::span<const TokenId> prompt) const;
  /// Counts a request that names the prefix.
  void count_hit(std::string_view name);
  Use find(std::string_view name) const;
  /// Visits all entries in the order in which they were added, under the lock: `visit` must not call this object.
  void for_each(const std::function<void(const Entry&)>& visit) const;
  /// The error for an unknown name; `param` is the field that contains it.
  Error not_found(std::string_view name, std::string_view param) const;

  /// Number of versions removed or replaced so far. When it grows, there may be room for a prefix that found none.
  std::int64_t n_removed() const { return n_removed_; }
  void set_n_refused_files(std::int64_t n) { n_refused_files_ = n; }
  PrefixCounts counts() const;

 private:
  /// The prefix prefill that `add` waits for.
  struct Prefill {
    PrefixDefinition definition;  // without contents
    PrefixCancel* cancel;
  };
  class Computing;
  using Entries = std::list<std::shared_ptr<Entry>>;  // a list, because adding to one needs no memory

  Result<void> check_name(const PrefixDefinition& definition) BATON_REQUIRES(mutex_);
  Result<void> check_limits(const PrefixLimits& limits, const Entry& added);
  Result<void> check_quota(const PrefixDefinition& definition, std::size_t n_blocks, std::int32_t block_len);
  bool cancel_locked(std::string_view name, PrefixSource by, std::string_view reason) BATON_REQUIRES(mutex_);
  Result<std::shared_ptr<Entry>> compute(const PrefixLimits& limits, const ServedModel& model, Engine& engine,
                                         PrefixDefinition definition, PrefixCancel& cancel,
                                         const std::function<void()>& end_of_texts);
  Result<PinInfo> pin(Engine& engine, Entry& entry, std::stop_token stop);
  void keep(Engine& engine, Entry& entry);
  void retire(Engine& engine, Entries::iterator entry) BATON_REQUIRES(mutex_);

  PrefixStore* store_ = nullptr;  // null: prefixes are not stored; set before threads share it
  std::atomic<std::int64_t> n_removed_ = 0;
  std::atomic<std::int64_t> n_refused_files_ = 0;

  mutable Mutex mutex_;  // locked before those of the store and of the engine
  Entries entries_ BATON_GUARDED_BY(mutex_);
  std::optional<Prefill> prefill_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
