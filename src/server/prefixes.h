/// Registered prompts by name: what requests need of them, how long they live, and how much of them the engine holds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/prefix_definition.h"
#include "server/served_model.h"

namespace baton {

struct PrefixTokens {
  std::vector<TokenId> tokens;
  EncodedHead head;  ///< of what the chat template writes; empty without one
};

/// The tokens that every conversation beginning with the prefix begins with: what two renderings with different user messages
/// have in common. Without a chat template, those of the texts.
Result<PrefixTokens> prefix_tokens(const ServedModel& model, const PrefixDefinition& definition);

/// How many prefixes there are, for /metrics.
struct PrefixCounts {
  std::array<std::int64_t, 3> by_source = {};  ///< indexed by PrefixSource
  std::int64_t n_refused_files = 0;            ///< of the folder, whose contents are not served
};

/// The prefixes of a running server.
///
/// One is filled after another; a fill can be given up, and then whoever asked for it gets an error. A request holds on to what
/// it found by `find`, so that a prefix that is replaced or removed meanwhile serves it to its end. Thread: any.
class Prefixes {
 public:
  using Clock = std::chrono::system_clock;

  /// One version of a prefix. What `find` shows does not change; the counts are guarded.
  struct Entry {
    PrefixDefinition definition;
    std::string text;                              ///< see prefix_text; empty where there are tokens
    EncodedHead chat_head;                         ///< of the conversation's rendering
    EncodedHead text_head;                         ///< of the text, where it holds special tokens
    std::array<std::vector<TokenId>, 2> text_ids;  ///< the text's alone, without special tokens around it and with them
    PrefixInfo info;
    std::int64_t created = 0;  ///< Unix time in seconds
    std::optional<Clock::time_point> expires = {};
    std::string engine_name;  ///< two versions of a name are there while one replaces the other

    std::int64_t n_hits = 0;  ///< requests that named it
    std::int64_t n_uses = 0;
  };

 private:
  struct State;

 public:
  /// An entry, as long as this lives; or none. No longer than the Prefixes.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use();
    explicit operator bool() const { return entry_ != nullptr; }
    const Entry& operator*() const { return *entry_; }
    const Entry* operator->() const { return entry_; }

   private:
    friend class Prefixes;
    Use(State& state, Entry& entry) : state_(&state), entry_(&entry) {}
    State* state_ = nullptr;
    Entry* entry_ = nullptr;
  };

  Prefixes();
  Prefixes(Prefixes&&) noexcept;
  ~Prefixes();

  /// Fills and pins it in the engine, with one log line; waits until that is done, and for the fills before it. Another version
  /// of a name replaces what is there, which serves until the new one is filled; a file's contents replace those before it
  /// whatever their version. Errors name the prefix: a version that is there already, a name that is the folder's or another's
  /// (param "id"), a prompt that is too long or does not render, no room to pin it, a fill that was given up.
  Result<PrefixInfo> add(const ServedModel& model, Engine& engine, PrefixDefinition definition);
  /// Unpins it, or gives up its fill; requests that use it keep it. Errors: not_found, with the names there are;
  /// invalid_request where it is the folder's and `by` is not.
  Result<void> remove(Engine& engine, std::string_view name, PrefixSource by);
  /// Gives up the fill under way of an older version, which `newer` is going to replace.
  void make_way(Engine& engine, const PrefixDefinition& newer);
  /// Gives up the fill under way, if it is of `source`.
  void give_up_fills(Engine& engine, PrefixSource source);
  /// Removes what has expired by `now`, with one log line each. Returns when the next one expires, if any does.
  std::optional<Clock::time_point> remove_expired(Engine& engine, Clock::time_point now);

  /// A request names it.
  void count_hit(std::string_view name);
  Use find(std::string_view name) const;
  /// In the order in which they were added, under the lock: `visit` calls nothing of this object.
  void for_each(const std::function<void(const Entry&)>& visit) const;
  /// The error for a name that is none of these; `param` is the field that holds it.
  Error not_found(std::string_view name, std::string_view param) const;

  /// Versions that were removed or replaced so far: when it has grown there may be room for what found none.
  std::int64_t n_removed() const;
  void set_n_refused_files(std::int64_t n);
  PrefixCounts counts() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace baton
