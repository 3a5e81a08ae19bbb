/// The two-way table between token texts and ids.
#include "text/models/vocabulary.h"

#include <fmt/format.h>

namespace baton {

Result<Vocabulary> Vocabulary::from_json(const json::Value& model, std::string_view name) {
  const auto invalid = [&](std::string_view message) {
    return fail(ErrorCode::invalid_data, fmt::format("tokenizer.json: the {} model: {}", name, message));
  };
  const json::Value* vocab = json::find(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return invalid("'vocab' must be an object");
  Vocabulary vocabulary;
  for (auto entry = vocab->begin(); entry != vocab->end(); ++entry) {
    const auto id = json::to_int64(entry.value(), entry.key(), 0, kMaxTokenId);
    if (!id) return invalid("'vocab': " + id.error().message);
    vocabulary.insert(entry.key(), static_cast<TokenId>(*id));
  }
  return vocabulary;
}

bool Vocabulary::insert(std::string_view text, TokenId id) {
  if (id < 0 || id > kMaxTokenId) return false;
  const auto [place, is_new] = ids_.try_emplace(std::string(text), id);
  if (!is_new) return false;
  const auto index = static_cast<std::size_t>(id);
  if (index >= texts_.size()) texts_.resize(index + 1, nullptr);
  if (texts_[index] == nullptr) texts_[index] = &place->first;
  return true;
}

std::optional<TokenId> Vocabulary::id_of(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::string_view Vocabulary::text_of(TokenId id) const {
  return contains(id) ? std::string_view(*texts_[static_cast<std::size_t>(id)]) : std::string_view();
}

bool Vocabulary::contains(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < texts_.size() && texts_[static_cast<std::size_t>(id)] != nullptr;
}

}  // namespace baton
