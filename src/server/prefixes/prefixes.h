/// Registered prefixes: the ones that are wanted, and the ones that are ready.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/http/message.h"
#include "server/limits/thread_watch.h"
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

/// The most registrations of the API that wait.
inline constexpr std::size_t kMaxQueuedPrefixes = 32;

/// What prefixes of the API, and marked prompts, may be together.
struct PrefixLimits {
  std::size_t max_number = 1000;
  std::size_t max_bytes = std::size_t{64} << 20;  ///< of messages, texts and token ids; also of all that wait
  std::int64_t max_marked_blocks = 0;             ///< 0: a quarter of the cache
};

/// Numbers of prefixes, for /metrics.
struct PrefixCounts {
  std::array<std::int64_t, 3> by_source = {};   ///< indexed by PrefixSource
  std::int64_t n_refused_files = 0;             ///< files of the folder whose contents are not served
  std::optional<PrefixStoreCounts> store = {};  ///< absent: prefixes are not stored
};

/// The prefixes of a running server, and the prompts that its clients marked to be kept (`cache_control`).
///
/// Flags, the API, the store, the folder and marks say which prefixes they want. One thread (`start`) computes these one
/// after another and pins them in the engine, until they expire or are removed. A computation can be cancelled. A request
/// keeps the entry that it got from `find`, so a prefix that is replaced or removed meanwhile serves the request to its end.
///
/// Thread: `add`, `restore`, `keep_marked`, `run_next` and `remove_expired` belong to the thread that computes; before
/// `start`, or without it, to the owner. Any for the others.
class Prefixes {
 public:
  using Clock = std::chrono::steady_clock;  ///< of lifetimes: setting the time of day neither ends nor prolongs one

  /// One version of a prefix. Its contents do not change; its counters are guarded.
  struct Entry {
    PrefixDefinition definition;
    std::string text = {};                              ///< see prefix_text; empty if given as tokens
    EncodedHead chat_head = {};                         ///< of the rendered conversation
    EncodedHead text_head = {};                         ///< of the text, if it contains special tokens
    std::array<std::vector<TokenId>, 2> text_ids = {};  ///< ids of the text, without and with special tokens
    std::vector<TokenId> tokens = {};
    PinInfo info = {};
    std::int64_t created = 0;                       ///< Unix time in seconds
    std::optional<Clock::time_point> expires = {};  ///< its ttl after it was created
    bool is_loaded = false;                         ///< its keys and values came from its file
    bool is_stored = false;                         ///< its file is on the disk
    std::string store_error = {};                   ///< why it is not
    std::atomic<bool> is_removed = false;           ///< it must not be stored any more

    std::size_t n_bytes = 0;  ///< of its contents: messages, texts and token ids
    std::int64_t n_hits = 0;  ///< requests that named it

    /// The first tokens, whose blocks are pinned: public.
    std::span<const TokenId> pinned() const { return std::span(tokens).first(static_cast<std::size_t>(info.n_pinned_tokens)); }
  };
  /// Keeps an entry (or none) alive.
  using Use = std::shared_ptr<const Entry>;
  /// A prefix of the API or of the folder that does not serve yet, or not at all.
  struct Pending {
    std::string name;
    PrefixSource source = PrefixSource::api;
    std::string version;
    std::string_view state;  ///< "computing", "waiting" or, of a file, "refused"
    std::string reason;      ///< why a file is refused or waits for room; otherwise empty
  };
  /// A registration that came over HTTP, for its answer.
  struct Asked {
    ExchangeId exchange = {};
    std::string name = {};
    std::string content_field = {};  ///< see PrefixRequest
  };
  /// Answers a registration that has ended. `error`: null: the prefix is registered; without a message: there was no memory.
  using Answer = std::function<void(const Asked& asked, const Error* error)>;

