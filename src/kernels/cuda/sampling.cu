/// Sampling on a CUDA device: one block for each sample. The remaining candidates are described by the least likely of
/// them, so nothing is sorted. For few samples with large vocabularies a launch before finds the most likely tokens
/// with more blocks.
#include "kernels/cuda/sampling.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/radix_select.cuh"
#include "kernels/cuda/step_sections.cuh"
#include "kernels/formulas.h"

namespace baton::cuda {
namespace {

/// Above the largest possible Gumbel noise, with room for rounding.
constexpr float kMostNoise = 17;
/// Fewest tokens of a row that get a separate block in the search for the most likely token.
constexpr std::int64_t kLeastPart = kSampleThreads * kIdsAtOnce;
constexpr std::int64_t kMostParts = 32;
/// Marks a NaN among the logits; larger than every place.
constexpr Place kNotANumber = ~Place{0};

/// Shared memory of a block.
struct Shared {
  SearchShared search;
  double sums_of_warps[kSampleThreads / kWarpSize];
  std::uint32_t n_top;
  Place top[kMaxTopLogprobs];
  float original;          ///< the chosen token's logit before any change
  float original_of_last;  ///< the last token's logit before a penalty that no list contains
};

struct SampleParams {
  const std::byte* step;
  float* logits;
  float* originals;  ///< [biases of the step, then counts of the step]: the logits before these entries changed them
  SlotState* slots;
  SampleResult* results;
  std::int32_t n_slots;
  std::int32_t n_vocab;
  std::int32_t n_originals;
  Place* most_likely;    ///< [samples, n_parts]: of each part of a row
  std::int32_t n_parts;  ///< 1: rows are not cut
  bool is_aligned;
  const std::int32_t* mask_rows;   ///< TokenMasks::row_of [n_masks]
  const std::uint32_t* mask_bits;  ///< [n_mask_rows, mask_words]
  std::int32_t n_masks;
  std::int32_t n_mask_rows;
  std::int32_t mask_words;

