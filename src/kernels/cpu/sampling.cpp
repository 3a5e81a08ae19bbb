/// Sampling on the CPU: orders in parallel; candidates are cut before any noise is drawn.
#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/row_math.h"
#include "kernels/formulas.h"

namespace baton::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Larger logit first, the smaller id on a tie.
struct MoreLikely {
  const float* logits;
  bool operator()(std::int32_t a, std::int32_t b) const { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); }
};

/// The n most likely ids, most likely first.
std::vector<std::int32_t> most_likely(const float* logits, std::int32_t n_vocab, std::int32_t n) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n_vocab));
  std::iota(ids.begin(), ids.end(), 0);
  n = std::min(n, n_vocab);
  if (n < n_vocab) std::nth_element(ids.begin(), ids.begin() + n, ids.end(), MoreLikely{logits});
  ids.resize(static_cast<std::size_t>(n));
  std::sort(ids.begin(), ids.end(), MoreLikely{logits});
  return ids;
}

/// The smallest set of most likely ids whose mass reaches top_p of the mass of the top_k, most likely first.
std::vector<std::int32_t> nucleus(const float* logits, std::int32_t n_vocab, const SampleOrder& order, float max) {
  const float scale = 1.0f / order.temperature;
  const std::int32_t limit = order.top_k > 0 ? std::min(order.top_k, n_vocab) : n_vocab;
  // Without top_k a nucleus is usually small: look at ever more of the most likely until the mass is there.
  for (std::int32_t n = order.top_k > 0 ? limit : std::min(256, limit);; n = std::min(limit, n * 8)) {
    std::vector<std::int32_t> ids = most_likely(logits, n_vocab, n);
    double total = 0;
    if (order.top_k > 0)
      for (const std::int32_t id : ids) total += std::exp((logits[id] - max) * scale);
    else
      total = sum_of_exp(logits, n_vocab, max, scale);
    double mass = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      mass += std::exp((logits[ids[i]] - max) * scale);
      if (mass >= static_cast<double>(order.top_p) * total) {
        ids.resize(i + 1);
        return ids;
      }
    }
    if (n == limit) return ids;
  }
}

std::int32_t draw(const float* logits, std::int32_t n_vocab, const SampleOrder& order, std::int32_t n_generated, float max) {
  const float scale = 1.0f / order.temperature;
  std::int32_t best = -1;
  float best_score = kMinusInfinity;
  const auto consider = [&](std::int32_t id) {
    if (logits[id] == kMinusInfinity) return;
    const float score = (logits[id] - max) * scale + gumbel_noise(order.seed, n_generated, id);
    if (best < 0 || score > best_score || (score == best_score && id < best)) {
      best = id;
      best_score = score;
    }
  };
  if (order.top_p < 1) {
    for (const std::int32_t id : nucleus(logits, n_vocab, order, max)) consider(id);
  } else if (order.top_k > 0 && order.top_k < n_vocab) {
    for (const std::int32_t id : most_likely(logits, n_vocab, order.top_k)) consider(id);
  } else {
    for (std::int32_t id = 0; id < n_vocab; ++id) consider(id);
  }
  return best;
}

void fill_logprobs(const float* logits, std::int32_t n_vocab, const SampleOrder& order, double log_sum_exp,
                   SampleResult& result) {
  const std::vector<std::int32_t> ids = most_likely(logits, n_vocab, std::min(order.n_top_logprobs, kMaxTopLogprobs));
  result.n_top = static_cast<std::int32_t>(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    result.top_ids[i] = ids[i];
    result.top_logprobs[i] = static_cast<float>(logits[ids[i]] - log_sum_exp);
  }
}

SampleResult sample_one(float* logits, std::int32_t n_vocab, const SampleOrder& order, SlotState& slot) {
  SampleResult result;
  if (slot.finished != 0) {
    result.was_finished = 1;
    return result;
  }
  const std::int32_t n_generated = order.n_generated_before + slot.n_generated;
  const MaxAndNan found = max_and_nan(logits, n_vocab);
  if (found.has_nan || found.max == kMinusInfinity) {
    slot.finished = 1;
    result.finished = FinishedBy::not_a_number;
    return result;
  }
  const double log_sum_exp =
      order.n_top_logprobs >= 0 ? found.max + std::log(sum_of_exp(logits, n_vocab, found.max, 1.0f)) : 0.0;
  if (order.n_top_logprobs > 0) fill_logprobs(logits, n_vocab, order, log_sum_exp, result);

  // A stop id that may not come yet is taken out; its own logit is kept for the log-probability (of another token) only.
  float max = found.max;
  if (n_generated < order.min_tokens) {
    for (std::int32_t i = 0; i < order.n_stop_ids; ++i) {
      const std::int32_t id = order.stop_ids[static_cast<std::size_t>(i)];
      if (id >= 0 && id < n_vocab) logits[id] = kMinusInfinity;
    }
    max = max_and_nan(logits, n_vocab).max;
  }
  result.token = order.temperature <= 0 ? static_cast<std::int32_t>(std::find(logits, logits + n_vocab, max) - logits)
                                        : draw(logits, n_vocab, order, n_generated, max);
  if (result.token < 0 || result.token >= n_vocab) result.token = 0;  // every token was a forbidden stop id
  if (order.n_top_logprobs >= 0) result.logprob = static_cast<float>(logits[result.token] - log_sum_exp);

  slot.last_token = result.token;
  slot.n_generated++;
  const auto stop_end = order.stop_ids.begin() + order.n_stop_ids;
  if (std::find(order.stop_ids.begin(), stop_end, result.token) != stop_end)
    result.finished = FinishedBy::stop_id;
  else if (n_generated + 1 >= order.max_tokens)
    result.finished = FinishedBy::length;
  slot.finished = result.finished != FinishedBy::not_finished ? 1 : 0;
  return result;
}

}  // namespace

void sample(const Parallel& parallel, const SampleArgs& args) {
  const auto orders = args.step.span<SampleOrder>(args.step.header->orders);
  const auto n_vocab = static_cast<std::int32_t>(args.logits.shape[1]);
  auto* slots = reinterpret_cast<SlotState*>(args.slots.data);
  auto* results = reinterpret_cast<SampleResult*>(args.results.data);
  parallel.for_ranges(static_cast<std::int64_t>(orders.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const SampleOrder& order = orders[static_cast<std::size_t>(i)];
      check(order.slot >= 0 && order.slot < args.slots.shape[0], "sample: an order of a slot outside the table");
      results[i] = sample_one(args.logits.elements<float>().data() + i * n_vocab, n_vocab, order, slots[order.slot]);
    }
  });
}

}  // namespace baton::cpu
