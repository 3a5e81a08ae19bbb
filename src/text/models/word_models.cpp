/// The models whose tokens are words: WordPiece and WordLevel.
#include "text/models/word_models.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/split/component.h"

namespace baton {
namespace {

/// The id of the token for unknown words.
Result<TokenId> unk_id_of(const json::Value& model, std::string_view name, const std::string& otherwise,
                          const Vocabulary& vocabulary) {
  BATON_TRY(const std::string unk, component::get_or<std::string>(model, name, "unk_token", otherwise));
  if (const auto id = vocabulary.id_of(unk)) return *id;
  return fail(ErrorCode::invalid_data,
              fmt::format("tokenizer.json: the {} model: unk_token '{}' is not in the vocabulary", name, unk));
}

}  // namespace

Result<WordPiece> WordPiece::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  WordPiece result;
  BATON_TRY(const auto prefix, component::get_or<std::string>(model, "WordPiece", "continuing_subword_prefix", "##"));
  BATON_TRY(const auto most, component::get_or<std::uint64_t>(model, "WordPiece", "max_input_chars_per_word", 100));
  result.max_characters_ = most;
  BATON_TRY(result.vocabulary_, Vocabulary::from_json(model, "WordPiece"));
  BATON_TRY(result.unk_id_, unk_id_of(model, "WordPiece", "[UNK]", result.vocabulary_));
  for (const auto& [token, id] : result.vocabulary_.ids()) {
    if (is_special(token)) continue;
    if (!token.empty()) result.first_.insert(token, id);
    if (token.size() > prefix.size() && token.starts_with(prefix))
      result.later_.insert(std::string_view(token).substr(prefix.size()), id);
  }
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

Result<WordLevel> WordLevel::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  WordLevel result;
  BATON_TRY(result.vocabulary_, Vocabulary::from_json(model, "WordLevel"));
  BATON_TRY(result.unk_id_, unk_id_of(model, "WordLevel", "<unk>", result.vocabulary_));
  result.is_special_.resize(static_cast<std::size_t>(result.vocabulary_.n_ids()));
  for (std::size_t id = 0; id < result.is_special_.size(); ++id)
    result.is_special_[id] = is_special(result.vocabulary_.text_of(static_cast<TokenId>(id)));
  return result;
}

void WordLevel::encode(std::string_view word, std::vector<TokenId>& out) const {
  const TokenId id = vocabulary_.id_of(word).value_or(unk_id_);
  out.push_back(is_special_[static_cast<std::size_t>(id)] ? unk_id_ : id);
}

}  // namespace baton
