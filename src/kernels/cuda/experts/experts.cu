/// Routing of rows to experts on a CUDA device. The number of rows is the uploaded step's, so a captured graph routes no rows
/// after it.
///
/// Up to 256 rows are routed by one cluster of blocks, each with 16 or 32 of them: a warp chooses for a row and sets the row's
/// bit in a mask of each expert that it chose. The masks of all blocks give the offsets of experts and the place of every
/// choice, without any order in which warps would have to come. More rows take two kernels: warps choose, then a block for
/// each expert collects the expert's choices in the order of their rows.
#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/launch_clusters.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/experts/choose_experts.cuh"

namespace baton::cuda {
namespace {

constexpr int kChooseThreads = 128;
constexpr int kRowsABlock = kChooseThreads / kWarpSize;
constexpr int kSortThreads = 512;
constexpr int kSortWarps = kSortThreads / kWarpSize;
/// Of the kernel that chooses and sorts. A thread sums for one expert.
constexpr int kRouteThreads = kMaxExperts;
constexpr int kRouteWarps = kRouteThreads / kWarpSize;
constexpr int kRouteRows = 32;  ///< most rows of a block: the bits of a mask
constexpr int kMostBlocks = 8;  ///< of a cluster
/// Experts that a lane keeps in registers, times 32: as many as most models have, or twice as many, or all.
constexpr int kFewExperts = 128;
constexpr int kSomeExperts = 256;

template <int kPerLane>
__global__ void __launch_bounds__(kChooseThreads) choose_experts_kernel(const __grid_constant__ RouteParams p) {
  wait_for_kernel_before();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = static_cast<int>(blockIdx.x) * kRowsABlock + static_cast<int>(threadIdx.x) / kWarpSize;
  if (row >= p.n_rows) return;
  const Choice choice = row < rows_of_step(p) ? choose_experts<kPerLane>(p, row, lane) : no_choice();
  if (lane < p.n_chosen) store_choice(p, static_cast<std::int64_t>(row) * p.n_chosen + lane, choice);
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

/// A barrier of the cluster, after which its threads see what they wrote before. A launch without clusters has one block, which
/// does not call it.
__device__ __forceinline__ void meet_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/// A word of the shared memory of block `rank` of the cluster.
__device__ __forceinline__ std::uint32_t word_of_block([[maybe_unused]] int rank, const std::uint32_t* own) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
  std::uint32_t word;
  asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %1, %2;\n\tld.shared::cluster.b32 %0, [there];\n\t}"
               : "=r"(word)
               : "r"(at), "r"(rank)
               : "memory");
  return word;
#else
  return *own;
#endif
}

/// The sum of the values of the threads before this one, and in `all` that of all. Every thread of the block calls it.
__device__ __forceinline__ int sum_before(int value, int (&of_warps)[kRouteWarps], int& all) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  int sum = value;
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane + 1 == kWarpSize) of_warps[warp] = sum;
  __syncthreads();
  int before = sum - value;
  all = 0;
#pragma unroll
  for (int w = 0; w < kRouteWarps; ++w) {
    before += w < warp ? of_warps[w] : 0;
    all += of_warps[w];
  }
  return before;
}

