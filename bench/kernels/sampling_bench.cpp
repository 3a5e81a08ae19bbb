/// Sampling of a whole batch: one call for all samples.
///
/// Arguments: samples, vocabulary. Logits are normal with deviation 2.5, except 30 larger ones, as in a row of a
/// model: the nucleus of 0.95 has about ten tokens. `top_p_flat` has no larger ones, and the nucleus has hundreds of
/// tokens. `joint` has top-k and top-p, `everything` also min_p, penalties and log-probabilities. The time is of kCalls calls
/// in a captured graph, divided by their number, so that a GPU does not wait for launches. Penalties change the logits, so these
/// iterations begin with a fresh copy, which is not timed.
#include <algorithm>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/tensor.h"
#include "support/bench_backend.h"

namespace baton {
namespace {

constexpr std::int32_t kCounted = 200;  // tokens of a penalty's list
constexpr int kCalls = 8;

/// The sampling parameters of every sample.
enum class Asked { greedy, temperature, top_k, top_p, top_p_flat, min_p, penalties, logprobs, joint, everything };

SamplingMetadata order_for(Asked asked, std::int32_t row) {
  SamplingMetadata sampling;
  sampling.row = row;
  sampling.slot = row;
  sampling.seed = static_cast<std::uint64_t>(row);
  sampling.max_tokens = 1 << 30;
  if (asked != Asked::greedy && asked != Asked::logprobs) sampling.temperature = 0.8f;
  if (asked == Asked::top_k) sampling.top_k = 50;
  if (asked == Asked::top_p || asked == Asked::top_p_flat) sampling.top_p = 0.95f;
  if (asked == Asked::min_p) sampling.min_p = 0.05f;
  if (asked == Asked::logprobs || asked == Asked::everything) sampling.n_top_logprobs = 5;
  if (asked == Asked::joint || asked == Asked::everything) {
    sampling.top_k = 50;
    sampling.top_p = 0.9f;
  }
  if (asked == Asked::everything) {
    sampling.min_p = 0.01f;
    sampling.presence_penalty = 0.1f;
  }
  if (asked == Asked::penalties || asked == Asked::everything) {
    sampling.repetition_penalty = 1.1f;
    sampling.frequency_penalty = 0.2f;
    sampling.counts = {row * kCounted, kCounted};
  }
  return sampling;
}

void sampling(benchmark::State& state, Asked asked) {
  Backend* backend = bench::backend_for(state);
  if (backend == nullptr) return;
  const std::int64_t n_samples = state.range(0);
  const std::int64_t n_vocab = state.range(1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> row(static_cast<std::size_t>(n_vocab));
  for (float& number : row) number = normal(random);
  std::vector<float> numbers(static_cast<std::size_t>(n_samples * n_vocab));
  for (std::int64_t r = 0; r < n_samples; ++r) {
    const auto to = numbers.begin() + r * n_vocab;
    std::ranges::rotate_copy(row, row.begin() + r * 997 % n_vocab, to);  // the rows have their numbers at other tokens
    for (std::int64_t i = 0; i < 30 && asked != Asked::top_p_flat; ++i)
      to[i * (n_vocab / 30)] = 16 - 0.4f * static_cast<float>(i);
  }
  std::vector<SamplingMetadata> samples;
  std::vector<TokenCount> counts;
  for (std::int32_t row = 0; row < n_samples; ++row) {
    samples.push_back(order_for(asked, row));
    for (std::int32_t i = 0; i < kCounted; ++i)
      counts.push_back({i * static_cast<std::int32_t>(n_vocab / kCounted), 1 + i % 3});
  }
  StepInput step;
  step.append(SectionKind::samples, samples);
  step.append(SectionKind::token_counts, counts);
  step.finish();
  const std::vector<SlotState> slots(static_cast<std::size_t>(n_samples));
  auto device_logits = backend->allocate(numbers.size() * sizeof(float));
  auto device_slots = backend->allocate(slots.size() * sizeof(SlotState));
  auto device_results = backend->allocate(samples.size() * sizeof(SampleResult));
  if (!device_logits || !device_slots || !device_results) return state.SkipWithError("no memory for the logits");
  const TensorView logits = device_logits->view(DType::f32, {n_samples, n_vocab});
  const TensorView slot_table = device_slots->view(DType::u8, {n_samples, sizeof(SlotState)});
  const TensorView results = device_results->view(DType::u8, {n_samples, sizeof(SampleResult)});
  backend->copy_from_host(slot_table, {reinterpret_cast<const std::byte*>(slots.data()), DType::u8, slot_table.shape});
  const StepView view = backend->upload_step(step);
  const auto copy = [&] { backend->copy_from_host(logits, view_of(std::span<const float>(numbers), {n_samples, n_vocab})); };
  copy();
  auto calls = backend->capture([&] {
    for (int i = 0; i < kCalls; ++i) sample(*backend, {view, logits, slot_table, results});
  });
  if (!calls) return state.SkipWithError(calls.error().message.c_str());
  for (auto _ : state) {
    if (asked == Asked::penalties || asked == Asked::everything) copy();
    state.SetIterationTime(backend->time_us([&] { (*calls)->replay(); }) * 1e-6 / kCalls);
  }
  state.counters["logits"] =
      benchmark::Counter(static_cast<double>(n_samples * n_vocab), benchmark::Counter::kIsIterationInvariantRate);
}

void batches(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"samples", "vocabulary"})->ArgsProduct({{1, 32, 256}, {32000, 128256}})->UseManualTime();
  bench->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(sampling, greedy, Asked::greedy)->Apply(batches);
BENCHMARK_CAPTURE(sampling, temperature, Asked::temperature)->Apply(batches);
BENCHMARK_CAPTURE(sampling, top_k, Asked::top_k)->Apply(batches);
BENCHMARK_CAPTURE(sampling, top_p, Asked::top_p)->Apply(batches);
BENCHMARK_CAPTURE(sampling, top_p_flat, Asked::top_p_flat)->Apply(batches);
BENCHMARK_CAPTURE(sampling, min_p, Asked::min_p)->Apply(batches);
BENCHMARK_CAPTURE(sampling, penalties, Asked::penalties)->Apply(batches);
BENCHMARK_CAPTURE(sampling, logprobs, Asked::logprobs)->Apply(batches);
BENCHMARK_CAPTURE(sampling, joint, Asked::joint)->Apply(batches);
BENCHMARK_CAPTURE(sampling, everything, Asked::everything)->Apply(batches);

}  // namespace
}  // namespace baton
