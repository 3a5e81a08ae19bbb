// How fast is the gated delta rule: decode of many sequences by rows, and prefill in chunks, one after another and in pieces?
//
//   nvcc -O3 -std=c++20 -arch=sm_90a --expt-relaxed-constexpr -cudart static -Isrc -o 12_delta_rule workshop/12_delta_rule.cu
//   ./12_delta_rule [checks|pieces|decode|prefill|before90|small|once|chunks_once]
//
// `small` is for a sanitizer. `once` and `chunks_once` are for a profiler: sweeps of 32 and 128 sequences that begin from one state and
// of 32 from their own; 65,536 rows of 8 heads.
// `before90` checks and times the kernels that devices before sm_90 run.
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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/device/architecture.h"
#include "kernels/cuda/states/chunk_pieces.cu"
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

constexpr std::size_t kMostBytes = 400 << 20;  ///< more than Baton has for the operands of chunks

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
    must(cudaMalloc(&data, kMostBytes));
    must(cudaMemset(data, 0xff, kMostBytes));
    memory = {data, kChunkBytes};
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0));
    device.compute_capability = compute_capability;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = most_shared_bytes(compute_capability);
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
        cuda::launch_of_groups<ChunkRule::delta, ScanPass::whole, kGroups>(
            device, scan, range, operands, static_cast<std::int64_t>(runs.size()), ChunkPieces{});
    }
  }

  /// As Baton does it.
  void all_chunks() {
    compute_in_chunks(
        device, ChunkRule::delta, scan, n_rows, static_cast<std::int64_t>(runs.size()), memory,
        [&](ChunkRange range, const ChunkOperands& operands) { launch_delta_prepare(device, params, range, operands); });
  }
  /// As it does on a device that is too small for pieces.
  void overlapped_chunks() {
    const int n_multiprocessors = std::exchange(device.n_multiprocessors, std::min(device.n_multiprocessors, n_heads * 4 - 1));
    all_chunks();
    device.n_multiprocessors = n_multiprocessors;
  }
  /// In ranges of `at_once` chunks and so many pieces; `parts`: a bit for each of the four kernels.
  void pieces(int n_pieces, int at_once, unsigned parts = 15) {
    const int n = n_rows / kStateChunk + 2;
    float* states = reinterpret_cast<float*>(memory.data() + kMostBytes - n_pieces * bytes_of_piece(scan));
    const ChunkPieces of{n_pieces, (at_once + n_pieces - 1) / n_pieces, states,
                         states + static_cast<std::int64_t>(n_pieces) * n_heads * kDim * kDim};
    auto* matrices = reinterpret_cast<ChunkMatrices*>(memory.data());
    const ChunkOperands operands{matrices,
                                 reinterpret_cast<ChunkKeys*>(matrices + static_cast<std::size_t>(at_once) * n_heads)};
    for (int first = 0; first < n; first += at_once) {
      const ChunkRange range{first, std::min(at_once, n - first), false};
      if (parts & 1) launch_delta_prepare(device, params, range, operands);
      if (parts & 2) launch_chunk_maps(device, scan, range, operands, of);
      if (parts & 4) launch_piece_states(device, scan, range, of);
      if (parts & 8) launch_chunk_scan(device, ChunkRule::delta, scan, range, operands, 1, of);
    }
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

  /// The largest errors of a run's outputs and states, relative to their norms. `state_bound`: of the states.
  void check_results(const char* name, double state_bound = 1.9e-6) {
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
      const auto worse = [](double a, double b) { return std::isnan(a) || a > b ? a : b; };  // NaN stays
      const auto relative = [](double d, double n) { return std::sqrt(n > 0 ? d / n : d); };
      worst_out = worse(relative(d_out, n_out), worst_out);
      worst_state = worse(relative(d_state, n_state), worst_state);
    }
    std::printf("%-28s out %.2e state %.2e %s\n", name, worst_out, worst_state,
                worst_out < 1.9e-6 && worst_state < state_bound ? "ok" : "WRONG");
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
  std::vector<StateRun> from_one;
  for (int i = 0; i < 20; ++i) from_one.push_back({i, 1, 7, 20, i});
  Layer forks(2, 8, 21, from_one, true);
  forks.sweep(), forks.check_results("20 runs from one state");
  Layer longer(1, 2, 1, {{0, 3000, 0, -1, 0}}, false);
  longer.chunks<1>(), longer.check_results("3000 rows, 64 columns");
  longer.chunks<2>(), longer.check_results("3000 rows, 128 columns");
  longer.overlapped_chunks(), longer.check_results("3000 rows, ranges that overlap");
  longer.all_chunks(), longer.check_results("3000 rows, as Baton does it");
  for (const int n : {2, 3, 7, 16})
    longer.pieces(n, 49), longer.check_results(("3000 rows, pieces: " + std::to_string(n)).c_str());
  longer.pieces(5, 13), longer.check_results("3000 rows, 4 ranges of 5 pieces");
  Layer later(2, 4, 2, {{0, 2000, 77, 1, 1}}, true);
  later.all_chunks(), later.check_results("2000 rows from a state");
  later.pieces(6, 40), later.check_results("the same in 6 pieces");
  later.pieces(3, 9), later.check_results("the same, ranges of 3 pieces");
  for (std::size_t i = 0; i < later.qkv.size(); ++i)
    if (i >= later.qkv.size() / 10 && static_cast<int>(i % later.width()) >= 4 * kDim) later.qkv[i] = 0;
  must(cudaMemcpy(const_cast<void*>(later.params.qkv), later.qkv.data(), later.qkv.size() * 2, cudaMemcpyHostToDevice));
  later.chunks<1>(), later.check_results("values that become zero", 16e-6);
  later.all_chunks(), later.check_results("the same in pieces", 16e-6);
  for (std::uint16_t& x : longer.qkv)
    x = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(longer.value(&x - longer.qkv.data())) * 1e-5f) >> 16);
  must(cudaMemcpy(const_cast<void*>(longer.params.qkv), longer.qkv.data(), longer.qkv.size() * 2, cudaMemcpyHostToDevice));
  longer.chunks<2>(), longer.check_results("of small numbers");
  longer.all_chunks(), longer.check_results("the same in pieces");
  for (std::uint16_t& x : longer.qkv)
    x = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(longer.value(&x - longer.qkv.data())) * 1e12f) >> 16);
  must(cudaMemcpy(const_cast<void*>(longer.params.qkv), longer.qkv.data(), longer.qkv.size() * 2, cudaMemcpyHostToDevice));
  longer.chunks<2>(), longer.check_results("of large numbers");
  longer.all_chunks(), longer.check_results("the same in pieces");
}

