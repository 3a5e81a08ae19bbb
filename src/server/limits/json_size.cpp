/// Counts what separates values, outside of strings.
#include "server/limits/json_size.h"

namespace baton {

std::int64_t count_json_values(std::string_view text) {
  std::int64_t n = 1;
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string && c == '\\')
      ++i;
    else if (c == '"')
      is_in_string = !is_in_string;
    else if (!is_in_string && (c == ',' || c == '[' || c == '{'))
      ++n;
  }
  return n;
}

}  // namespace baton