  /// All arguments must outlive it. `store`: null: prefixes are not stored.
  Prefixes(const ServedModel& model, Engine& engine, PrefixLimits limits = {}, PrefixStore* store = nullptr);
  ~Prefixes() { stop(); }

  /// Computes and pins a prefix in the engine, or loads it from the store, with one log line. Waits until that is done
  /// and until it is stored; that it cannot be stored is not an error. Another version replaces the registered one,
  /// which serves until the new one is ready. Contents of a file replace earlier contents of that file, whatever the
  /// version. Errors name the prefix: the version is registered already, the name belongs to the folder or to another
  /// source (param "id"), the prompt is too long or cannot be rendered, it exceeds the limits of the API, the owner's
  /// prefixes would pin more than they may, no room to pin it.
  Result<PinInfo> add(PrefixDefinition definition) { return add(std::move(definition), Cancel()); }
  /// Adds every prefix of the API that is in the store, with log lines about the progress. One that cannot be added
  /// (its name belongs to a flag now, or there is no room) gets one log line, and its file stays.
  void restore();

  /// Call it before the first `want`.
  void answer_by(Answer answer) { answer_ = std::move(answer); }
  /// Starts the thread that computes what is wanted, and removes what expires.
  void start(ThreadWatch& watch);
  /// Ends it, and what it is computing; what waits is not computed any more. Idempotent.
  void stop();

  /// The API wants a prefix; cancels the computation of another version. The answer comes when it has ended. Error:
  /// unavailable, if too many wait.
  Result<void> want(ExchangeId exchange, PrefixRequest request);
  /// The client of a registration has left, so its prefix is not wanted. Needs no memory, does not wait.
  void leave(ExchangeId exchange) noexcept;
  /// The folder wants these contents of a file, in place of earlier ones. If there is no room or the name is taken, they
  /// wait for `retry_files`. Refused contents get one log line.
  void want_file(PrefixDefinition definition);
  /// Tries the waiting files again if a prefix has gone since the last time, or if there was no memory.
  void retry_files();
  /// Clients want marked prompts to stay in the cache. While many wait, the next ones are not kept.
  void want_marked(const std::vector<PrefixDefinition>& prompts);
  /// Unpins a prefix, cancels its computation, and refuses registrations of its name that wait. Requests that use it keep
  /// it. Errors: not_found, with the known names; invalid_request if it belongs to the folder and `by` is another source.
  Result<void> remove(std::string_view name, PrefixSource by);

  /// Computes the next prefix that is wanted; false if none waits. Sources take turns.
  bool run_next();
  /// Pins a marked prompt of whole blocks in the scope of the requests that share it, or prolongs its pin. All together pin
  /// at most max_marked_blocks, each owner at most its own limit; the pin that was not used for the longest time goes
  /// first. With recurrent layers all together also pin at most a quarter of the snapshots. Without, a pin ends when a longer
  /// one of the same owner and scope covers it for as long. False if there is no room, or the engine takes none now.
  bool keep_marked(PrefixDefinition prompt, Clock::time_point now);
  /// Removes what has expired by `now`; prefixes with names get one log line each. Returns when the next one expires.
  std::optional<Clock::time_point> remove_expired(Clock::time_point now);

  /// How many of a prompt's first tokens are those of a registered prefix, whose blocks all may share.
  std::int32_t n_public(std::span<const TokenId> prompt) const;
  /// Counts a request that names the prefix.
  void count_hit(std::string_view name);
  Use find(std::string_view name) const;
  /// The version that serves in the folder's name, for log lines.
  std::string served_file_version(std::string_view name) const;
  /// Visits all entries in the order in which they were added, under the lock: `visit` must not call this object.
  void for_each(const std::function<void(const Entry&)>& visit) const;
  /// What is wanted and not ready, what is computed first. It may contain a prefix that has just become ready.
  std::vector<Pending> pending() const;
  /// The error for a name that no prefix serves; `param` is the field that contains it.
  Error not_found(std::string_view name, std::string_view param) const;

