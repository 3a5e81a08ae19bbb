/// Routing of rows to experts on a CUDA device: a warp chooses the experts of a row, then a block for each expert
/// collects the expert's choices in the order of their rows. For few rows one block does both, which saves a launch.
/// The number of rows is the uploaded step's, so a captured graph routes no rows after it.
#include "kernels/cuda/experts/experts.h"

#include <cstdint>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/step_sections.cuh"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {
namespace {

constexpr int kChooseThreads = 128;
constexpr int kRowsABlock = kChooseThreads / kWarpSize;
constexpr int kSortThreads = 512;
constexpr int kSortWarps = kSortThreads / kWarpSize;
/// Rows that one block routes: each of its warps chooses for one row.
constexpr int kFewRows = 32;
constexpr int kFewThreads = kFewRows * kWarpSize;
constexpr unsigned kAllLanes = 0xffffffffu;
/// Experts of most models; the kernel for more experts keeps more logits in registers.
constexpr int kFewExperts = 128;
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

/// Larger for larger numbers, for equal ones larger for the smaller index; positive. NaN counts as the smallest number.
__device__ __forceinline__ std::uint64_t rank_of(float number, int index) {
  const std::uint32_t bits = __float_as_uint(number + 0.0f);  // -0 becomes 0
  const std::uint32_t ordered = isnan(number) ? 0 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (static_cast<std::uint64_t>(ordered) << 32) | (0xffffffffu - static_cast<std::uint32_t>(index));
}

__device__ __forceinline__ int index_of(std::uint64_t rank) {
  return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(rank));
}

__device__ __forceinline__ std::uint64_t largest_of_lanes(std::uint64_t rank) {
  const auto high = static_cast<std::uint32_t>(rank >> 32);
  const std::uint32_t highest = __reduce_max_sync(kAllLanes, high);
  const std::uint32_t low = __reduce_max_sync(kAllLanes, high == highest ? static_cast<std::uint32_t>(rank) : 0);
  return (static_cast<std::uint64_t>(highest) << 32) | low;
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
constexpr __device__ Choice kNoChoice{-1, 0};

/// The largest of the ranks that lanes hold.
template <int kPerLane>
__device__ __forceinline__ std::uint64_t largest_of_all(const std::uint64_t (&ranks)[kPerLane]) {
  std::uint64_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) best = max(best, ranks[i]);
  return largest_of_lanes(best);
}

/// The value of the expert that has the rank `best`, on all lanes.
template <int kPerLane>
__device__ __forceinline__ float value_of(std::uint64_t best, const std::uint64_t (&ranks)[kPerLane],
                                          const float (&values)[kPerLane]) {
  float value = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (ranks[i] == best) value = values[i];
  return __shfl_sync(kAllLanes, value, index_of(best) % kWarpSize);
}

/// Replaces logits by scores.
template <int kPerLane>
__device__ __forceinline__ void score(const RouteParams& p, int lane, float (&values)[kPerLane]) {
  if (p.rule.score == RoutingRule::Score::sigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) values[i] = 1 / (1 + expf(-values[i]));
    return;
  }
  std::uint64_t ranks[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + i * kWarpSize;
    ranks[i] = expert < p.n_experts ? rank_of(values[i], expert) : 0;
  }
  const float largest = value_of(largest_of_all(ranks), ranks, values);
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

/// Replaces the ranks of experts in groups that are not kept by 0. Lane g holds the score of group g. `choices` are of the
/// experts that have ranks.
template <int kPerLane>
__device__ __forceinline__ void leave_out_groups(const RouteParams& p, int lane, const float (&choices)[kPerLane],
                                                 std::uint64_t (&ranks)[kPerLane]) {
  const int size = p.n_experts / p.rule.n_groups;
  const bool takes_two = p.rule.group_score == RoutingRule::GroupScore::two_best && size > 1;
  std::uint64_t of_group = 0;
  for (int g = 0; g < p.rule.n_groups; ++g) {
    std::uint64_t own[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) own[i] = (lane + i * kWarpSize) / size == g ? ranks[i] : 0;
    const std::uint64_t best = largest_of_all(own);
    float sum = value_of(best, own, choices);
    if (takes_two) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        if (own[i] == best) own[i] = 0;
      sum += value_of(largest_of_all(own), own, choices);
    }
    if (lane == g) of_group = rank_of(sum, g);
  }
  unsigned kept = 0;
  for (int n = 0; n < p.rule.n_groups_per_row; ++n) {
    const std::uint64_t best = largest_of_lanes(of_group);
    kept |= 1u << index_of(best);
    if (of_group == best) of_group = 0;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if ((kept >> min((lane + i * kWarpSize) / size, kWarpSize - 1) & 1) == 0) ranks[i] = 0;
}

