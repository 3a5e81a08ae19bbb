/// Random bytes in hexadecimal digits, and the clock.
#include "server/request/stamp.h"

#include <array>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>

namespace baton {

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace baton