  __device__ Logits row(std::int32_t index) const {
    return {logits + static_cast<std::int64_t>(index) * n_vocab, n_vocab, is_aligned};
  }
};

__device__ Place block_max(Shared& shared, Place value) {
  return block_join(value, shared.search.of_warps, [](Place a, Place b) { return a > b ? a : b; });
}
__device__ std::uint64_t block_sum(Shared& shared, std::uint64_t value) {
  return block_join(value, shared.search.of_warps, [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

/// A sample's part of a list of the step.
template <class T>
struct List {
  const T* elements;
  std::int32_t n;

  __device__ List(const std::byte* step, const Section& section, const Range& range)
      : elements(baton::cuda::section<T>(step, section) + range.first), n(range.count) {
    if (range.first < 0 || range.count < 0 || range.first + range.count > section.count) __trap();
  }
  /// Calls body(i, element), elements in parallel.
  template <class Body>
  __device__ void each(Body body) const {
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kSampleThreads) body(i, elements[i]);
  }
};

/// Applies the lists of a sample to the logits in place, and looks up the original logits later.
struct Adjuster {
  const SamplingMetadata& sampling;
  List<TokenCount> counts;
  List<TokenBias> biases;
  List<TokenBan> bans;
  float* originals_of_biases;
  float* originals_of_counts;
  bool penalises_last = false;  ///< the last token is in no list

  __device__ Adjuster(const SampleParams& params, const StepHeader& header, const SamplingMetadata& asked)
      : sampling(asked),
        counts(params.step, header.section(SectionKind::token_counts), asked.counts),
        biases(params.step, header.section(SectionKind::token_biases), asked.biases),
        bans(params.step, header.section(SectionKind::token_bans), asked.bans),
        originals_of_biases(params.originals + asked.biases.first),
        originals_of_counts(params.originals + header.section(SectionKind::token_biases).count + asked.counts.first) {
    if (header.section(SectionKind::token_biases).count + header.section(SectionKind::token_counts).count > params.n_originals)
      __trap();
  }

  /// Whether there is anything to apply.
  __device__ bool changes(std::int32_t n_generated) const {
    return sampling.has_penalties() || biases.n > 0 || bans.n > 0 ||
           (n_generated < sampling.min_tokens && sampling.n_stop_ids > 0);
  }
  __device__ void apply(const Logits& logits, Shared& shared, std::int32_t last_token, std::int32_t n_generated) {
    biases.each([&](std::int32_t i, const TokenBias& bias) {
      float& logit = logits.at(bias.id);
      originals_of_biases[i] = logit;
      logit += bias.bias;
    });
    __syncthreads();
    if (sampling.has_penalties()) penalise_all(logits, shared, last_token);
    bans.each([&](std::int32_t, const TokenBan& ban) {
      if (ban.after < 0 || ban.after == last_token) logits.at(ban.banned) = -INFINITY;
    });
    const int i = static_cast<int>(threadIdx.x);
    if (n_generated < sampling.min_tokens && i < sampling.n_stop_ids && sampling.stop_ids[i] >= 0 &&
        sampling.stop_ids[i] < logits.n_vocab)
      logits.values[sampling.stop_ids[i]] = -INFINITY;
    __syncthreads();
  }

  /// The original logit of `token`.
  __device__ float original(const Logits& logits, Shared& shared, std::int32_t token, std::int32_t last_token) const {
    if (threadIdx.x == 0)
      shared.original = penalises_last && token == last_token ? shared.original_of_last : logits.values[token];
    __syncthreads();
    if (sampling.has_penalties())
      counts.each([&](std::int32_t i, const TokenCount& count) {
        if (count.id == token) shared.original = originals_of_counts[i];
      });
    __syncthreads();
    biases.each([&](std::int32_t i, const TokenBias& bias) {
      if (bias.id == token) shared.original = originals_of_biases[i];
    });
    __syncthreads();
    return shared.original;
  }

 private:
  __device__ void penalise_all(const Logits& logits, Shared& shared, std::int32_t last_token) {
    bool is_last_listed = false;
    counts.each([&](std::int32_t i, const TokenCount& count) {
      const bool is_last = sampling.counts_last_token != 0 && count.id == last_token;
      is_last_listed |= is_last;
      float& logit = logits.at(count.id);
      originals_of_counts[i] = logit;
      logit = penalised(logit, count.count + (is_last ? 1 : 0));
    });
    penalises_last = __syncthreads_or(is_last_listed ? 1 : 0) == 0 && sampling.counts_last_token != 0;
    if (penalises_last && threadIdx.x == 0) {
      float& logit = logits.at(last_token);
      shared.original_of_last = logit;
      logit = penalised(logit, 1);
    }
    __syncthreads();
  }
  __device__ float penalised(float logit, std::int32_t count) const {
    if (sampling.repetition_penalty != 1)
      logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    // Rounded after each operation, as on a CPU.
    if (count > 0)
      logit -= __fadd_rn(sampling.presence_penalty, __fmul_rn(sampling.frequency_penalty, static_cast<float>(count)));
    return logit;
  }
};

/// The least place that min_p, top_k and top_p leave.
__device__ Place least_candidate(const Logits& logits, Shared& shared, const SamplingMetadata& sampling, float max,
                                 float scale) {
  Place lowest = 0;
  std::uint64_t n_left = static_cast<std::uint64_t>(logits.n());
  if (sampling.min_p > 0) {
    const float least_scaled = logf(sampling.min_p);
    Place mine = ~Place{0};
    n_left = 0;
    logits.each([&](std::int32_t id, float logit) {
      if (logit == -INFINITY || __fmul_rn(logit - max, scale) < least_scaled) return;
      const Place place = place_of(logit, id);
      mine = place < mine ? place : mine;
      ++n_left;
    });
    lowest = ~block_max(shared, ~mine);
    n_left = block_sum(shared, n_left);
  }
  if (sampling.top_k > 0 && static_cast<std::uint64_t>(sampling.top_k) < n_left)
    lowest = least_place(logits, shared.search, lowest, static_cast<std::uint64_t>(sampling.top_k), ByCount{});
  if (sampling.top_p >= 1) return lowest;
  const ByMass mass{max, scale};
  std::uint64_t total = 0;
  logits.each([&](std::int32_t id, float logit) {
    if (place_of(logit, id) >= lowest) total += mass(logit);
  });
  total = block_sum(shared, total);
  const double wanted = ceil(static_cast<double>(sampling.top_p) * static_cast<double>(total));
  const std::uint64_t at_least_one = wanted >= 1 ? static_cast<std::uint64_t>(wanted) : 1;
  return least_place(logits, shared.search, lowest, at_least_one < total ? at_least_one : total, mass);
}

/// The remaining token with the largest log p + noise; the smaller id on a tie. `most_likely_id` has the logit `max`.
__device__ std::int32_t draw(const Logits& logits, Shared& shared, const SamplingMetadata& sampling, std::int32_t n_generated,
                             std::int32_t most_likely_id, float max) {
  const float scale = 1.0f / sampling.temperature;
  const Place lowest = least_candidate(logits, shared, sampling, max, scale);
  // A token this far below the most likely one cannot have the largest score, so its noise is not computed.
  const float least_score = gumbel_noise(sampling.seed, n_generated, most_likely_id) - kMostNoise;
  Place best = 0;
  logits.each_four([&](std::int32_t first, const float(&four)[kIdsAtOnce]) {
    float scores[kIdsAtOnce];
    bool may_win = false;
#pragma unroll
    for (int i = 0; i < kIdsAtOnce; ++i) {
      scores[i] = __fmul_rn(four[i] - max, scale);
      may_win |= scores[i] >= least_score;
    }
    if (!may_win) return;
    const std::array<std::uint32_t, 4> bits = bits_of_four_tokens(sampling.seed, n_generated, first / kIdsAtOnce);
#pragma unroll
    for (int i = 0; i < kIdsAtOnce; ++i) {
      if (four[i] == -INFINITY || place_of(four[i], first + i) < lowest) continue;
      // Rounded after each operation, as on a CPU: a fused multiply-add would decide near ties differently.
      const Place place = place_of(__fadd_rn(scores[i], gumbel_of_bits(bits[i])), first + i);
      best = place > best ? place : best;
    }
  });
  return id_of(block_max(shared, best));
}

/// Makes the logits of tokens that the sample's mask forbids -infinity. Returns whether it has a mask.
__device__ bool apply_mask(const SampleParams& params, const SamplingMetadata& sampling, const Logits& logits) {
  if (sampling.mask < 0) return false;
  if (sampling.mask >= params.n_masks) __trap();
  const std::int32_t row = params.mask_rows[sampling.mask];
  if (row < 0) return false;
  if (row >= params.n_mask_rows) __trap();
  const std::uint32_t* words = params.mask_bits + static_cast<std::int64_t>(row) * params.mask_words;
  logits.keep([words](std::int32_t first) { return words[first / 32] >> (first % 32); });
  __syncthreads();
  return true;
}

__device__ double log_sum_exp(const Logits& logits, Shared& shared, float max) {
  double sum = 0;
  logits.each([&](std::int32_t, float logit) { sum += static_cast<double>(expf(logit - max)); });
  return max + log(block_join(sum, shared.sums_of_warps, [](double a, double b) { return a + b; }));
}

/// Log-probabilities of the most likely tokens, most likely first.
__device__ void fill_top(const Logits& logits, Shared& shared, std::int32_t n_wanted, double log_sum, SampleResult& result) {
  const int n_top = min(min(n_wanted, kMaxTopLogprobs), logits.n());
  const Place lowest =
      n_top < logits.n() ? least_place(logits, shared.search, 0, static_cast<std::uint64_t>(n_top), ByCount{}) : Place{0};
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
  __syncthreads();
}

/// The place of the most likely candidate, 0 without any, kNotANumber with a NaN among them. Ids count from `first`.
template <class OfWarps>
__device__ Place most_likely(const Logits& logits, OfWarps& of_warps, std::int32_t first = 0) {
  Place best = 0;
  logits.each([&](std::int32_t id, float logit) {
    const Place place = isnan(logit) ? kNotANumber : place_of(logit, first + id);
    best = place > best ? place : best;
  });
  return block_join(best, of_warps, [](Place a, Place b) { return a > b ? a : b; });
}

/// The same for a whole row, from the results of its parts.
__device__ Place most_likely_of_parts(const SampleParams& params, Shared& shared, std::int32_t index) {
  const auto part = static_cast<std::int32_t>(threadIdx.x);
  return block_max(shared, part < params.n_parts ? params.most_likely[index * params.n_parts + part] : 0);
}

/// The log-probability and rank of a known token.
__device__ void score(const Logits& logits, Shared& shared, const SamplingMetadata& sampling, double log_sum,
                      SampleResult& result) {
  const float logit = logits.at(sampling.scored);
  std::uint64_t n_larger = 0;
  logits.each([&](std::int32_t, float other) { n_larger += other > logit ? 1 : 0; });
  n_larger = block_sum(shared, n_larger);
  if (threadIdx.x != 0) return;
  result.token = sampling.scored;
  result.logprob = static_cast<float>(logit - log_sum);
  result.rank = 1 + static_cast<std::int32_t>(n_larger);
}

/// Finishes the sample with the chosen token. Called by one thread.
__device__ void commit(const SamplingMetadata& sampling, std::int32_t token, std::int32_t n_generated, SlotState& slot,
                       SampleResult& result) {
  bool is_stop_id = false;
  for (int i = 0; i < sampling.n_stop_ids; ++i) is_stop_id |= sampling.stop_ids[i] == token;
  result.token = token;
  if (is_stop_id)
    result.finished = FinishedBy::stop_id;
  else if (n_generated + 1 >= sampling.max_tokens)
    result.finished = FinishedBy::length;
  slot.last_token = token;
  slot.n_generated++;
  slot.finished = is_stop_id || n_generated + 1 >= sampling.max_tokens ? 1 : 0;
}

/// Finishes the sample without a token. Called by one thread.
__device__ void finish(FinishedBy why, SlotState* slot, SampleResult& result) {
  if (slot != nullptr) slot->finished = 1;
  result.finished = why;
}

/// Processes one sample; `slot` is null for a scored token.
__device__ void sample_one(const SampleParams& params, Shared& shared, const StepHeader& header,
                           const SamplingMetadata& sampling, Logits logits, SlotState* slot, SampleResult& result) {
  const SlotState before = slot != nullptr ? *slot : SlotState{0, 0, 0, 0};
  if (before.finished != 0) {
    if (threadIdx.x == 0) result.was_finished = 1;
    return;
  }
  Place best = params.n_parts > 1 ? most_likely_of_parts(params, shared, static_cast<std::int32_t>(blockIdx.x))
                                  : most_likely(logits, shared.search.of_warps);
  if (best == kNotANumber || value_of(best) == -INFINITY) {
    if (threadIdx.x == 0) finish(FinishedBy::not_a_number, slot, result);
    return;
  }
  double log_sum = 0;
  if (sampling.n_top_logprobs >= 0) log_sum = log_sum_exp(logits, shared, value_of(best));
  if (sampling.n_top_logprobs > 0) fill_top(logits, shared, sampling.n_top_logprobs, log_sum, result);
  if (slot == nullptr) return score(logits, shared, sampling, log_sum, result);

  const std::int32_t n_generated = sampling.n_generated_before + before.n_generated;
  const bool is_masked = apply_mask(params, sampling, logits);
  Adjuster adjuster(params, header, sampling);
  const bool changes = adjuster.changes(n_generated);
  if (changes) adjuster.apply(logits, shared, before.last_token, n_generated);
  const List<std::int32_t> allowed(params.step, header.section(SectionKind::allowed_ids), sampling.allowed);
  if (allowed.n > 0) {
    logits.ids = allowed.elements;
    logits.n_ids = allowed.n;
  }
  if (is_masked || changes || allowed.n > 0) best = most_likely(logits, shared.search.of_warps);
  if (best == kNotANumber || value_of(best) == -INFINITY) {
    if (threadIdx.x == 0) finish(best == kNotANumber ? FinishedBy::not_a_number : FinishedBy::nothing_allowed, slot, result);
    return;
  }
  std::int32_t token = id_of(best);
  if (sampling.temperature > 0) token = draw(logits, shared, sampling, n_generated, token, value_of(best));
  float original = 0;
  if (sampling.n_top_logprobs >= 0) original = adjuster.original(logits, shared, token, before.last_token);
  if (threadIdx.x != 0) return;
  if (sampling.n_top_logprobs >= 0) result.logprob = static_cast<float>(original - log_sum);
  commit(sampling, token, n_generated, *slot, result);
}

/// Block (part, sample).
__global__ void __launch_bounds__(kSampleThreads) most_likely_kernel(const SampleParams params, std::int32_t part_length) {
  __shared__ Place of_warps[kSampleThreads / kWarpSize];
  let_next_kernel_start();
  wait_for_kernel_before();
  const auto index = static_cast<std::int32_t>(blockIdx.y);
  if (index >= step_header(params.step).section(SectionKind::samples).count) return;
  Logits part = params.row(index);
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * part_length;
  part.values += first;
  part.n_vocab = min(part_length, params.n_vocab - first);
  const Place best = most_likely(part, of_warps, first);
  if (threadIdx.x == 0) params.most_likely[index * params.n_parts + static_cast<std::int32_t>(blockIdx.x)] = best;
}

__global__ void __launch_bounds__(kSampleThreads) sample_kernel(const SampleParams params) {
  __shared__ Shared shared;
  wait_for_kernel_before();
  const StepHeader& header = step_header(params.step);
  const Section& samples = header.section(SectionKind::samples);
  const auto index = static_cast<std::int32_t>(blockIdx.x);
  if (index >= samples.count) return;
  const SamplingMetadata& sampling = section<SamplingMetadata>(params.step, samples)[index];
  if (sampling.slot < 0 || sampling.slot >= params.n_slots) __trap();
  SampleResult& result = params.results[index];
  static_assert(sizeof(SampleResult) % sizeof(std::uint32_t) == 0);
  for (std::size_t i = threadIdx.x; i < sizeof(SampleResult) / sizeof(std::uint32_t); i += kSampleThreads)
    reinterpret_cast<std::uint32_t*>(&result)[i] = 0;
  __syncthreads();
  sample_one(params, shared, header, sampling, params.row(index), sampling.scored >= 0 ? nullptr : &params.slots[sampling.slot],
             result);
}

}  // namespace

void sample(const Device& device, const SampleWorkspace& workspace, const SampleArgs& args) {
  const auto n_samples = static_cast<unsigned>(args.logits.shape[0]);
  const std::int64_t n_vocab = args.logits.shape[1];
  check(n_vocab <= 1 << kIdBits, "sample: more than 4,194,304 tokens in the vocabulary");
  if (n_samples == 0 || n_vocab == 0) return;
  const std::int64_t n_parts =
      std::max<std::int64_t>(1, std::min({n_vocab / kLeastPart, workspace.n_places / std::int64_t{n_samples}, kMostParts}));
  const bool has_masks = args.masks.row_of.data != nullptr;
  const SampleParams params{args.step.data,
                            reinterpret_cast<float*>(args.logits.data),
                            workspace.originals,
                            reinterpret_cast<SlotState*>(args.slots.data),
                            reinterpret_cast<SampleResult*>(args.results.data),
                            static_cast<std::int32_t>(args.slots.shape[0]),
                            static_cast<std::int32_t>(n_vocab),
                            workspace.n_originals,
                            reinterpret_cast<Place*>(workspace.places),
                            static_cast<std::int32_t>(n_parts),
                            rows_are_aligned(n_vocab, args.logits),
                            reinterpret_cast<const std::int32_t*>(args.masks.row_of.data),
                            reinterpret_cast<const std::uint32_t*>(args.masks.bits.data),
                            has_masks ? static_cast<std::int32_t>(args.masks.row_of.shape[0]) : 0,
                            has_masks ? static_cast<std::int32_t>(args.masks.bits.shape[0]) : 0,
                            has_masks ? static_cast<std::int32_t>(args.masks.bits.shape[1]) : 0};
  if (n_parts > 1) {
    // Parts are multiples of kIdsAtOnce tokens; the last may be shorter. None is empty, because a part has more tokens
    // than there are parts.
    const std::int64_t part_length = (n_vocab + n_parts * kIdsAtOnce - 1) / (n_parts * kIdsAtOnce) * kIdsAtOnce;
    launch_overlapped(device, most_likely_kernel, dim3(static_cast<unsigned>(n_parts), n_samples), kSampleThreads, 0,
                      "sample: the most likely", params, static_cast<std::int32_t>(part_length));
  }
  launch_overlapped(device, sample_kernel, dim3(n_samples), kSampleThreads, 0, "sample", params);
}

}  // namespace baton::cuda
