/// Random bytes in digits and letters, hashes, and the clock.
#include "server/request/stamp.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>

namespace baton {
namespace {

constexpr std::size_t kShortLength = 9;
constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

}  // namespace

std::string new_call_id(bool is_short) {
  constexpr std::size_t kLength = 24;
  std::array<unsigned char, kLength> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  std::string id = is_short ? "" : "call_";
  for (std::size_t i = 0; i < (is_short ? kShortLength : kLength); ++i) id += kLetters[bytes[i] % kLetters.size()];
  return id;
}

std::string short_call_id(std::string_view id) {
  const auto is_letter = [](char c) { return kLetters.find(c) != std::string_view::npos; };
  if (id.size() == kShortLength && std::ranges::all_of(id, is_letter)) return std::string(id);
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a, 64 bits
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::string made;
  for (std::size_t i = 0; i < kShortLength; ++i, hash /= kLetters.size()) made += kLetters[hash % kLetters.size()];
  return made;
}

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace baton
