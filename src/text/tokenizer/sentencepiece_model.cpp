/// SentencePiece's tokenizer.model, through its library.
#include "text/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cstddef>
#include <exception>

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "core/log.h"
#include "io/file.h"
#include "text/split/unicode.h"

namespace baton {
namespace {

constexpr std::string_view kSpace = "▁";  // a space, as pieces spell it

/// A serialised ModelProto {normalizer_spec {add_dummy_prefix: false}}. After another one it overrides that field
/// alone, because Protocol Buffers merge a message that comes twice.
constexpr std::string_view kWithoutDummyPrefix{"\x1a\x02\x18\x00", 4};

std::string with_plain_spaces(std::string_view text) {
  std::string plain;
  while (true) {
    const std::size_t at = text.find(kSpace);
    plain += text.substr(0, at);
    if (at == std::string_view::npos) return plain;
    plain += ' ';
    text.remove_prefix(at + kSpace.size());
  }
}

/// Hands a serialised model to the library, which throws at some damaged ones (a piece that begins with a zero byte).
Result<void> parse_model(sentencepiece::SentencePieceProcessor& processor, const std::string& serialized,
                         std::string_view what) {
  std::string error;
  try {
    const auto status = processor.LoadFromSerializedProto(serialized);
    if (status.ok()) return {};
    error = status.ToString();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  return fail(ErrorCode::invalid_data, fmt::format("{}: not a SentencePiece model: {}", what, error));
}

}  // namespace

SentencePieceModel::SentencePieceModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
                                       SentencePieceOptions options)
    : processor_(std::move(processor)), options_(options) {}
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;
SentencePieceModel& SentencePieceModel::operator=(SentencePieceModel&&) noexcept = default;
SentencePieceModel::~SentencePieceModel() = default;

Result<SentencePieceModel> SentencePieceModel::load(const std::filesystem::path& file, SentencePieceOptions options) {
  BATON_TRY(const std::string bytes, read_file(file));
  return from_bytes(bytes, file.string(), options);
}

Result<SentencePieceModel> SentencePieceModel::from_bytes(std::string_view bytes, std::string_view what,
                                                          SentencePieceOptions options) {
  SentencePieceModel model(std::make_unique<sentencepiece::SentencePieceProcessor>(), options);
  std::string serialized(bytes);
  if (!options.is_legacy) serialized += kWithoutDummyPrefix;
  BATON_TRY_VOID(parse_model(*model.processor_, serialized, what));
  const int n_pieces = model.processor_->GetPieceSize();
  if (n_pieces == 0 || n_pieces > kMaxTokenId)
    return fail(ErrorCode::invalid_data, fmt::format("{}: {} pieces; 1 to {} are read", what, n_pieces, kMaxTokenId));
  for (TokenId id = 0; id < n_pieces; ++id) {
    const std::string& piece = model.processor_->IdToPiece(id);
    if (!unicode::is_valid_utf8(piece))
      return fail(ErrorCode::invalid_data, fmt::format("{}: piece {} is not UTF-8", what, id));
    if (!model.vocabulary_.insert(piece, id))
      return fail(ErrorCode::invalid_data,
                  fmt::format("{}: pieces {} and {} have the same text", what, *model.vocabulary_.id_of(piece), id));
  }

  if (!options.is_legacy) {
    model.adds_space_ = options.adds_prefix_space;
    model.dropped_space_ = model.vocabulary_.id_of(kSpace).value_or(-1);
    if (const int id = model.processor_->unk_id(); id >= 0) model.guard_ = model.processor_->IdToPiece(id);
    model.n_guard_ids_ = model.ids_of(model.guard_).size();
    return model;
  }
  std::vector<std::string> pieces;
  if (model.processor_->Encode("a", &pieces).ok()) model.adds_space_ = !pieces.empty() && pieces.front().starts_with(kSpace);
  return model;
}

std::vector<TokenId> SentencePieceModel::ids_of(std::string_view text) const {
  std::vector<TokenId> ids;
  if (const auto status = processor_->Encode(text, &ids); !status.ok()) {
    log::error("event=sentencepiece_failed text_bytes={} message=\"{}\"", text.size(), status.ToString());
    ids.clear();
  }
  return ids;
}

void SentencePieceModel::encode(std::string_view text, bool begins_input, std::vector<TokenId>& out) const {
  if (options_.is_legacy) {
    const std::vector<TokenId> ids = ids_of(text);
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  std::string spelled(begins_input && options_.adds_prefix_space ? kSpace : "");
  spelled += with_plain_spaces(text);
  // A model may remove white space at the beginning, so a space stands after a word whose ids are left out.
  const bool has_space = spelled.starts_with(kSpace) || spelled.starts_with(' ');
  const std::vector<TokenId> ids = ids_of(has_space ? guard_ + spelled : spelled);
  const std::size_t n_left_out = has_space ? std::min(n_guard_ids_, ids.size()) : 0;
  out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(n_left_out), ids.end());
}

bool SentencePieceModel::is_special(TokenId id) const {
  return vocabulary_.contains(id) && (processor_->IsControl(id) || processor_->IsUnknown(id));
}

TokenId SentencePieceModel::bos() const { return processor_->bos_id(); }
TokenId SentencePieceModel::eos() const { return processor_->eos_id(); }

}  // namespace baton