void time_prefill_by_rows(int key_heads, int heads, int n_rows) {
  Layer layer(key_heads, heads, 1, {{0, n_rows, 0, -1, 0}}, false);
  std::printf("sm_%d, prefill of %5d rows, %2d heads: by rows %8.1f us, in chunks %8.1f us\n", compute_capability, n_rows,
              heads, layer.microseconds([&] { layer.steps<32>(); }), layer.microseconds([&] { layer.overlapped_chunks(); }));
}

/// With the shared memory of an A100, and with that of an RTX 4090, where a block has room for one chunk.
void check_before_sm_90() {
  for (const int architecture : {80, 89}) {
    compute_capability = architecture;
    std::printf("sm_%d\n", compute_capability);
    Layer layer(2, 4, 6, {{0, 1, 5, 0, 0}, {1, 70, 100, 1, 3}, {71, 5, 0, -1, 2}, {76, 33, 63, -1, 4}, {109, 200, 64, 5, 5}},
                true);
    layer.params.most_rows = kMostStepRows;
    layer.steps<32>(), layer.chunks<1>(), layer.check_results("chunks, 64 columns");
    layer.steps<32>(), layer.chunks<2>(), layer.check_results("chunks, 128 columns");
    Layer longer(1, 2, 1, {{0, 3000, 0, -1, 0}}, false);
    longer.chunks<1>(), longer.check_results("3000 rows, 64 columns");
    longer.chunks<2>(), longer.check_results("3000 rows, 128 columns");
    longer.overlapped_chunks(), longer.check_results("3000 rows, ranges that overlap");
    time_prefill_by_rows(2, 8, 8192);
    time_prefill_by_rows(16, 48, 8192);
    time_prefill_by_rows(16, 32, 1024);
  }
}

/// `from_one`: all sequences begin from one slot, each writes its own.
void time_decode(int key_heads, int heads, int n, bool from_one = false) {
  std::vector<StateRun> runs = decodes(n);
  if (from_one)
    for (StateRun& run : runs) run.read_slot = n;
  Layer layer(key_heads, heads, n + 1, runs, false);
  const double numbers = (from_one ? 1.0 + n : 2.0 * n) * heads * kDim * kDim;
  const auto report = [&](const char* name, double us, int number_bytes) {
    std::printf("  %s %7.2f us %5.2f TB/s", name, us, number_bytes * numbers / us * 1e-6);
  };
  std::printf("decode %3d requests, %d heads%s:", n, heads, from_one ? ", from one state" : "");
  report("32 columns", layer.microseconds([&] { layer.steps<32>(); }), 4);
  report("sweep", layer.microseconds([&] { layer.sweep(); }), 4);
  layer.params.matrices.dtype = DType::bf16;
  report("sweep of bf16", layer.microseconds([&] { layer.sweep(); }), 2);
  std::printf("\n");
}

