/// The tokens of words seen before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace baton {

/// A bounded table from words to their ids; when it is full it keeps what it has. Thread: one at a time.
class WordCache {
 public:
  /// Longer words do not repeat, so they are not kept.
  static constexpr std::size_t kMaxWordBytes = 64;
  static constexpr std::size_t kMaxWords = 16384;

  /// The ids of `word`; nullopt where it was not inserted. Valid until the next insert.
  std::optional<std::span<const TokenId>> find(std::string_view word) const;
  /// Keeps a copy, unless the word is too long or the table is full. The word must not be in it.
  void insert(std::string_view word, std::span<const TokenId> ids);

 private:
  struct Entry {
    std::size_t hash = 0;
    std::uint32_t text = 0;  // where the word begins in texts_, and its ids in ids_
    std::uint32_t ids = 0;
    std::uint32_t n_ids = 0;
    std::uint32_t n_bytes = 0;  // 0: the place is free
  };

  std::size_t place_of(std::string_view word, std::size_t hash) const;

  std::vector<Entry> entries_;  // linear probing; the size is 0 or a power of two, at most half of it used
  std::size_t n_words_ = 0;
  std::string texts_;
  std::vector<TokenId> ids_;
};

}  // namespace baton
