/// Sampling on a CUDA device, in two launches. The first reads all rows, with many blocks (sampling/gather.cu). The
/// second has one block for each sample, which chooses from what the first says of the row's parts (sampling/records.cuh),
/// from the row's list of likely tokens (sampling/near.cuh), or from the row where the list does not suffice
/// (sampling/row.cuh).
#include "kernels/cuda/sampling/sampling.h"

#include <algorithm>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/sampling/near.cuh"
#include "kernels/cuda/sampling/records.cuh"

namespace baton::cuda {
namespace {

/// Records the chosen token. By one thread.
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

/// What the block's threads share, before there is a choice. By one thread.
__device__ void clear(Shared& shared) {
  shared.work = RowWork::none;
  shared.token = -1;
  shared.ended = FinishedBy::not_finished;
  shared.has_original = shared.penalises_last = shared.has_top = shared.is_changed = 0;
  shared.best = shared.total = 0;
  shared.log_sum = 0;
  shared.near.n = shared.near.n_changed = shared.near.rank = 0;
}

/// Clears the result. By `n_threads` threads, of which this is `thread`.
__device__ void clear(SampleResult& result, int thread, int n_threads) {
  static_assert(sizeof(SampleResult) % sizeof(std::uint32_t) == 0);
  for (int i = thread; i < static_cast<int>(sizeof(SampleResult) / sizeof(std::uint32_t)); i += n_threads)
    reinterpret_cast<std::uint32_t*>(&result)[i] = 0;
}

/// Chooses from the parts' records and draws alone, if needs_records_only, or leaves in shared.work that the row is needed.
/// By the first warp.
__device__ void choose_from_records(const SampleParams& params, const SamplingMetadata& sampling, Shared& shared,
                                    SampleResult& result) {
  const bool is_first = threadIdx.x == 0;
  const std::int64_t first_part = static_cast<std::int64_t>(blockIdx.x) * params.n_parts;
  SlotState& slot = params.slots[sampling.slot];
  const SlotState before = slot;
  const Place best = best_of_records(params.parts + first_part, params.n_parts);
  clear(result, static_cast<int>(threadIdx.x), kWarpSize);
  __syncwarp();
  if (before.finished != 0) {
    if (is_first) result.was_finished = 1;
    return;
  }
  if (!has_token(best)) {
    if (is_first) slot.finished = 1;
    if (is_first) result.finished = FinishedBy::not_a_number;
    return;
  }
  const std::int32_t n_generated = sampling.n_generated_before + before.n_generated;
  std::int32_t token = id_of(best);
  if (sampling.temperature > 0)
    token = best_of_draws(params.draws + first_part, params.n_parts,
                          {sampling.seed, n_generated, value_of(best), 1.0f / sampling.temperature});
  if (!is_first) return;
  if (token >= 0)
    commit(sampling, token, n_generated, slot, result);
  else
    shared.work = RowWork::all;
}

/// One sample of a step, processed by a block: first by two groups of threads with the row's list, then, if the list does
/// not suffice, by all threads with the row.
class Sample {
 public:
  __device__ Sample(const SampleParams& of_launch, Shared& of_block, const StepHeader& header, const SamplingMetadata& asked,
                    std::int32_t index)
      : params(of_launch),
        shared(of_block),
        sampling(asked),
        slot(asked.scored >= 0 ? nullptr : &of_launch.slots[asked.slot]),
        result(of_launch.results[index]),
        logits(of_launch.row(index)),
        allowed(of_launch.step, header.section(SectionKind::allowed_ids), asked.allowed),
        adjuster(of_launch, header, asked),
        mask(asked.scored >= 0 ? nullptr : mask_of(of_launch, asked)) {
    if (slot == nullptr) return;
    before = *slot;
    n_generated = sampling.n_generated_before + before.n_generated;
  }

  /// By the list's threads. Ends the sample or leaves in shared.work what the row is needed for.
  __device__ void use_list() {
    choose();
    ReportIsDone::wait();
    if (shared.work == RowWork::none) end();
  }
  /// By the report's threads, at the same time: clears the result and reports log-probabilities.
  __device__ void report() {
    clear(result, ReportThreads::thread(), kListThreads);
    if (sampling.n_top_logprobs >= 0 && before.finished == 0) report_likeliest();
    ReportIsDone::say();
  }
  /// By all threads: what the list's threads left.
  __device__ void use_row() {
    const RowWork work = shared.work;
    if (work == RowWork::total) {
      const std::uint64_t total = mass_of_row();
      if (ListThreads::has_this()) {
        NearList near(shared);
        finish(near.draw_from_nucleus(sampling, n_generated, value_of(shared.best), shared.near.n_left, total), near);
      }
      __syncthreads();
      if (shared.work == RowWork::none) return;
    }
    const std::int32_t token = work == RowWork::noise ? likeliest_with_noise() : from_row();
    if (token >= 0 && ListThreads::has_this()) finish(token, NearList(shared));
  }
  /// By the list's threads, when everything else is done.
  __device__ void end() {
    const bool is_first = threadIdx.x == 0;
    if (before.finished != 0) {
      if (is_first) result.was_finished = 1;
      return;
    }
    if (shared.ended != FinishedBy::not_finished) {
      if (is_first && slot != nullptr) slot->finished = 1;
      if (is_first) result.finished = shared.ended;
      return;
    }
    const std::int32_t token = shared.token;
    if (token < 0) return;
    if (sampling.n_top_logprobs >= 0) {
      float original = shared.original;
      if (shared.has_original == 0) original = adjuster.original(logits, shared, token, before.last_token);
      if (is_first) result.logprob = static_cast<float>(original - shared.log_sum);
    }
    if (is_first) commit(sampling, token, n_generated, *slot, result);
  }

