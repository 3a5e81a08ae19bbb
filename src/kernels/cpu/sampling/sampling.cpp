/// Sampling on the CPU, samples in parallel. The candidates are reduced to a short list before any sorting or Gumbel
/// noise.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/rows/row_math.h"
#include "kernels/formulas.h"

namespace baton::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// A token that may be chosen.
struct Candidate {
  float logit;
  TokenId id;
  float mass = 0;  ///< its probability times the row's total; set by weigh()
};

/// Larger logit first, the smaller id on a tie.
bool is_more_likely(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

/// The lists of a step that its samples refer to.
struct Lists {
  std::span<const TokenCount> counts;
  std::span<const TokenBias> biases;
  std::span<const TokenBan> bans;
  std::span<const TokenId> allowed;

  template <class T>
  static std::span<const T> part(std::span<const T> all, const Range& range) {
    check(range.first >= 0 && range.count >= 0 && static_cast<std::size_t>(range.first + range.count) <= all.size(),
          "sample: a sampling entry's list lies outside its section");
    return all.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count));
  }
};

/// Memory of one thread, reused for every sample.
struct Scratch {
  std::vector<TokenBias> originals;  ///< logits before changes; an id's first entry counts
  std::vector<Candidate> candidates;
  std::vector<float> kept;  ///< results of a collect: logits and ids
  std::vector<TokenId> ids;
  std::vector<float> maxima;     ///< of a row's blocks; partly sorted, larger ones first
  std::vector<TokenId> allowed;  ///< the tokens to choose from, if they are listed
};

/// One row of logits during sampling.
struct Logits {
  float* values;
  std::int32_t n;
  float max;  ///< the current maximum of the values
};

/// Makes all tokens with a logit of at least `least` candidates.
void take_from(const Logits& logits, float least, Scratch& scratch) {
  const auto room = static_cast<std::size_t>(logits.n + kCollectRoom);
  if (scratch.kept.size() < room) {
    scratch.kept.resize(room);
    scratch.ids.resize(room);
  }
  const auto n = static_cast<std::size_t>(collect(logits.values, logits.n, least, scratch.kept.data(), scratch.ids.data()));
  scratch.candidates.resize(n);
  for (std::size_t i = 0; i < n; ++i) scratch.candidates[i] = {.logit = scratch.kept[i], .id = scratch.ids[i]};
}

constexpr float kLeastFinite = std::numeric_limits<float>::lowest();

/// Computes the maximum of each block of the row. The n-th largest of these maxima is a lower bound for the n-th
/// largest logit, so one pass over the row finds the n most likely tokens.
void find_maxima(const Logits& logits, Scratch& scratch) {
  scratch.maxima.resize(static_cast<std::size_t>((logits.n + kMaxBlock - 1) / kMaxBlock));
  max_of_blocks(logits.values, logits.n, scratch.maxima.data());
}

/// After find_maxima: makes at least the `n` most likely tokens candidates, and usually not many more. Returns true if
/// these are all tokens that may be chosen.
bool take_most_likely(const Logits& logits, std::int64_t n, Scratch& scratch) {
  float least = kLeastFinite;
  if (n <= std::ssize(scratch.maxima)) {
    const auto nth = scratch.maxima.begin() + (n - 1);
    std::ranges::nth_element(scratch.maxima, nth, std::ranges::greater());
    least = std::max(least, *nth);
  }
  take_from(logits, least, scratch);
  return least == kLeastFinite;
}

/// Applies biases, penalties and bans in place and saves the original logits.
class Adjuster {
 public:
  Adjuster(Logits& logits, std::vector<TokenBias>& originals) : logits_(logits), originals_(originals) { originals_.clear(); }

