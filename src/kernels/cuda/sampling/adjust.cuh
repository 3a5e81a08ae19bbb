/// Biases, penalties, bans and masks of a sample on a CUDA device.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/params.cuh"

namespace baton::cuda {

/// A sample's part of a list of the step.
template <class T>
struct List {
  const T* elements;
  std::int32_t n;

  __device__ List(const std::byte* step, const Section& section, const Range& range)
      : elements(baton::cuda::section<T>(step, section) + range.first), n(range.count) {
    if (range.first < 0 || range.count < 0 || range.first + range.count > section.count) __trap();
  }
  /// Calls body(i, element) in the list's threads, elements in parallel.
  template <class Body>
  __device__ void each(Body body) const {
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kListThreads) body(i, elements[i]);
  }
};

/// Applies the lists of a sample to the logits in place, and looks up the original logits later. What reads or writes
/// the lists is called by the list's threads.
struct Adjuster {
  const SamplingMetadata& sampling;
  List<TokenCount> counts;
  List<TokenBias> biases;
  List<TokenBan> bans;
  float* originals_of_biases;
  float* originals_of_counts;
  float early_logit = 0;  ///< of this thread's first count, before any change

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
  /// Loads what apply needs first. No later than anything changes the logits.
  __device__ void load_early(const Logits& logits) {
    const auto i = static_cast<std::int32_t>(threadIdx.x);
    if (i < counts.n && sampling.has_penalties()) early_logit = logits.at(counts.elements[i].id);
  }
  /// After load_early.
  __device__ void apply(const Logits& logits, Shared& shared, std::int32_t last_token, std::int32_t n_generated) {
    if (biases.n > 0) {
      biases.each([&](std::int32_t i, const TokenBias& bias) {
        float& logit = logits.at(bias.id);
        originals_of_biases[i] = logit;
        logit += bias.bias;
      });
      ListThreads::wait();
    }
    if (sampling.has_penalties()) penalise_all(logits, shared, last_token);
    if (bans.n > 0 || sampling.n_stop_ids > 0) ListThreads::wait();
    bans.each([&](std::int32_t, const TokenBan& ban) {
      if (ban.after < 0 || ban.after == last_token) logits.at(ban.banned) = -INFINITY;
    });
    const int i = static_cast<int>(threadIdx.x);
    if (n_generated < sampling.min_tokens && i < sampling.n_stop_ids && sampling.stop_ids[i] >= 0 &&
        sampling.stop_ids[i] < logits.n_vocab)
      logits.values[sampling.stop_ids[i]] = -INFINITY;
    ListThreads::wait();
  }

  /// Whether a token may have a larger logit than before.
  __device__ bool lifts() const { return biases.n > 0 || penalties_lift(); }
  /// Whether each token may be lifted at most once, so that lifted_each finds each of them once.
  __device__ bool lifts_once() const { return biases.n == 0 || !penalties_lift(); }
  /// After apply: calls body(is_token, id, original) for the tokens that may have a larger logit than before, a whole
  /// warp at a time. Requires lifts_once().
  template <class Body>
  __device__ void lifted_each(const Shared& shared, std::int32_t last_token, Body body) const {
    const auto mine = static_cast<std::int32_t>(threadIdx.x);
    for (std::int32_t first = 0; first < biases.n; first += kListThreads) {
      const bool is_token = first + mine < biases.n;
      body(is_token, is_token ? biases.elements[first + mine].id : 0, is_token ? originals_of_biases[first + mine] : 0);
    }
    if (!penalties_lift()) return;
    for (std::int32_t first = 0; first < counts.n; first += kListThreads) {
      const bool is_token = first + mine < counts.n;
      body(is_token, is_token ? counts.elements[first + mine].id : 0, is_token ? originals_of_counts[first + mine] : 0);
    }
    if (shared.penalises_last != 0) body(mine == 0, last_token, shared.original_of_last);
  }

  /// The original logit of `token`.
  __device__ float original(const Logits& logits, Shared& shared, std::int32_t token, std::int32_t last_token) const {
    if (threadIdx.x == 0)
      shared.original = shared.penalises_last != 0 && token == last_token ? shared.original_of_last : logits.values[token];
    ListThreads::wait();
    if (sampling.has_penalties())
      counts.each([&](std::int32_t i, const TokenCount& count) {
        if (count.id == token) shared.original = originals_of_counts[i];
      });
    ListThreads::wait();
    biases.each([&](std::int32_t i, const TokenBias& bias) {
      if (bias.id == token) shared.original = originals_of_biases[i];
    });
    ListThreads::wait();
    return shared.original;
  }

 private:
  __device__ bool penalties_lift() const {
    return sampling.has_penalties() &&
           !(sampling.repetition_penalty >= 1 && sampling.presence_penalty >= 0 && sampling.frequency_penalty >= 0);
  }
  __device__ void penalise_all(const Logits& logits, Shared& shared, std::int32_t last_token) {
    bool is_last_listed = false;
    counts.each([&](std::int32_t i, const TokenCount& count) {
      const bool is_last = sampling.counts_last_token != 0 && count.id == last_token;
      is_last_listed |= is_last;
      float& logit = logits.at(count.id);
      const float original = biases.n == 0 && i < kListThreads ? early_logit : logit;
      originals_of_counts[i] = original;
      logit = penalised(original, count.count + (is_last ? 1 : 0));
    });
    if (sampling.counts_last_token == 0) return;
    const bool penalises_last = ListThreads::count(is_last_listed) == 0;
    if (threadIdx.x == 0) {
      shared.penalises_last = penalises_last ? 1 : 0;
      if (penalises_last) {
        float& logit = logits.at(last_token);
        shared.original_of_last = logit;
        logit = penalised(logit, 1);
      }
    }
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

/// The words of the sample's mask; null: it has none.
__device__ inline const std::uint32_t* mask_of(const SampleParams& params, const SamplingMetadata& sampling) {
  if (sampling.mask < 0) return nullptr;
  if (sampling.mask >= params.n_masks) __trap();
  const std::int32_t row = params.mask_rows[sampling.mask];
  if (row < 0) return nullptr;
  if (row >= params.n_mask_rows) __trap();
  return params.mask_bits + static_cast<std::int64_t>(row) * params.mask_words;
}
/// Makes the logits of tokens that the mask forbids -infinity.
__device__ inline void apply_mask(const std::uint32_t* words, const Logits& logits) {
  if (words == nullptr) return;
  logits.keep([words](std::int32_t first) { return words[first / 32] >> (first % 32); });
  __syncthreads();
}

}  // namespace baton::cuda
