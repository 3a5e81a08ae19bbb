/// A set of byte strings, each with a number, that is walked byte by byte.
#include "text/models/byte_trie.h"

#include <algorithm>
#include <utility>

namespace baton {

void ByteTrie::grow() {
  std::vector<Edge> old(std::max<std::size_t>(16, 2 * edges_.size()), Edge{kNoEdge, kNone});
  std::swap(old, edges_);
  for (const Edge& edge : old)
    if (edge.key != kNoEdge) edges_[place_of(edge.key)] = edge;
}

void ByteTrie::insert(std::string_view key, std::int32_t value) {
  std::int32_t node = kRoot;
  longest_key_ = std::max(longest_key_, key.size());
  if (!key.empty()) first_[static_cast<unsigned char>(key[0])] = true;
  for (const char byte : key) {
    std::int32_t next = child(node, byte);
    if (next == kNone) {
      if (2 * values_.size() > edges_.size()) grow();  // one edge leads to each node but the root
      next = static_cast<std::int32_t>(values_.size());
      edges_[place_of(key_of(node, byte))] = {key_of(node, byte), next};
      values_.push_back(kNone);
      has_children_.push_back(false);
      has_children_[static_cast<std::size_t>(node)] = true;
    }
    node = next;
  }
  values_[static_cast<std::size_t>(node)] = value;
}

ByteTrie::Match ByteTrie::longest(std::string_view text) const {
  Match match;
  std::int32_t node = kRoot;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    match.n_visited = i + 1;
    if (node == kNone) break;
    if (value(node) == kNone) continue;
    match.length = i + 1;
    match.value = value(node);
  }
  return match;
}

}  // namespace baton