  /// Number of versions with names that were removed or replaced so far.
  std::int64_t n_removed() const { return n_removed_; }
  /// Files that the folder itself refuses.
  void set_n_refused_files(std::int64_t n) { n_refused_files_ = n; }
  PrefixCounts counts() const;

 private:
  /// Ends a computation before its time. Thread: any.
  class Cancel {
   public:
    /// `reason`: the last one counts.
    void request(const char* reason) {
      reason_ = reason;
      stop_.request_stop();
    }
    const char* reason() const { return reason_; }
    bool is_requested() const { return stop_.stop_requested(); }
    std::stop_token token() const { return stop_.get_token(); }

   private:
    std::atomic<const char*> reason_ = "";
    std::stop_source stop_;
  };
  /// What is wanted and not ready.
  struct Desired {
    PrefixDefinition definition;
    PrefixSource source = definition.source;
    std::string version = definition.version;
    Asked asked = {};         // of the API; the name is that of all
    std::size_t n_bytes = 0;  // of the contents, of the API
    Cancel cancel = {};
    // Of a file:
    std::string refusal = {};  // why it is not registered
    enum class State { waits, found_no_room, is_refused } state = State::waits;
    std::int64_t n_removed = 0;  // when it was tried last
  };
  using Desires = std::list<Desired>;
  using Entries = std::list<std::shared_ptr<Entry>>;  // a list, because adding to one needs no memory

  Result<void> check_name(const PrefixDefinition& definition) BATON_REQUIRES(mutex_);
  Result<void> check_limits(const Entry& added) const;
  Result<void> check_quota(const PrefixDefinition& definition, std::size_t n_blocks) const;
  Result<PinInfo> add(PrefixDefinition definition, const Cancel& cancel);
  Result<std::shared_ptr<Entry>> compute(PrefixDefinition definition, const Cancel& cancel);
  Result<PinInfo> pin(Entry& entry, const Cancel& cancel);
  void store(Entry& entry);
  void retire(Entries& entries, Entries::iterator entry) BATON_REQUIRES(mutex_);
  void remove_file(Entry& entry) BATON_REQUIRES(mutex_);

  void cancel_running(const PrefixDefinition& newer) BATON_REQUIRES(desired_mutex_);
  Desires::iterator next_desired() BATON_REQUIRES(desired_mutex_);
  Desired* begin_next();
  Desires end_running();
  void run_asked(Desired& desired);
  void run_file(Desired& desired);
  void refuse_file(Desired& desired, const Error& error);
  void run(MemoryReserve& reserve);

  std::int64_t n_marked_blocks(const Entry& entry) const;
  bool make_room_for(const Entry& fresh) BATON_REQUIRES(mutex_);

  const ServedModel& model_;
  Engine& engine_;
  const PrefixLimits limits_;
  PrefixStore* const store_;
  std::atomic<std::int64_t> n_removed_ = 0;
  std::atomic<std::int64_t> n_refused_files_ = 0;

  mutable Mutex mutex_;  // locked before those of the store and of the engine
  Entries ready_ BATON_GUARDED_BY(mutex_);
  Entries marked_ BATON_GUARDED_BY(mutex_);  // the one that was used last is the first

  mutable Mutex desired_mutex_;  // held for a moment only: the I/O thread takes it
  Condition changed_;
  Desires desired_ BATON_GUARDED_BY(desired_mutex_);
  Desires running_ BATON_GUARDED_BY(desired_mutex_);  // at most one
  PrefixSource last_source_ BATON_GUARDED_BY(desired_mutex_) = PrefixSource::flag;
  bool is_stopping_ BATON_GUARDED_BY(desired_mutex_) = false;

  Answer answer_;
  ThreadWatch::Place own_place_{"prefixes"};
  ThreadWatch::Place* place_ = &own_place_;  // of the thread that computes
  std::thread thread_;
};

}  // namespace baton