/// Chooses the experts of a row. All lanes of a warp call it; lane l holds the logits of experts l, l + 32, and so on.
template <int kPerLane>
__device__ __forceinline__ Choice choose_experts(const RouteParams& p, int row, int lane) {
  float values[kPerLane];  // logits, then scores
  std::uint64_t ranks[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + i * kWarpSize;
    const bool exists = expert < p.n_experts;
    values[i] = exists ? p.logits[static_cast<std::int64_t>(row) * p.n_columns + expert] : 0;
    ranks[i] = exists ? rank_of(values[i], expert) : 0;
  }
  score(p, lane, values);
  if (p.chooses_by_score) {
    float choices[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + i * kWarpSize;
      const bool exists = expert < p.n_experts;
      choices[i] = values[i] + (exists && p.choice_bias != nullptr ? p.choice_bias[expert] : 0);
      ranks[i] = exists ? rank_of(choices[i], expert) : 0;
    }
    if (p.rule.n_groups_per_row < p.rule.n_groups) leave_out_groups(p, lane, choices, ranks);
  }
  float sum = 0;
  Choice own = kNoChoice;  // of this lane
  for (int c = 0; c < p.n_chosen; ++c) {
    const std::uint64_t best = largest_of_all(ranks);
    const float value = value_of(best, ranks, values);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (ranks[i] == best) ranks[i] = 0;
    sum += value;
    if (lane == c) own = {index_of(best), value};
  }
  if (p.rule.renormalises) own.weight /= (sum < p.rule.least_sum ? p.rule.least_sum : sum) + p.rule.added_to_sum;
  own.weight *= p.rule.scale;
  return own;
}

/// Stores the choice of a lane, which has one; without an expert its place is also stored.
__device__ __forceinline__ void store_choice(const RouteParams& p, std::int64_t index, const Choice& choice) {
  p.experts[index] = choice.expert;
  p.weights[index] = choice.weight;
  if (choice.expert < 0) p.places[index] = -1;
}

template <int kPerLane>
__global__ void __launch_bounds__(kChooseThreads) choose_experts_kernel(const __grid_constant__ RouteParams p) {
  wait_for_kernel_before();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = static_cast<int>(blockIdx.x) * kRowsABlock + static_cast<int>(threadIdx.x) / kWarpSize;
  if (row >= p.n_rows) return;
  const Choice choice = row < rows_of_step(p) ? choose_experts<kPerLane>(p, row, lane) : kNoChoice;
  if (lane < p.n_chosen) store_choice(p, static_cast<std::int64_t>(row) * p.n_chosen + lane, choice);
}

/// Replaces counts[0..n) by the sums of the counts before them, and counts[n] by the sum of all. One warp calls it.
__device__ __forceinline__ void sum_before(int* counts, int n, int lane) {
  const int per_lane = (n + kWarpSize - 1) / kWarpSize;
  const int begin = min(lane * per_lane, n);
  const int end = min(begin + per_lane, n);
  int own = 0;
  for (int i = begin; i < end; ++i) own += counts[i];
  int sum = own;
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  int at = sum - own;
  for (int i = begin; i < end; ++i) {
    const int count = counts[i];
    counts[i] = at;
    at += count;
  }
  if (lane + 1 == kWarpSize) counts[n] = sum;
}

/// Chooses and sorts for at most kFewRows rows and kFewExperts experts, in one block: a warp for each row, then a warp
/// for each expert.
__global__ void __launch_bounds__(kFewThreads) route_few_kernel(const __grid_constant__ RouteParams p) {
  __shared__ int experts[kFewRows * kMaxExpertsPerRow];
  __shared__ int offsets[kFewExperts + 1];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  for (int e = thread; e < p.n_experts; e += kFewThreads) offsets[e] = 0;
  __syncthreads();
  wait_for_kernel_before();
  const int n_rows = rows_of_step(p);
  const int n_choices = n_rows * p.n_chosen;
  if (warp < p.n_rows) {
    const Choice choice = warp < n_rows ? choose_experts<kFewExperts / kWarpSize>(p, warp, lane) : kNoChoice;
    if (lane < p.n_chosen) {
      const int index = warp * p.n_chosen + lane;
      store_choice(p, index, choice);
      experts[index] = choice.expert;
      if (choice.expert >= 0) atomicAdd(&offsets[choice.expert], 1);
    }
  }
  __syncthreads();
  if (warp == 0) sum_before(offsets, p.n_experts, lane);
  __syncthreads();
  for (int e = thread; e <= p.n_experts; e += kFewThreads) p.offsets[e] = offsets[e];
  for (int e = warp; e < p.n_experts; e += kFewRows) {
    int next = offsets[e];
    if (next == offsets[e + 1]) continue;
    for (int begin = 0; begin < n_choices; begin += kWarpSize) {
      const int i = begin + lane;
      const bool is_own = i < n_choices && experts[i] == e;
      const unsigned votes = __ballot_sync(kAllLanes, is_own);
      if (is_own) {
        const int place = next + __popc(votes & ((1u << lane) - 1));
        p.rows[place] = i / p.n_chosen;
        p.places[i] = place;
      }
      next += __popc(votes);
    }
  }
}

