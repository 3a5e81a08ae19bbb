/// Formulas that all backends compute in the same way, written once for host and device.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define BATON_HOST_DEVICE __host__ __device__
#else
#define BATON_HOST_DEVICE
#endif

namespace baton {

/// Philox4x32-10: four 32-bit random numbers as a function of a key and a counter.
/// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
BATON_HOST_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  auto key_low = static_cast<std::uint32_t>(key);
  auto key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_a = 0xD2511F53ull * counter[0];
    const std::uint64_t product_b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<std::uint32_t>(product_b >> 32) ^ counter[1] ^ key_low, static_cast<std::uint32_t>(product_b),
               static_cast<std::uint32_t>(product_a >> 32) ^ counter[3] ^ key_high, static_cast<std::uint32_t>(product_a)};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

/// Standard Gumbel noise from 32 random bits; at most 16.7.
BATON_HOST_DEVICE inline float gumbel_of_bits(std::uint32_t bits) {
  // With 23 bits and a half the number stays inside (0, 1) in f32.
  const float uniform = (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
  return -std::log(-std::log(uniform));
}

/// The random bits for token ids 4 i to 4 i + 3 when a sequence with this seed generates its n-th token.
BATON_HOST_DEVICE inline std::array<std::uint32_t, 4> bits_of_four_tokens(std::uint64_t seed, std::int32_t n_generated,
                                                                          std::int32_t i) {
  return philox(seed, {static_cast<std::uint32_t>(n_generated), static_cast<std::uint32_t>(i), 0, 0});
}

/// Standard Gumbel noise for token id `token_id` when a sequence with this seed generates its n-th token. argmax(log p
/// + noise) is a sample from p that depends on these arguments only.
BATON_HOST_DEVICE inline float gumbel_noise(std::uint64_t seed, std::int32_t n_generated, std::int32_t token_id) {
  return gumbel_of_bits(bits_of_four_tokens(seed, n_generated, token_id / 4)[static_cast<std::uint32_t>(token_id) % 4]);
}

}  // namespace baton