/// Chooses and sorts in one cluster, or in one block. Block b has the rows from b * rows_per_block on.
template <int kPerLane>
__global__ void __launch_bounds__(kRouteThreads) route_kernel(const __grid_constant__ RouteParams p, int rows_per_block) {
  __shared__ std::uint32_t masks[kMaxExperts];  // the rows of this block that chose the expert
  __shared__ int firsts[kMaxExperts];           // the place of the first of them
  __shared__ int of_warps[kRouteWarps];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const auto block = static_cast<int>(blockIdx.x);
  const auto n_blocks = static_cast<int>(gridDim.x);
  masks[thread] = 0;
  __syncthreads();
  wait_for_kernel_before();
  let_next_kernel_start();
  const int n_rows = rows_of_step(p);
  constexpr int kPasses = kRouteRows / kRouteWarps;
  int chosen[kPasses];
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int bit = warp + pass * kRouteWarps;
    const int row = block * rows_per_block + bit;
    chosen[pass] = -1;
    if (bit >= rows_per_block || row >= p.n_rows) continue;
    const Choice choice = row < n_rows ? choose_experts<kPerLane>(p, row, lane) : no_choice();
    if (lane >= p.n_chosen) continue;
    store_choice(p, static_cast<std::int64_t>(row) * p.n_chosen + lane, choice);
    chosen[pass] = choice.expert;
    if (choice.expert >= 0) atomicOr(&masks[choice.expert], 1u << bit);
  }
  if (n_blocks > 1)
    meet_cluster();
  else
    __syncthreads();
  int n_before = 0;  // choices of the thread's expert by rows of blocks before this one
  int n_own = 0;
  for (int b = 0; b < n_blocks; ++b) {
    const int n_of_block = __popc(n_blocks > 1 ? word_of_block(b, &masks[thread]) : masks[thread]);
    n_before += b < block ? n_of_block : 0;
    n_own += n_of_block;
  }
  int n_all = 0;
  const int offset = sum_before(n_own, of_warps, n_all);
  firsts[thread] = offset + n_before;
  if (block == 0 && thread < p.n_experts) p.offsets[thread] = offset;
  if (block == 0 && thread == 0) p.offsets[p.n_experts] = n_all;
  __syncthreads();
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    if (chosen[pass] < 0) continue;
    const int bit = warp + pass * kRouteWarps;
    const int row = block * rows_per_block + bit;
    const int place = firsts[chosen[pass]] + __popc(masks[chosen[pass]] & ((1u << bit) - 1));
    p.places[static_cast<std::int64_t>(row) * p.n_chosen + lane] = place;
    p.rows[place] = row;
  }
  if (n_blocks > 1) meet_cluster();  // no block ends while another reads its masks
}

/// Calls `body` with how many experts a lane has.
template <class Body>
void visit_per_lane(std::int32_t n_experts, Body&& body) {
  if (n_experts <= kFewExperts) return body(std::integral_constant<int, kFewExperts / kWarpSize>{});
  if (n_experts <= kSomeExperts) return body(std::integral_constant<int, kSomeExperts / kWarpSize>{});
  body(std::integral_constant<int, kMaxExperts / kWarpSize>{});
}

bool routes_in_one_kernel(const Device& device, std::int32_t n_rows) {
  return n_rows <= (device.compute_capability >= 90 ? kMostBlocks : 1) * kRouteRows;
}

/// Blocks of 16 rows, of which each warp has one, as long as a cluster has so many blocks.
template <class Kernel>
void launch_route(const Device& device, Kernel* kernel, const RouteParams& params) {
  const auto n_rows = static_cast<unsigned>(std::max(params.n_rows, 1));
  const unsigned n_blocks = device.compute_capability < 90
                                ? 1
                                : std::min<unsigned>(kMostBlocks, std::bit_ceil((n_rows + kRouteWarps - 1) / kRouteWarps));
  const auto rows_per_block = static_cast<int>((n_rows + n_blocks - 1) / n_blocks);
  prefer_shared_memory(kernel);
  if (n_blocks == 1)
    return launch_overlapped(device, kernel, dim3(1), kRouteThreads, 0, "route_experts", params, rows_per_block);
  launch_clusters(device, kernel, dim3(n_blocks), static_cast<int>(n_blocks), kRouteThreads, 0, "route_experts", params,
                  rows_per_block);
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
  if (routes_in_one_kernel(device, params.n_rows)) {
    visit_per_lane(params.n_experts,
                   [&](auto per_lane) { launch_route(device, route_kernel<decltype(per_lane)::value>, params); });
    return;
  }
  const auto n_blocks = static_cast<unsigned>((params.n_rows + kRowsABlock - 1) / kRowsABlock);
  visit_per_lane(params.n_experts, [&](auto per_lane) {
    launch_overlapped(device, choose_experts_kernel<decltype(per_lane)::value>, dim3(n_blocks), kChooseThreads, 0,
                      "route_experts", params);
  });
  launch_overlapped(device, sort_choices_kernel, dim3(static_cast<unsigned>(params.n_experts)), kSortThreads, 0,
                    "route_experts", params);
}

}  // namespace baton::cuda
