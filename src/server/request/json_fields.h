/// Reads single fields of a request; errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"

namespace baton {

/// The error for a bad value: `return bad("tools", "there are {} tools; ...", n)`.
tl::unexpected<Error> bad(std::string_view field, std::string message);
template <class... Args>
tl::unexpected<Error> bad(std::string_view field, fmt::format_string<Args...> message, Args&&... args) {
  return bad(field, fmt::format(message, std::forward<Args>(args)...));
}
/// The same with the field as the subject of the message: `return bad_field("top_p", "must be ...")`.
template <class... Args>
tl::unexpected<Error> bad_field(std::string_view field, fmt::format_string<Args...> rest, Args&&... args) {
  return bad(field, "'{}' {}", field, fmt::format(rest, std::forward<Args>(args)...));
}
/// The error for a body of more than 1,000 fields: looking up a field is linear.
Result<void> check_field_count(const json::Value& body);
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

}  // namespace baton
