/// The tokens of words seen before.
#include "text/models/word_cache.h"

#include <utility>

namespace baton {

namespace {

std::size_t hash_of(std::string_view word) { return std::hash<std::string_view>{}(word); }

}  // namespace

/// The place where `word` is, or the free one where it belongs.
std::size_t WordCache::place_of(std::string_view word, std::size_t hash) const {
  const std::size_t mask = entries_.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const Entry& entry = entries_[at];
    if (entry.n_bytes == 0) return at;
    if (entry.hash == hash && std::string_view(texts_).substr(entry.text, entry.n_bytes) == word) return at;
  }
}

std::optional<std::span<const TokenId>> WordCache::find(std::string_view word) const {
  if (entries_.empty() || word.size() > kMaxWordBytes) return std::nullopt;
  const Entry& entry = entries_[place_of(word, hash_of(word))];
  if (entry.n_bytes == 0) return std::nullopt;
  return std::span(ids_).subspan(entry.ids, entry.n_ids);
}

void WordCache::insert(std::string_view word, std::span<const TokenId> ids) {
  if (word.empty() || word.size() > kMaxWordBytes || n_words_ == kMaxWords) return;
  if (2 * n_words_ >= entries_.size()) {
    std::vector<Entry> old(entries_.empty() ? 64 : 2 * entries_.size());
    std::swap(old, entries_);
    for (const Entry& entry : old)
      if (entry.n_bytes > 0) entries_[place_of(std::string_view(texts_).substr(entry.text, entry.n_bytes), entry.hash)] = entry;
  }
  const std::size_t hash = hash_of(word);
  entries_[place_of(word, hash)] = {hash, static_cast<std::uint32_t>(texts_.size()), static_cast<std::uint32_t>(ids_.size()),
                                    static_cast<std::uint32_t>(ids.size()), static_cast<std::uint32_t>(word.size())};
  texts_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++n_words_;
}

}  // namespace baton
