/// Chooses experts, rows in parallel, and sorts the choices by counting.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/elements.h"

namespace baton::cpu {
namespace {

/// Writes the experts of one row and their weights. `taken` is scratch memory of one flag per expert.
void choose_experts(std::span<const float> logits, ExpertSoftmax softmax, std::span<std::int32_t> experts,
                    std::span<float> weights, std::vector<bool>& taken) {
  // NaN loses against every number, also against -inf, and among equal logits the first wins.
  const auto is_more = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (std::isnan(logits[b]) && !std::isnan(logits[a]));
  };
  std::fill(taken.begin(), taken.end(), false);
  for (std::int32_t& chosen : experts) {
    std::size_t best = logits.size();
    for (std::size_t e = 0; e < logits.size(); ++e)
      if (!taken[e] && (best == logits.size() || is_more(e, best))) best = e;
    taken[best] = true;
    chosen = static_cast<std::int32_t>(best);
  }
  const float largest = logits[static_cast<std::size_t>(experts[0])];
  float sum = 0;
  if (softmax == ExpertSoftmax::all)
    for (const float logit : logits) sum += std::exp(logit - largest);
  for (std::size_t c = 0; c < experts.size(); ++c) {
    weights[c] = std::exp(logits[static_cast<std::size_t>(experts[c])] - largest);
    if (softmax == ExpertSoftmax::chosen) sum += weights[c];
  }
  for (float& weight : weights) weight /= sum;
}

/// Writes places, rows and offsets of the choices of `n_rows` rows.
void sort_choices(const ExpertChoices& choices, std::int64_t n_rows) {
  const std::int64_t n_chosen = choices.experts.shape[1];
  const auto experts = choices.experts.elements<std::int32_t>();
  const auto places = choices.places.elements<std::int32_t>();
  const auto rows = choices.rows.elements<std::int32_t>();
  const auto offsets = choices.offsets.elements<std::int32_t>();
  const auto n_choices = static_cast<std::size_t>(n_rows * n_chosen);
  std::ranges::fill(offsets, 0);
  for (std::size_t i = 0; i < n_choices; ++i) ++offsets[static_cast<std::size_t>(experts[i]) + 1];
  for (std::size_t e = 1; e < offsets.size(); ++e) offsets[e] += offsets[e - 1];
  std::vector<std::int32_t> next(offsets.begin(), offsets.end());
  for (std::size_t i = 0; i < n_choices; ++i) {
    const std::int32_t place = next[static_cast<std::size_t>(experts[i])]++;
    places[i] = place;
    rows[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / n_chosen);
  }
}

}  // namespace

void CpuBackend::route_experts(const RouteExpertsArgs& args) {
  const std::int64_t n_rows = args.step.header->n_rows;
  const std::int64_t n_experts = args.logits.shape[1];
  const auto n_chosen = static_cast<std::size_t>(args.choices.experts.shape[1]);
  const auto experts = args.choices.experts.elements<std::int32_t>();
  const auto weights = args.choices.weights.elements<float>();
  parallel_.for_ranges(n_rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<bool> taken(static_cast<std::size_t>(n_experts));
    for (std::int64_t r = begin; r < end; ++r) {
      const std::size_t first = static_cast<std::size_t>(r) * n_chosen;
      choose_experts(args.logits.rows(r, r + 1).elements<float>(), args.softmax, experts.subspan(first, n_chosen),
                     weights.subspan(first, n_chosen), taken);
    }
  });
  const std::size_t n_choices = static_cast<std::size_t>(n_rows) * n_chosen;
  std::ranges::fill(experts.subspan(n_choices), -1);
  std::ranges::fill(weights.subspan(n_choices), 0.0f);
  std::ranges::fill(args.choices.places.elements<std::int32_t>().subspan(n_choices), -1);
  sort_choices(args.choices, n_rows);
}

void CpuBackend::combine_experts(const CombineExpertsArgs& args) {
  const std::int64_t d = args.out.shape[1];
  const std::int64_t n_chosen = args.choices.places.shape[1];
  const std::int32_t* const places = args.choices.places.elements<std::int32_t>().data();
  const float* const weights = args.choices.weights.elements<float>().data();
  parallel_.for_ranges(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sum(static_cast<std::size_t>(d));
    std::vector<float> term(static_cast<std::size_t>(d));
    for (std::int64_t r = begin; r < end; ++r) {
      std::ranges::fill(sum, 0.0f);
      for (std::int64_t i = r * n_chosen; i < (r + 1) * n_chosen; ++i) {
        if (places[i] < 0) continue;
        load_f32(args.in, places[i] * d, d, term.data());
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += weights[i] * term[j];
      }
      store_f32(sum.data(), d, args.out, r * d);
    }
  });
}

}  // namespace baton::cpu
