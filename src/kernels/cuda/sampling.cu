/// Sampling on a CUDA device: a block an order. Candidates are cut by a radix search for the threshold they share, so nothing is
/// sorted, and by integers, so that no sum depends on who came first.
#include "kernels/cuda/sampling.h"

#include <cstdint>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/warp.cuh"
#include "kernels/formulas.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kIdsAtOnce = 4;  ///< the ids that share a number of philox

/// A candidate's place in the order of likelihood, as an integer: the bits of its logit, made monotone, before its id counted
/// down, so that all places differ and a larger one is more likely.
using Place = std::uint64_t;
constexpr int kIdBits = 22;
constexpr int kPlaceBits = 32 + kIdBits;
/// The search goes through a place's bits in digits from the top: three of the logit, then two of the id.
constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;
constexpr int kBinsPerThread = kBins / kThreads;
/// A candidate's mass exp(...) <= 1 is counted in units of 2^-40: what rounds to 0 among four million is 4e-6 of the mass of the
/// most likely one at the very worst, and 2^22 times 2^40 fits.
constexpr int kMassBits = 40;
/// Over the largest Gumbel noise there is, with room for roundings.
constexpr float kMostNoise = 17;

__device__ std::uint32_t monotone_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value == 0 ? 0.0f : value);  // -0 ties with 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ float from_monotone_bits(std::uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}
__device__ Place place_of(float value, std::int32_t id) {
  return static_cast<Place>(monotone_bits(value)) << kIdBits | ((1u << kIdBits) - 1 - static_cast<std::uint32_t>(id));
}
__device__ std::int32_t id_of(Place place) {
  return static_cast<std::int32_t>((1u << kIdBits) - 1 - (static_cast<std::uint32_t>(place) & ((1u << kIdBits) - 1)));
}
__device__ float value_of(Place place) { return from_monotone_bits(static_cast<std::uint32_t>(place >> kIdBits)); }

/// The logits of one order.
struct Logits {
  float* values;
  std::int32_t n;
  bool is_aligned;  ///< to kIdsAtOnce

  __device__ void load(std::int32_t first, float (&four)[kIdsAtOnce]) const {
    if (is_aligned) return load_f32(values + first, four);
    for (int i = 0; i < kIdsAtOnce; ++i) four[i] = first + i < n ? values[first + i] : -INFINITY;
  }
  /// Calls body(first, four, n_ids) for each kIdsAtOnce tokens from `first`, of which n_ids exist, a thread's in ascending order.
  template <class Body>
  __device__ void each_four(Body body) const {
    constexpr std::int32_t kStep = kThreads * kIdsAtOnce;
    constexpr int kLoads = 4;  // on their way at once
    std::int32_t first = static_cast<std::int32_t>(threadIdx.x) * kIdsAtOnce;
    for (; first + (kLoads - 1) * kStep + kIdsAtOnce <= n; first += kLoads * kStep) {
      float loaded[kLoads][kIdsAtOnce];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) load(first + i * kStep, loaded[i]);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) body(first + i * kStep, loaded[i], kIdsAtOnce);
    }
    for (; first < n; first += kStep) {
      float four[kIdsAtOnce];
      load(first, four);
      body(first, four, n - first < kIdsAtOnce ? n - first : kIdsAtOnce);
    }
  }
  /// Calls body(id, logit) for each token, a thread's in ascending order.
  template <class Body>
  __device__ void each(Body body) const {
    each_four([&](std::int32_t first, const float (&four)[kIdsAtOnce], int n_ids) {
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i)
        if (i < n_ids) body(first + i, four[i]);
    });
  }
};

/// What the threads of a block hold together.
struct Shared {
  std::uint64_t of_warps[kWarps];
  double sums_of_warps[kWarps];
  std::uint32_t n_in_bin[kBins];
  std::uint32_t mass_low[kBins];  ///< of a 64-bit sum: a shared word of 64 bits has no atomic addition
  std::uint32_t mass_high[kBins];
  std::uint64_t of_warps_before[kWarps];
  std::uint32_t found_bin;
  std::uint32_t found_count;
  std::uint64_t found_rest;
  std::uint32_t n_top;
  Place top[kMaxTopLogprobs];
};

