/// Counts how often a sequence has generated each token, for penalties.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "kernels/batch.h"

namespace baton {

/// Counts for a growing list of tokens; each token is visited once. Thread: engine only.
class TokenCounts {
 public:
  /// Counts the tokens that are new since the last call. If `lists_prompt`, a token of the first `prompt_len` is
  /// listed with count 0.
  void follow(std::span<const TokenId> tokens, std::int32_t prompt_len, bool lists_prompt) {
    for (; n_seen_ < tokens.size(); ++n_seen_) {
      const bool is_prompt = n_seen_ < static_cast<std::size_t>(prompt_len);
      if (is_prompt && !lists_prompt) continue;
      const TokenId id = tokens[n_seen_];
      const auto [place, is_new] = places_.try_emplace(id, counts_.size());
      if (is_new) counts_.push_back({id, 0});
      if (!is_prompt) ++counts_[place->second].count;
    }
  }
  /// The list as it would be after generating `more`.
  std::vector<TokenCount> list_with(std::span<const TokenId> more) const {
    std::vector<TokenCount> counts = counts_;
    for (const TokenId id : more) {
      const auto place = places_.find(id);
      // A token that is not listed yet may be among the new ones at the end.
      const auto first = static_cast<std::ptrdiff_t>(place != places_.end() ? place->second : counts_.size());
      const auto at =
          std::find_if(counts.begin() + first, counts.end(), [id](const TokenCount& count) { return count.id == id; });
      if (at == counts.end())
        counts.push_back({id, 1});
      else
        ++at->count;
    }
    return counts;
  }
  /// Each listed token once, in order of first occurrence.
  std::span<const TokenCount> list() const { return counts_; }

 private:
  std::vector<TokenCount> counts_;
  std::unordered_map<TokenId, std::size_t> places_;
  std::size_t n_seen_ = 0;
};

}  // namespace baton
