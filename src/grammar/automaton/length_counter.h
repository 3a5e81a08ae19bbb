/// Bounds of a text's length, kept beside an automaton instead of in its states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/dfa.h"

namespace baton::grammar {

/// Tokens of more bytes are never allowed under a grammar. Two states whose languages are equal up to so many bytes
/// therefore allow the same tokens.
inline constexpr int kMaxTokenBytes = 256;

/// How many characters a text may have; `max` may be kUnlimitedLength.
struct LengthBounds {
  static constexpr std::int32_t kUnlimitedLength = -1;
  /// No answer is so long: a larger maximum is none.
  static constexpr std::int32_t kMost = std::int32_t{1} << 30;

  std::int32_t min = 0;
  std::int32_t max = kUnlimitedLength;

  bool is_any() const { return min == 0 && max == kUnlimitedLength; }
  bool is_possible() const { return max == kUnlimitedLength || min <= max; }
  bool allows(std::int64_t length) const { return length >= min && (max == kUnlimitedLength || length <= max); }
  friend bool operator==(const LengthBounds&, const LengthBounds&) = default;
};

/// The texts of an automaton whose length is within bounds. A text is at a state and a count of the characters so far. The
/// counter knows of each state how long the texts are that lead from there to the end: their lengths become periodic, so the
/// first ones say all. Immutable. Thread: any.
class LengthCounter {
 public:
  using Count = std::int32_t;
  /// A count that is like another one for texts of up to so many bytes.
  struct Twin {
    Count count;
    std::int32_t n_bytes;
  };

  /// Of an automaton in which every state is on the way to an end; edges that count have CompactDfa::Edge::counts. Errors: the
  /// budget's.
  static Result<LengthCounter> of(const CompactDfa& dfa, const LengthBounds& bounds, WorkMeter& meter);

  /// The count after one more character.
  Count next(Count count) const { return bounds_.max < 0 && count >= bounds_.min ? count : count + 1; }
  /// Whether some text leads from the state to an end within the bounds.
  bool allows(std::size_t state, Count count) const;
  /// The one of all counts that allow the same texts of up to kMaxTokenBytes bytes.
  Count representative(Count count) const;
  /// Whether texts of up to `n_bytes` are allowed alike, whatever the state is.
  bool are_alike(Count a, Count b, std::int32_t n_bytes) const;
  /// A representative that is like `count` for shorter texts: most of what follows is found out there.
  std::optional<Twin> twin(Count count) const;

  const LengthBounds& bounds() const { return bounds_; }
  std::size_t n_bytes() const { return sizeof(*this) + runs_.size() * sizeof(Run) + runs_at_.size() * sizeof(runs_at_[0]); }

 private:
  /// Lengths without a gap.
  struct Run {
    std::int32_t first;
    std::int32_t last;
  };

  std::optional<std::int32_t> next_in_table(std::size_t state, std::int64_t least) const;
  std::optional<std::int64_t> next_length(std::size_t state, std::int64_t least) const;
  bool is_far_below(Count count, std::int32_t n_bytes) const;
  bool is_far_between(Count count, std::int32_t n_bytes) const;
  /// Counts far below the minimum are alike if they are so many apart.
  std::int32_t step_below() const;

  LengthBounds bounds_;
  std::vector<Run> runs_;             // of the texts from a state to the end, in order
  std::vector<std::size_t> runs_at_;  // [state + 1]: where those of a state begin
  std::int32_t n_first_ = 0;          // lengths before they are periodic
  std::int32_t period_ = 0;           // 0: the runs end after the maximum
  std::int32_t most_needed_ = 0;      // the largest of the least lengths of all states
};

}  // namespace baton::grammar
