/// Finds the tokens that top-k and top-p keep, without sorting: one block of threads searches the logits of a sample
/// for the least likely of them, by radix. Weights are integers, so no sum depends on the order of the threads.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/sampling/parts.h"

namespace baton::cuda {

/// Threads of a block that searches a row, a power of two in these bounds. All results are the same with any number.
inline constexpr int kMostSampleThreads = 1024;
inline constexpr int kFewestSampleThreads = 512;

/// A candidate's rank as an integer, its place: the bits of its logit, made monotone, followed by its inverted id. All
/// places differ; a more likely candidate has a larger place.
using Place = std::uint64_t;
inline constexpr int kIdBits = 22;
inline constexpr int kPlaceBits = 32 + kIdBits;
/// The search reads the bits of a place from the top, in digits: three for the logit, then two for the id.
inline constexpr int kDigitBits = 11;
inline constexpr int kBins = 1 << kDigitBits;
inline constexpr int kMostBinsPerThread = kBins / kFewestSampleThreads;
/// A candidate's mass exp(...) <= 1 is counted in units of 2^-40. Masses that round to 0 among four million candidates
/// sum to at most 4e-6 of the mass of the most likely one, and 2^22 times 2^40 fits 64 bits.
inline constexpr float kMassUnits = 0x1p40f;

__device__ inline std::uint32_t monotone_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value == 0 ? 0.0f : value);  // -0 ties with 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_monotone_bits(std::uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}
__device__ inline Place place_of(float value, std::int32_t id) {
  return static_cast<Place>(monotone_bits(value)) << kIdBits | ((1u << kIdBits) - 1 - static_cast<std::uint32_t>(id));
}
__device__ inline std::int32_t id_of(Place place) {
  return static_cast<std::int32_t>((1u << kIdBits) - 1 - (static_cast<std::uint32_t>(place) & ((1u << kIdBits) - 1)));
}
__device__ inline float value_of(Place place) { return from_monotone_bits(static_cast<std::uint32_t>(place >> kIdBits)); }

/// The candidates of one sample: all tokens, or those of a list.
struct Logits {
  float* values = nullptr;
  std::int32_t n_vocab = 0;
  bool is_aligned = false;            ///< to kIdsAtOnce
  const std::int32_t* ids = nullptr;  ///< null: all
  std::int32_t n_ids = 0;

  __device__ std::int32_t n() const { return ids == nullptr ? n_vocab : n_ids; }
  /// A token's logit; an id outside the vocabulary stops the device.
  __device__ float& at(std::int32_t id) const {
    if (id < 0 || id >= n_vocab) __trap();
    return values[id];
  }

  /// Calls body(id, logit) for each candidate; each thread sees its candidates in ascending order.
  template <class Body>
  __device__ void each(Body body) const {
    if (ids != nullptr) {
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n_ids; i += static_cast<std::int32_t>(blockDim.x))
        body(ids[i], at(ids[i]));
      return;
    }
    each_four_of_all([&](std::int32_t first, const float(&four)[kIdsAtOnce], int n_here) {
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i)
        if (i < n_here) body(first + i, four[i]);
    });
  }
  /// Calls body(first, four) for the logits of kIdsAtOnce tokens from `first` on, a multiple of it; tokens that are no
  /// candidates have -infinity.
  template <class Body>
  __device__ void each_four(Body body) const {
    if (ids == nullptr)
      return each_four_of_all([&](std::int32_t first, const float(&four)[kIdsAtOnce], int) { body(first, four); });
    each([&](std::int32_t id, float logit) {
      float four[kIdsAtOnce];
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i) four[i] = id % kIdsAtOnce == i ? logit : -INFINITY;
      body(id / kIdsAtOnce * kIdsAtOnce, four);
    });
  }

  /// Makes the logits of all tokens -infinity for which bit id - first of bits_of(first) is 0. `first` is a multiple of
  /// kIdsAtOnce, and bits_of is called for kIdsAtOnce ids at once.
  template <class BitsOf>
  __device__ void keep(BitsOf bits_of) const {
    constexpr std::uint32_t kAllBits = (1u << kIdsAtOnce) - 1;
    const std::int32_t begin = static_cast<std::int32_t>(threadIdx.x) * kIdsAtOnce;
    const auto step = static_cast<std::int32_t>(blockDim.x) * kIdsAtOnce;
    for (std::int32_t first = begin; first < n_vocab; first += step) {
      const std::uint32_t bits = bits_of(first) & kAllBits;
      if (bits == kAllBits) continue;
      if (bits == 0 && is_aligned) {
        *reinterpret_cast<float4*>(values + first) = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        continue;
      }
      for (int i = 0; i < kIdsAtOnce; ++i)
        if ((bits >> i & 1u) == 0 && first + i < n_vocab) values[first + i] = -INFINITY;
    }
  }

 private:
  __device__ void load(std::int32_t first, float (&four)[kIdsAtOnce]) const {
    if (is_aligned) return load_f32(values + first, four);
    for (int i = 0; i < kIdsAtOnce; ++i) four[i] = first + i < n_vocab ? values[first + i] : -INFINITY;
  }
  template <class Body>
  __device__ void each_four_of_all(Body body) const {
    const auto step = static_cast<std::int32_t>(blockDim.x) * kIdsAtOnce;
    constexpr int kLoads = 4;  // in flight at the same time
    std::int32_t first = static_cast<std::int32_t>(threadIdx.x) * kIdsAtOnce;
    for (; first + (kLoads - 1) * step + kIdsAtOnce <= n_vocab; first += kLoads * step) {
      float loaded[kLoads][kIdsAtOnce];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) load(first + i * step, loaded[i]);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) body(first + i * step, loaded[i], kIdsAtOnce);
    }
    for (; first < n_vocab; first += step) {
      float four[kIdsAtOnce];
      load(first, four);
      body(first, four, n_vocab - first < kIdsAtOnce ? n_vocab - first : kIdsAtOnce);
    }
  }
};

