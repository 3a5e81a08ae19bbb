/// Matmuls of a step's rows with the experts that they chose, in 8 and 4 bits beside bf16, with weights from memory as in a
/// step.
///
/// Arguments: form (see forms), rows, shape (see shapes). Calls that are captured together choose different experts; a time
/// is that of one call. weight_bytes is the rate at which the chosen experts are read, each once, scales included.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/dtype.h"
#include "support/bench_backend.h"

namespace baton {
namespace {

constexpr int kCalls = 16;

struct Form {
  const char* name;
  WeightScheme scheme;
  std::int64_t scale_rows;
  std::int64_t scale_columns;
  bool has_zeros;
};
constexpr std::array kForms{Form{"bf16", WeightScheme::dense, 1, 1, false},
                            Form{"e4m3, scales of 128 x 128", WeightScheme::f8, 128, 128, false},
                            Form{"int8, scales of 128", WeightScheme::i8, 1, 128, false},
                            Form{"int4, scales of 128", WeightScheme::i4, 1, 128, false},
                            Form{"int4, scales of 32", WeightScheme::i4, 1, 32, false},
                            Form{"int4, scales and zeros of 128", WeightScheme::i4, 1, 128, true}};

struct ExpertShape {
  const char* name;
  std::int64_t n_experts;
  std::int64_t n_chosen;
  std::int64_t n;
  std::int64_t k;
};
constexpr std::array kShapes{
    ExpertShape{"qwen3-30b-a3b gate_up", 128, 8, 1536, 2048}, ExpertShape{"qwen3-30b-a3b down", 128, 8, 2048, 768},
    ExpertShape{"mixtral-8x7b gate_up", 8, 2, 28672, 4096}, ExpertShape{"mixtral-8x7b down", 8, 2, 4096, 14336}};

/// One expert of a form, of random codes and bf16 scales; all experts have its numbers.
struct Expert {
  Expert(const Form& form, const ExpertShape& of) {
    std::mt19937 random(1);
    std::array<std::uint8_t, 4096> codes;
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() & 0x3f);
    matrix.scheme = form.scheme;
    matrix.shape = {of.n, of.k};
    const bool is_dense = form.scheme == WeightScheme::dense;
    const std::int64_t width = form.scheme == WeightScheme::i4 ? of.k / 2 : of.k;
    values.resize(static_cast<std::size_t>(of.n * width * (is_dense ? 2 : 1)));
    for (std::size_t i = 0; i < values.size(); i += codes.size())
      std::memcpy(&values[i], codes.data(), std::min(codes.size(), values.size() - i));
    const DType dtype = is_dense ? DType::bf16 : form.scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8;
    matrix.values = {reinterpret_cast<const std::byte*>(values.data()), dtype, {of.n, width}};
    if (is_dense) return;
    matrix.scale_rows = form.scale_rows;
    matrix.scale_columns = form.scale_columns;
    const Shape groups{(of.n + form.scale_rows - 1) / form.scale_rows, matrix.n_groups()};
    scales.assign(static_cast<std::size_t>(groups.n_elements()), BFloat16(0.01f));
    matrix.scales = {reinterpret_cast<const std::byte*>(scales.data()), DType::bf16, groups};
    if (!form.has_zeros) return;
    zeros.assign(static_cast<std::size_t>(of.n * matrix.n_groups()), 7);
    matrix.zeros = {reinterpret_cast<const std::byte*>(zeros.data()), DType::u8, {of.n, matrix.n_groups()}};
  }
  std::size_t n_bytes() const { return values.size() + 2 * scales.size() + zeros.size(); }
  std::vector<std::uint8_t> values, zeros;
  std::vector<BFloat16> scales;
  StoredMatrix matrix;
};

/// The experts of a form and shape, kept until another is asked for.
const PackedExperts* packed_experts(Backend& backend, std::size_t form, std::size_t shape, const Expert& expert,
                                    benchmark::State& state) {
  static std::unique_ptr<PackedExperts> packed;
  static std::size_t packed_form, packed_shape;
  if (packed != nullptr && packed_form == form && packed_shape == shape) return packed.get();
  packed.reset();
  const ExpertShape& of = kShapes[shape];
  auto made = backend.pack_experts({of.n_experts, of.n, of.k}, DType::bf16, "experts",
                                   [&](std::int64_t) -> Result<StoredMatrix> { return expert.matrix; });
  if (!made) {
    state.SkipWithError(made.error().message.c_str());
    return nullptr;
  }
  packed = std::move(*made);
  packed_form = form;
  packed_shape = shape;
  return packed.get();
}

/// Rows and offsets of random choices for each call. The first rows of the calls choose all experts in turn.
struct Routing {
  Routing(const ExpertShape& of, std::int64_t n_rows) {
    std::mt19937 random(2);
    std::vector<std::int32_t> all(static_cast<std::size_t>(of.n_experts));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random);
    std::size_t next = 0;
    for (int call = 0; call < kCalls; ++call) {
      std::vector<std::vector<std::int32_t>> rows_of(all.size());
      for (std::int64_t row = 0; row < n_rows; ++row) {
        std::set<std::int32_t> chosen;
        while (chosen.size() < static_cast<std::size_t>(of.n_chosen))
          chosen.insert(row == 0 ? all[next++ % all.size()] : static_cast<std::int32_t>(random() % all.size()));
        for (const std::int32_t expert : chosen)
          rows_of[static_cast<std::size_t>(expert)].push_back(static_cast<std::int32_t>(row));
      }
      offsets.push_back(0);
      for (const auto& some : rows_of) {
        rows.insert(rows.end(), some.begin(), some.end());
        offsets.push_back(offsets.back() + static_cast<std::int32_t>(some.size()));
        n_read += some.empty() ? 0 : 1;
      }
    }
  }
  std::vector<std::int32_t> rows, offsets;
  std::int64_t n_read = 0;  ///< experts, of all calls
};

