/// Parsing large JSON for a client that may leave meanwhile, and integers of any length.
#pragma once

#include <functional>
#include <string_view>

#include "core/result.h"
#include "io/json.h"

namespace baton::json {

/// The same as `parse`, but it asks `is_cancelled` every few thousand values (empty: never), and then fails with `unavailable`.
Result<Value> parse_cancellable(std::string_view text, std::string_view what, const std::function<bool()>& is_cancelled);

/// The same, and integers of more than 64 bits keep their digits where `parse` rounds them. Half of a surrogate pair ("\ud83d"
/// alone), which programs write that cut a text between the two, is read as U+FFFD where `parse` fails.
Result<Value> parse_exact(std::string_view text, std::string_view what, const std::function<bool()>& is_cancelled = {});

/// The digits of such an integer; empty: it is another value. `dump` writes them.
std::string_view digits_of(const Value& value) noexcept;

}  // namespace baton::json
