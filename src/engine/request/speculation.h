/// Speculative decoding: drafts from a sequence's own context or from the model's own layer, and the decision when drafting pays.
///
/// A step that verifies k drafts of a sequence has 1 + k rows of it: its last token and the drafts, each at its future
/// position. The logits of each row are sampled with metadata of their own, as if the drafts before it had been
/// generated: penalties count them, bad words see them, and the random numbers are those of (seed, number of tokens
/// generated). So the token sampled from the first row is the token that comes without speculation. If it equals the
/// first draft, the second row saw the sequence's true context, so its token is right too; and so on. The first token
/// that differs from its draft is the last that counts. No draft is accepted or rejected at random: under the same
/// arithmetic the tokens, their log-probabilities and the end equal those without speculation, greedy or sampled.
/// (With --batch-invariant a row has the same bits in a batch of any size. Without it, a larger step may round
/// differently, as in any batch.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "kernels/batch.h"

namespace baton {

/// An index of the places in a growing list of tokens, by the `min_len` tokens before each: chains of places with
/// equal hashes, newest first, as in LZ77. Adding a token and looking up take constant time. Thread: engine only.
class PromptLookup {
 public:
  /// A match needs at least `min_len` tokens; tokens beyond `max_len` do not make it better.
  PromptLookup(std::int32_t min_len, std::int32_t max_len);

  /// Adds the tokens that are new since the last call.
  void follow(std::span<const TokenId> tokens);

  /// Appends to `out` the `n` tokens that followed an earlier occurrence of the end of `tokens`; nothing if there is
  /// none. Of several occurrences it takes the longest match and, among these, the newest. A proposal that reaches the
  /// end of `tokens` continues with itself, so a repetition continues. `tokens` must be those of the last `follow`.
  void propose(std::span<const TokenId> tokens, std::int32_t n, std::vector<TokenId>& out) const;

 private:
  std::size_t chain_of(const TokenId* end) const;
  void add(std::span<const TokenId> tokens, std::int32_t place);
  void grow(std::span<const TokenId> tokens);

  std::int32_t min_len_;
  std::int32_t max_len_;
  std::int32_t n_seen_ = 0;
  std::vector<std::int32_t> newest_;  ///< of each chain (a power of two of them); 0: empty, as places are >= min_len
  std::vector<std::int32_t> older_;   ///< of each place
};

inline constexpr std::int32_t kMaxLookupLen = 64;

/// Where drafts come from.
enum class DraftMethod : std::uint8_t {
  ngram,  ///< prompt lookup
  mtp,    ///< the model's own layer (MtpSpec), after each step
};

/// The same, and text that a grammar demands: for counts.
enum class DraftSource : std::uint8_t { ngram, mtp, grammar };
inline constexpr std::array<std::string_view, 3> kDraftSourceNames{"ngram", "mtp", "grammar"};

struct SpeculationOptions {
  std::int32_t n_tokens = 0;    ///< most drafts of a step; 0: no speculation
  std::int32_t lookup_max = 4;  ///< longest run of tokens that is looked up in the context; the longest match counts
  std::int32_t lookup_min = 2;
  DraftMethod method = DraftMethod::ngram;
  bool operator==(const SpeculationOptions&) const = default;
};

/// Drafts of a request that asks for speculation without a number.
inline constexpr std::int32_t kDefaultDraftTokens = 4;
inline constexpr std::int32_t kDefaultMtpTokens = 1;  ///< with method mtp

/// Error: invalid_request, for the field speculative_config.
Result<void> check_speculation(const SpeculationOptions& options);

/// The drafting state of one sequence. Thread: engine only.
class Speculation {
 public:
  explicit Speculation(const SpeculationOptions& options);

