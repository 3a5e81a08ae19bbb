/// Reads single fields of a request; errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"

namespace baton::openai {

/// The error for a bad value: `return bad("top_p", "'top_p' must be ...")`.
tl::unexpected<Error> bad(std::string_view field, std::string message);
/// The field, or null where it is absent or null.
const json::Value* find_given(const json::Value& body, std::string_view key);
/// The string `name` of an object that errors call `key`.
Result<std::string> string_member(const json::Value& object, std::string_view name, const std::string& key);
/// An optional integer in [least, most]; nullopt where the field is absent or null.
Result<std::optional<std::int32_t>> integer_field(const json::Value& body, std::string_view key, std::int32_t least,
                                                  std::int32_t most);
/// A number in [least, most]; `otherwise` if the field is absent or null.
Result<float> number_field(const json::Value& body, std::string_view key, float least, float most, float otherwise);
Result<bool> flag_field(const json::Value& body, std::string_view key, bool otherwise);
/// The ids of a list, each in [0, n_vocab).
Result<std::vector<TokenId>> parse_token_ids(const json::Value& list, std::string_view key, std::int32_t n_vocab);

}  // namespace baton::openai
