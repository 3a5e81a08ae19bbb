/// Prompt lookup: proposes tokens that followed the same n-gram earlier in a sequence's own context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace baton {

/// An index of the places in a growing list of tokens, by the `min_len` tokens before each: chains of places with
/// equal hashes, newest first, as in LZ77. Adding a token and looking up take constant time. Thread: engine only.
class PromptLookup {
 public:
  /// A match needs at least `min_len` tokens; tokens beyond `max_len` do not make it better.
  PromptLookup(std::int32_t min_len, std::int32_t max_len);

  /// Adds the tokens that are new since the last call.
  void follow(std::span<const TokenId> tokens);

  /// Appends to `out` the `n` tokens that followed an earlier occurrence of the end of `tokens`; nothing if there is
  /// none. Of several occurrences it takes the longest match and, among these, the newest. A proposal that reaches the
  /// end of `tokens` continues with itself, so a repetition continues. `tokens` must be those of the last `follow`.
  void propose(std::span<const TokenId> tokens, std::int32_t n, std::vector<TokenId>& out) const;

 private:
  std::size_t chain_of(const TokenId* end) const;
  void add(std::span<const TokenId> tokens, std::int32_t place);
  void grow(std::span<const TokenId> tokens);

  std::int32_t min_len_;
  std::int32_t max_len_;
  std::int32_t n_seen_ = 0;
  std::vector<std::int32_t> newest_;  ///< of each chain (a power of two of them); 0: empty, as places are >= min_len
  std::vector<std::int32_t> older_;   ///< of each place
};

}  // namespace baton
