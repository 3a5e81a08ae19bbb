/// Which changes the checksum must find (io/checksum.h).
#include "io/checksum.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<std::byte> pattern(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 7);
  return bytes;
}

TEST(DamageChecksum, finds_every_changed_byte_at_every_length) {
  for (const std::size_t n : {1U, 7U, 8U, 31U, 32U, 33U, 64U, 100U, 257U}) {
    std::vector<std::byte> bytes = pattern(n);
    const std::uint64_t whole = damage_checksum(bytes, 1);
    for (std::size_t at = 0; at < n; ++at)
      for (const int bit : {1, 16, 128, 255}) {
        bytes[at] ^= static_cast<std::byte>(bit);
        EXPECT_NE(damage_checksum(bytes, 1), whole) << at << " of " << n;
        bytes[at] ^= static_cast<std::byte>(bit);
      }
    EXPECT_EQ(damage_checksum(bytes, 1), whole);
    EXPECT_NE(damage_checksum(bytes, 2), whole) << "another seed";
  }
}

TEST(DamageChecksum, tells_lengths_apart_and_words_that_changed_places) {
  const std::vector<std::byte> zeros(200);
  std::set<std::uint64_t> sums;
  for (std::size_t n = 0; n <= zeros.size(); ++n) sums.insert(damage_checksum(std::span(zeros).first(n), 0));
  EXPECT_EQ(sums.size(), zeros.size() + 1);

  std::vector<std::byte> bytes = pattern(256);
  const std::uint64_t whole = damage_checksum(bytes, 0);
  for (std::size_t a = 0; a < 32; ++a)
    for (std::size_t b = a + 1; b < 32; ++b) {
      const auto swap = [&] {
        for (std::size_t i = 0; i < 8; ++i) std::swap(bytes[a * 8 + i], bytes[b * 8 + i]);
      };
      swap();
      EXPECT_NE(damage_checksum(bytes, 0), whole) << a << " and " << b;
      swap();
    }
}

TEST(DamageChecksum, is_the_same_on_every_machine) {
  EXPECT_EQ(damage_checksum(pattern(1000), 42), 3928134810478438912ULL);
  EXPECT_EQ(damage_checksum({}, 0), 2168802763492945556ULL);
}

}  // namespace
}  // namespace baton
