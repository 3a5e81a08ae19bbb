/// A set of byte strings, each with a number, that is walked byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton {

/// Strings and their values, as a tree of bytes whose edges lie in one hash table. Thread: any, while no thread
/// inserts.
class ByteTrie {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kRoot = 0;

  ByteTrie() : values_{kNone}, has_children_{false} {}

  /// Gives `key` the value (at least 0), in place of an earlier one.
  void insert(std::string_view key, std::int32_t value);

  /// The node after `node` and `byte`, or kNone.
  std::int32_t child(std::int32_t node, char byte) const {
    if (edges_.empty()) return kNone;
    const Edge& edge = edges_[place_of(key_of(node, byte))];
    return edge.key == kNoEdge ? kNone : edge.child;
  }
  /// Whether a string begins with `byte`: faster than asking for a child of the root.
  bool may_begin(char byte) const { return first_[static_cast<unsigned char>(byte)]; }
  /// The value of the string that leads to `node`, or kNone.
  std::int32_t value(std::int32_t node) const { return values_[static_cast<std::size_t>(node)]; }

  /// Whether a longer string leads through `node`.
  bool has_children(std::int32_t node) const { return has_children_[static_cast<std::size_t>(node)]; }
  /// Bytes of the longest string.
  std::size_t longest_key() const { return longest_key_; }

  struct Match {
    std::size_t length = 0;
    std::int32_t value = kNone;
    std::size_t n_visited = 0;  ///< nodes that were looked at
  };
  /// The longest string that `text` begins with; value kNone if there is none.
  Match longest(std::string_view text) const;

 private:
  struct Edge {
    std::uint64_t key;
    std::int32_t child;
  };
  static constexpr std::uint64_t kNoEdge = ~std::uint64_t{0};

  static std::uint64_t key_of(std::int32_t node, char byte) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 8) | static_cast<unsigned char>(byte);
  }
  std::size_t place_of(std::uint64_t key) const {
    const std::size_t mask = edges_.size() - 1;
    std::size_t at = (key * 0x9E3779B97F4A7C15u) >> 20 & mask;
    while (edges_[at].key != key && edges_[at].key != kNoEdge) at = (at + 1) & mask;
    return at;
  }
  void grow();

  std::vector<Edge> edges_;  // linear probing; the size is 0 or a power of two, at most half of it used
  std::vector<std::int32_t> values_;
  std::vector<bool> has_children_;
  std::size_t longest_key_ = 0;
  std::array<bool, 256> first_{};
};

}  // namespace baton
