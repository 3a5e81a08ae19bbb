/// SplitMix64: numbers that look random, as a function of a key and an index.
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
#pragma once

#include <cstdint>

namespace baton {

/// Mixes all bits of `x`; different arguments give different results.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Output `index` of the generator whose seed is `key`.
constexpr std::uint64_t split_mix(std::uint64_t key, std::uint64_t index) {
  return mix_bits(key + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

}  // namespace baton
