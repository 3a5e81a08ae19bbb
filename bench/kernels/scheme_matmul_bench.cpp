/// Matmuls of a step's rows with the weights of a layer in 8 and 4 bits beside bf16, with weights from memory as in a step.
///
/// Arguments: scheme (WeightScheme), columns of a scale (0: the row), rows, n, k. Copies of the weight, together larger than any cache, are used in turn by
/// calls that are captured together; a time is that of one call. weight_bytes is the rate at which the bits of the file are
/// read, scales included.
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/dtype.h"
#include "support/bench_backend.h"

namespace baton {
namespace {

constexpr std::int64_t kBytesOfAllCopies = 256 << 20;
constexpr int kCalls = 48;

/// The scheme's weight of random numbers with bf16 scales; f4 with e4m3 scales for 16 columns, or exponents.
struct RandomWeight {
  RandomWeight(WeightScheme scheme, std::int64_t group, std::int64_t n, std::int64_t k) {
    std::mt19937 random(1);
    matrix.scheme = scheme;
    matrix.shape = {n, k};
    const bool is_dense = scheme == WeightScheme::dense;
    const std::int64_t width = is_dense ? k : row_value_bytes(scheme, k);
    values.resize(static_cast<std::size_t>(n * width * (is_dense ? 2 : 1)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(random() & 0x3f);
    const DType dtype = is_dense ? DType::bf16 : scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8;
    matrix.values = {reinterpret_cast<const std::byte*>(values.data()), dtype, {n, width}};
    if (is_dense) return;
    matrix.scale_columns = group == 0 ? k : group;
    const auto n_scales = static_cast<std::size_t>(n * matrix.n_groups());
    if (scheme == WeightScheme::f4) {
      const bool is_nvfp4 = group == 16;
      scales.assign(n_scales, is_nvfp4 ? 0x30 : 120);
      row_scales.assign(is_nvfp4 ? static_cast<std::size_t>(n) : 0, 0.02f);
      if (is_nvfp4) matrix.row_scales = view_of(std::span<const float>(row_scales), {n});
      matrix.scales = {
          reinterpret_cast<const std::byte*>(scales.data()), is_nvfp4 ? DType::f8_e4m3 : DType::u8, {n, matrix.n_groups()}};
      return;
    }
    scales.resize(2 * n_scales);
    for (std::size_t i = 0; i < n_scales; ++i) {
      const BFloat16 scale(0.01f);
      std::memcpy(&scales[2 * i], &scale, sizeof(scale));
    }
    matrix.scales = {reinterpret_cast<const std::byte*>(scales.data()), DType::bf16, {n, matrix.n_groups()}};
  }
  std::size_t n_bytes() const { return values.size() + scales.size() + row_scales.size() * sizeof(float); }
  std::vector<std::uint8_t> values, scales;
  std::vector<float> row_scales;
  StoredMatrix matrix;
};

void schemes(benchmark::State& state) {
  Backend* backend = bench::backend_for(state);
  if (backend == nullptr) return;
  const auto scheme = static_cast<WeightScheme>(state.range(0));
  const std::int64_t rows = state.range(2);
  const std::int64_t n = state.range(3);
  const std::int64_t k = state.range(4);
  const RandomWeight weight(scheme, state.range(1), n, k);
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
  bench->ArgNames({"scheme", "group", "rows", "n", "k"});
  for (const auto& [n, k] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}})
    for (const auto& [scheme, group] : std::vector<std::pair<WeightScheme, std::int64_t>>{{WeightScheme::dense, 0},
                                                                                          {WeightScheme::f8, 0},
                                                                                          {WeightScheme::i8, 128},
                                                                                          {WeightScheme::i4, 128},
                                                                                          {WeightScheme::i4, 32},
                                                                                          {WeightScheme::f4, 16},
                                                                                          {WeightScheme::f4, 32}})
      for (const std::int64_t rows : {1, 8, 16, 32, 64, 128, 160, 256, 512, 2048})
        bench->Args({static_cast<std::int64_t>(scheme), group, rows, n, k});
}

BENCHMARK(schemes)->Apply(shapes)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton
