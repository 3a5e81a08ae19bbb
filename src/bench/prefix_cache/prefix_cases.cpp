/// Makes the prompts of the cases from drawn tokens.
#include "bench/prefix_cache/prefix_cases.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::int32_t kRequestsBehindOne = 4;  ///< of the kinds shared and registered
constexpr std::uint64_t kMaxRequests = 1 << 20;

PrefixCase make_case(const PrefixCaseChoice& choice, const std::string& kind, std::int32_t shared_len, std::int32_t own_len) {
  PrefixCase made{.kind = kind, .shared_len = shared_len, .own_len = own_len};
  if (kind == "shared") {
    made.n_requests = kRequestsBehindOne;
    made.n_unjudged = 2;
  } else if (kind == "registered") {
    made.n_requests = kRequestsBehindOne;
  } else if (kind == "identical") {
    made.n_requests = 2;
    made.n_unjudged = 1;
  } else if (kind == "forks") {
    made.n_requests = choice.n_forks;
    made.n_unjudged = 2;
  } else {
    made.n_requests = choice.n_turns;
    made.answer_len = choice.answer_len;
    made.n_unjudged = 1;
  }
  return made;
}

}  // namespace

std::int64_t PrefixCase::longest_context() const {
  const std::int64_t n_parts = is_conversation() ? n_requests : 1;
  return shared_len + n_parts * (own_len + answer_len) + (kind == "reasoning" ? kAnswerHeaderLen : 0);
}

std::vector<PrefixCase> prefix_cases(const PrefixCaseChoice& choice) {
  std::vector<PrefixCase> cases;
  for (const std::string& kind : choice.kinds) {
    const bool has_each_own = kind == "shared" || kind == "registered";
    const std::span<const std::int32_t> own = std::span(choice.own).first(has_each_own ? choice.own.size() : 1);
    for (const std::int32_t shared_len : choice.shared)
      for (const std::int32_t own_len : own) cases.push_back(make_case(choice, kind, shared_len, own_len));
  }
  return cases;
}

CasePrompts::CasePrompts(const PrefixCase& of, const DatasetTokens& tokens, std::uint64_t number)
    : case_(of), tokens_(tokens), number_(number) {
  tokens_.append(shared_, DatasetStream::shared_prompt, number_, case_.shared_len);
  if (case_.is_conversation()) history_ = shared_;
}

std::vector<TokenId> CasePrompts::next(std::span<const TokenId> answer) {
  const std::uint64_t part = case_.kind == "identical" ? 0 : n_made_;
  ++n_made_;
  std::vector<TokenId> prompt = shared_;
  if (case_.is_conversation()) {
    const std::span<const TokenId> kept = case_.kind == "reasoning" ? answer.subspan(answer.size() / 2) : answer;
    history_.insert(history_.end(), kept.begin(), kept.end());
    tokens_.append(history_, DatasetStream::request, number_ * kMaxRequests + part, case_.own_len);
    prompt = history_;
    if (case_.kind == "reasoning")
      tokens_.append(prompt, DatasetStream::request, number_ * kMaxRequests + kMaxRequests - 1, kAnswerHeaderLen);
    return prompt;
  }
  tokens_.append(prompt, DatasetStream::request, number_ * kMaxRequests + part, case_.own_len);
  return prompt;
}

std::int32_t ComputedTokens::shared_len(std::span<const TokenId> prompt) const {
  std::ptrdiff_t longest = 0;
  for (const std::vector<TokenId>& sequence : sequences_)
    longest = std::max(longest, std::ranges::mismatch(prompt, sequence).in1 - prompt.begin());
  return static_cast<std::int32_t>(longest);
}

}  // namespace baton