/// Small shapes by every kernel, for a sanitizer.
void compute_small() {
  Layer layer(1, 2, 2, {{0, 1950, 70, 1, 0}}, true);
  layer.all_chunks(), layer.check_results("1950 rows, as Baton does it");
  layer.chunks<2>(), layer.check_results("whole, 128 columns");
  layer.chunks<1>(), layer.check_results("whole, 64 columns");
  std::vector<StateRun> runs;
  for (int i = 0; i < 9; ++i) runs.push_back({i, 1, 7, 9, i});
  Layer forks(2, 32, 10, runs, true);
  forks.sweep(), forks.check_results("9 runs from one state");
  compute_capability = 89;
  Layer older(1, 2, 1, {{0, 200, 7, -1, 0}}, true);
  older.chunks<2>(), older.check_results("sm_89");
}

/// One prompt as Baton does it, for a profiler.
void chunks_once(int key_heads, int heads, int n_rows) {
  Layer layer(key_heads, heads, 1, {{0, n_rows, 0, -1, 0}}, false);
  layer.all_chunks();
  must(cudaStreamSynchronize(layer.device.stream));
}

/// One sweep, for a profiler.
void sweep_once(int n, bool from_one) {
  std::vector<StateRun> runs = decodes(n);
  if (from_one)
    for (StateRun& run : runs) run.read_slot = n;
  Layer layer(16, 48, n + 1, runs, false);
  layer.sweep();
  must(cudaStreamSynchronize(layer.device.stream));
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

/// `n_pieces` of ranges of `at_once` chunks.
void time_pieces(int key_heads, int heads, int n_rows, int n_pieces, int at_once) {
  Layer layer(key_heads, heads, 1, {{0, n_rows, 0, -1, 0}}, false);
  layer.pieces(n_pieces, at_once);
  const auto of = [&](unsigned parts) { return layer.microseconds([&] { layer.pieces(n_pieces, at_once, parts); }); };
  std::printf(
      "%5d rows, %2d heads, %2d pieces of %4d chunks: %7.1f us; prepare %6.1f, maps %6.1f, states %5.1f, scan %6.1f; as Baton "
      "does it %7.1f, without pieces %7.1f\n",
      n_rows, heads, n_pieces, at_once, of(15), of(1), of(2), of(4), of(8), layer.microseconds([&] { layer.all_chunks(); }),
      layer.microseconds([&] { layer.overlapped_chunks(); }));
}

void time_all_pieces() {
  for (const int n : {8, 16}) time_pieces(2, 8, 65536, n, 513);
  time_pieces(2, 8, 65536, 16, 1026);
  for (const int n : {8, 16}) time_pieces(2, 8, 8192, n, 130);
  for (const int n : {3, 5}) time_pieces(2, 8, 2048, n, 34);
  for (const int n : {3}) time_pieces(2, 8, 1024, n, 18);
  for (const int n : {4, 8}) time_pieces(8, 16, 8192, n, 130);
  for (const int n : {3}) time_pieces(16, 32, 8192, n, 130);
}

}  // namespace

int main(int n_arguments, char** arguments) {
  const std::string_view only = n_arguments > 1 ? arguments[1] : "";
  if (only == "before90") return check_before_sm_90(), 0;
  if (only == "once") return sweep_once(32, true), sweep_once(128, true), sweep_once(32, false), 0;
  if (only == "chunks_once") return chunks_once(2, 8, 65536), 0;
  if (only == "small") return compute_small(), 0;
  if (only == "" || only == "checks") check_all();
  if (only == "" || only == "pieces") time_all_pieces();
  if (only == "" || only == "decode") {
    for (const int n : {1, 4, 8, 32, 128}) time_decode(16, 32, n);
    for (const int n : {1, 4, 8, 32, 128}) time_decode(16, 48, n);
    for (const int n : {8, 32, 128}) time_decode(16, 48, n, true);
  }
  if (only == "" || only == "prefill") {
    time_prefill(2, 8, 1, 65536);
    time_prefill(16, 48, 1, 8192);
    time_prefill(16, 32, 1, 8192);
    time_prefill(16, 32, 4, 2048);
    time_prefill(16, 48, 1, 1024);
  }
}
