/// The WordLevel model: each word is a token.
#include "text/models/word_level.h"

#include <string>

#include <fmt/format.h>

#include "text/split/component.h"

namespace baton {

namespace {

constexpr std::string_view kWordLevel = "tokenizer.json: the WordLevel model: ";

}  // namespace

Result<WordLevel> WordLevel::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  WordLevel result;
  BATON_TRY(const auto unk, component::get_or<std::string>(model, "WordLevel", "unk_token", "<unk>"));
  const json::Value* vocab = json::find(model, "vocab");
  if (vocab == nullptr || !vocab->is_object())
    return fail(ErrorCode::invalid_data, std::string(kWordLevel) + "'vocab' must be an object");
  for (auto entry = vocab->begin(); entry != vocab->end(); ++entry) {
    const auto id = json::to_int64(entry.value(), entry.key(), 0, kMaxTokenId);
    if (!id) return fail(ErrorCode::invalid_data, std::string(kWordLevel) + "'vocab': " + id.error().message);
    result.vocabulary_.insert(entry.key(), static_cast<TokenId>(*id));
  }
  const auto unk_id = result.vocabulary_.id_of(unk);
  if (!unk_id) return fail(ErrorCode::invalid_data, fmt::format("{}unk_token '{}' is not in the vocabulary", kWordLevel, unk));
  result.unk_id_ = *unk_id;
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
