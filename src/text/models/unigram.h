/// The Unigram model: cuts a word into the pieces whose scores have the largest sum.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "text/models/byte_trie.h"
#include "text/models/vocabulary.h"

namespace baton {

/// The `model` of a tokenizer.json when it is a Unigram. A run of characters that are no pieces becomes its bytes
/// (byte_fallback), the unknown token, or nothing, in this order of preference. Immutable. Thread: any, each with its
/// own Scratch.
///
/// The best cut is found by dynamic programming over the ends of pieces (Viterbi; Kudo, arXiv:1804.10959, section 3.2).
class Unigram {
 public:
  /// Working memory, kept by one caller between calls to encode.
  class Scratch {
   private:
    friend class Unigram;
    struct Node {
      double score = 0;
      std::size_t begin = kNowhere;  // of the last piece of the best cut that ends here
      TokenId id = -1;
    };
    static constexpr std::size_t kNowhere = ~std::size_t{0};
    std::vector<Node> ends_;
    std::vector<std::size_t> cuts_;
  };

  /// Pieces whose text `is_special` are never produced from text, unless they are single characters. Errors:
  /// invalid_data.
  static Result<Unigram> from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special);

  /// Appends the tokens of `word` (valid UTF-8) to `out`. Time O(n) in its length, times the longest piece's.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out, WorkMeter& meter) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Result<void> read_piece(const json::Value& entry, TokenId id, const std::function<bool(std::string_view)>& is_special);
  bool find_best_cut(std::string_view word, Scratch& scratch, WorkMeter& meter) const;
  void append_piece(std::string_view piece, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  ByteTrie pieces_;
  std::vector<double> scores_;  // by id
  double unk_score_ = 0;        // of one character that is not a piece
  TokenId unk_id_ = -1;
  std::array<TokenId, 256> byte_tokens_{};  // -1 where the vocabulary has no <0xNN>
  bool byte_fallback_ = false;
};

}  // namespace baton
