/// Matmuls of a step's rows with the weights of a layer in bf16, with weights from memory as in a step.
///
/// Arguments: rows, n, k. Copies of the weight, together larger than any cache, are used in turn. weight_bytes is the
/// rate at which weights are read, flops the rate of the matmuls.
#include <memory>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/dtype.h"
#include "support/bench_backend.h"

namespace baton {
namespace {

constexpr std::int64_t kBytesOfAllCopies = 256 << 20;

void products(benchmark::State& state) {
  Backend* backend = bench::backend_for(state);
  if (backend == nullptr) return;
  const std::int64_t rows = state.range(0);
  const std::int64_t n = state.range(1);
  const std::int64_t k = state.range(2);
  std::mt19937 random(1);
  std::vector<BFloat16> numbers(static_cast<std::size_t>(n * k));
  for (BFloat16& number : numbers) number = BFloat16(static_cast<float>(random() % 1024) / 512 - 1);
  const ConstTensorView weight{reinterpret_cast<const std::byte*>(numbers.data()), DType::bf16, {n, k}};
  std::vector<std::unique_ptr<PackedMatrix>> copies;
  for (std::int64_t bytes = 0; bytes < kBytesOfAllCopies; bytes += n * k * 2) {
    auto packed = backend->pack_matrix(weight, DType::bf16, "weight");
    if (!packed) return state.SkipWithError(packed.error().message.c_str());
    copies.push_back(std::move(*packed));
  }
  auto x = backend->allocate(static_cast<std::size_t>(rows * k) * 2);
  auto out = backend->allocate(static_cast<std::size_t>(rows * n) * 4);
  if (!x || !out) return state.SkipWithError("no memory for the rows");
  backend->copy_from_host(x->view(DType::bf16, {rows, k}), weight.rows(0, rows));
  std::size_t turn = 0;
  const auto multiply = [&] {
    matmul(*backend, {x->view(DType::bf16, {rows, k}), copies[turn++ % copies.size()].get(), out->view(DType::f32, {rows, n})});
  };
  for (auto _ : state) state.SetIterationTime(backend->time_us(multiply) * 1e-6);
  const auto per_second = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["weight_bytes"] = benchmark::Counter(static_cast<double>(2 * n * k), per_second);
  state.counters["flops"] = benchmark::Counter(static_cast<double>(2 * rows * n * k), per_second);
}

/// n, k: the four matmuls of a layer of the 110M shape and of TinyLlama-1.1B.
void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "n", "k"});
  for (const auto& [n, k] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {2304, 768}, {768, 768}, {4096, 768}, {768, 2048}, {2560, 2048}, {2048, 2048}, {11264, 2048}, {2048, 5632}})
    for (const std::int64_t rows : {1, 4, 8, 32, 128, 512}) bench->Args({rows, n, k});
}

BENCHMARK(products)->Apply(shapes)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton
