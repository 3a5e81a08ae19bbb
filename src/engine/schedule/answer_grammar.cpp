/// Follows an answer through its grammar.
#include "engine/schedule/answer_grammar.h"

#include <algorithm>
#include <utility>

namespace baton {

AnswerGrammar::AnswerGrammar(std::shared_ptr<const Constraint> constraint, std::span<const TokenId> stop_ids)
    : constraint_(std::move(constraint)) {
  for (const TokenId end : matcher().vocabulary().ends())
    if (std::ranges::find(stop_ids, end) == stop_ids.end()) forbidden_ends_.push_back(end);
  if (constraint_->begins_behind.empty()) place_ = {true, matcher().start()};
}

grammar::Accepted AnswerGrammar::advance(Place& place, TokenId token, grammar::AcceptProgress& progress,
                                         grammar::MatcherWork& work) const {
  if (place.has_begun) return matcher().accept(place.state, token, progress, work);
  if (std::ranges::find(constraint_->begins_behind, token) != constraint_->begins_behind.end())
    place = {true, matcher().start()};
  return grammar::Accepted::yes;
}

grammar::Accepted AnswerGrammar::advance(Place& place, TokenId token, grammar::MatcherWork& work) const {
  grammar::AcceptProgress progress;
  return advance(place, token, progress, work);
}

void AnswerGrammar::push(TokenId token) {
  forced_tokens_.reset();
  pushed_.push_back(token);
}

grammar::Accepted AnswerGrammar::catch_up(grammar::MatcherWork& work) {
  while (!pushed_.empty()) {
    const grammar::Accepted accepted = advance(place_, pushed_.front(), progress_, work);
    if (accepted == grammar::Accepted::not_yet) return accepted;
    pushed_.erase(pushed_.begin());
    has_failed_ = accepted == grammar::Accepted::no;
    if (has_failed_) return accepted;
  }
  return grammar::Accepted::yes;
}

bool AnswerGrammar::take(TokenId token) {
  push(token);
  grammar::MatcherWork work;
  return catch_up(work) == grammar::Accepted::yes;
}

void AnswerGrammar::end() {
  has_ended_ = true;
  pushed_.clear();
  progress_ = {};
}

std::size_t AnswerGrammar::n_allowed(std::span<const TokenId> drafts, grammar::MatcherWork& work) const {
  Place place = place_;
  const auto refused =
      std::ranges::find_if(drafts, [&](TokenId draft) { return advance(place, draft, work) != grammar::Accepted::yes; });
  return static_cast<std::size_t>(refused - drafts.begin());
}

const std::vector<TokenId>& AnswerGrammar::forced_tokens(grammar::MatcherWork& work) {
  static const std::vector<TokenId> none;
  if (forced_tokens_) return *forced_tokens_;
  if (work.is_used_up() || is_late()) return none;
  forced_tokens_.emplace();
  if (place_.has_begun && has_drafts())
    *forced_tokens_ = matcher().forced_tokens(place_.state, kMaxDraftTokens, constraint_->encode, work);
  return *forced_tokens_;
}

}  // namespace baton