__device__ std::uint64_t block_max(Shared& shared, std::uint64_t value) {
  return block_join(value, shared.of_warps, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
}

/// What the candidates of a search weigh: one each, or their share of the probability.
struct ByCount {
  static constexpr bool kOneEach = true;
  __device__ std::uint64_t operator()(float) const { return 1; }
};
struct ByMass {
  static constexpr bool kOneEach = false;
  float max;
  float scale;  ///< 1 / temperature
  __device__ std::uint64_t operator()(float logit) const {
    return static_cast<std::uint64_t>(ldexpf(expf(__fmul_rn(logit - max, scale)), kMassBits));
  }
};

/// The bin in which the weights, counted from the last bin down, reach `wanted`: found_bin, what is wanted inside of it
/// (found_rest) and how many candidates it holds (found_count).
__device__ void find_bin(Shared& shared, std::uint64_t wanted) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int last_bin = kBins - 1 - static_cast<int>(threadIdx.x) * kBinsPerThread;  // this thread's, the others below it
  std::uint64_t mine[kBinsPerThread];
  std::uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    mine[i] = static_cast<std::uint64_t>(shared.mass_high[last_bin - i]) << 32 | shared.mass_low[last_bin - i];
    sum += mine[i];
  }
  std::uint64_t upto = sum;  // of the warp's lanes to this one
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const std::uint64_t other = __shfl_up_sync(0xffffffffu, upto, distance);
    if (lane >= distance) upto += other;
  }
  if (lane == kWarpSize - 1) shared.of_warps_before[warp] = upto;
  __syncthreads();
  std::uint64_t before = upto - sum;
  for (int i = 0; i < warp; ++i) before += shared.of_warps_before[i];
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    if (before < wanted && wanted <= before + mine[i]) {
      shared.found_bin = static_cast<std::uint32_t>(last_bin - i);
      shared.found_rest = wanted - before;
      shared.found_count = shared.n_in_bin[last_bin - i];
    }
    before += mine[i];
  }
  __syncthreads();
}

/// The least place of the smallest set of most likely candidates whose weight reaches `wanted`, which is over 0 and at most the
/// weight of all; candidates are the places from `lowest` on. By count, `wanted` may end with a whole bin, which saves digits.
template <class Weight>
__device__ Place least_place(const Logits& logits, Shared& shared, Place lowest, std::uint64_t wanted, Weight weight) {
  Place prefix = 0;
  int n_bits_left = kPlaceBits;
  for (;;) {
    const int n_bits_below = n_bits_left > kDigitBits ? n_bits_left - kDigitBits : 0;
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads)
      shared.n_in_bin[bin] = shared.mass_low[bin] = shared.mass_high[bin] = 0;
    __syncthreads();
    logits.each([&](std::int32_t id, float logit) {
      const Place place = place_of(logit, id);
      if (place < lowest || place >> n_bits_left != prefix) return;
      const auto bin = static_cast<std::uint32_t>(place >> n_bits_below) & ((1u << (n_bits_left - n_bits_below)) - 1);
      atomicAdd(&shared.n_in_bin[bin], 1u);
      const std::uint64_t weighs = weight(logit);
      const auto low = static_cast<std::uint32_t>(weighs);
      const std::uint32_t before = atomicAdd(&shared.mass_low[bin], low);
      const std::uint32_t carried = before + low < before ? 1u : 0u;
      const auto high = static_cast<std::uint32_t>(weighs >> 32) + carried;
      if (high != 0) atomicAdd(&shared.mass_high[bin], high);
    });
    __syncthreads();
    find_bin(shared, wanted);
    prefix = prefix << (n_bits_left - n_bits_below) | shared.found_bin;
    wanted = shared.found_rest;
    const std::uint32_t count = shared.found_count;
    n_bits_left = n_bits_below;
    __syncthreads();
    // One candidate is the last of the set; of ones that weigh 1 each, all are in it when all are wanted.
    if (n_bits_left == 0 || count == 1 || (Weight::kOneEach && count == wanted)) return prefix << n_bits_left;
  }
}

