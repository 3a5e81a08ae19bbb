/// The Unigram model: cuts a word into the pieces whose scores have the largest sum.
#include "text/models/unigram.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "text/split/component.h"
#include "text/split/unicode.h"

namespace baton {

namespace {

constexpr double kUnkPenalty = 10;  // SentencePiece's: an unknown character scores so much below the worst piece
constexpr std::size_t kMaxPieceBytes = 1024;

tl::unexpected<Error> invalid_unigram(std::string message) {
  return fail(ErrorCode::invalid_data, "tokenizer.json: the Unigram model: " + std::move(message));
}

}  // namespace

Result<void> Unigram::read_piece(const json::Value& entry, TokenId id,
                                 const std::function<bool(std::string_view)>& is_special) {
  if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string())
    return invalid_unigram(fmt::format("'vocab'[{}] is not a piece and its score", id));
  const auto score = json::to_double(entry[1], "score", std::numeric_limits<double>::max());
  if (!score) return invalid_unigram(fmt::format("'vocab'[{}]: {}", id, score.error().message));
  const auto& piece = entry[0].get_ref<const std::string&>();
  if (piece.size() > kMaxPieceBytes)
    return invalid_unigram(fmt::format("'vocab'[{}] has {} bytes; at most {} are supported", id, piece.size(), kMaxPieceBytes));
  scores_.push_back(*score);
  if (!vocabulary_.insert(piece, id)) return invalid_unigram(fmt::format("'vocab'[{}]: '{}' is there twice", id, piece));
  const bool is_character =
      !piece.empty() && unicode::is_valid_utf8(piece) && unicode::decode_front(piece).n_bytes == piece.size();
  if (is_character || (!piece.empty() && !is_special(piece))) pieces_.insert(piece, id);
  return {};
}

Result<Unigram> Unigram::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  Unigram unigram;
  const json::Value* vocab = json::find(model, "vocab");
  if (vocab == nullptr || !vocab->is_array() || vocab->empty()) return invalid_unigram("'vocab' must be a list of pieces");
  if (vocab->size() > static_cast<std::size_t>(kMaxTokenId))
    return invalid_unigram(fmt::format("{} pieces; at most {} are read", vocab->size(), kMaxTokenId));
  TokenId id = 0;
  for (const json::Value& entry : *vocab) BATON_TRY_VOID(unigram.read_piece(entry, id++, is_special));
  BATON_TRY(const auto unk_id, component::get_optional<TokenId>(model, "Unigram", "unk_id"));
  if (unk_id && (*unk_id < 0 || *unk_id >= id))
    return invalid_unigram(fmt::format("unk_id is {}; ids are 0 to {}", *unk_id, id - 1));
  unigram.unk_id_ = unk_id.value_or(-1);
  unigram.unk_score_ = std::ranges::min(unigram.scores_) - kUnkPenalty;
  BATON_TRY(unigram.byte_fallback_, component::get_or<bool>(model, "Unigram", "byte_fallback", false));
  for (unsigned byte = 0; byte < 256; ++byte)
    unigram.byte_tokens_[byte] = unigram.vocabulary_.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  return unigram;
}

/// False where the budget is over before the end.
bool Unigram::find_best_cut(std::string_view word, Scratch& scratch, WorkMeter& meter) const {
  auto& ends = scratch.ends_;
  ends.assign(word.size() + 1, {});
  for (std::size_t begin = 0; begin < word.size();) {
    const double score = ends[begin].score;
    const std::size_t n_character = unicode::decode_front(word.substr(begin)).n_bytes;
    const auto offer = [&](std::size_t end, double candidate, TokenId id) {
      Scratch::Node& node = ends[end];
      if (node.begin == Scratch::kNowhere || candidate > node.score) node = {candidate, begin, id};
    };
    bool is_character_known = false;
    std::int32_t node = ByteTrie::kRoot;
    std::size_t end = begin;
    while (end < word.size()) {
      node = pieces_.child(node, word[end++]);
      if (node == ByteTrie::kNone) break;
      const TokenId id = pieces_.value(node);
      if (id == ByteTrie::kNone) continue;
      offer(end, scores_[static_cast<std::size_t>(id)] + score, id);
      is_character_known |= end - begin == n_character;
    }
    if (!meter.spend(1 + static_cast<std::int64_t>((end - begin) / 2))) return false;
    if (!is_character_known) offer(begin + n_character, unk_score_ + score, unk_id_);
    begin += n_character;
  }
  return true;
}

/// `piece` is one of the vocabulary, or a run of characters that are none.
void Unigram::append_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (const ByteTrie::Match known = pieces_.longest(piece); known.length == piece.size()) {
    out.push_back(known.value);
    return;
  }
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::ranges::all_of(piece, [&](char byte) { return token_of(byte) >= 0; })) {
    for (const char byte : piece) out.push_back(token_of(byte));
  } else if (unk_id_ >= 0) {
    out.push_back(unk_id_);
  }
}

void Unigram::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out, WorkMeter& meter) const {
  if (word.empty() || !find_best_cut(word, scratch, meter)) return;
  // From the back: where pieces begin; unknown ones beside each other are one.
  auto& cuts = scratch.cuts_;
  cuts.clear();
  bool is_behind_unknown = false;
  for (std::size_t end = word.size(); end > 0;) {
    const Scratch::Node& node = scratch.ends_[end];
    const bool is_unknown = node.id == unk_id_ && unk_id_ >= 0;
    if (!is_unknown || !is_behind_unknown) cuts.push_back(end);
    is_behind_unknown = is_unknown;
    end = node.begin;
  }
  std::size_t begin = 0;
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    append_piece(word.substr(begin, *cut - begin), out);
    begin = *cut;
  }
}

}  // namespace baton
