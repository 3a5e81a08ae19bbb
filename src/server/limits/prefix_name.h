/// Which names prefixes, their versions and API keys may have.
#pragma once

#include <string_view>

namespace baton {

/// Characters and lengths of names and versions.
inline constexpr std::string_view kPrefixNameRule = "1 to 64 letters, digits, '.', '_' or '-', and not '.' or '..'";
bool is_prefix_name(std::string_view name);

}  // namespace baton
