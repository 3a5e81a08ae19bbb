/// Which names prefixes, their versions and API keys may have.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/utf8.h"

namespace baton {

/// Characters and lengths of names and versions.
inline constexpr std::string_view kPrefixNameRule = "1 to 64 letters, digits, '.', '_' or '-', and not '.' or '..'";
inline bool is_prefix_name(std::string_view name) {
  constexpr std::size_t kMaxBytes = 64;
  // These two have another meaning in a path.
  if (name == "." || name == "..") return false;
  return !name.empty() && name.size() <= kMaxBytes && ascii::consists_of(name, "._-");
}

}  // namespace baton
