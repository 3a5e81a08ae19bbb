/// Four lanes of 64 bits, so that the multiplications of one do not wait for those of another.
#include "io/damage_checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "damage_checksum reads words as the machine stores them");

constexpr std::size_t kLanes = 4;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::size_t kStripeBytes = kLanes * kWordBytes;
/// Odd, so that multiplying by them is a bijection of 64-bit words.
constexpr std::uint64_t kFactor = 0x9fb21c651e98df25;
constexpr std::array<std::uint64_t, kLanes> kStarts = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                                       0x589965cc75374cc3};

/// A bijection of `lane` for every word, and of `word` for every lane.
constexpr std::uint64_t absorb(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane ^ word, 29) * kFactor; }

constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= kFactor;
  x ^= x >> 29;
  x *= kFactor;
  return x ^ (x >> 32);
}

}  // namespace

std::uint64_t damage_checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, kLanes> lanes = kStarts;
  const auto absorb_stripe = [&lanes](const std::byte* at) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), at, kStripeBytes);
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = absorb(lanes[lane], words[lane]);
  };
  std::size_t at = 0;
  for (; bytes.size() - at >= kStripeBytes; at += kStripeBytes) absorb_stripe(bytes.data() + at);
  std::array<std::byte, kStripeBytes> rest = {};
  std::ranges::copy(bytes.subspan(at), rest.begin());
  absorb_stripe(rest.data());
  std::uint64_t sum = mix(seed ^ static_cast<std::uint64_t>(bytes.size()) * kFactor);
  for (const std::uint64_t lane : lanes) sum = mix(std::rotl(sum, 17) ^ lane);
  return sum;
}

}  // namespace baton
