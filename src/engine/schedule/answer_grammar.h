/// The answer of one sequence and the grammar that it keeps to.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/request/constraint.h"
#include "engine/request/speculation.h"
#include "grammar/match/matcher.h"

namespace baton {

/// Where the answer of a sequence stands in the grammar of its request: after all tokens that the host has read, which
/// are more than the committed ones while a step is being committed, once it has caught up. Thread: one at a time; threads may use the grammars
/// of different sequences at once.
class AnswerGrammar {
 public:
  /// A place in an answer; copies are cheap.
  struct Place {
    bool has_begun = false;            ///< false: any token may follow (Constraint::begins_behind)
    grammar::MatcherState state = {};  ///< once it has begun
    bool operator==(const Place&) const = default;
  };

  /// `stop_ids`: the tokens that end the sequence. They are read here only.
  AnswerGrammar(std::shared_ptr<const Constraint> constraint, std::span<const TokenId> stop_ids);

  const Place& place() const { return place_; }
  /// The next token of the answer. The place goes after it in catch_up.
  void push(TokenId token);
  /// Brings the place after all tokens that were pushed, as far as `work` allows; `no`: the grammar does not allow one.
  grammar::Accepted catch_up(grammar::MatcherWork& work);
  bool is_caught_up() const { return pushed_.empty(); }
  /// Whether catch_up found a token that is not allowed, and the sequence has not ended.
  bool has_failed() const { return has_failed_ && !has_ended_; }
  /// Both for one token, whatever the work. Returns whether the grammar allows it.
  bool take(TokenId token);
  /// Brings another place in the answer after a token, at once or not at all.
  grammar::Accepted advance(Place& place, TokenId token, grammar::MatcherWork& work) const;

  grammar::Matcher& matcher() const { return *constraint_->matcher; }
  /// The tokens that end a text of the grammar but not this sequence. They are never allowed.
  std::span<const TokenId> forbidden_ends() const { return forbidden_ends_; }

  /// Whether the sequence has ended as far as the host has read. Then its samples need no mask.
  bool has_ended() const { return has_ended_; }
  void end();
  /// Whether the sequence waits for its mask: a sample was dropped and none was taken since. It does not draft meanwhile.
  bool is_late() const { return is_late_ || !is_caught_up(); }
  void set_late(bool is_late) { is_late_ = is_late; }

  /// How many of `drafts` the grammar allows after the answer, each after those before it, as far as `work` allows.
  std::size_t n_allowed(std::span<const TokenId> drafts, grammar::MatcherWork& work) const;
  /// Whether the request brings an encoder, so that text which must follow can be drafted.
  bool has_drafts() const { return static_cast<bool>(constraint_->encode); }
  /// Drafts of the text that must follow, at most kMaxDraftTokens (Matcher::forced_tokens). Found once for a place; none
  /// if the work is used up before.
  const std::vector<TokenId>& forced_tokens(grammar::MatcherWork& work);
  /// How many of such drafts were accepted so far.
  Speculation& record() { return record_; }

 private:
  grammar::Accepted advance(Place& place, TokenId token, grammar::AcceptProgress& progress, grammar::MatcherWork& work) const;

  std::shared_ptr<const Constraint> constraint_;
  std::vector<TokenId> forbidden_ends_;
  Place place_;
  std::vector<TokenId> pushed_;       ///< tokens after the place
  grammar::AcceptProgress progress_;  ///< of the first of them
  bool has_failed_ = false;
  bool has_ended_ = false;
  bool is_late_ = false;
  std::optional<std::vector<TokenId>> forced_tokens_;  ///< at this place
  Speculation record_{{.n_tokens = kMaxDraftTokens}};
};

}  // namespace baton
