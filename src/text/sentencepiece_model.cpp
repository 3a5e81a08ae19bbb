/// SentencePiece's tokenizer.model, through its library.
#include "text/sentencepiece_model.h"

#include <string>

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "core/log.h"
#include "io/file.h"
#include "text/unicode.h"

namespace baton {

SentencePieceModel::SentencePieceModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
    : processor_(std::move(processor)) {}
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;
SentencePieceModel& SentencePieceModel::operator=(SentencePieceModel&&) noexcept = default;
SentencePieceModel::~SentencePieceModel() = default;

Result<SentencePieceModel> SentencePieceModel::load(const std::filesystem::path& file) {
  BATON_TRY(const std::string bytes, read_file(file));
  return from_bytes(bytes, file.string());
}

Result<SentencePieceModel> SentencePieceModel::from_bytes(std::string_view bytes, std::string_view what) {
  SentencePieceModel model(std::make_unique<sentencepiece::SentencePieceProcessor>());
  if (const auto status = model.processor_->LoadFromSerializedProto(bytes); !status.ok())
    return fail(ErrorCode::invalid_data, fmt::format("{}: not a SentencePiece model: {}", what, status.ToString()));
  const int n_pieces = model.processor_->GetPieceSize();
  if (n_pieces == 0 || n_pieces > kMaxTokenId)
    return fail(ErrorCode::invalid_data, fmt::format("{}: {} pieces; 1 to {} are read", what, n_pieces, kMaxTokenId));
  for (TokenId id = 0; id < n_pieces; ++id) {
    const std::string& piece = model.processor_->IdToPiece(id);
    if (!unicode::is_valid_utf8(piece))
      return fail(ErrorCode::invalid_data, fmt::format("{}: piece {} is not UTF-8", what, id));
    model.vocabulary_.insert(piece, id);
  }

  std::vector<std::string> pieces;
  if (model.processor_->Encode("a", &pieces).ok()) model.adds_space_ = !pieces.empty() && pieces.front().starts_with("▁");
  return model;
}

void SentencePieceModel::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<int> ids;
  if (const auto status = processor_->Encode(text, &ids); !status.ok()) {
    log::error("event=sentencepiece_failed text_bytes={} message=\"{}\"", text.size(), status.ToString());
    return;
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

bool SentencePieceModel::is_special(TokenId id) const {
  return vocabulary_.contains(id) && (processor_->IsControl(id) || processor_->IsUnknown(id));
}

TokenId SentencePieceModel::bos() const { return processor_->bos_id(); }
TokenId SentencePieceModel::eos() const { return processor_->eos_id(); }

}  // namespace baton