/// Shared memory of a block during the search.
struct SearchShared {
  std::uint64_t of_warps[kMostSampleThreads / kWarpSize];
  std::uint32_t n_in_bin[kBins];
  std::uint32_t mass_low[kBins];  ///< low half of a 64-bit sum: shared memory has no atomic addition of 64 bits
  std::uint32_t mass_high[kBins];
  std::uint32_t found_bin;
  std::uint32_t found_count;
  std::uint64_t found_rest;
};

/// The weight of a candidate in a search: 1, or its share of the probability.
struct ByCount {
  static constexpr bool kOneEach = true;
  __device__ std::uint64_t operator()(float) const { return 1; }
};
struct ByMass {
  static constexpr bool kOneEach = false;
  float max;
  float scale;  ///< 1 / temperature
  __device__ std::uint64_t operator()(float logit) const {
    return static_cast<std::uint64_t>(expf(__fmul_rn(logit - max, scale)) * kMassUnits);
  }
};

/// Finds the bin in which the weights, summed from the last bin down, reach `wanted`. Sets found_bin, the weight still
/// wanted inside it (found_rest) and its number of candidates (found_count).
__device__ inline void find_bin(SearchShared& shared, std::uint64_t wanted) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int n_bins = kBins / static_cast<int>(blockDim.x);  // of this thread
  const int last_bin = kBins - 1 - static_cast<int>(threadIdx.x) * n_bins;
  std::uint64_t mine[kMostBinsPerThread];
  std::uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kMostBinsPerThread; ++i) {
    if (i == n_bins) break;
    mine[i] = static_cast<std::uint64_t>(shared.mass_high[last_bin - i]) << 32 | shared.mass_low[last_bin - i];
    sum += mine[i];
  }
  std::uint64_t upto = sum;  // sum over the warp's lanes up to this one
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const std::uint64_t other = __shfl_up_sync(0xffffffffu, upto, distance);
    if (lane >= distance) upto += other;
  }
  if (lane == kWarpSize - 1) shared.of_warps[warp] = upto;
  __syncthreads();
  std::uint64_t before = upto - sum;
  for (int i = 0; i < warp; ++i) before += shared.of_warps[i];
#pragma unroll
  for (int i = 0; i < kMostBinsPerThread; ++i) {
    if (i == n_bins) break;
    if (before < wanted && wanted <= before + mine[i]) {
      shared.found_bin = static_cast<std::uint32_t>(last_bin - i);
      shared.found_rest = wanted - before;
      shared.found_count = shared.n_in_bin[last_bin - i];
    }
    before += mine[i];
  }
  __syncthreads();
}

/// The least place in the smallest set of most likely candidates whose weight reaches `wanted`. `wanted` is over 0 and
/// at most the total weight; candidates are the places from `lowest` on. By count, the search may end with a whole
/// bin, which saves digits.
template <class Weight>
__device__ Place least_place(const Logits& logits, SearchShared& shared, Place lowest, std::uint64_t wanted, Weight weight) {
  Place prefix = 0;
  int n_bits_left = kPlaceBits;
  for (;;) {
    const int n_bits_below = n_bits_left > kDigitBits ? n_bits_left - kDigitBits : 0;
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += static_cast<int>(blockDim.x))
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
    // Stop at a single candidate, the last of the set, or, if each weighs 1, when all candidates left are wanted.
    if (n_bits_left == 0 || count == 1 || (Weight::kOneEach && count == wanted)) {
      const Place least = prefix << n_bits_left;
      return least > lowest ? least : lowest;
    }
  }
}

}  // namespace baton::cuda