 private:
  /// Chooses a token from the list or leaves in shared.work what the row is needed for. By the list's threads.
  __device__ void choose() {
    if (before.finished != 0) return;
    const bool is_first = threadIdx.x == 0;
    NearList near(shared);
    if (needs_near(sampling)) near.load_early(params);
    adjuster.load_early(logits);
    const RowParts<ListThreads> row(params, shared.row);
    if (!has_token(row.best)) {
      if (is_first) shared.ended = FinishedBy::not_a_number;
      return;
    }
    near.load(params, row);
    if (is_first) shared.work = RowWork::all;
    if (sampling.n_top_logprobs > 0) {
      ListIsComplete::say();
      if (!near.is_valid() || near.size() < n_top()) return;
    }
    if (slot == nullptr || allowed.n > 0) return;
    const bool changes = adjuster.changes(n_generated);
    if (changes) apply();
    const bool is_new = changes || mask != nullptr;
    if (!is_new && sampling.temperature <= 0) {
      if (is_first) shared.original = value_of(row.best);
      if (is_first) shared.has_original = 1;
      return finish(id_of(row.best), near);
    }
    if (is_new && near.is_valid()) near.update(logits, adjuster, mask, before.last_token);
    finish(near.choose(sampling, n_generated, is_new ? 0 : row.best, mask != nullptr), near);
  }
  /// Reports the log-probabilities of the most likely tokens, most likely first, if the list has them. By the report's
  /// threads.
  __device__ void report_likeliest() {
    const int i = ReportThreads::thread();
    const RowParts<ReportThreads> row(params, shared.row_of_report);
    if (!has_token(row.best)) return;
    const double log_sum = row.log_sum(shared.sums_of_warps);
    if (i == 0) shared.log_sum = log_sum;
    if (sampling.n_top_logprobs == 0) return;
    ListIsComplete::wait();
    const int n = shared.near.n_reported;
    if (n < n_top()) return;
    const Place* tokens = sort_places<ReportThreads>(shared.near.places, n, shared.near.sort_of_report);
    if (i < n_top()) {
      result.top_ids[i] = id_of(tokens[i]);
      result.top_logprobs[i] = static_cast<float>(value_of(tokens[i]) - log_sum);
    }
    if (i != 0) return;
    result.n_top = n_top();
    shared.has_top = 1;
  }
  /// The mass of the row's tokens, before a mask.
  __device__ std::uint64_t mass_of_row() {
    const ByMass mass{value_of(shared.best), 1.0f / sampling.temperature};
    std::uint64_t total = 0;
    logits.each([&](std::int32_t, float logit) { total += mass(logit); });
    total = block_sum(shared, total);
    if (threadIdx.x == 0) shared.total = total;
    return total;
  }
  /// The token with the largest score, if no token is excluded and shared.best_score is known.
  __device__ std::int32_t likeliest_with_noise() {
    return id_of(best_score(logits, shared, sampling, n_generated, value_of(shared.best), 1.0f / sampling.temperature, 0,
                            shared.best_score - kMostNoise));
  }
  /// Does without the list. Returns the chosen token; -1: the sample is finished without one.
  __device__ std::int32_t from_row() {
    if (sampling.n_top_logprobs > 0 && shared.has_top == 0) fill_top(logits, shared, n_top(), shared.log_sum, result);
    if (slot == nullptr) {
      score(logits, shared, sampling, shared.log_sum, result);
      return -1;
    }
    if (shared.is_changed == 0 && adjuster.changes(n_generated) && ListThreads::has_this()) {
      adjuster.load_early(logits);
      apply();
    }
    __syncthreads();
    apply_mask(mask, logits);
    Logits candidates = logits;
    if (allowed.n > 0) {
      candidates.ids = allowed.elements;
      candidates.n_ids = allowed.n;
    }
    const Place best = shared.best != 0 ? shared.best : most_likely(candidates, shared);
    if (!has_token(best)) {
      if (threadIdx.x == 0) shared.ended = best == kNotANumber ? FinishedBy::not_a_number : FinishedBy::nothing_allowed;
      return -1;
    }
    if (sampling.temperature <= 0) return id_of(best);
    return draw(candidates, shared, sampling, n_generated, id_of(best), value_of(best));
  }