/// A block for each expert: counts the choices of smaller experts, then numbers those of its own in order.
__global__ void __launch_bounds__(kSortThreads) sort_choices_kernel(const __grid_constant__ RouteParams p) {
  __shared__ int of_warps[kSortWarps];
  wait_for_kernel_before();
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const auto expert = static_cast<int>(blockIdx.x);
  const int n_choices = rows_of_step(p) * p.n_chosen;
  int n_before = 0;
  for (int i = thread; i < n_choices; i += kSortThreads) n_before += p.experts[i] < expert ? 1 : 0;
  n_before = block_join(n_before, of_warps, [](int a, int b) { return a + b; });
  int next = n_before;
  for (int begin = 0; begin < n_choices; begin += kSortThreads) {
    const int i = begin + thread;
    const bool is_own = i < n_choices && p.experts[i] == expert;
    const unsigned votes = __ballot_sync(kAllLanes, is_own);
    if (lane == 0) of_warps[warp] = __popc(votes);
    __syncthreads();
    int n_of_earlier_warps = 0;
    int n_of_all = 0;
    for (int w = 0; w < kSortWarps; ++w) {
      n_of_earlier_warps += w < warp ? of_warps[w] : 0;
      n_of_all += of_warps[w];
    }
    if (is_own) {
      const int place = next + n_of_earlier_warps + __popc(votes & ((1u << lane) - 1));
      p.rows[place] = i / p.n_chosen;
      p.places[i] = place;
    }
    next += n_of_all;
    __syncthreads();
  }
  if (thread != 0) return;
  p.offsets[expert] = n_before;
  if (expert + 1 == p.n_experts) p.offsets[p.n_experts] = next;
}

}  // namespace

void route_experts(const Device& device, const RouteExpertsArgs& args) {
  const ExpertChoices& choices = args.choices;
  RouteParams params{};
  params.step = args.step.data;
  params.logits = reinterpret_cast<const float*>(args.logits.data);
  params.experts = reinterpret_cast<std::int32_t*>(choices.experts.data);
  params.weights = reinterpret_cast<float*>(choices.weights.data);
  params.places = reinterpret_cast<std::int32_t*>(choices.places.data);
  params.rows = reinterpret_cast<std::int32_t*>(choices.rows.data);
  params.offsets = reinterpret_cast<std::int32_t*>(choices.offsets.data);
  params.n_rows = static_cast<std::int32_t>(args.logits.shape[0]);
  params.n_experts = static_cast<std::int32_t>(choices.offsets.shape[0] - 1);
  params.n_columns = static_cast<std::int32_t>(args.logits.shape[1]);
  params.n_chosen = static_cast<std::int32_t>(choices.experts.shape[1]);
  params.choice_bias = reinterpret_cast<const float*>(args.choice_bias.data);
  params.rule = args.rule;
  params.chooses_by_score = args.chooses_by_score();
  params.needs_softmax_sum = args.needs_softmax_sum();
  if (params.n_rows <= kFewRows && params.n_experts <= kFewExperts)
    return launch_overlapped(device, route_few_kernel, dim3(1), kFewThreads, 0, "route_experts", params);
  if (params.n_rows > 0) {
    const auto n_blocks = static_cast<unsigned>((params.n_rows + kRowsABlock - 1) / kRowsABlock);
    auto* choose = params.n_experts <= kFewExperts ? choose_experts_kernel<kFewExperts / kWarpSize>
                                                   : choose_experts_kernel<kMaxExperts / kWarpSize>;
    launch_overlapped(device, choose, dim3(n_blocks), kChooseThreads, 0, "route_experts", params);
  }
  launch_overlapped(device, sort_choices_kernel, dim3(static_cast<unsigned>(params.n_experts)), kSortThreads, 0,
                    "route_experts", params);
}

}  // namespace baton::cuda
