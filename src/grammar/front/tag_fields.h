/// The fields of a structural tag's formats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton::grammar {

/// The most texts of one list: triggers, tokens, ends, excludes.
inline constexpr std::size_t kMaxTexts = 1024;

/// The texts of which one ends the innermost tag. Empty: no tag, or one that ends without a text.
using Ends = std::vector<std::string_view>;

/// The error of a part at `path`, as "the structural tag: /format/tags must be a list that is not empty".
tl::unexpected<Error> tag_error(ErrorCode code, const std::string& path, std::string_view text);

// The field `key` of the format `value` at `path`, of a type. What is returned lives as long as the format. Errors: invalid_request.

Result<const json::Value*> field(const json::Value& value, std::string_view key, const std::string& path);
Result<std::string_view> text_of(const json::Value& value, std::string_view key, const std::string& path);
/// False where there is no such field, or null.
Result<bool> flag_of(const json::Value& value, std::string_view key, const std::string& path);
/// A list that is not empty.
Result<const json::Value*> list_of(const json::Value& value, std::string_view key, const std::string& path);
/// The texts of a list, none of them empty, each once; nothing where there is no such field. Errors: too_large over kMaxTexts.
Result<Ends> texts_of(const json::Value& value, std::string_view key, const std::string& path);
/// What ends a tag: the text or the texts of `end`; none for the empty text.
Result<Ends> ends_of(const json::Value& value, const std::string& path);

}  // namespace baton::grammar
