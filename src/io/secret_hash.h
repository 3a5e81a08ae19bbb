/// A hash of texts that strangers choose.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace baton {

/// The text as the digits of a number in a secret base, modulo the prime 2^61 - 1. Two given texts of up to n bytes
/// have the same hash for at most n of the 2^61 bases, so that no client can choose keys that collide, as for a hash
/// that is known. Source: Carter and Wegman, Universal classes of hash functions, 1979.
struct SecretHash {
  std::size_t operator()(std::string_view text) const {
    static const std::uint64_t base = secret_base();
    std::uint64_t hash = 1;
    for (std::size_t at = 0; at < text.size(); at += kDigitBytes) {
      std::uint64_t digit = 0;
      std::memcpy(&digit, text.data() + at, std::min(kDigitBytes, text.size() - at));
      hash = reduced(static_cast<Wide>(hash) * base + digit);
    }
    return reduced(static_cast<Wide>(hash) * base + text.size());
  }

 private:
  using Wide = unsigned __int128;
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
  static constexpr std::size_t kDigitBytes = 7;

  static std::uint64_t reduced(Wide number) {
    const std::uint64_t sum = static_cast<std::uint64_t>(number & kPrime) + static_cast<std::uint64_t>(number >> 61);
    return sum >= kPrime ? sum - kPrime : sum;
  }
  static std::uint64_t secret_base() {
    std::random_device random;
    return ((static_cast<std::uint64_t>(random()) << 32) | random()) % kPrime;
  }
};

}  // namespace baton
