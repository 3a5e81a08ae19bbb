/// A vocabulary as a tree of bytes, walked in one pass.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace baton::grammar {

/// Special tokens by their text.
using SpecialTokens = std::map<std::string, TokenId, std::less<>>;

/// Tokens with the bytes that they add to a text, the tokens that end a text, and special tokens, which add no bytes.
/// Immutable. Thread: any.
class TokenTrie {
 public:
  /// A node of the tree. Nodes stand in the order of a walk, a node before those below it.
  struct Node {
    std::uint32_t end;      ///< the node after all that are below this one
    std::int32_t tokens;    ///< where in tokens() those begin that end here
    std::uint16_t depth;    ///< bytes from the root
    std::uint16_t deepest;  ///< the largest depth of it and the nodes below it
    std::uint8_t byte;
    std::uint8_t n_tokens;
  };

  /// `bytes[id]`: what a token adds, as Tokenizer::token_bytes says; empty for tokens that are never allowed (special
  /// ones). Tokens of more than kMaxTokenBytes bytes are never allowed either. `ends`: the tokens that end a text.
  /// `special`: tokens that are allowed only where a grammar names them.
  TokenTrie(std::vector<std::string> bytes, std::vector<TokenId> ends, SpecialTokens special = {});

  /// nodes()[0] is the root.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const TokenId> tokens_of(const Node& node) const {
    return {tokens_.data() + node.tokens, static_cast<std::size_t>(node.n_tokens)};
  }
  std::span<const TokenId> ends() const { return ends_; }
  bool is_end(TokenId token) const;
  std::optional<TokenId> special_token(std::string_view text) const;
  int n_vocab() const { return static_cast<int>(bytes_.size()); }
  /// 32-bit words of a mask over the vocabulary; bit `id % 32` of word `id / 32` stands for a token.
  std::size_t n_words() const { return (bytes_.size() + 31) / 32; }
  /// Empty for tokens that are never allowed and ids out of range.
  std::string_view bytes_of(TokenId token) const;

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
  SpecialTokens special_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
};

}  // namespace baton::grammar