  __device__ int n_top() const { return min(min(sampling.n_top_logprobs, kMaxTopLogprobs), params.n_vocab); }
  /// Applies biases, penalties and bans. By the list's threads.
  __device__ void apply() {
    adjuster.apply(logits, shared, before.last_token, n_generated);
    if (threadIdx.x == 0) shared.is_changed = 1;
  }
  /// Records the choice; does nothing without one (-1). By the list's threads.
  __device__ void finish(std::int32_t token, const NearList& near) {
    if (token < 0) return;
    if (sampling.n_top_logprobs >= 0) near.look_up_original(token);
    if (threadIdx.x != 0) return;
    shared.token = token;
    shared.work = RowWork::none;
  }

  const SampleParams& params;
  Shared& shared;
  const SamplingMetadata& sampling;
  SlotState* slot;  ///< null for a scored token
  SampleResult& result;
  Logits logits;
  List<std::int32_t> allowed;
  Adjuster adjuster;
  const std::uint32_t* mask;  ///< null: none
  SlotState before = {0, 0, 0, 0};
  std::int32_t n_generated = 0;
};

__global__ void __launch_bounds__(kMostSampleThreads) sample_kernel(const SampleParams params) {
  __shared__ Shared shared;
  const StepHeader& header = step_header(params.step);
  const Section& samples = header.section(SectionKind::samples);
  const std::int32_t index = params.first_sample + static_cast<std::int32_t>(blockIdx.x);
  if (index >= samples.count) return;
  const SamplingMetadata& sampling = section<SamplingMetadata>(params.step, samples)[index];
  if (sampling.slot < 0 || sampling.slot >= params.n_slots) __trap();
  let_next_kernel_start();
  if (threadIdx.x == 0) clear(shared);
  __syncthreads();
  wait_for_kernel_before();
  if (needs_records_only(sampling)) {
    if (threadIdx.x < kWarpSize) choose_from_records(params, sampling, shared, params.results[index]);
  } else if (threadIdx.x < 2 * kListThreads) {
    Sample sample(params, shared, header, sampling, index);
    if (ListThreads::has_this()) sample.use_list();
    if (ReportThreads::has_this()) sample.report();
  }
  __syncthreads();
  if (shared.work == RowWork::none) return;
  Sample sample(params, shared, header, sampling, index);
  sample.use_row();
  __syncthreads();
  if (ListThreads::has_this()) sample.end();
}

}  // namespace

void sample(const Device& device, const SampleWorkspace& workspace, const SampleArgs& args) {
  const std::int64_t n_samples = args.logits.shape[0];
  const std::int64_t n_vocab = args.logits.shape[1];
  check(n_vocab <= 1 << kIdBits, "sample: more than 4,194,304 tokens in the vocabulary");
  if (n_samples == 0 || n_vocab == 0) return;
  const std::int32_t n_parts = n_parts_of(static_cast<std::int32_t>(n_vocab));
  const bool has_masks = args.masks.row_of.data != nullptr;
  SampleParams params{args.step.data,
                      reinterpret_cast<float*>(args.logits.data),
                      workspace.originals,
                      reinterpret_cast<SlotState*>(args.slots.data),
                      reinterpret_cast<SampleResult*>(args.results.data),
                      static_cast<std::int32_t>(args.slots.shape[0]),
                      static_cast<std::int32_t>(n_vocab),
                      workspace.n_originals,
                      reinterpret_cast<PartRecord*>(workspace.parts),
                      reinterpret_cast<PartDraw*>(workspace.parts + kSampleParts * sizeof(PartRecord)),
                      reinterpret_cast<Place*>(workspace.parts + kSampleParts * (sizeof(PartRecord) + sizeof(PartDraw))),
                      n_parts,
                      0,
                      rows_are_aligned(n_vocab, args.logits),
                      reinterpret_cast<const std::int32_t*>(args.masks.row_of.data),
                      reinterpret_cast<const std::uint32_t*>(args.masks.bits.data),
                      has_masks ? static_cast<std::int32_t>(args.masks.row_of.shape[0]) : 0,
                      has_masks ? static_cast<std::int32_t>(args.masks.bits.shape[0]) : 0,
                      has_masks ? static_cast<std::int32_t>(args.masks.bits.shape[1]) : 0};
  const std::int64_t most_samples = kSampleParts / n_parts;
  for (std::int64_t first = 0; first < n_samples; first += most_samples) {
    const auto n = static_cast<unsigned>(std::min(most_samples, n_samples - first));
    params.first_sample = static_cast<std::int32_t>(first);
    gather_parts(device, params, n);
    // A multiprocessor has registers for one large block or two small ones.
    const int n_threads = n <= static_cast<unsigned>(device.n_multiprocessors) ? kMostSampleThreads : kFewestSampleThreads;
    launch_overlapped(device, sample_kernel, dim3(n), n_threads, 0, "sample", params);
  }
}

}  // namespace baton::cuda
