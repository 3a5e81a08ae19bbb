/// Two 64-bit lanes, each mixed by one bijection for every word. The hash is not cryptographic; callers compare tokens
/// too.
#include "engine/cache/block_hash.h"

#include <bit>
#include <string_view>

#include "core/check.h"

namespace baton {
namespace {

/// A bijection of 64-bit words in which every input bit affects every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xe9846af9b1a615dULL;
  x ^= x >> 32;
  x *= 0xe9846af9b1a615dULL;
  x ^= x >> 28;
  return x;
}

class Hasher {
 public:
  explicit Hasher(BlockHash start) : state_(start) {}

  void add(std::uint64_t word) {
    state_.high = mix(state_.high + word + 0x9e3779b97f4a7c15ULL);
    state_.low = mix((state_.low ^ std::rotl(word, 32)) + 0xd1b54a32d192ed03ULL);
  }
  void add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    for (const char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  }
  BlockHash value() const { return state_; }

 private:
  BlockHash state_;
};

}  // namespace

void extend_hashes(const CacheScope& scope, std::span<const TokenId> tokens, std::int32_t block_len,
                   std::vector<BlockHash>& hashes) {
  check(block_len > 0, "extend_hashes: the block length must be positive");
  const auto len = static_cast<std::size_t>(block_len);
  if (hashes.size() >= tokens.size() / len) return;

  Hasher salt{BlockHash{1, 2}};
  salt.add(std::string_view(scope.salt));
  for (std::size_t block = hashes.size(); block < tokens.size() / len; ++block) {
    Hasher hasher{block == 0 ? BlockHash{} : hashes.back()};
    if (block == 0) hasher.add(std::string_view(scope.adapter));
    const bool is_salted = is_salted_block(scope, block, block_len);
    hasher.add(is_salted ? salt.value().high : 0);
    hasher.add(is_salted ? salt.value().low : 0);
    for (std::size_t i = 0; i < len; ++i) {
      hasher.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(tokens[block * len + i])));
    }
    hashes.push_back(hasher.value());
  }
}

}  // namespace baton
