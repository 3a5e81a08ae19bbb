/// Chooses experts, rows in parallel, and sorts the choices by counting.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/elements.h"

namespace baton::cpu {
namespace {

/// Memory for the choices of one row.
struct Scratch {
  explicit Scratch(std::size_t n_experts) : scores(n_experts), choices(n_experts), is_out(n_experts) {}
  std::vector<float> scores;
  std::vector<float> choices;
  std::vector<bool> is_out;  ///< of experts that are taken, or in a group that is not kept
};

/// NaN loses against every number, also against -inf, and among equal numbers the first wins.
bool is_more(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

/// The index of the largest number that is not out; the size if all are.
std::size_t index_of_largest(std::span<const float> numbers, const std::vector<bool>& is_out) {
  std::size_t best = numbers.size();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!is_out[i] && (best == numbers.size() || is_more(numbers[i], numbers[best]))) best = i;
  return best;
}

/// Writes the scores of one row.
void score(std::span<const float> logits, const RouteExpertsArgs& args, std::span<float> scores) {
  if (args.rule.score == RoutingRule::Score::sigmoid) {
    std::ranges::transform(logits, scores.begin(), [](float logit) { return 1 / (1 + std::exp(-logit)); });
    return;
  }
  float largest = logits.front();
  for (const float logit : logits)
    if (is_more(logit, largest)) largest = logit;
  std::ranges::transform(logits, scores.begin(), [=](float logit) { return std::exp(logit - largest); });
  if (!args.needs_softmax_sum()) return;
  float sum = 0;
  for (const float score : scores) sum += score;
  for (float& score : scores) score /= sum;
}

/// The score of a group, whose experts have these choices.
float group_score(RoutingRule::GroupScore kind, std::span<const float> choices) {
  float best = choices.front();
  float second = std::numeric_limits<float>::quiet_NaN();
  for (const float choice : choices.subspan(1)) {
    second = is_more(best, choice) ? (is_more(choice, second) ? choice : second) : best;
    if (is_more(choice, best)) best = choice;
  }
  return kind == RoutingRule::GroupScore::best || choices.size() == 1 ? best : best + second;
}

/// Marks the experts of groups that are not kept.
void leave_out_groups(const RoutingRule& rule, std::span<const float> choices, std::vector<bool>& is_out) {
  const auto n_groups = static_cast<std::size_t>(rule.n_groups);
  const std::size_t size = choices.size() / n_groups;
  std::vector<float> scores(n_groups);
  for (std::size_t g = 0; g < n_groups; ++g) scores[g] = group_score(rule.group_score, choices.subspan(g * size, size));
  std::vector<bool> is_kept(n_groups);
  for (std::int32_t i = 0; i < rule.n_groups_per_row; ++i) is_kept[index_of_largest(scores, is_kept)] = true;
  for (std::size_t e = 0; e < choices.size(); ++e) is_out[e] = !is_kept[e / size];
}

/// Writes the experts of one row and their weights.
void choose_experts(std::span<const float> logits, const RouteExpertsArgs& args, std::span<std::int32_t> experts,
                    std::span<float> weights, Scratch& scratch) {
  const RoutingRule& rule = args.rule;
  scratch.is_out.assign(logits.size(), false);
  score(logits, args, scratch.scores);
  std::span<const float> choices = logits;
  if (args.chooses_by_score()) {
    scratch.choices = scratch.scores;
    if (args.choice_bias.data != nullptr) {
      const auto bias = args.choice_bias.elements<float>();
      for (std::size_t e = 0; e < bias.size(); ++e) scratch.choices[e] += bias[e];
    }
    choices = scratch.choices;
  }
  if (rule.n_groups_per_row < rule.n_groups) leave_out_groups(rule, choices, scratch.is_out);
  float sum = 0;
  for (std::size_t c = 0; c < experts.size(); ++c) {
    const std::size_t best = index_of_largest(choices, scratch.is_out);
    scratch.is_out[best] = true;
    experts[c] = static_cast<std::int32_t>(best);
    weights[c] = scratch.scores[best];
    sum += weights[c];
  }
  const float divisor = rule.renormalises ? std::max(sum, rule.least_sum) + rule.added_to_sum : 1;
  for (float& weight : weights) weight = weight / divisor * rule.scale;
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

/// What the shared part of a row is multiplied by.
float gate_of(const ConstTensorView& gate_logits, std::int64_t row) {
  if (gate_logits.data == nullptr) return 1;
  return 1 / (1 + std::exp(-gate_logits.rows(row, row + 1).elements<float>().back()));
}

}  // namespace

void CpuBackend::route_experts(const RouteExpertsArgs& args) {
  const std::int64_t n_rows = args.step.header->n_rows;
  const auto n_experts = static_cast<std::size_t>(args.choices.offsets.shape[0] - 1);
  const auto n_chosen = static_cast<std::size_t>(args.choices.experts.shape[1]);
  const auto experts = args.choices.experts.elements<std::int32_t>();
  const auto weights = args.choices.weights.elements<float>();
  parallel_.for_ranges(n_rows, 16, [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch(n_experts);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::size_t first = static_cast<std::size_t>(r) * n_chosen;
      choose_experts(args.logits.rows(r, r + 1).elements<float>().first(n_experts), args, experts.subspan(first, n_chosen),
                     weights.subspan(first, n_chosen), scratch);
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
      if (args.shared.data != nullptr) {
        const float gate = gate_of(args.gate_logits, r);
        load_f32(args.shared, r * d, d, term.data());
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += gate * term[j];
      }
      store_f32(sum.data(), d, args.out, r * d);
    }
  });
}

}  // namespace baton::cpu
