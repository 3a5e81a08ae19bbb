/// A fast checksum that finds damaged bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

/// A 64-bit checksum of `bytes` that depends on `seed`. Bytes that differ in one aligned run of 8 have different checksums; any
/// other two texts have equal ones with a probability of about 2^-64. It finds damage, not forgery: it is not cryptographic. The
/// same on every machine.
std::uint64_t damage_checksum(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace baton