/// The least place that top_k and top_p leave.
__device__ Place least_candidate(const Logits& logits, Shared& shared, const SampleOrder& order, float max, float scale) {
  Place lowest = 0;
  if (order.top_k > 0 && order.top_k < logits.n)
    lowest = least_place(logits, shared, 0, static_cast<std::uint64_t>(order.top_k), ByCount{});
  if (order.top_p >= 1) return lowest;
  const ByMass mass{max, scale};
  std::uint64_t total = 0;
  logits.each([&](std::int32_t id, float logit) {
    if (place_of(logit, id) >= lowest) total += mass(logit);
  });
  total = block_join(total, shared.of_warps, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  const double wanted = ceil(static_cast<double>(order.top_p) * static_cast<double>(total));
  const std::uint64_t at_least_one = wanted >= 1 ? static_cast<std::uint64_t>(wanted) : 1;
  return least_place(logits, shared, lowest, at_least_one < total ? at_least_one : total, mass);
}

/// The token with the largest log p + noise among the candidates, the smaller id on a tie.
__device__ std::int32_t draw(const Logits& logits, Shared& shared, const SampleOrder& order, std::int32_t n_generated,
                             std::int32_t most_likely_id, float max) {
  const float scale = 1.0f / order.temperature;
  const Place lowest = least_candidate(logits, shared, order, max, scale);
  // No score of a token this far below the most likely one's can be the largest, so its noise is not made.
  const float least_score = gumbel_noise(order.seed, n_generated, most_likely_id) - kMostNoise;
  Place best = 0;
  logits.each_four([&](std::int32_t first, const float (&four)[kIdsAtOnce], int n_ids) {
    float scores[kIdsAtOnce];
    bool may_win = false;
#pragma unroll
    for (int i = 0; i < kIdsAtOnce; ++i) {
      scores[i] = __fmul_rn(four[i] - max, scale);
      may_win |= scores[i] >= least_score;
    }
    if (!may_win) return;
    const std::array<std::uint32_t, 4> bits = bits_of_four_tokens(order.seed, n_generated, first / kIdsAtOnce);
#pragma unroll
    for (int i = 0; i < kIdsAtOnce; ++i) {
      if (i >= n_ids || four[i] == -INFINITY || place_of(four[i], first + i) < lowest) continue;
      // Rounded after each step, as a CPU does it: a fused product would decide near ties differently.
      const Place place = place_of(__fadd_rn(scores[i], gumbel_of_bits(bits[i])), first + i);
      if (place > best) best = place;
    }
  });
  return id_of(block_max(shared, best));
}

__device__ double log_sum_exp(const Logits& logits, Shared& shared, float max) {
  double sum = 0;
  logits.each([&](std::int32_t, float logit) { sum += static_cast<double>(expf(logit - max)); });
  return max + log(block_join(sum, shared.sums_of_warps, [](double a, double b) { return a + b; }));
}

/// Log-probabilities of the most likely tokens, most likely first.
__device__ void fill_logprobs(const Logits& logits, Shared& shared, std::int32_t n_wanted, double log_sum, SampleResult& result) {
  const int n_top = min(min(n_wanted, kMaxTopLogprobs), logits.n);
  const Place lowest =
      n_top < logits.n ? least_place(logits, shared, 0, static_cast<std::uint64_t>(n_top), ByCount{}) : Place{0};
  if (threadIdx.x == 0) shared.n_top = 0;
  __syncthreads();
  logits.each([&](std::int32_t id, float logit) {
    const Place place = place_of(logit, id);
    if (place >= lowest) shared.top[atomicAdd(&shared.n_top, 1u)] = place;
  });
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < n_top) {
    const Place mine = shared.top[threadIdx.x];
    int rank = 0;
    for (int i = 0; i < n_top; ++i) rank += shared.top[i] > mine ? 1 : 0;
    result.top_ids[rank] = id_of(mine);
    result.top_logprobs[rank] = static_cast<float>(value_of(mine) - log_sum);
  }
  if (threadIdx.x == 0) result.n_top = n_top;
}

/// The most likely token's place; has_nan for the whole block.
__device__ Place most_likely(const Logits& logits, Shared& shared, bool& has_nan) {
  Place best = 0;
  bool found_nan = false;
  logits.each([&](std::int32_t id, float logit) {
    if (isnan(logit)) {
      found_nan = true;
      return;
    }
    const Place place = place_of(logit, id);
    if (place > best) best = place;
  });
  has_nan = __syncthreads_or(found_nan ? 1 : 0) != 0;
  return block_max(shared, best);
}

__device__ bool is_stop_id(const SampleOrder& order, std::int32_t token) {
  for (int i = 0; i < order.n_stop_ids; ++i)
    if (order.stop_ids[i] == token) return true;
  return false;
}

