/// What a prefix is made of, and the one reading of it: bodies of /v1/prefixes, files of --prefix and --prefix-folder.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"

namespace baton {

/// Who registered a prefix. Those of the folder change with their files alone.
enum class PrefixSource { flag, api, folder };
std::string_view to_string(PrefixSource source);

/// A named list of messages (see parse_messages), or of tokens, which only completions can begin with.
struct PrefixDefinition {
  std::string name;
  json::Value messages;                          ///< null where there are tokens
  std::string version = {};                      ///< empty: none
  std::optional<std::chrono::seconds> ttl = {};  ///< from when it is filled; nothing: until it is removed
  std::vector<TokenId> tokens = {};
  PrefixSource source = PrefixSource::flag;
  std::string file = {};  ///< that it was read from
};

/// What names and versions are made of.
inline constexpr std::string_view kPrefixNameRule = "1 to 64 letters, digits, '.', '_' or '-'";
bool is_prefix_name(std::string_view name);

/// Files of prefixes are not longer.
inline constexpr std::size_t kMaxPrefixFileBytes = std::size_t{16} << 20;

/// The list of one system message that holds `text`.
json::Value system_messages(std::string text);
/// What /v1/completions puts before the prompt: the messages' texts, joined by line feeds.
std::string prefix_text(const json::Value& messages);

struct PrefixRequest {
  PrefixDefinition definition;
  std::string content_field;                ///< "text", "messages" or "tokens": whichever was given
  std::vector<std::string> unknown_fields;  ///< shortened to print
};

/// {id, text or messages or tokens, version?, ttl_seconds?}. Errors: invalid_request, with the field.
Result<PrefixRequest> parse_prefix_request(const json::Value& body);

/// What `file` holds, whose contents are `bytes`: one that ends in .json is such an object, whose id is `name` or left out, or
/// a list of messages; any other is the text of one system message. Errors: invalid_request (a bad name), invalid_data.
Result<PrefixDefinition> parse_prefix_file(std::string_view name, const std::filesystem::path& file, std::string bytes);
/// The same of a file that is read here. Errors: not_found, io, too_large too.
Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file);
/// The bytes of a prefix's file. Errors: not_found, io, too_large.
Result<std::string> read_prefix_bytes(const std::filesystem::path& file);

}  // namespace baton
