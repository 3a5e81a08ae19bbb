/// Drafts, and estimates of what they gain and cost.
#include "engine/request/speculation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {
namespace {

/// Factor of a result's weight for every later result.
constexpr double kMemoryOfDrafts = 0.85;
/// How much a token without drafts moves the estimate back to its first value.
constexpr double kForgettingIdle = 0.02;
constexpr double kMemoryOfSteps = 0.99;
/// Tokens without drafts after n verifications in a row that accepted none: 2^n, at most this.
constexpr std::int32_t kLongestPause = 64;
/// A model's drafts do not come in runs that are all right or all wrong, so so many in vain in a row say nothing.
constexpr std::int32_t kFailuresOfModel = 4;
/// A draft's probability must exceed its cost by this factor, because both are estimates.
constexpr double kMargin = 1.15;
/// Drafts that did not pay are tried again after this many steps, with rows for a quarter of the sequences: 0.4% of
/// the time at worst.
constexpr std::int32_t kRetrySteps = 64;
constexpr std::int32_t kLargeBatch = 16;
/// The cost of a row can be estimated if the standard deviation of the number of rows is this share of its mean.
constexpr double kLeastVariation = 0.03;
/// A step's time per row counts as at most this many times the mean: the first step of a size prepares its matmuls.
constexpr double kMostExcess = 1.5;

/// Places examined for one proposal. Text that often repeats a short run of tokens has a long chain of them.
constexpr int kMaxLooks = 16;
constexpr std::size_t kFirstChains = 64;

}  // namespace

PromptLookup::PromptLookup(std::int32_t min_len, std::int32_t max_len)
    : min_len_(min_len), max_len_(max_len), newest_(kFirstChains, 0) {
  check(min_len >= 1 && min_len <= max_len, "PromptLookup: the lengths are out of order");
}

std::size_t PromptLookup::chain_of(const TokenId* end) const {
  std::uint64_t hash = 0;
  for (const TokenId* token = end - min_len_; token != end; ++token)
    hash = (hash ^ static_cast<std::uint32_t>(*token)) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>(hash >> 32) & (newest_.size() - 1);
}

void PromptLookup::add(std::span<const TokenId> tokens, std::int32_t place) {
  std::int32_t& newest = newest_[chain_of(tokens.data() + place)];
  older_[static_cast<std::size_t>(place)] = newest;
  newest = place;
}

/// Doubles the number of chains and inserts all places again.
void PromptLookup::grow(std::span<const TokenId> tokens) {
  while (newest_.size() < tokens.size()) newest_.resize(newest_.size() * 2);
  newest_.assign(newest_.size(), 0);
  for (std::int32_t place = min_len_; place < n_seen_; ++place) add(tokens, place);
}

void PromptLookup::follow(std::span<const TokenId> tokens) {
  check(tokens.size() >= static_cast<std::size_t>(n_seen_), "PromptLookup: tokens were taken away");
  if (tokens.size() == static_cast<std::size_t>(n_seen_)) return;
  older_.resize(tokens.size());
  if (tokens.size() > newest_.size()) grow(tokens);
  for (; n_seen_ < static_cast<std::int32_t>(tokens.size()); ++n_seen_) {
    if (n_seen_ >= min_len_) add(tokens, n_seen_);
  }
}

void PromptLookup::propose(std::span<const TokenId> tokens, std::int32_t n, std::vector<TokenId>& out) const {
  const auto len = static_cast<std::int32_t>(tokens.size());
  check(len == n_seen_, "PromptLookup: other tokens than were taken in");
  if (len <= min_len_ || n <= 0) return;
  const TokenId* const end = tokens.data() + len;
  std::int32_t best_place = 0;
  std::int32_t best_len = min_len_ - 1;
  std::int32_t place = newest_[chain_of(end)];
  for (int i = 0; i < kMaxLooks && place > 0 && best_len < max_len_; ++i, place = older_[static_cast<std::size_t>(place)]) {
    const TokenId* const candidate = tokens.data() + place;
    std::int32_t n_equal = 0;
    while (n_equal < max_len_ && n_equal < place && candidate[-1 - n_equal] == end[-1 - n_equal]) ++n_equal;
    if (n_equal <= best_len) continue;
    best_len = n_equal;
    best_place = place;
  }
  if (best_place == 0) return;
  const std::size_t first = out.size();
  for (std::int32_t i = best_place; i < best_place + n; ++i)
    out.push_back(i < len ? tokens[static_cast<std::size_t>(i)] : out[first + static_cast<std::size_t>(i - len)]);
}

Result<void> check_speculation(const SpeculationOptions& options) {
  const auto refuse = [](std::string message) {
    return fail(ErrorCode::invalid_request, std::move(message), "speculative_config");
  };
  if (options.n_tokens < 0 || options.n_tokens > kMaxDraftTokens) {
    return refuse(fmt::format("speculative_config: num_speculative_tokens must be from 0 (off) to {}, got {}", kMaxDraftTokens,
                              options.n_tokens));
  }
  if (options.lookup_min < 1 || options.lookup_max > kMaxLookupLen || options.lookup_min > options.lookup_max) {
    return refuse(
        fmt::format("speculative_config: prompt_lookup_min and prompt_lookup_max must be from 1 to {} and in order, got {} "
                    "and {}",
                    kMaxLookupLen, options.lookup_min, options.lookup_max));
  }
  return {};
}

Speculation::Speculation(const SpeculationOptions& options)
    : options_(options), lookup_(options.lookup_min, options.lookup_max) {
  check(options.n_tokens > 0, "Speculation: no drafts are wanted");
}