  /// Whether it would draft with `n_tokens` tokens: not for a while after drafts of which none was accepted.
  bool is_active(std::int32_t n_tokens) const { return n_tokens >= resumes_at_; }
  /// Whether drafts are made by the model, and offered.
  bool drafts_by_model() const { return options_.method == DraftMethod::mtp; }
  /// Takes drafts to follow a sequence of `n_tokens` tokens.
  void offer(std::int32_t n_tokens, std::vector<TokenId> drafts);
  /// The estimated probability that a draft is accepted if those before it were.
  double acceptance() const { return n_hits_ / n_tries_; }
  std::int32_t n_most() const { return options_.n_tokens; }
  /// Whether there will be drafts once the token after `tokens` is known: the context has an earlier occurrence, or the model makes
  /// them.
  bool promises(std::span<const TokenId> tokens);
  /// Whether this is so, and drafts are expected to give more than the one token that waiting for them costs. If not,
  /// the estimate moves a little towards its first value.
  bool is_worth_a_step(std::span<const TokenId> tokens);
  /// The number of drafts worth verifying: the last is accepted with at least `least_probability`. If it is 0, the
  /// estimate moves a little towards its first value.
  std::int32_t n_worthwhile(double least_probability);
  /// Proposes `n` tokens to follow `tokens`, or none.
  std::vector<TokenId> propose(std::span<const TokenId> tokens, std::int32_t n);
  /// Records that `n_accepted` of `n_drafts` verified drafts were accepted; the sequence now has `n_tokens` tokens.
  void verified(std::int32_t n_drafts, std::int32_t n_accepted, std::int32_t n_tokens);

 private:
  void forget_some();

  static constexpr double kFirstHits = 1.4;
  static constexpr double kFirstTries = 2;

  SpeculationOptions options_;
  PromptLookup lookup_;
  // The share of accepted drafts among those whose predecessors were accepted. Older results have less weight.
  double n_hits_ = kFirstHits;
  double n_tries_ = kFirstTries;
  std::vector<TokenId> offered_;     ///< drafts of the model
  std::int32_t offered_after_ = -1;  ///< tokens that they follow
  std::int32_t n_in_vain_ = 0;       ///< consecutive verifications that accepted no draft
  std::int32_t resumes_at_ = 0;      ///< in tokens: no drafts before this length
};

/// The cost of one more row in a step, learnt from executed steps: for each batch size a line fitted to step time over
/// rows; older steps have less weight. If a step's time is spent on reading weights, a draft costs nothing; if it is
/// spent on rows, only a draft that is almost surely accepted pays. Thread: engine only.
class RowCost {
 public:
  /// Records a step with `n_sequences` decoding sequences and nothing else: it had `n_rows` rows and took `seconds`.
  void observe(std::int32_t n_sequences, std::int32_t n_rows, double seconds);

  /// How many drafts a step may have that so far has `n_sequences` decoding sequences and `n_rows` rows, and how
  /// probable each must be.
  struct Allowance {
    double least_probability = 0;
    std::int32_t n_drafts = 0;
  };
  /// Changes only when drafts that did not pay are tried again. Call it once for each step that could have drafts.
  Allowance allow(std::int32_t n_sequences, std::int32_t n_rows);
  /// The expected time of such a step; nothing while the cost of a row is unknown.
  std::optional<double> seconds(std::int32_t n_sequences, std::int32_t n_rows) const;
  /// Whether drafts may pay in such a step, or it is time to try again. Call it for a sequence that would wait to
  /// draft.
  bool may_pay(std::int32_t n_sequences, std::int32_t n_rows);

 private:
  /// Sums over steps, weighted by age.
  struct Line {
    double n = 0, rows = 0, seconds = 0, rows_rows = 0, rows_seconds = 0;
    std::int32_t n_refused = 0;  ///< steps without drafts since the last try

    double mean_rows() const { return rows / n; }
    double spread() const { return rows_rows / n - rows / n * (rows / n); }
    double slope() const { return (rows_seconds / n - rows / n * (seconds / n)) / spread(); }
  };
  static constexpr std::size_t kSizes = 16;  ///< of batches: powers of two
  static std::size_t place_of(std::int32_t n_sequences);
  Line& line_of(std::int32_t n_sequences) { return lines_[place_of(n_sequences)]; }
  static bool is_known(const Line& line);
  static double least_probability(const Line& line, std::int32_t n_rows);

  std::array<Line, kSizes> lines_;
};

}  // namespace baton
