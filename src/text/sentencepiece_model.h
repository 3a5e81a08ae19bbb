/// SentencePiece's tokenizer.model, through its library. Only this file uses the library.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "text/vocabulary.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace baton {

/// A SentencePiece model: its own normaliser, pieces and segmentation. Immutable. Thread: any.
class SentencePieceModel {
 public:
  /// Errors: not_found, io, invalid_data.
  static Result<SentencePieceModel> load(const std::filesystem::path& file);
  static Result<SentencePieceModel> from_bytes(std::string_view bytes, std::string_view what);

  SentencePieceModel(SentencePieceModel&&) noexcept;
  SentencePieceModel& operator=(SentencePieceModel&&) noexcept;
  ~SentencePieceModel();

  /// Appends the ids of `text` (valid UTF-8) to `out`. Control pieces (<s>, </s>) are never produced from text.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// A control piece or the unknown one.
  bool is_special(TokenId id) const;
  /// Whether the model puts a space before the text (its dummy prefix), which decoding takes away.
  bool adds_space() const { return adds_space_; }
  TokenId bos() const;  ///< -1 where there is none
  TokenId eos() const;

 private:
  explicit SentencePieceModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor);

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Vocabulary vocabulary_;
  bool adds_space_ = false;
};

}  // namespace baton
