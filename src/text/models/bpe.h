/// Byte-pair encoding: turns a word into tokens by merging pairs of neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/ids.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "text/models/vocabulary.h"

namespace baton {

/// The `model` of a tokenizer.json when it is a BPE: characters, then merges by rank, leftmost first. Characters that
/// are not in the vocabulary become their bytes (byte_fallback), the unknown token, or nothing, in this order of
/// preference. The last character of a word is looked up with end_of_word_suffix after it, all but the first with
/// continuing_subword_prefix in front. Immutable. Thread: any, each with its own Scratch.
class Bpe {
  struct Merge {
    std::uint64_t pair;
    std::uint32_t rank;
    TokenId merged;
  };

 public:
  /// Working memory, kept by one caller between calls to encode.
  class Scratch {
   private:
    friend class Bpe;
    struct Symbol {
      TokenId id;
      std::int32_t previous;
      std::int32_t next;  // -1 at the end, kDead when merged away
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t position;
      TokenId merged;
      /// The order is reversed, because heaps put their largest element first.
      bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : position > other.position;
      }
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    std::vector<const Merge*> merges_;
    std::string character_;
  };

  /// Tokens whose text `is_special` are never produced from text, unless they are single characters. Errors:
  /// invalid_data; unsupported, with the option's name (dropout).
  static Result<Bpe> from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special);

  /// The encoding of tiktoken: neighbours whose bytes together are a token are merged, the smallest id first, and a
  /// word that is a token stays whole. `tokens` spell bytes by GPT-2's characters and get the ids from `first_id`.
  /// Errors: invalid_data for a token that occurs twice or an id over kMaxTokenId.
  static Result<Bpe> from_ranks(std::span<const std::string> tokens, TokenId first_id);

  /// The first place after the byte `from` of `word` (valid UTF-8) over which no merge reaches, so that encoding what
  /// is before and after it gives the same tokens: a text that was not cut into words falls into words that repeat. The
  /// length of `word` where there is none.
  std::size_t next_cut(std::string_view word, std::size_t from) const;

  /// Appends the tokens of `word` (valid UTF-8) to `out`. Time O(n log n) in its length.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out, WorkMeter& meter) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  static constexpr std::int32_t kDead = -2;

  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
  }

  static TokenId left_of(std::uint64_t pair) { return static_cast<TokenId>(pair >> 32); }
  static TokenId right_of(std::uint64_t pair) { return static_cast<TokenId>(pair & 0xFFFFFFFFu); }

  Result<void> read_options(const json::Value& model);
  Result<void> read_merges(const json::Value& model, const std::function<bool(std::string_view)>& is_special);
  Result<std::optional<Merge>> read_merge(const json::Value& value, std::uint32_t rank) const;
  const Merge* find_merge(TokenId left, TokenId right) const;
  Merge& place_of(std::uint64_t pair);

  void prepare();
  void add_joint(std::string_view left, std::string_view right);
  std::optional<TokenId> id_of_character(std::string_view character) const;
  void split_characters(std::string_view word, Scratch& scratch, WorkMeter& meter) const;
  void merge_few(Scratch& scratch) const;
  void merge_many(Scratch& scratch, WorkMeter& meter) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;  // a hash table with linear probing; its size is a power of two, at most half of it used
  std::vector<bool> is_special_;
  std::array<TokenId, 256> byte_tokens_{};    // -1 where the vocabulary has no <0xNN>
  std::array<TokenId, 512> characters_{};     // of the first characters of Unicode; -1 where they are no tokens
  std::unordered_set<std::uint64_t> joints_;  // last character of a merge's left side << 32 | first one of its right side
  std::string prefix_;                        // continuing_subword_prefix
  std::string suffix_;                        // end_of_word_suffix
  std::string unk_token_;
  TokenId unk_id_ = -1;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace baton
