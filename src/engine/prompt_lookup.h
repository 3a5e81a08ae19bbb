/// What followed the last time: tokens proposed from a sequence's own context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace baton {

/// An index of the places of a growing list of tokens, by the `min_len` tokens before each: chains of places with
/// equal hashes, newest first, as LZ77 keeps them. Taking in a token and looking up cost a constant time. Thread:
/// engine only.
class PromptLookup {
 public:
  /// Matches of fewer than `min_len` tokens are none, and of more than `max_len` no better.
  PromptLookup(std::int32_t min_len, std::int32_t max_len);

  /// Takes in what `tokens` has more than at the call before.
  void follow(std::span<const TokenId> tokens);

  /// Appends to `out` the `n` tokens that followed where the end of `tokens` stood before; none if it did not. Of
  /// several such places the one with the longest match counts, and the newest of these. What reaches the end of
  /// `tokens` goes on with what is proposed, so a repetition is carried on. `tokens` are those of the last `follow`.
  void propose(std::span<const TokenId> tokens, std::int32_t n, std::vector<TokenId>& out) const;

 private:
  std::size_t chain_of(const TokenId* end) const;
  void add(std::span<const TokenId> tokens, std::int32_t place);
  void grow(std::span<const TokenId> tokens);

  std::int32_t min_len_;
  std::int32_t max_len_;
  std::int32_t n_seen_ = 0;
  std::vector<std::int32_t> newest_;  ///< of each chain, a power of two of them; 0: none, for no place is before min_len
  std::vector<std::int32_t> older_;   ///< of each place
};

}  // namespace baton
