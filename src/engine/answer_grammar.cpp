/// Follows an answer through its grammar.
#include "engine/answer_grammar.h"

#include <algorithm>
#include <utility>

namespace baton {

AnswerGrammar::AnswerGrammar(std::shared_ptr<const Constraint> constraint, std::span<const TokenId> stop_ids)
    : constraint_(std::move(constraint)) {
  for (const TokenId end : matcher().vocabulary().ends())
    if (std::ranges::find(stop_ids, end) == stop_ids.end()) forbidden_ends_.push_back(end);
  if (constraint_->begins_behind.empty()) place_ = {true, matcher().start()};
}

bool AnswerGrammar::advance(Place& place, TokenId token) const {
  if (place.has_begun) return matcher().accept(place.state, token);
  if (std::ranges::find(constraint_->begins_behind, token) != constraint_->begins_behind.end())
    place = {true, matcher().start()};
  return true;
}

std::size_t AnswerGrammar::n_allowed(std::span<const TokenId> drafts) const {
  Place place = place_;
  const auto refused = std::ranges::find_if(drafts, [&](TokenId draft) { return !advance(place, draft); });
  return static_cast<std::size_t>(refused - drafts.begin());
}

const std::vector<TokenId>& AnswerGrammar::forced_tokens() {
  if (forced_tokens_) return *forced_tokens_;
  forced_tokens_.emplace();
  if (place_.has_begun && has_drafts())
    *forced_tokens_ = matcher().forced_tokens(place_.state, kMaxDraftTokens, constraint_->encode);
  return *forced_tokens_;
}

}  // namespace baton
