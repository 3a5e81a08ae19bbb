/// The rule of names.
#include "server/limits/prefix_name.h"

#include <algorithm>
#include <cstddef>

namespace baton {

bool is_prefix_name(std::string_view name) {
  constexpr std::size_t kMaxBytes = 64;
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  // These two have another meaning in a path.
  if (name == "." || name == "..") return false;
  return !name.empty() && name.size() <= kMaxBytes && std::ranges::all_of(name, is_allowed);
}

}  // namespace baton