std::int32_t Speculation::n_worthwhile(double least_probability) {
  const double each = n_hits_ / n_tries_;
  std::int32_t n = 0;
  for (double probability = each; n < options_.n_tokens && probability >= least_probability; probability *= each) ++n;
  if (n == 0) forget_some();
  return n;
}

void Speculation::forget_some() {
  n_hits_ += kForgettingIdle * (kFirstHits - n_hits_);
  n_tries_ += kForgettingIdle * (kFirstTries - n_tries_);
}

void Speculation::offer(std::int32_t n_tokens, std::vector<TokenId> drafts) {
  offered_ = std::move(drafts);
  offered_after_ = n_tokens;
}

bool Speculation::promises(std::span<const TokenId> tokens) { return drafts_by_model() || !propose(tokens, 1).empty(); }

bool Speculation::is_worth_a_step(std::span<const TokenId> tokens) {
  const double each = n_hits_ / n_tries_;
  double n_expected = 0;
  double probability = each;
  for (std::int32_t i = 0; i < options_.n_tokens; ++i, probability *= each) n_expected += probability;
  if (n_expected > 1) return promises(tokens);
  forget_some();
  return false;
}

std::vector<TokenId> Speculation::propose(std::span<const TokenId> tokens, std::int32_t n) {
  std::vector<TokenId> drafts;
  if (drafts_by_model()) {
    if (offered_after_ == std::ssize(tokens)) drafts = offered_;
    drafts.resize(std::min(drafts.size(), static_cast<std::size_t>(std::min(n, options_.n_tokens))));
    return drafts;
  }
  lookup_.follow(tokens);
  lookup_.propose(tokens, std::min(n, options_.n_tokens), drafts);
  return drafts;
}

void Speculation::verified(std::int32_t n_drafts, std::int32_t n_accepted, std::int32_t n_tokens) {
  check(n_accepted >= 0 && n_accepted <= n_drafts, "Speculation: more drafts were accepted than there were");
  n_hits_ = kMemoryOfDrafts * n_hits_ + n_accepted;
  n_tries_ = kMemoryOfDrafts * n_tries_ + n_accepted + (n_accepted < n_drafts ? 1 : 0);
  n_in_vain_ = n_accepted > 0 ? 0 : n_in_vain_ + 1;
  const std::int32_t n_too_many = n_in_vain_ - (drafts_by_model() ? kFailuresOfModel : 0);
  if (n_too_many > 0) resumes_at_ = n_tokens + std::min(kLongestPause, 1 << std::min(n_too_many, 10));
}

std::size_t RowCost::place_of(std::int32_t n_sequences) {
  const auto size = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(std::max(1, n_sequences)))) - 1;
  return std::min(size, kSizes - 1);
}

std::optional<double> RowCost::seconds(std::int32_t n_sequences, std::int32_t n_rows) const {
  const Line& line = lines_[place_of(n_sequences)];
  if (!is_known(line)) return std::nullopt;
  const double mean = line.seconds / line.n;
  return std::max(mean + std::max(0.0, line.slope()) * (n_rows - line.mean_rows()), mean / 8);
}

void RowCost::observe(std::int32_t n_sequences, std::int32_t n_rows, double seconds) {
  Line& line = line_of(n_sequences);
  if (line.n >= 2)
    seconds = std::min(seconds, kMostExcess * line.seconds / line.rows * std::max<double>(n_rows, line.rows / line.n));
  const double values[] = {1, static_cast<double>(n_rows), seconds, static_cast<double>(n_rows) * n_rows, n_rows * seconds};
  double* const sums[] = {&line.n, &line.rows, &line.seconds, &line.rows_rows, &line.rows_seconds};
  for (std::size_t i = 0; i < std::size(sums); ++i) *sums[i] = kMemoryOfSteps * *sums[i] + values[i];
}

bool RowCost::is_known(const Line& line) {
  return line.n >= 3 && line.spread() > kLeastVariation * kLeastVariation * line.mean_rows() * line.mean_rows();
}

double RowCost::least_probability(const Line& line, std::int32_t n_rows) {
  const double slope = std::max(0.0, line.slope());
  const double step = line.seconds / line.n + slope * (n_rows - line.mean_rows());
  // A step makes n_rows tokens. To keep this rate, a draft must be worth what its row costs at that rate.
  const double cost = step > 0 ? std::clamp(slope * n_rows / step, 0.0, 1.0) : 1.0;
  return cost * kMargin;
}

bool RowCost::may_pay(std::int32_t n_sequences, std::int32_t n_rows) {
  Line& line = line_of(n_sequences);
  return !is_known(line) || least_probability(line, n_rows) < 1 || ++line.n_refused >= kRetrySteps;
}

RowCost::Allowance RowCost::allow(std::int32_t n_sequences, std::int32_t n_rows) {
  Line& line = line_of(n_sequences);
  if (!is_known(line)) {
    if (n_sequences < kLargeBatch) return {0, 8};
    // In a large batch rows may be expensive: try a few drafts in every second step without prefill.
    const bool tries = n_rows == n_sequences && ++line.n_refused % 2 == 1;
    return {0, tries ? n_sequences / 4 : 0};
  }
  Allowance allowance{least_probability(line, n_rows), 1 << 20};
  if (allowance.least_probability < 1) {
    line.n_refused = 0;
    return allowance;
  }
  if (++line.n_refused < kRetrySteps) return {1, 0};
  line.n_refused = 0;
  return {0, std::max(1, n_sequences / 4)};
}

}  // namespace baton
