/// Registered prompts by name: their messages, their text, how long they live, and how much of them the engine holds.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"
#include "server/served_model.h"

namespace baton {

/// A named list of messages (see parse_messages).
struct PrefixDefinition {
  std::string name;
  json::Value messages;
  std::string version = {};                      ///< empty: none
  std::optional<std::chrono::seconds> ttl = {};  ///< from when it is filled; nothing: until it is removed
};

/// What names and versions are made of.
inline constexpr std::string_view kPrefixNameRule = "1 to 64 letters, digits, '.', '_' or '-'";
bool is_prefix_name(std::string_view name);

/// The list of one system message that holds `text`.
json::Value system_messages(std::string text);

/// Reads `--prefix NAME=FILE`: a file that ends in .json is a list of messages, any other is the text of one system message.
/// Errors: invalid_request (a bad name), not_found, io, invalid_data.
Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file);

/// The tokens that every conversation beginning with `messages` begins with: what two renderings with different user messages
/// have in common. Without a chat template, those of the texts.
Result<std::vector<TokenId>> prefix_tokens(const ServedModel& model, const json::Value& messages);

/// What /v1/completions puts before the prompt: the messages' texts, joined by line feeds.
std::string prefix_text(const json::Value& messages);

/// The prefixes of a running server. A request works with a copy of its entry, so one that is removed meanwhile serves it to
/// its end.
///
/// Thread: `add`, `remove` and `remove_expired` one at a time; the others any, also beside these.
class Prefixes {
 public:
  using Clock = std::chrono::system_clock;
  struct Entry {
    PrefixDefinition definition;
    std::string text;
    PrefixInfo info;
    std::int64_t created = 0;  ///< Unix time in seconds
    std::optional<Clock::time_point> expires = {};
    std::int64_t n_hits = 0;  ///< requests that named it
  };

  /// Fills and pins it in the engine, with one log line; waits until that is done. Another version of a name replaces what is
  /// there, which serves until the new one is filled. Errors name the prefix: a version that is there already, a prompt that is
  /// too long or does not render, no room to pin it.
  Result<PrefixInfo> add(const ServedModel& model, Engine& engine, PrefixDefinition definition);
  /// Unpins it; requests that use it keep it. Errors: not_found, with the names there are.
  Result<void> remove(Engine& engine, std::string_view name);
  /// Removes what has expired by `now`, with one log line each. Returns when the next one expires, if any does.
  std::optional<Clock::time_point> remove_expired(Engine& engine, Clock::time_point now);

  /// A request names it.
  void count_hit(std::string_view name);
  std::optional<Entry> find(std::string_view name) const;
  /// In the order in which they were added, under the lock: `visit` calls nothing of this object.
  void for_each(const std::function<void(const Entry&)>& visit) const;
  /// The error for a name that is none of these; `param` is the field that holds it.
  Error not_found(std::string_view name, std::string_view param) const;

 private:
  std::vector<Entry>::iterator at(std::string_view name);

  std::unique_ptr<std::mutex> mutex_ =
      std::make_unique<std::mutex>();  // on the heap, for the object is moved before it is shared
  std::vector<Entry> entries_;
};

}  // namespace baton
