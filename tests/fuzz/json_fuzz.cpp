/// Fuzzes the JSON reader: any bytes give a value or an error, and a printed value reads back as the same value.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = baton::json::parse(text, "the input");
  if (!value) return 0;
  const std::string printed = baton::json::dump(*value);
  const auto again = baton::json::parse(printed, "the printed value");
  baton::check(again.has_value(), "a printed value does not parse");
  baton::check(baton::json::dump(*again) == printed, "a printed value reads back as another");
  return 0;
}
