/// The two-way table between token texts and ids.
#include "text/models/vocabulary.h"

namespace baton {

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
