/// The answer of one sequence and the grammar that it keeps to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/constraint.h"
#include "engine/speculation.h"
#include "grammar/matcher.h"

namespace baton {

/// Where the answer of a sequence stands in the grammar of its request: behind all tokens that the host has read, which
/// are more than the committed ones while a step is being committed. Thread: one at a time; threads may use the grammars
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
  /// Goes on behind the next token of the answer. Returns false if the grammar does not allow it.
  bool take(TokenId token) {
    forced_tokens_.reset();
    return advance(place_, token);
  }
  /// The same of another place in the answer.
  bool advance(Place& place, TokenId token) const;

  grammar::Matcher& matcher() const { return *constraint_->matcher; }
  /// The tokens that end a text of the grammar but not this sequence. They are never allowed.
  std::span<const TokenId> forbidden_ends() const { return forbidden_ends_; }

  /// Whether the sequence has ended as far as the host has read. Then its samples need no mask.
  bool has_ended() const { return has_ended_; }
  void end() { has_ended_ = true; }

  /// How many of `drafts` the grammar allows behind the answer, each behind those before it.
  std::size_t n_allowed(std::span<const TokenId> drafts) const;
  /// Whether the request brings an encoder, so that text which must follow can be drafted.
  bool has_drafts() const { return static_cast<bool>(constraint_->encode); }
  /// Drafts of the text that must follow, at most kMaxDraftTokens (Matcher::forced_tokens). Found once for a place.
  const std::vector<TokenId>& forced_tokens();
  /// How many of such drafts were accepted so far.
  Speculation& record() { return record_; }

 private:
  std::shared_ptr<const Constraint> constraint_;
  std::vector<TokenId> forbidden_ends_;
  Place place_;
  bool has_ended_ = false;
  std::optional<std::vector<TokenId>> forced_tokens_;  ///< at this place
  Speculation record_{{.n_tokens = kMaxDraftTokens}};
};

}  // namespace baton