  void apply(const SamplingMetadata& sampling, const Lists& lists, TokenId last_token, std::int32_t n_generated) {
    for (const TokenBias& bias : Lists::part(lists.biases, sampling.biases)) set(bias.id, at(bias.id) + bias.bias);
    if (sampling.has_penalties()) penalise(sampling, Lists::part(lists.counts, sampling.counts), last_token);
    for (const TokenBan& ban : Lists::part(lists.bans, sampling.bans))
      if (ban.after < 0 || ban.after == last_token) set(ban.banned, kMinusInfinity);
    if (n_generated < sampling.min_tokens)
      for (std::int32_t i = 0; i < sampling.n_stop_ids; ++i) {
        const TokenId id = sampling.stop_ids[static_cast<std::size_t>(i)];
        if (id >= 0 && id < logits_.n) set(id, kMinusInfinity);
      }
    const float before = logits_.max;
    for (const TokenBias& original : originals_) {
      logits_.max = std::max(logits_.max, at(original.id));
      is_max_lost_ |= original.bias == before && at(original.id) < before;
    }
    if (is_max_lost_) logits_.max = max_and_nan(logits_.values, logits_.n).max;
  }

 private:
  float& at(TokenId id) {
    check(id >= 0 && id < logits_.n, "sample: a list names a token outside the vocabulary");
    return logits_.values[id];
  }
  void set(TokenId id, float value) {
    originals_.push_back({id, at(id)});
    at(id) = value;
  }
  void penalise(const SamplingMetadata& sampling, std::span<const TokenCount> counts, TokenId last_token) {
    bool is_last_listed = sampling.counts_last_token == 0;
    for (const TokenCount& token : counts) {
      const bool is_last = sampling.counts_last_token != 0 && token.id == last_token;
      is_last_listed |= is_last;
      penalise(sampling, token.id, token.count + (is_last ? 1 : 0));
    }
    if (!is_last_listed) penalise(sampling, last_token, 1);
  }
  void penalise(const SamplingMetadata& sampling, TokenId id, std::int32_t count) {
    float value = at(id);
    if (sampling.repetition_penalty != 1)
      value = value > 0 ? value / sampling.repetition_penalty : value * sampling.repetition_penalty;
    if (count > 0) value -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(count);
    set(id, value);
  }

  Logits& logits_;
  std::vector<TokenBias>& originals_;
  bool is_max_lost_ = false;
};

/// Samples a token of one row.
class Draw {
 public:
  Draw(const Logits& logits, const SamplingMetadata& sampling, std::int32_t n_generated, Scratch& scratch)
      : logits_(logits),
        sampling_(sampling),
        n_generated_(n_generated),
        scale_(1.0f / sampling.temperature),
        least_scaled_(sampling.min_p > 0 ? std::log(sampling.min_p) : kMinusInfinity),
        scratch_(scratch) {}

  TokenId from_all() {
    if (sampling_.top_k > 0 && sampling_.top_k < logits_.n) {
      find_maxima(logits_, scratch_);
      take_most_likely(logits_, sampling_.top_k, scratch_);
      return from_candidates();
    }
    if (sampling_.min_p > 0) {
      constexpr float kRounding = 1e-3f;  // the exact cut follows
      take_from(logits_, std::max(kLeastFinite, logits_.max + (least_scaled_ - kRounding) / scale_), scratch_);
      return from_candidates();
    }
    if (sampling_.top_p >= 1)
      return gumbel_argmax(logits_.values, logits_.n, logits_.max, scale_, sampling_.seed, n_generated_);
    // A nucleus is usually small: take more and more of the most likely tokens until their mass suffices.
    const double total = sum_of_exp(logits_.values, logits_.n, logits_.max, scale_);
    find_maxima(logits_, scratch_);
    const std::int64_t n_blocks = std::ssize(scratch_.maxima);
    for (std::int64_t n = 32;; n = n < n_blocks ? std::min(4 * n, n_blocks) : logits_.n) {
      const bool is_all = take_most_likely(logits_, n, scratch_);
      if (weigh() < sampling_.top_p * total && !is_all) continue;
      cut_top_p(total);
      return gumbel_maximum();
    }
  }
  /// Samples from scratch.candidates, which must include every token that may be left.
  TokenId from_candidates() {
    cut_min_p();
    cut_top_k();
    if (sampling_.top_p < 1) cut_top_p(weigh());
    return gumbel_maximum();
  }