/// Takes out the stop ids that may not come yet.
__device__ void forbid_stop_ids(const Logits& logits, const SampleOrder& order) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < order.n_stop_ids && order.stop_ids[i] >= 0 && order.stop_ids[i] < logits.n)
    logits.values[order.stop_ids[i]] = -INFINITY;
  __syncthreads();
}

struct SampleParams {
  const std::byte* step;
  float* logits;
  SlotState* slots;
  SampleResult* results;
  std::int32_t n_slots;
  std::int32_t n_vocab;
  bool is_aligned;
};

__global__ void __launch_bounds__(kThreads) sample_kernel(const SampleParams params) {
  __shared__ Shared shared;
  const StepHeader& header = *reinterpret_cast<const StepHeader*>(params.step);
  const auto index = static_cast<std::int32_t>(blockIdx.x);
  if (index >= header.orders.count) return;
  const SampleOrder& order = reinterpret_cast<const SampleOrder*>(params.step + header.orders.offset)[index];
  if (order.slot < 0 || order.slot >= params.n_slots) __trap();
  SampleResult& result = params.results[index];
  SlotState& slot = params.slots[order.slot];
  const SlotState before = slot;
  __syncthreads();  // all have read it before one changes it
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(SampleResult) / 4); i += kThreads)
    reinterpret_cast<std::uint32_t*>(&result)[i] = 0;
  __syncthreads();
  if (before.finished != 0) {
    if (threadIdx.x == 0) result.was_finished = 1;
    return;
  }
  const Logits logits{params.logits + static_cast<std::int64_t>(index) * params.n_vocab, params.n_vocab, params.is_aligned};
  bool has_nan = false;
  Place best = most_likely(logits, shared, has_nan);
  if (has_nan || best == 0 || value_of(best) == -INFINITY) {
    if (threadIdx.x == 0) {
      slot.finished = 1;
      result.finished = FinishedBy::not_a_number;
    }
    return;
  }
  double log_sum = 0;
  if (order.n_top_logprobs >= 0) log_sum = log_sum_exp(logits, shared, value_of(best));
  if (order.n_top_logprobs > 0) fill_logprobs(logits, shared, order.n_top_logprobs, log_sum, result);

  const std::int32_t n_generated = order.n_generated_before + before.n_generated;
  if (n_generated < order.min_tokens && order.n_stop_ids > 0) {
    __syncthreads();  // their logits were read above
    forbid_stop_ids(logits, order);
    best = most_likely(logits, shared, has_nan);
  }
  std::int32_t token = 0;  // kept if every token was a forbidden stop id
  if (value_of(best) != -INFINITY) {
    token = id_of(best);
    if (order.temperature > 0) token = draw(logits, shared, order, n_generated, token, value_of(best));
  }
  if (threadIdx.x != 0) return;
  result.token = token;
  if (order.n_top_logprobs >= 0) result.logprob = static_cast<float>(logits.values[token] - log_sum);
  if (is_stop_id(order, token))
    result.finished = FinishedBy::stop_id;
  else if (n_generated + 1 >= order.max_tokens)
    result.finished = FinishedBy::length;
  slot.last_token = token;
  slot.n_generated = before.n_generated + 1;
  slot.finished = result.finished != FinishedBy::not_finished ? 1 : 0;
}

}  // namespace

void sample(const Device& device, const SampleArgs& args) {
  const auto n_orders = static_cast<unsigned>(args.logits.shape[0]);
  const std::int64_t n_vocab = args.logits.shape[1];
  check(n_vocab <= 1 << kIdBits, "sample: more than 4,194,304 tokens in the vocabulary");
  if (n_orders == 0 || n_vocab == 0) return;
  const SampleParams params{args.step.data,
                            reinterpret_cast<float*>(args.logits.data),
                            reinterpret_cast<SlotState*>(args.slots.data),
                            reinterpret_cast<SampleResult*>(args.results.data),
                            static_cast<std::int32_t>(args.slots.shape[0]),
                            static_cast<std::int32_t>(n_vocab),
                            rows_are_aligned(n_vocab, args.logits)};
  sample_kernel<<<n_orders, kThreads, 0, device.stream>>>(params);
  check_launch("sample");
}

}  // namespace baton::cuda
