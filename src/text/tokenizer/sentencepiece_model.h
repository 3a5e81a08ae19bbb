/// SentencePiece's tokenizer.model, through its library. Only this file uses the library.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "text/models/vocabulary.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace baton {

/// How a text begins, as in Transformers' LlamaTokenizer.
struct SentencePieceOptions {
  /// Each run of text between special tokens is a text of its own, so the model puts its space in front of each.
  /// Otherwise only the beginning of the input gets one.
  bool is_legacy = true;
  bool adds_prefix_space = true;  ///< if not legacy: whether the beginning of the input gets a space
};

/// A SentencePiece model: its own normaliser, pieces and segmentation. Immutable. Thread: any.
class SentencePieceModel {
 public:
  /// Errors: not_found, io, invalid_data.
  static Result<SentencePieceModel> load(const std::filesystem::path& file, SentencePieceOptions options);
  static Result<SentencePieceModel> from_bytes(std::string_view bytes, std::string_view what, SentencePieceOptions options);

  SentencePieceModel(SentencePieceModel&&) noexcept;
  SentencePieceModel& operator=(SentencePieceModel&&) noexcept;
  ~SentencePieceModel();

  /// Appends the ids of `text` (valid UTF-8), a run between special tokens, to `out`. `begins_input`: nothing stands
  /// before it. Control pieces (<s>, </s>) are never produced from text.
  void encode(std::string_view text, bool begins_input, std::vector<TokenId>& out) const;

  /// The space piece that is left out if it begins the input and a special token follows; -1: none.
  TokenId dropped_space() const { return dropped_space_; }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Whether the piece is a control piece or the unknown piece.
  bool is_special(TokenId id) const;
  /// Whether the beginning of the input gets a space, which decoding takes away.
  bool adds_space() const { return adds_space_; }
  TokenId bos() const;  ///< -1 where there is none
  TokenId eos() const;

 private:
  SentencePieceModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor, SentencePieceOptions options);
  std::vector<TokenId> ids_of(std::string_view text) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  SentencePieceOptions options_;
  Vocabulary vocabulary_;
  bool adds_space_ = false;
  TokenId dropped_space_ = -1;
  std::string guard_;            // text that protects the space after it, see encode
  std::size_t n_guard_ids_ = 0;  // its ids
};

}  // namespace baton
