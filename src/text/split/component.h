/// Reading the components of a tokenizer.json: objects with a "type", nested in Sequences.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "io/json.h"

namespace baton::component {

/// Limits of nested Sequences and of steps; no real tokenizer exceeds them.
inline constexpr int kMaxDepth = 8;
inline constexpr std::size_t kMaxSteps = 64;

/// The component's "type". Errors: invalid_data where `value` is not an object with one, or `depth` or `n_steps` is
/// over its limit. `role` ("pre_tokenizer") is for messages.
Result<std::string> type_of(const json::Value& value, std::string_view role, int depth, std::size_t n_steps);

/// The error for a component that Baton does not support.
tl::unexpected<Error> unsupported(std::string_view role, std::string_view what);

/// The components that a Sequence holds under `key`. Errors: invalid_data.
Result<const json::Value*> members_of(const json::Value& value, std::string_view role, std::string_view key);

/// The field, or nullopt where it is absent or null. Errors: invalid_data, with `role` and the field's name.
template <class T>
Result<std::optional<T>> get_optional(const json::Value& value, std::string_view role, std::string_view key) {
  auto field = json::get_optional<T>(value, key);
  if (!field) return fail(ErrorCode::invalid_data, std::string(role) + ": " + field.error().message);
  return std::move(*field);
}

/// The same, with a default for a field that is absent or null.
template <class T>
Result<T> get_or(const json::Value& value, std::string_view role, std::string_view key, T otherwise) {
  BATON_TRY(std::optional<T> field, get_optional<T>(value, role, key));
  return field.has_value() ? std::move(*field) : std::move(otherwise);
}

/// The field, which must exist. Errors: invalid_data, with `role` and the field's name.
template <class T>
Result<T> get(const json::Value& value, std::string_view role, std::string_view key) {
  auto field = json::get<T>(value, key);
  if (!field) return fail(ErrorCode::invalid_data, std::string(role) + ": " + field.error().message);
  return std::move(*field);
}

}  // namespace baton::component
