/// Chains of places that follow equal n-grams.
#include "engine/request/prompt_lookup.h"

#include "core/check.h"

namespace baton {
namespace {

/// Places examined for one proposal. Text that often repeats a short run of tokens has a long chain of them.
constexpr int kMaxLooks = 16;
constexpr std::size_t kFirstChains = 64;

}  // namespace

PromptLookup::PromptLookup(std::int32_t min_len, std::int32_t max_len)
    : min_len_(min_len), max_len_(max_len), newest_(kFirstChains, 0) {
  check(min_len >= 1 && min_len <= max_len, "PromptLookup: the lengths are out of order");
}

std::size_t PromptLookup::chain_of(const TokenId* end) const {
  std::uint64_t hash = 0;
  for (const TokenId* token = end - min_len_; token != end; ++token)
    hash = (hash ^ static_cast<std::uint32_t>(*token)) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>(hash >> 32) & (newest_.size() - 1);
}

void PromptLookup::add(std::span<const TokenId> tokens, std::int32_t place) {
  std::int32_t& newest = newest_[chain_of(tokens.data() + place)];
  older_[static_cast<std::size_t>(place)] = newest;
  newest = place;
}

/// Doubles the number of chains and inserts all places again.
void PromptLookup::grow(std::span<const TokenId> tokens) {
  while (newest_.size() < tokens.size()) newest_.resize(newest_.size() * 2);
  newest_.assign(newest_.size(), 0);
  for (std::int32_t place = min_len_; place < n_seen_; ++place) add(tokens, place);
}

void PromptLookup::follow(std::span<const TokenId> tokens) {
  check(tokens.size() >= static_cast<std::size_t>(n_seen_), "PromptLookup: tokens were taken away");
  if (tokens.size() == static_cast<std::size_t>(n_seen_)) return;
  older_.resize(tokens.size());
  if (tokens.size() > newest_.size()) grow(tokens);
  for (; n_seen_ < static_cast<std::int32_t>(tokens.size()); ++n_seen_) {
    if (n_seen_ >= min_len_) add(tokens, n_seen_);
  }
}

void PromptLookup::propose(std::span<const TokenId> tokens, std::int32_t n, std::vector<TokenId>& out) const {
  const auto len = static_cast<std::int32_t>(tokens.size());
  check(len == n_seen_, "PromptLookup: other tokens than were taken in");
  if (len <= min_len_ || n <= 0) return;
  const TokenId* const end = tokens.data() + len;
  std::int32_t best_place = 0;
  std::int32_t best_len = min_len_ - 1;
  std::int32_t place = newest_[chain_of(end)];
  for (int i = 0; i < kMaxLooks && place > 0 && best_len < max_len_; ++i, place = older_[static_cast<std::size_t>(place)]) {
    const TokenId* const candidate = tokens.data() + place;
    std::int32_t n_equal = 0;
    while (n_equal < max_len_ && n_equal < place && candidate[-1 - n_equal] == end[-1 - n_equal]) ++n_equal;
    if (n_equal <= best_len) continue;
    best_len = n_equal;
    best_place = place;
  }
  if (best_place == 0) return;
  const std::size_t first = out.size();
  for (std::int32_t i = best_place; i < best_place + n; ++i)
    out.push_back(i < len ? tokens[static_cast<std::size_t>(i)] : out[first + static_cast<std::size_t>(i - len)]);
}

}  // namespace baton
