/// Registered prompts by name: their messages, their text, and how much of them the engine holds.
#pragma once

#include <cstdint>
#include <filesystem>
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
};

/// Reads `--prefix NAME=FILE`: a file that ends in .json is a list of messages, any other is the text of one system message.
/// Errors: invalid_request (a bad name), not_found, io, invalid_data.
Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file);

/// The tokens that every conversation beginning with `messages` begins with: what two renderings with different user messages
/// have in common. Without a chat template, those of the texts.
Result<std::vector<TokenId>> prefix_tokens(const ServedModel& model, const json::Value& messages);

/// What /v1/completions puts before the prompt: the messages' texts, joined by line feeds.
std::string prefix_text(const json::Value& messages);

/// The prefixes of a running server. Thread: read by any once all are added.
class Prefixes {
 public:
  struct Entry {
    PrefixDefinition definition;
    std::string text;
    PrefixInfo info;
    std::int64_t created = 0;  ///< Unix time in seconds
  };

  /// Fills and pins it in the engine, with one log line; waits until that is done. Errors name the prefix: a name given twice,
  /// a prompt that is too long or does not render.
  Result<PrefixInfo> add(const ServedModel& model, Engine& engine, PrefixDefinition definition);

  const Entry* find(std::string_view name) const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace baton
