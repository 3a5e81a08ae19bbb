/// The ids, those of tool calls too, and the times that answers carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

/// 32 hexadecimal digits that cannot be guessed.
std::string random_id();

/// Unix time in seconds.
std::int64_t unix_seconds();

/// A random id, as clients know it: "call_" and 24 letters and digits. `is_short`: nine letters and digits, which some
/// chat templates ask for.
std::string new_call_id(bool is_short);

/// `id` if it has nine letters and digits, or nine that follow from it.
std::string short_call_id(std::string_view id);

}  // namespace baton
