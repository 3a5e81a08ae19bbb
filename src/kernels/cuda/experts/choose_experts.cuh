/// Chooses the experts of a row, in one warp: lane l has the logits of experts l, l + 32, and so on.
///
/// Numbers are compared as 32-bit keys, the largest of all lanes by one instruction, and a second one finds its smallest
/// index. What belongs to a choice is fetched after all have been made, so nothing waits for it between choices.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device/step_sections.cuh"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kMaxExpertsPerRow <= kWarpSize, "a lane holds one choice");
static_assert(kMaxExpertGroups <= kWarpSize, "a lane holds the score of one group");

struct RouteParams {
  const std::byte* step;
  const float* logits;  ///< [n_rows, n_columns]
  std::int32_t* experts;
  float* weights;
  std::int32_t* places;
  std::int32_t* rows;
  std::int32_t* offsets;
  std::int32_t n_rows;
  std::int32_t n_experts;
  std::int32_t n_chosen;
  std::int32_t n_columns;    ///< of logits
  const float* choice_bias;  ///< [n_experts] or null
  RoutingRule rule;
  bool chooses_by_score;
  bool needs_softmax_sum;
};

/// The step's rows, and no more than there is room for.
__device__ __forceinline__ int rows_of_step(const RouteParams& p) { return min(step_header(p.step).n_rows, p.n_rows); }

/// Larger for larger numbers. NaN counts as the smallest number; 0 is no number's key.
__device__ __forceinline__ std::uint32_t key_of(float number) {
  const std::uint32_t bits = __float_as_uint(number + 0.0f);  // -0 becomes 0
  return isnan(number) ? 1 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The largest key, and the smallest index that has it.
struct Best {
  std::uint32_t key;
  int index;
};

template <int kPerLane>
__device__ __forceinline__ Best best_of(const std::uint32_t (&keys)[kPerLane], int lane) {
  std::uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) own = max(own, keys[i]);
  const std::uint32_t best = __reduce_max_sync(kAllLanes, own);
  int index = kMaxExperts;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i)
    if (keys[i] == best) index = lane + i * kWarpSize;
  return {best, __reduce_min_sync(kAllLanes, index)};
}

/// The key of this index becomes 0.
template <int kPerLane>
__device__ __forceinline__ void leave_out(int index, int lane, std::uint32_t (&keys)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (lane + i * kWarpSize == index) keys[i] = 0;
}

/// The value of expert `index`, which each lane names for itself.
template <int kPerLane>
__device__ __forceinline__ float value_of(int index, const float (&values)[kPerLane]) {
  float value = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float of_lane = __shfl_sync(kAllLanes, values[i], index % kWarpSize);
    if (index / kWarpSize == i) value = of_lane;
  }
  return value;
}

__device__ __forceinline__ float sum_of_lanes(float value) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

/// What a lane of the warp that routes a row knows afterwards: the choice with the lane's number, if there is one.
struct Choice {
  int expert;
  float weight;
};

/// The choice of a row after the step's.
__device__ __forceinline__ Choice no_choice() { return {-1, 0}; }

template <int kPerLane>
__device__ __forceinline__ void keys_of(const RouteParams& p, int lane, const float (&numbers)[kPerLane],
                                        std::uint32_t (&keys)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) keys[i] = lane + i * kWarpSize < p.n_experts ? key_of(numbers[i]) : 0;
}

/// Replaces logits, which have these keys, by scores.
template <int kPerLane>
__device__ __forceinline__ void score(const RouteParams& p, int lane, const std::uint32_t (&keys)[kPerLane],
                                      float (&values)[kPerLane]) {
  if (p.rule.score == RoutingRule::Score::sigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) values[i] = 1 / (1 + expf(-values[i]));
    return;
  }
  const float largest = value_of(best_of(keys, lane).index, values);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    values[i] = expf(values[i] - largest);
    if (lane + i * kWarpSize < p.n_experts) sum += values[i];
  }
  if (!p.needs_softmax_sum) return;
  sum = sum_of_lanes(sum);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) values[i] /= sum;
}

/// Replaces the keys of experts in groups that are not kept by 0. Lane g holds the score of group g. `choices` are of the
/// experts that have keys.
template <int kPerLane>
__device__ __forceinline__ void leave_out_groups(const RouteParams& p, int lane, const float (&choices)[kPerLane],
                                                 std::uint32_t (&keys)[kPerLane]) {
  const int size = p.n_experts / p.rule.n_groups;
  const bool takes_two = p.rule.group_score == RoutingRule::GroupScore::two_best && size > 1;
  std::uint32_t of_group[1] = {};
  for (int g = 0; g < p.rule.n_groups; ++g) {
    std::uint32_t own[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) own[i] = (lane + i * kWarpSize) / size == g ? keys[i] : 0;
    const int first = best_of(own, lane).index;
    float sum = value_of(first, choices);
    if (takes_two) {
      leave_out(first, lane, own);
      sum += value_of(best_of(own, lane).index, choices);
    }
    if (lane == g) of_group[0] = key_of(sum);
  }
  unsigned kept = 0;
  for (int n = 0; n < p.rule.n_groups_per_row; ++n) {
    const int best = best_of(of_group, lane).index;
    kept |= 1u << best;
    leave_out(best, lane, of_group);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if ((kept >> min((lane + i * kWarpSize) / size, kWarpSize - 1) & 1) == 0) keys[i] = 0;
}

/// Chooses the experts of a row. All lanes of a warp call it.
template <int kPerLane>
__device__ __forceinline__ Choice choose_experts(const RouteParams& p, int row, int lane) {
  float values[kPerLane];  // logits, then scores
  std::uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + i * kWarpSize;
    values[i] = expert < p.n_experts ? p.logits[static_cast<std::int64_t>(row) * p.n_columns + expert] : 0;
  }
  keys_of(p, lane, values, keys);
  // Where only the chosen have scores, they are computed after the choice.
  const bool scores_later = p.rule.score == RoutingRule::Score::softmax && !p.needs_softmax_sum && !p.chooses_by_score;
  if (!scores_later) score(p, lane, keys, values);
  if (p.chooses_by_score) {
    float choices[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + i * kWarpSize;
      choices[i] = values[i] + (expert < p.n_experts && p.choice_bias != nullptr ? p.choice_bias[expert] : 0);
    }
    keys_of(p, lane, choices, keys);
    if (p.rule.n_groups_per_row < p.rule.n_groups) leave_out_groups(p, lane, choices, keys);
  }
  int expert = 0;  // the choice of this lane
  for (int c = 0; c < p.n_chosen; ++c) {
    const int best = best_of(keys, lane).index;
    leave_out(best, lane, keys);
    if (lane == c) expert = best;
  }
  float weight = value_of(expert, values);
  if (scores_later) weight = expf(weight - __shfl_sync(kAllLanes, weight, 0));  // the first choice has the largest logit
  if (p.rule.renormalises) {
    float sum = 0;
    for (int c = 0; c < p.n_chosen; ++c) sum += __shfl_sync(kAllLanes, weight, c);
    weight /= (sum < p.rule.least_sum ? p.rule.least_sum : sum) + p.rule.added_to_sum;
  }
  return lane < p.n_chosen ? Choice{expert, weight * p.rule.scale} : no_choice();
}

/// Stores the choice of a lane, which has one; without an expert its place is also stored.
__device__ __forceinline__ void store_choice(const RouteParams& p, std::int64_t index, const Choice& choice) {
  p.experts[index] = choice.expert;
  p.weights[index] = choice.weight;
  if (choice.expert < 0) p.places[index] = -1;
}

}  // namespace baton::cuda
