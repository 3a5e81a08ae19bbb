/// How large a JSON text will be in memory, told before it is parsed.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

/// The most values that a JSON text can have: its elements and members, and itself. Texts that are not JSON have any
/// number.
std::int64_t count_json_values(std::string_view text);

}  // namespace baton
