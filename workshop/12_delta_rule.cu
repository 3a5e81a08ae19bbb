// How fast is the gated delta rule: decode of many sequences by rows, and prefill in chunks, by blocks of 16 and of 32 columns?
//
//   nvcc -O3 -std=c++20 -arch=sm_90a --expt-relaxed-constexpr -cudart static -Isrc -o 12_delta_rule workshop/12_delta_rule.cu
//   ./12_delta_rule [checks|times|decode|before90]
//
// `before90` checks what devices before sm_90 run; compile it with -gencode arch=compute_80,code=compute_80.
//
// Every kernel is checked first, against the recurrence in float64. Times are of the kernels alone, medians of 9 runs; before each
// run the L2 is overwritten.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/states/chunk_scan.cu"
#include "kernels/cuda/states/delta_prepare.cu"
#include "kernels/cuda/states/delta_steps.cu"
#include "kernels/cuda/states/delta_sweep.cu"

using namespace baton;
using namespace baton::cuda;

namespace {

void must(cudaError_t error) {
  if (error != cudaSuccess) {
    std::printf("CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

template <class T>
T* on_device(const std::vector<T>& host) {
  T* data = nullptr;
  must(cudaMalloc(&data, std::max<std::size_t>(1, host.size()) * sizeof(T)));
  must(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

constexpr int kDim = 128;

int compute_capability = 90;

/// A layer with its inputs on the device.
struct Layer {
  int n_key_heads, n_heads, n_slots;
  std::vector<StateRun> runs;
  int n_rows = 0;
  std::vector<std::uint16_t> qkv;
  std::vector<float> gates, a_log, dt_bias, states;
  Device device;
  DeltaRuleParams params{};
  std::byte* step = nullptr;
  float* out = nullptr;
  ChunkScanParams scan{};
  std::span<std::byte> memory;

  Layer(int key_heads, int heads, int slots, std::vector<StateRun> of, bool draws_states)
      : n_key_heads(key_heads), n_heads(heads), n_slots(slots), runs(std::move(of)) {
    for (const StateRun& run : runs) n_rows = std::max(n_rows, run.first_row + run.n_rows);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> drawn(1 << 16);
    for (float& x : drawn) x = normal(random);
    qkv.resize(static_cast<std::size_t>(n_rows) * width());
    for (std::uint16_t& x : qkv)
      x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(drawn[random() % drawn.size()]) >> 16);
    gates.resize(static_cast<std::size_t>(n_rows) * 2 * n_heads);
    for (float& x : gates) x = drawn[random() % drawn.size()];
    std::uniform_real_distribution<float> log_rate(-6, 2);
    for (int h = 0; h < n_heads; ++h) a_log.push_back(log_rate(random)), dt_bias.push_back(normal(random));
    states.resize(static_cast<std::size_t>(n_slots) * n_heads * kDim * kDim);
    if (draws_states)
      for (float& x : states) x = drawn[random() % drawn.size()];
    StepInput input;
    input.header().n_rows = n_rows;
    input.append(SectionKind::state_runs, runs);
    input.finish();
    step = on_device(std::vector<std::byte>(input.bytes().begin(), input.bytes().end()));
    must(cudaMalloc(&out, static_cast<std::size_t>(n_rows) * n_heads * kDim * 4));
    std::byte* data = nullptr;
    must(cudaMalloc(&data, kChunkBytes));
    must(cudaMemset(data, 0xff, kChunkBytes));
    memory = {data, kChunkBytes};
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0));
    device.compute_capability = compute_capability;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = properties.sharedMemPerBlockOptin;
    must(cudaStreamCreate(&device.stream));
    params = {.step = step,
              .qkv = on_device(qkv),
              .qkv_dtype = DType::bf16,
              .gates = on_device(gates),
              .a_log = on_device(a_log),
              .dt_bias = on_device(dt_bias),
              .out = out,
              .out_dtype = DType::f32,
              .matrices = {on_device(states), DType::f32, static_cast<std::int64_t>(n_heads) * kDim * kDim},
              .n_heads = n_heads,
              .n_key_heads = n_key_heads,
              .key_dim = kDim,
              .value_dim = kDim,
              .q_factor = 1 / std::sqrt(128.0f),
              .most_rows = 1 << 30};
    scan = {.step = step,
            .values = static_cast<const std::uint16_t*>(params.qkv) + 2 * n_key_heads * kDim,
            .values_width = width(),
            .skip = nullptr,
            .out = out,
            .out_dtype = DType::f32,
            .matrices = params.matrices,
            .n_heads = n_heads,
            .n_key_heads = n_key_heads,
            .value_dim = kDim};
  }
  ~Layer() {
    for (const void* data :
         {params.qkv, static_cast<const void*>(params.gates), static_cast<const void*>(params.a_log),
          static_cast<const void*>(params.dt_bias), static_cast<const void*>(params.matrices.first),
          static_cast<const void*>(step), static_cast<const void*>(out), static_cast<const void*>(memory.data())})
      cudaFree(const_cast<void*>(data));
    cudaStreamDestroy(device.stream);
  }
  int width() const { return (2 * n_key_heads + n_heads) * kDim; }

  template <int kColumns>
  void steps() {
    cuda::launch_of_columns<kColumns, 128>(device, params, static_cast<std::int64_t>(runs.size()));
  }
  void sweep() { launch_delta_sweep(device, params, static_cast<std::int64_t>(runs.size())); }
  /// By the warpgroups of a block.
  template <int kGroups>
  void chunks(bool prepares = true, bool scans = true) {
    const int n = n_rows / kStateChunk + 2 * static_cast<int>(runs.size());
    const auto at_once = static_cast<int>(memory.size() / bytes_of_chunk(n_heads, n_key_heads));
    auto* matrices = reinterpret_cast<ChunkMatrices*>(memory.data());
    const ChunkOperands operands{matrices,
                                 reinterpret_cast<ChunkKeys*>(matrices + static_cast<std::size_t>(at_once) * n_heads)};
    for (int first = 0; first < n; first += at_once) {
      const ChunkRange range{first, std::min(at_once, n - first), false};
      if (prepares) launch_delta_prepare(device, params, range, operands);
      if (scans)
        cuda::launch_of_groups<ChunkRule::delta, kGroups>(device, scan, range, operands,
                                                          static_cast<std::int64_t>(runs.size()));
    }
  }

  /// As Baton does it.
  void overlapped_chunks() {
    compute_in_chunks(
        device, ChunkRule::delta, scan, n_rows, static_cast<std::int64_t>(runs.size()), memory,
        [&](ChunkRange range, const ChunkOperands& operands) { launch_delta_prepare(device, params, range, operands); });
  }

  /// Both kernels of rows give the same bits.
  void check_bits() {
    const std::size_t n_out = static_cast<std::size_t>(n_rows) * n_heads * kDim;
    std::vector<float> of_steps(n_out + states.size()), of_sweeps(of_steps.size());
    for (std::vector<float>* got : {&of_steps, &of_sweeps}) {
      must(cudaMemcpy(params.matrices.first, states.data(), states.size() * 4, cudaMemcpyHostToDevice));
      got == &of_steps ? steps<32>() : sweep();
      must(cudaStreamSynchronize(device.stream));
      must(cudaMemcpy(got->data(), out, n_out * 4, cudaMemcpyDeviceToHost));
      must(cudaMemcpy(got->data() + n_out, params.matrices.first, states.size() * 4, cudaMemcpyDeviceToHost));
    }
    must(cudaMemcpy(params.matrices.first, states.data(), states.size() * 4, cudaMemcpyHostToDevice));
    const bool is_same = std::memcmp(of_steps.data(), of_sweeps.data(), of_steps.size() * 4) == 0;
    std::printf("%-28s %s\n", "bits of both", is_same ? "ok" : "WRONG");
  }

  double value(std::size_t i) const { return std::bit_cast<float>(static_cast<std::uint32_t>(qkv[i]) << 16); }

  /// The largest errors of a run's outputs and states, relative to their norms.
  void check_results(const char* name) {
    must(cudaStreamSynchronize(device.stream));
    std::vector<float> got(static_cast<std::size_t>(n_rows) * n_heads * kDim), after(states.size());
    must(cudaMemcpy(got.data(), out, got.size() * 4, cudaMemcpyDeviceToHost));
    must(cudaMemcpy(after.data(), params.matrices.first, after.size() * 4, cudaMemcpyDeviceToHost));
    double worst_out = 0, worst_state = 0;
    for (const StateRun& run : runs) {
      double d_out = 0, n_out = 0, d_state = 0, n_state = 0;
      for (int h = 0; h < n_heads; ++h) {
        const int kh = h / (n_heads / n_key_heads);
        std::vector<double> s(kDim * kDim), q(kDim), k(kDim);
        if (run.read_slot >= 0)
          for (int i = 0; i < kDim * kDim; ++i)
            s[i] = states[(static_cast<std::size_t>(run.read_slot) * n_heads + h) * kDim * kDim + i];
        for (int r = run.first_row; r < run.first_row + run.n_rows; ++r) {
          double qq = 0, kk = 0;
          for (int i = 0; i < kDim; ++i) {
            q[i] = value(static_cast<std::size_t>(r) * width() + kh * kDim + i);
            k[i] = value(static_cast<std::size_t>(r) * width() + (n_key_heads + kh) * kDim + i);
            qq += q[i] * q[i], kk += k[i] * k[i];
          }
          for (int i = 0; i < kDim; ++i) q[i] /= std::sqrt(qq + 1e-6) * std::sqrt(128.0), k[i] /= std::sqrt(kk + 1e-6);
          const double beta = 1 / (1 + std::exp(-static_cast<double>(gates[static_cast<std::size_t>(r) * 2 * n_heads + h])));
          const double a = static_cast<double>(gates[static_cast<std::size_t>(r) * 2 * n_heads + n_heads + h]) + dt_bias[h];
          const double decay = std::exp(-std::exp(static_cast<double>(a_log[h])) * std::log1p(std::exp(a)));
          std::vector<double> known(kDim), o(kDim);
          for (int i = 0; i < kDim; ++i)
            for (int c = 0; c < kDim; ++c) known[c] += k[i] * (s[i * kDim + c] *= decay);
          for (int c = 0; c < kDim; ++c)
            known[c] = beta * (value(static_cast<std::size_t>(r) * width() + 2 * n_key_heads * kDim + h * kDim + c) - known[c]);
          for (int i = 0; i < kDim; ++i)
            for (int c = 0; c < kDim; ++c) o[c] += q[i] * (s[i * kDim + c] += k[i] * known[c]);
          for (int c = 0; c < kDim; ++c) {
            const double e = got[(static_cast<std::size_t>(r) * n_heads + h) * kDim + c] - o[c];
            d_out += e * e, n_out += o[c] * o[c];
          }
        }
        for (int i = 0; i < kDim * kDim; ++i) {
          const double e = after[(static_cast<std::size_t>(run.write_slot) * n_heads + h) * kDim * kDim + i] - s[i];
          d_state += e * e, n_state += s[i] * s[i];
        }
      }
      const auto worse = [](double a, double b) { return a >= b ? a : b; };  // NaN stays
      worst_out = worse(std::sqrt(d_out / n_out), worst_out);
      worst_state = worse(std::sqrt(d_state / n_state), worst_state);
    }
    std::printf("%-28s out %.2e state %.2e %s\n", name, worst_out, worst_state,
                worst_out < 1.9e-6 && worst_state < 1.9e-6 ? "ok" : "WRONG");
    must(cudaMemcpy(params.matrices.first, states.data(), states.size() * 4, cudaMemcpyHostToDevice));
    must(cudaMemset(out, 0xff, got.size() * 4));
  }

  template <class Body>
  double microseconds(Body&& body) {
    static std::byte* flush = nullptr;
    constexpr std::size_t kFlush = 128 << 20;
    if (flush == nullptr) must(cudaMalloc(&flush, kFlush));
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < 10; ++i) {
      must(cudaMemsetAsync(flush, i, kFlush, device.stream));
      cudaEventRecord(begin, device.stream);
      body();
      cudaEventRecord(end, device.stream);
      must(cudaEventSynchronize(end));
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      if (i > 0) times.push_back(1e3f * ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

std::vector<StateRun> decodes(int n) {
  std::vector<StateRun> runs;
  for (int i = 0; i < n; ++i) runs.push_back({i, 1, 100 + i, i, i});
  return runs;
}

void check_all() {
  const std::vector<StateRun> mixed{
      {0, 1, 5, 0, 0}, {1, 70, 100, 1, 3}, {71, 5, 0, -1, 2}, {76, 33, 63, -1, 4}, {109, 200, 64, 5, 5}};
  Layer layer(2, 4, 6, mixed, true);
  layer.steps<32>(), layer.check_results("rows, 32 columns");
  layer.sweep(), layer.check_results("rows, a sweep");
  layer.params.most_rows = kMostStepRows;
  layer.steps<32>(), layer.chunks<1>(), layer.check_results("chunks, 64 columns");
  layer.steps<32>(), layer.chunks<2>(), layer.check_results("chunks, 128 columns");
  std::vector<StateRun> many{{0, 3, 9, 0, 0}, {3, 0, 5, 1, 1}, {3, 0, 5, -1, 2}, {3, 1, 0, -1, 3}};
  for (int i = 4; i < 60; ++i) many.push_back({i, 1, i, i, i});
  Layer decode(2, 8, 60, many, true);
  decode.steps<32>(), decode.check_results("60 runs of few rows");
  decode.sweep(), decode.check_results("60 runs, a sweep");
  decode.check_bits();
  Layer longer(1, 2, 1, {{0, 3000, 0, -1, 0}}, false);
  longer.chunks<1>(), longer.check_results("3000 rows, 64 columns");
  longer.chunks<2>(), longer.check_results("3000 rows, 128 columns");
  longer.overlapped_chunks(), longer.check_results("3000 rows, ranges that overlap");
  for (std::uint16_t& x : longer.qkv)
    x = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(longer.value(&x - longer.qkv.data())) * 1e-5f) >> 16);
  must(cudaMemcpy(const_cast<void*>(longer.params.qkv), longer.qkv.data(), longer.qkv.size() * 2, cudaMemcpyHostToDevice));
  longer.chunks<2>(), longer.check_results("of small numbers");
  for (std::uint16_t& x : longer.qkv)
    x = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(longer.value(&x - longer.qkv.data())) * 1e12f) >> 16);
  must(cudaMemcpy(const_cast<void*>(longer.params.qkv), longer.qkv.data(), longer.qkv.size() * 2, cudaMemcpyHostToDevice));
  longer.chunks<2>(), longer.check_results("of large numbers");
}

void check_before_sm_90() {
  compute_capability = 80;
  Layer layer(2, 4, 6, {{0, 1, 5, 0, 0}, {1, 70, 100, 1, 3}, {71, 5, 0, -1, 2}, {76, 33, 63, -1, 4}, {109, 200, 64, 5, 5}},
              true);
  layer.params.most_rows = kMostStepRows;
  layer.steps<32>(), layer.chunks<1>(), layer.check_results("chunks, 64 columns");
  layer.steps<32>(), layer.chunks<2>(), layer.check_results("chunks, 128 columns");
}

void time_decode(int key_heads, int heads, int n) {
  Layer layer(key_heads, heads, n, decodes(n), false);
  const double bytes = 2.0 * n * heads * kDim * kDim * 4;
  const auto report = [&](const char* name, double us) {
    std::printf("  %s %7.2f us %5.2f TB/s", name, us, bytes / us * 1e-6);
  };
  std::printf("decode %3d requests, %d heads:", n, heads);
  report("32 columns", layer.microseconds([&] { layer.steps<32>(); }));
  report("sweep", layer.microseconds([&] { layer.sweep(); }));
  std::printf("\n");
}

void time_prefill(int key_heads, int heads, int n_runs, int n_rows) {
  std::vector<StateRun> runs;
  for (int i = 0; i < n_runs; ++i) runs.push_back({i * n_rows, n_rows, 0, -1, i});
  Layer layer(key_heads, heads, n_runs, runs, false);
  std::printf(
      "prefill %d x %5d rows, %2d heads: prepare %7.1f us, scan of 64 columns %7.1f, of 128 %7.1f; both %7.1f, %7.1f, as "
      "ranges that overlap %7.1f us\n",
      n_runs, n_rows, heads, layer.microseconds([&] { layer.chunks<1>(true, false); }),
      layer.microseconds([&] { layer.chunks<1>(false, true); }), layer.microseconds([&] { layer.chunks<2>(false, true); }),
      layer.microseconds([&] { layer.chunks<1>(); }), layer.microseconds([&] { layer.chunks<2>(); }),
      layer.microseconds([&] { layer.overlapped_chunks(); }));
}

}  // namespace

int main(int n_arguments, char** arguments) {
  const std::string_view only = n_arguments > 1 ? arguments[1] : "";
  if (only == "before90") return check_before_sm_90(), 0;
  if (only != "times" && only != "decode") check_all();
  if (only == "checks") return 0;
  for (const int n : {1, 4, 8, 32, 128}) time_decode(16, 32, n);
  for (const int n : {1, 4, 8, 32, 128}) time_decode(16, 48, n);
  if (only == "decode") return 0;
  time_prefill(2, 8, 1, 65536);
  time_prefill(16, 48, 1, 8192);
  time_prefill(16, 32, 1, 8192);
  time_prefill(16, 32, 4, 2048);
  time_prefill(16, 48, 1, 1024);
}