 private:
  float scaled(float logit) const { return (logit - logits_.max) * scale_; }
  bool reaches_min_p(float logit) const { return scaled(logit) >= least_scaled_; }
  /// Sets the mass of each candidate. Returns their sum.
  double weigh() {
    for (Candidate& candidate : scratch_.candidates) candidate.mass = std::exp(scaled(candidate.logit));
    return mass_of(scratch_.candidates);
  }
  static double mass_of(std::span<const Candidate> candidates) {
    double mass = 0;
    for (const Candidate& candidate : candidates) mass += candidate.mass;
    return mass;
  }
  void cut_min_p() {
    if (sampling_.min_p > 0) std::erase_if(scratch_.candidates, [&](const Candidate& c) { return !reaches_min_p(c.logit); });
  }
  void cut_top_k() {
    auto& candidates = scratch_.candidates;
    const auto k = static_cast<std::ptrdiff_t>(sampling_.top_k);
    if (k <= 0 || k >= std::ssize(candidates)) return;
    std::ranges::nth_element(candidates, candidates.begin() + k, is_more_likely);
    candidates.resize(static_cast<std::size_t>(k));
  }
  /// Reduces weighed candidates to the fewest most likely ones whose mass reaches top_p of `total`; keeps all if it
  /// does not.
  void cut_top_p(double total) {
    const std::span<Candidate> all(scratch_.candidates);
    const double wanted = static_cast<double>(sampling_.top_p) * total;
    // Halves the range that contains the last token of the nucleus until it is short enough to sort.
    constexpr std::size_t kSorted = 16;
    double mass = 0;  // of the candidates before `begin`
    std::size_t begin = 0;
    std::size_t end = all.size();
    while (end - begin > kSorted) {
      const std::size_t n_upper = (end - begin) / 2;
      const auto part = all.subspan(begin, end - begin);
      std::ranges::nth_element(part, part.begin() + static_cast<std::ptrdiff_t>(n_upper), is_more_likely);
      const double upper = mass_of(part.first(n_upper));
      if (mass + upper >= wanted) {
        end = begin + n_upper;
      } else {
        mass += upper;
        begin += n_upper;
      }
    }
    std::ranges::sort(all.subspan(begin, end - begin), is_more_likely);
    while (begin < end && mass < wanted) mass += all[begin++].mass;
    if (mass >= wanted) scratch_.candidates.resize(begin);
  }

  /// The maximum of log p + noise, the smaller id on a tie.
  struct Best {
    TokenId id = -1;
    float score = kMinusInfinity;
    void consider(TokenId other, float other_score) {
      if (id >= 0 && !(other_score > score || (other_score == score && other < id))) return;
      id = other;
      score = other_score;
    }
  };
  TokenId gumbel_maximum() const {
    Best best;
    for (const Candidate& candidate : scratch_.candidates)
      best.consider(candidate.id, scaled(candidate.logit) + gumbel_noise(sampling_.seed, n_generated_, candidate.id));
    return best.id;
  }

  const Logits& logits_;
  const SamplingMetadata& sampling_;
  std::int32_t n_generated_;
  float scale_;
  float least_scaled_;  ///< the least scaled logit that min_p keeps
  Scratch& scratch_;
};

/// Fills in the n most likely tokens and their log-probabilities, most likely first.
void fill_top(const Logits& logits, std::int32_t n, double log_sum_exp, Scratch& scratch, SampleResult& result) {
  find_maxima(logits, scratch);
  take_most_likely(logits, n, scratch);
  const auto n_top = static_cast<std::size_t>(std::min({n, kMaxTopLogprobs, logits.n}));
  if (scratch.candidates.size() < n_top) take_from(logits, kMinusInfinity, scratch);
  std::ranges::partial_sort(scratch.candidates, scratch.candidates.begin() + static_cast<std::ptrdiff_t>(n_top),
                            is_more_likely);
  result.n_top = static_cast<std::int32_t>(n_top);
  for (std::size_t i = 0; i < n_top; ++i) {
    result.top_ids[i] = scratch.candidates[i].id;
    result.top_logprobs[i] = static_cast<float>(scratch.candidates[i].logit - log_sum_exp);
  }
}

void score(const Logits& logits, const SamplingMetadata& sampling, double log_sum_exp, SampleResult& result) {
  check(sampling.scored < logits.n, "sample: a scored token outside the vocabulary");
  const float logit = logits.values[sampling.scored];
  result.token = sampling.scored;
  result.logprob = static_cast<float>(logit - log_sum_exp);
  result.rank = 1 + static_cast<std::int32_t>(
                        std::count_if(logits.values, logits.values + logits.n, [&](float other) { return other > logit; }));
}

/// The bits of a sample's mask; empty: it has none.
std::span<const std::uint32_t> mask_of(const TokenMasks& masks, const SamplingMetadata& sampling) {
  if (sampling.mask < 0) return {};
  check(masks.row_of.data != nullptr && sampling.mask < masks.row_of.shape[0], "sample: a mask that is not in the step");
  const std::int32_t row = masks.row_of.elements<std::int32_t>()[static_cast<std::size_t>(sampling.mask)];
  if (row < 0) return {};
  check(row < masks.bits.shape[0], "sample: a mask's row outside the masks");
  const auto n_words = static_cast<std::size_t>(masks.bits.shape[1]);
  return {reinterpret_cast<const std::uint32_t*>(masks.bits.data) + static_cast<std::size_t>(row) * n_words, n_words};
}

/// The ids of `ids` that the mask allows.
void list_allowed(std::span<const TokenId> ids, std::span<const std::uint32_t> mask, std::int32_t n_vocab,
                  std::vector<TokenId>& allowed) {
  allowed.clear();
  for (const TokenId id : ids) {
    check(id >= 0 && id < n_vocab, "sample: an allowed token outside the vocabulary");
    const auto at = static_cast<std::uint32_t>(id);
    if (mask.empty() || (mask[at / 32] >> (at % 32) & 1) != 0) allowed.push_back(id);
  }
}

/// All tokens that the mask allows.
void list_allowed(std::span<const std::uint32_t> mask, std::int32_t n_vocab, std::vector<TokenId>& allowed) {
  allowed.clear();
  for (std::size_t word = 0; word < mask.size(); ++word) {
    for (std::uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const auto id = static_cast<TokenId>(word * 32 + static_cast<std::size_t>(std::countr_zero(bits)));
      if (id < n_vocab) allowed.push_back(id);
    }
  }
}

/// Whether so few tokens are allowed that listing them costs less than a pass over the row.
bool allows_few(std::span<const std::uint32_t> mask) {
  std::size_t n = 0;
  for (const std::uint32_t word : mask) n += static_cast<std::size_t>(std::popcount(word));
  return n < mask.size();
}

/// Applies the mask and the list of allowed tokens. Returns true if the tokens to choose from are listed in
/// scratch.allowed, false if all others are -infinity.
bool restrict_to_allowed(Logits& logits, const SamplingMetadata& sampling, const Lists& lists,
                         std::span<const std::uint32_t> mask, Scratch& scratch) {
  if (sampling.allowed.count > 0) {
    list_allowed(Lists::part(lists.allowed, sampling.allowed), mask, logits.n, scratch.allowed);
    return true;
  }
  if (mask.empty()) return false;
  if (!allows_few(mask)) {
    logits.max = keep_allowed(logits.values, logits.n, mask.data());
    return false;
  }
  list_allowed(mask, logits.n, scratch.allowed);
  return true;
}

/// Chooses the token, from scratch.allowed or from all; -1 if all are forbidden.
TokenId choose(const Logits& logits, const SamplingMetadata& sampling, bool is_listed, std::int32_t n_generated,
               Scratch& scratch) {
  if (!is_listed) {
    if (logits.max == kMinusInfinity) return -1;
    if (sampling.temperature <= 0)
      return static_cast<TokenId>(std::find(logits.values, logits.values + logits.n, logits.max) - logits.values);
    return Draw(logits, sampling, n_generated, scratch).from_all();
  }
  scratch.candidates.clear();
  for (const TokenId id : scratch.allowed)
    if (logits.values[id] != kMinusInfinity) scratch.candidates.push_back({.logit = logits.values[id], .id = id});
  if (scratch.candidates.empty()) return -1;
  const Candidate most_likely = *std::ranges::min_element(scratch.candidates, is_more_likely);
  if (sampling.temperature <= 0) return most_likely.id;
  const Logits allowed{logits.values, logits.n, most_likely.logit};
  return Draw(allowed, sampling, n_generated, scratch).from_candidates();
}

SampleResult sample_one(Logits logits, const SamplingMetadata& sampling, const Lists& lists,
                        std::span<const std::uint32_t> mask, SlotState& slot, Scratch& scratch) {
  SampleResult result;
  const bool is_scored = sampling.scored >= 0;
  if (!is_scored && slot.finished != 0) {
    result.was_finished = 1;
    return result;
  }
  const MaxAndNan found = max_and_nan(logits.values, logits.n);
  if (found.has_nan || found.max == kMinusInfinity) {
    if (!is_scored) slot.finished = 1;
    result.finished = FinishedBy::not_a_number;
    return result;
  }
  logits.max = found.max;
  const double log_sum_exp =
      sampling.n_top_logprobs >= 0 ? found.max + std::log(sum_of_exp(logits.values, logits.n, found.max, 1.0f)) : 0.0;
  if (sampling.n_top_logprobs > 0) fill_top(logits, sampling.n_top_logprobs, log_sum_exp, scratch, result);
  if (is_scored) {
    score(logits, sampling, log_sum_exp, result);
    return result;
  }

  const std::int32_t n_generated = sampling.n_generated_before + slot.n_generated;
  const bool is_listed = restrict_to_allowed(logits, sampling, lists, mask, scratch);
  Adjuster(logits, scratch.originals).apply(sampling, lists, slot.last_token, n_generated);
  const TokenId token = choose(logits, sampling, is_listed, n_generated, scratch);
  if (token < 0) {
    slot.finished = 1;
    result.finished = FinishedBy::nothing_allowed;
    return result;
  }
  result.token = token;
  if (sampling.n_top_logprobs >= 0) {
    const auto original = std::ranges::find(scratch.originals, token, &TokenBias::id);
    const float logit = original == scratch.originals.end() ? logits.values[token] : original->bias;
    result.logprob = static_cast<float>(logit - log_sum_exp);
  }
  slot.last_token = token;
  slot.n_generated++;
  const auto stop_end = sampling.stop_ids.begin() + sampling.n_stop_ids;
  if (std::find(sampling.stop_ids.begin(), stop_end, token) != stop_end)
    result.finished = FinishedBy::stop_id;
  else if (n_generated + 1 >= sampling.max_tokens)
    result.finished = FinishedBy::length;
  slot.finished = result.finished != FinishedBy::not_finished ? 1 : 0;
  return result;
}

}  // namespace

void CpuBackend::sample(const SampleArgs& args) {
  const auto samples = args.step.span<SamplingMetadata>(SectionKind::samples);
  const Lists lists{args.step.span<TokenCount>(SectionKind::token_counts), args.step.span<TokenBias>(SectionKind::token_biases),
                    args.step.span<TokenBan>(SectionKind::token_bans), args.step.span<TokenId>(SectionKind::allowed_ids)};
  const auto n_vocab = static_cast<std::int32_t>(args.logits.shape[1]);
  auto* slots = reinterpret_cast<SlotState*>(args.slots.data);
  auto* results = reinterpret_cast<SampleResult*>(args.results.data);
  std::vector<Scratch> of_thread(static_cast<std::size_t>(parallel_.n_threads()));
  parallel_.for_parts(static_cast<std::int64_t>(samples.size()), [&](std::int64_t i, int thread) {
    const SamplingMetadata& sampling = samples[static_cast<std::size_t>(i)];
    check(sampling.slot >= 0 && sampling.slot < args.slots.shape[0], "sample: a sampling entry of a slot outside the table");
    const Logits logits{args.logits.elements<float>().data() + i * n_vocab, n_vocab, kMinusInfinity};
    results[i] = sample_one(logits, sampling, lists, mask_of(args.masks, sampling), slots[sampling.slot],
                            of_thread[static_cast<std::size_t>(thread)]);
  });
}

}  // namespace baton::cpu