void experts(benchmark::State& state) {
  Backend* backend = bench::backend_for(state);
  if (backend == nullptr) return;
  const auto form = static_cast<std::size_t>(state.range(0));
  const std::int64_t n_rows = state.range(1);
  const auto shape = static_cast<std::size_t>(state.range(2));
  const ExpertShape& of = kShapes[shape];
  const Expert expert(kForms[form], of);
  const PackedExperts* packed = packed_experts(*backend, form, shape, expert, state);
  if (packed == nullptr) return;
  const Routing routing(of, n_rows);
  const std::int64_t n_places = n_rows * of.n_chosen;
  const std::vector<BFloat16> ones(static_cast<std::size_t>(n_rows * of.k), BFloat16(1.0f));
  auto x = backend->allocate(ones.size() * 2);
  auto rows = backend->allocate(routing.rows.size() * 4);
  auto offsets = backend->allocate(routing.offsets.size() * 4);
  auto out = backend->allocate(static_cast<std::size_t>(n_places * of.n) * 2);
  if (!x || !rows || !offsets || !out) return state.SkipWithError("no memory for the rows");
  const TensorView xs = x->view(DType::bf16, {n_rows, of.k});
  const TensorView all_rows = rows->view(DType::i32, {kCalls, n_places});
  const TensorView all_offsets = offsets->view(DType::i32, {kCalls, of.n_experts + 1});
  backend->copy_from_host(xs, {reinterpret_cast<const std::byte*>(ones.data()), DType::bf16, xs.shape});
  backend->copy_from_host(all_rows, {reinterpret_cast<const std::byte*>(routing.rows.data()), DType::i32, all_rows.shape});
  backend->copy_from_host(all_offsets,
                          {reinterpret_cast<const std::byte*>(routing.offsets.data()), DType::i32, all_offsets.shape});
  const auto multiply_all = [&] {
    for (std::int64_t call = 0; call < kCalls; ++call)
      grouped_matmul(*backend, {xs,
                                {all_rows.rows(call, call + 1).data, DType::i32, {n_places}},
                                {all_offsets.rows(call, call + 1).data, DType::i32, {of.n_experts + 1}},
                                packed,
                                out->view(DType::bf16, {n_places, of.n})});
  };
  multiply_all();
  auto calls = backend->capture(multiply_all);
  if (!calls) return state.SkipWithError(calls.error().message.c_str());
  for (auto _ : state) state.SetIterationTime(backend->time_us([&] { (*calls)->replay(); }) * 1e-6 / kCalls);
  state.counters["weight_bytes"] =
      benchmark::Counter(static_cast<double>(expert.n_bytes()) * static_cast<double>(routing.n_read) / kCalls,
                         benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(std::string(of.name) + ", " + kForms[form].name);
}

void every_shape(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"form", "rows", "shape"});
  for (std::size_t shape = 0; shape < kShapes.size(); ++shape)
    for (std::size_t form = 0; form < kForms.size(); ++form)
      for (const std::int64_t rows : {1, 8, 32, 128, 256, 2048})
        bench->Args({static_cast<std::int64_t>(form), rows, static_cast<std::int64_t>(shape)});
}

BENCHMARK(experts)->Apply(every_shape)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton
