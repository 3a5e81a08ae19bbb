/// Tests of SentencePiece's compiled map; what the `tokenizers` library does with a larger one is among the goldens.
#include "text/split/charsmap.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string number(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  return bytes;
}

/// A map of "a" alone: its unit lies at 1 ^ 'a', and the value of its leaf at 2.
std::string map_of_a(std::string_view texts, std::uint32_t value) {
  std::vector<std::uint32_t> units(256);
  units[0] = 1u << 10;
  units[1 ^ 'a'] = 'a' | (1u << 8) | (static_cast<std::uint32_t>((1 ^ 'a') ^ 2) << 10);
  units[2] = 0x80000000u | value;
  std::string bytes = number(4 * 256);
  for (const std::uint32_t unit : units) bytes += number(unit);
  return bytes + std::string(texts);
}

TEST(Charsmap, replaces_a_short_cluster_by_what_its_beginning_is_replaced_by) {
  const auto map = Charsmap::from_bytes(map_of_a(std::string_view("no\0yes\0", 7), 3));
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->normalize("", 1000, UnlimitedWork().meter()), "");
  EXPECT_EQ(map->normalize("bab", 1000, UnlimitedWork().meter()), "byesb");
  EXPECT_EQ(map->normalize("a\u0301b", 1000, UnlimitedWork().meter()), "yesb") << "the mark is lost";
  EXPECT_EQ(map->normalize("a\u0301\u0301\u0301", 1000, UnlimitedWork().meter()), "yes\u0301\u0301\u0301")
      << "a cluster of seven bytes";
  EXPECT_EQ(map->normalize(std::string_view("\0a", 2), 1000, UnlimitedWork().meter()), std::string("\0yes", 4));
}

TEST(Charsmap, damaged_maps_are_errors_or_replace_nothing) {
  for (const std::string& bytes :
       {std::string(), std::string("abc"), number(0), number(8) + "1234", number(3) + "abc", map_of_a("\xFF", 0)}) {
    const auto map = Charsmap::from_bytes(bytes);
    ASSERT_FALSE(map);
    EXPECT_EQ(map.error().code, ErrorCode::invalid_data);
  }
  EXPECT_EQ(Charsmap::from_bytes(map_of_a(std::string(1024, 'x'), 1000))->normalize("a", 1000, UnlimitedWork().meter()),
            std::string(24, 'x'));
  EXPECT_EQ(Charsmap::from_bytes(map_of_a("é", 1))->normalize("a", 1000, UnlimitedWork().meter()), "a") << "inside a character";
  EXPECT_EQ(Charsmap::from_bytes(map_of_a("é", 99))->normalize("a", 1000, UnlimitedWork().meter()), "a") << "after the texts";
  EXPECT_EQ(Charsmap::from_bytes(map_of_a("é", 0))->normalize("a", 1000, UnlimitedWork().meter()), "é")
      << "the last zero is missing";
  const std::string far = number(4) + number(0xFFFFFC00u);
  EXPECT_EQ(Charsmap::from_bytes(far)->normalize("a", 1000, UnlimitedWork().meter()), "a") << "a child outside the array";
}

}  // namespace
}  // namespace baton
