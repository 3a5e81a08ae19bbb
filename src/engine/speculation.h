/// Speculation: tokens drafted from a sequence's own context, and when drafting pays.
///
/// A step that verifies k drafts of a sequence has 1 + k rows of it: its last token and the drafts, each at the
/// position where it would stand. The logits of each row are sampled by an order of their own, as if the drafts before
/// it had been generated: penalties count them, bad words see them, the random numbers are those of (seed, tokens
/// generated so far). So the token sampled from the first row is the one that comes without speculation. If it equals
/// the first draft, what the second row saw is the sequence's true context, so its token is the right one too; and so
/// on. The first token that differs from its draft is the last that counts. Nothing is accepted or rejected by chance:
/// for one model arithmetic the tokens, their log-probabilities and the end are those without speculation, one by one,
/// greedy or sampled. (With --batch-invariant a row has the same bits however many stand beside it. Without, rows of a
/// larger step may be rounded otherwise, as in any batch.)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/prompt_lookup.h"

namespace baton {

/// Drafts of one sequence in a step, at most: no more than the block that each running sequence is sure to get besides
/// what its tokens need.
inline constexpr std::int32_t kMaxDraftTokens = 16;
inline constexpr std::int32_t kMaxLookupLen = 64;

struct SpeculationOptions {
  std::int32_t n_tokens = 0;    ///< drafts of a step, at most; 0: no speculation
  std::int32_t lookup_max = 4;  ///< tokens that are looked up in what came before: the longest match in this range counts
  std::int32_t lookup_min = 2;
  bool operator==(const SpeculationOptions&) const = default;
};

/// What a request gets that asks for speculation and says no number.
inline constexpr std::int32_t kDefaultDraftTokens = 4;

/// Error invalid_request, of the field speculative_config.
Result<void> check_speculation(const SpeculationOptions& options);

/// How one sequence drafts. Thread: engine only.
class Speculation {
 public:
  explicit Speculation(const SpeculationOptions& options);

  /// Whether it would draft once it has `n_tokens` tokens: not for a while after drafts of which none was accepted.
  bool is_active(std::int32_t n_tokens) const { return n_tokens >= resumes_at_; }
  /// Whether there will be drafts once the token after `tokens` is known: they go on as they did somewhere before.
  bool promises(std::span<const TokenId> tokens);
  /// Whether that is so, and drafts bring more than the one token of a step without them, which waiting for their
  /// first token costs. If they do not, it is forgotten, little by little, why.
  bool is_worth_a_step(std::span<const TokenId> tokens);
  /// Drafts worth verifying, of which the last is accepted with at least `least_probability`. If there are none, it is
  /// forgotten, little by little, why.
  std::int32_t n_worthwhile(double least_probability);
  /// What follows `tokens`, by guess: `n` tokens, or none.
  std::vector<TokenId> propose(std::span<const TokenId> tokens, std::int32_t n);
  /// Of `n_drafts` verified ones `n_accepted` were accepted; the sequence now has `n_tokens` tokens.
  void verified(std::int32_t n_drafts, std::int32_t n_accepted, std::int32_t n_tokens);

 private:
  void forget_some();

  static constexpr double kFirstHits = 1.4;
  static constexpr double kFirstTries = 2;

  SpeculationOptions options_;
  PromptLookup lookup_;
  // The share of drafts that were accepted, of those whose predecessors were; old results are forgotten.
  double n_hits_ = kFirstHits;
  double n_tries_ = kFirstTries;
  std::int32_t n_in_vain_ = 0;   ///< verifications on end that accepted no draft
  std::int32_t resumes_at_ = 0;  ///< tokens
};

/// What one row more costs a step, learnt from the steps that were run: for each size of a batch a straight line
/// through their times over their rows, old ones forgotten. Where a step's time is for its weights a draft costs
/// nothing, where it is for its rows only a draft that is surely accepted would pay. Thread: engine only.
class RowCost {
 public:
  /// A step of `n_sequences` that decode and of nothing else had `n_rows` rows and took `seconds`.
  void observe(std::int32_t n_sequences, std::int32_t n_rows, double seconds);

  /// How many drafts a step of `n_sequences` that decode, with `n_rows` rows so far, may have, and how probable each
  /// must be.
  struct Allowance {
    double least_probability = 0;
    std::int32_t n_drafts = 0;
  };
  /// Changes only when to try again what did not pay: call it once a step in which drafts could be made.
  Allowance allow(std::int32_t n_sequences, std::int32_t n_rows);
  /// Whether drafts may pay in such a step, or it is time to try again; call it for a sequence that would wait for its
  /// drafts.
  bool may_pay(std::int32_t n_sequences, std::int32_t n_rows);

 private:
  /// Sums over steps, weighted by age.
  struct Line {
    double n = 0, rows = 0, seconds = 0, rows_rows = 0, rows_seconds = 0;
    std::int32_t n_refused = 0;  ///< steps without drafts since they were last tried

    double mean_rows() const { return rows / n; }
    double spread() const { return rows_rows / n - rows / n * (rows / n); }
    double slope() const { return (rows_seconds / n - rows / n * (seconds / n)) / spread(); }
  };
  static constexpr std::size_t kSizes = 16;  ///< of batches: powers of two
  Line& line_of(std::int32_t n_sequences);
  static bool is_known(const Line& line);
  static double least_probability(const Line& line, std::int32_t n_rows);

  std::array<Line, kSizes> lines_;
};

}  // namespace baton
