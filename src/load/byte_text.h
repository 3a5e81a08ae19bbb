/// Numbers of bytes as people read them.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace baton {

/// "9999 bytes", "10.0 kB", "10.0 MB", "10.0 GB": powers of 1000, with three to five digits.
inline std::string byte_text(std::int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", number / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", number / 1e6);
  return fmt::format("{:.1f} GB", number / 1e9);
}

}  // namespace baton
