/// The tree of a vocabulary's bytes.
#include "grammar/match/token_trie.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "grammar/automaton/nfa.h"

namespace baton::grammar {

TokenTrie::TokenTrie(std::vector<std::string> bytes, std::vector<TokenId> ends, SpecialTokens special)
    : bytes_(std::move(bytes)), ends_(std::move(ends)), special_(std::move(special)) {
  for (const TokenId end : ends_) check(end >= 0 && end < n_vocab(), "a token that ends a text is not in the vocabulary");
  std::erase_if(special_, [&](const auto& token) { return is_end(token.second); });
  for (const auto& [text, id] : special_)
    check(id >= 0 && id < n_vocab() && bytes_[static_cast<std::size_t>(id)].empty(),
          "a special token that adds bytes to a text");
  for (std::size_t id = 0; id < bytes_.size(); ++id)
    if (bytes_[id].size() > static_cast<std::size_t>(kMaxTokenBytes) || is_end(static_cast<TokenId>(id))) bytes_[id].clear();
  std::vector<TokenId> order;
  for (std::size_t id = 0; id < bytes_.size(); ++id)
    if (!bytes_[id].empty()) order.push_back(static_cast<TokenId>(id));
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return bytes_[static_cast<std::size_t>(a)] < bytes_[static_cast<std::size_t>(b)];
  });

  nodes_.push_back({.end = 0, .tokens = 0, .depth = 0, .deepest = 0, .byte = 0, .n_tokens = 0});
  std::vector<std::uint32_t> path{0};  // the nodes of the last token's bytes
  std::string_view last;
  const auto close_to = [&](std::size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      Node& closed = nodes_[path.back()];
      closed.end = static_cast<std::uint32_t>(nodes_.size());
      Node& parent = nodes_[path[path.size() - 2]];
      parent.deepest = std::max(parent.deepest, closed.deepest);
    }
  };
  for (const TokenId id : order) {
    const std::string_view text = bytes_[static_cast<std::size_t>(id)];
    std::size_t shared = std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first - text.begin();
    const bool is_repeated = text == last && nodes_[path.back()].n_tokens < 255;
    close_to(shared);
    for (; shared < text.size(); ++shared) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .tokens = static_cast<std::int32_t>(tokens_.size()),
                        .depth = static_cast<std::uint16_t>(shared + 1),
                        .deepest = static_cast<std::uint16_t>(text.size()),
                        .byte = static_cast<std::uint8_t>(text[shared]),
                        .n_tokens = 0});
    }
    last = text;
    if (text.empty() || (nodes_[path.back()].n_tokens > 0 && !is_repeated)) continue;  // the 256th token of one text
    Node& node = nodes_[path.back()];
    if (node.n_tokens == 0) node.tokens = static_cast<std::int32_t>(tokens_.size());
    ++node.n_tokens;
    tokens_.push_back(id);
  }
  close_to(0);
  nodes_[0].end = static_cast<std::uint32_t>(nodes_.size());
}

bool TokenTrie::is_end(TokenId token) const { return std::find(ends_.begin(), ends_.end(), token) != ends_.end(); }

std::optional<TokenId> TokenTrie::special_token(std::string_view text) const {
  const auto known = special_.find(text);
  return known == special_.end() ? std::nullopt : std::optional(known->second);
}

std::string_view TokenTrie::bytes_of(TokenId token) const {
  return token >= 0 && token < n_vocab() ? std::string_view(bytes_[static_cast<std::size_t>(token)]) : std::string_view();
}

}  // namespace baton::grammar
