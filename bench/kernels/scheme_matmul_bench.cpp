/// Matmuls of a step's rows with the weights of a layer in 8 and 4 bits beside bf16, with weights from memory as in a step.
///
/// Arguments: scheme (WeightScheme), rows, n, k. Copies of the weight, together larger than any cache, are used in turn by
/// calls that are captured together; a time is that of one call. weight_bytes is the rate at which the bits of the file are
/// read, scales included.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/dtype.h"
#include "support/bench_backend.h"

namespace baton {
namespace {

constexpr std::int64_t kBytesOfAllCopies = 256 << 20;
constexpr int kCalls = 48;

/// The scheme's weight of random numbers: f8 with a scale for each row, integers with bf16 scales for 128 columns.
struct RandomWeight {
  RandomWeight(WeightScheme scheme, std::int64_t n, std::int64_t k) {
    std::mt19937 random(1);
    matrix.scheme = scheme;
    matrix.shape = {n, k};
    const bool is_dense = scheme == WeightScheme::dense;
    const std::int64_t width = scheme == WeightScheme::i4 ? k / 2 : k;
    values.resize(static_cast<std::size_t>(n * width * (is_dense ? 2 : 1)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(random() & 0x3f);
    const DType dtype = is_dense ? DType::bf16 : scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8;
    matrix.values = {reinterpret_cast<const std::byte*>(values.data()), dtype, {n, width}};
    if (is_dense) return;
    matrix.scale_columns = scheme == WeightScheme::f8 ? k : 128;
    scales.assign(static_cast<std::size_t>(n * matrix.n_groups()), BFloat16(0.01f));
    matrix.scales = {reinterpret_cast<const std::byte*>(scales.data()), DType::bf16, {n, matrix.n_groups()}};
  }
  std::size_t n_bytes() const { return values.size() + 2 * scales.size(); }
  std::vector<std::uint8_t> values;
  std::vector<BFloat16> scales;
  StoredMatrix matrix;
};

void schemes(benchmark::State& state) {
  Backend* backend = bench::backend_for(state);
  if (backend == nullptr) return;
  const auto scheme = static_cast<WeightScheme>(state.range(0));
  const std::int64_t rows = state.range(1);
  const std::int64_t n = state.range(2);
  const std::int64_t k = state.range(3);
  const RandomWeight weight(scheme, n, k);
  std::vector<std::unique_ptr<PackedMatrix>> copies;
  for (std::size_t bytes = 0; bytes < kBytesOfAllCopies; bytes += weight.n_bytes()) {
    auto packed = backend->pack_matrix(weight.matrix, DType::bf16, "weight");
    if (!packed) return state.SkipWithError(packed.error().message.c_str());
    copies.push_back(std::move(*packed));
  }
  const std::vector<BFloat16> ones(static_cast<std::size_t>(rows * k), BFloat16(1.0f));
  auto x = backend->allocate(ones.size() * 2);
  auto out = backend->allocate(static_cast<std::size_t>(rows * n) * 2);
  if (!x || !out) return state.SkipWithError("no memory for the rows");
  const TensorView xs = x->view(DType::bf16, {rows, k});
  backend->copy_from_host(xs, {reinterpret_cast<const std::byte*>(ones.data()), DType::bf16, {rows, k}});
  const auto multiply_all = [&] {
    for (int i = 0; i < kCalls; ++i)
      matmul(*backend, {xs, copies[static_cast<std::size_t>(i) % copies.size()].get(), out->view(DType::bf16, {rows, n})});
  };
  multiply_all();
  auto calls = backend->capture(multiply_all);
  if (!calls) return state.SkipWithError(calls.error().message.c_str());
  for (auto _ : state) state.SetIterationTime(backend->time_us([&] { (*calls)->replay(); }) * 1e-6 / kCalls);
  state.counters["weight_bytes"] =
      benchmark::Counter(static_cast<double>(weight.n_bytes()), benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(std::string(to_string(scheme)));
}

/// The four matmuls of a layer of Llama-3-8B.
void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"scheme", "rows", "n", "k"});
  for (const auto& [n, k] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}})
    for (const WeightScheme scheme : {WeightScheme::dense, WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
      for (const std::int64_t rows : {1, 8, 16, 32, 64, 128, 256, 2048})
        bench->Args({static_cast<std::int64_t>(scheme), rows, n, k});
}

BENCHMARK(schemes)->Apply(shapes)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton
