/// The definition of a prefix, and its parser for bodies of /v1/prefixes and files of --prefix and --prefix-folder.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/request/request.h"
#include "io/json.h"

namespace baton {

/// The source of a prefix. Prefixes of the folder change only with their files. Marks (`cache_control`) have no names.
enum class PrefixSource { flag, api, folder, mark };
std::string_view to_string(PrefixSource source);

/// A named list of messages (see parse_messages), or of tokens, which only plain completions can begin with.
struct PrefixDefinition {
  std::string name;
  json::Value messages;                          ///< null if it consists of tokens
  std::string version = {};                      ///< empty: none
  std::optional<std::chrono::seconds> ttl = {};  ///< from the moment when it is pinned; absent: until it is removed
  std::vector<TokenId> tokens = {};
  json::Value tools = {};  ///< see ToolFields::definitions; null: none
  PrefixSource source = PrefixSource::flag;
  std::string file = {};                               ///< the file that it was read from
  std::string owner = {};                              ///< the name of the key that registered it; empty: none
  std::optional<std::int64_t> max_pinned_blocks = {};  ///< that the owner's prefixes may pin; absent: no limit
  std::optional<std::int64_t> created = {};            ///< Unix time in seconds, of one that is restored; absent: now
  CacheScope scope = {};                               ///< of the requests that share a marked prompt
};

inline constexpr std::size_t kMaxPrefixFileBytes = std::size_t{16} << 20;

/// Bytes of the messages, tools or tokens of a definition.
std::size_t content_bytes(const PrefixDefinition& definition);
/// A list of one system message with the content `text`.
json::Value system_messages(std::string text);
/// The text that /v1/completions puts before the prompt: the messages' texts, joined by line feeds.
std::string prefix_text(const json::Value& messages);

struct PrefixRequest {
  PrefixDefinition definition;
  std::string content_field;                ///< "text", "messages" or "tokens", whichever was given, else "tools"
  std::vector<std::string> unknown_fields;  ///< shortened for printing
};

/// {id, text or messages or tokens, tools?, version?, ttl_seconds?}; tools alone are a prefix too. Errors:
/// invalid_request, with the field.
Result<PrefixRequest> parse_prefix_request(const json::Value& body);

/// Parses `bytes`, the contents of `file`. A file whose name ends in .json is such an object, whose id is `name` or
/// left out, or a list of messages. Any other file is the text of one system message. Errors: invalid_request (a bad
/// name), invalid_data.
Result<PrefixDefinition> parse_prefix_file(std::string_view name, const std::filesystem::path& file, std::string bytes);
/// The same, and reads the file. Errors: not_found, io, too_large too.
Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file);
/// The bytes of a prefix's file. Errors: not_found, io, too_large.
Result<std::string> read_prefix_bytes(const std::filesystem::path& file);

/// What the file of a stored prefix says of it besides its tokens. Of a prefix of the API: all of its definition but
/// the name, and when it was created (Unix time in seconds). Of others: source and version, because their definition
/// comes with each start.
std::string metadata_of(const PrefixDefinition& definition, std::int64_t created);

/// The inverse. `name` is the prefix's. Errors: invalid_data, if the text was not made by metadata_of.
Result<PrefixDefinition> definition_of(std::string_view name, const std::string& metadata);

}  // namespace baton
