/// The WordPiece model: takes the longest beginning of a word that the vocabulary has, again and again.
#include "text/models/word_piece.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/split/component.h"

namespace baton {

namespace {

constexpr std::string_view kWordPiece = "tokenizer.json: the WordPiece model: ";

}  // namespace

Result<WordPiece> WordPiece::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  WordPiece result;
  BATON_TRY(const auto prefix, component::get_or<std::string>(model, "WordPiece", "continuing_subword_prefix", "##"));
  BATON_TRY(const auto unk, component::get_or<std::string>(model, "WordPiece", "unk_token", "[UNK]"));
  BATON_TRY(const auto most, component::get_or<std::uint64_t>(model, "WordPiece", "max_input_chars_per_word", 100));
  result.max_characters_ = most;
  const json::Value* vocab = json::find(model, "vocab");
  if (vocab == nullptr || !vocab->is_object())
    return fail(ErrorCode::invalid_data, std::string(kWordPiece) + "'vocab' must be an object");
  for (auto entry = vocab->begin(); entry != vocab->end(); ++entry) {
    const std::string& token = entry.key();
    const auto id = json::to_int64(entry.value(), token, 0, kMaxTokenId);
    if (!id) return fail(ErrorCode::invalid_data, std::string(kWordPiece) + "'vocab': " + id.error().message);
    result.vocabulary_.insert(token, static_cast<TokenId>(*id));
    if (is_special(token)) continue;
    if (!token.empty()) result.first_.insert(token, static_cast<TokenId>(*id));
    if (token.size() > prefix.size() && token.starts_with(prefix))
      result.later_.insert(std::string_view(token).substr(prefix.size()), static_cast<TokenId>(*id));
  }
  const auto unk_id = result.vocabulary_.id_of(unk);
  if (!unk_id) return fail(ErrorCode::invalid_data, fmt::format("{}unk_token '{}' is not in the vocabulary", kWordPiece, unk));
  result.unk_id_ = *unk_id;
  return result;
}

void WordPiece::encode(std::string_view word, std::vector<TokenId>& out, WorkMeter& meter) const {
  const std::size_t n_before = out.size();
  const auto is_first_byte = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  bool is_known = static_cast<std::size_t>(std::ranges::count_if(word, is_first_byte)) <= max_characters_;
  const ByteTrie* tokens = &first_;
  for (std::string_view rest = word; is_known && !rest.empty();) {
    const ByteTrie::Match match = tokens->longest(rest);
    is_known = match.value != ByteTrie::kNone && meter.spend(static_cast<std::int64_t>(match.n_visited));
    if (!is_known) break;
    out.push_back(match.value);
    rest.remove_prefix(match.length);
    tokens = &later_;
  }
  if (is_known) return;
  out.resize(n_before);
  out.push_back(unk_id_);
}

}  // namespace baton
