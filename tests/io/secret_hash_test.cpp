/// Texts that collide in a known hash, under the secret one (io/secret_hash.h).
#include "io/secret_hash.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"

namespace baton {
namespace {

/// Printable keys of 16 bytes that std::hash of libstdc++ (64-bit Murmur 2 with a fixed seed) gives one value.
std::vector<std::string> keys_of_one_hash(std::size_t n) {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995;
  std::uint64_t inverse = 1;  // of the factor, modulo 2^64, by Newton's iteration
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  const auto mixed = [](std::uint64_t x) { return x ^ (x >> 47); };  // its own inverse
  const auto is_plain = [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
  std::vector<std::string> keys;
  for (std::uint64_t count = 0; keys.size() < n; ++count) {
    std::uint64_t first = 0;
    for (int i = 0; i < 8; ++i) first |= ('a' + ((count >> (4 * i)) & 15)) << (8 * i);
    // The state after the first eight bytes; the second eight bring every key to the same one.
    const std::uint64_t state = ((0xc70f6907 ^ (16 * kFactor)) ^ (mixed(first * kFactor) * kFactor)) * kFactor;
    const std::uint64_t second = mixed((state ^ 12345) * inverse) * inverse;
    if ((second & 0x8080808080808080) != 0) continue;
    std::string key(16, ' ');
    std::memcpy(key.data(), &first, 8);
    std::memcpy(key.data() + 8, &second, 8);
    if (std::ranges::all_of(key, is_plain)) keys.push_back(key);
  }
  return keys;
}

TEST(SecretHash, tells_texts_apart_that_collide_in_a_known_hash) {
  const std::vector<std::string> crafted = keys_of_one_hash(4'000);
#ifdef __GLIBCXX__
  for (const std::string& key : crafted) ASSERT_EQ(std::hash<std::string>{}(key), std::hash<std::string>{}(crafted[0]));
#endif
  std::set<std::size_t> hashes;
  for (const std::string& key : crafted) hashes.insert(SecretHash{}(key));
  EXPECT_EQ(hashes.size(), crafted.size());
}

TEST(SecretHash, is_the_same_for_equal_texts_and_another_for_a_zero_byte_more) {
  using namespace std::string_literals;
  EXPECT_EQ(SecretHash{}("a key longer than a digit"s), SecretHash{}("a key longer than a digit"s));
  const std::vector<std::string> texts{""s, "\0"s, "\0\0"s, "a"s, "a\0"s, "1234567"s, "1234567\0"s, "12345678"s};
  std::set<std::size_t> hashes;
  for (const std::string& text : texts) hashes.insert(SecretHash{}(text));
  EXPECT_EQ(hashes.size(), texts.size());
}

TEST(SecretHash, leaves_all_members_in_objects_of_such_keys) {
  const std::vector<std::string> crafted = keys_of_one_hash(4'000);
  std::string text = "{";
  for (const std::string& key : crafted) text += (text.size() > 1 ? ",\"" : "\"") + key + "\":1";
  const auto object = json::parse(text + "}", "the text");
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->size(), crafted.size());
}

}  // namespace
}  // namespace baton
