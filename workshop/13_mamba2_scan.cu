// Is the scan of Mamba-2 on a GPU the recurrence, and how fast is it row by row? Is the norm after a gate its formula?
//
//   nvcc -O3 -std=c++20 -arch=sm_90a --expt-relaxed-constexpr -cudart static -Isrc -o 13_mamba2_scan workshop/13_mamba2_scan.cu
//   ./13_mamba2_scan [before90]
//
// `before90` checks and times chunks by the kernels that devices before sm_90 run.
//
// Checks against float64 first, then medians of 9 runs of the scan alone; before each run the L2 is overwritten.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/cuda/device/architecture.h"
#include "kernels/cuda/rows/gates.cu"
#include "kernels/cuda/states/chunk_pieces.cu"
#include "kernels/cuda/states/chunk_scan.cu"
#include "kernels/cuda/states/mamba2_prepare.cu"
#include "kernels/cuda/states/mamba2_scan.cu"
#include "kernels/cuda/states/mamba2_sweep.cu"

using namespace baton;
using namespace baton::cuda;

namespace {

int compute_capability = 90;

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* on_device(const std::vector<T>& host) {
  T* data = nullptr;
  must(cudaMalloc(&data, std::max<std::size_t>(1, host.size()) * sizeof(T)));
  must(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

std::vector<float> drawn(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

/// A layer with its inputs on the device, in float32 or bf16.
struct Layer {
  int n_heads, n_groups, key_dim, value_dim, n_slots;
  std::vector<StateRun> runs;
  int n_rows = 0;
  std::vector<float> xbc, dt, a_log, dt_bias, skip, states;
  Device device;
  Mamba2Params params{};
  ChunkScanParams scan_params{};
  std::span<std::byte> memory;
  float* out = nullptr;

  Layer(int heads, int groups, int keys, int values, int slots, std::vector<StateRun> of, bool is_bf16 = false)
      : n_heads(heads), n_groups(groups), key_dim(keys), value_dim(values), n_slots(slots), runs(std::move(of)) {
    for (const StateRun& run : runs) n_rows = std::max(n_rows, run.first_row + run.n_rows);
    xbc = drawn(static_cast<std::size_t>(n_rows) * width(), 1);
    dt = drawn(static_cast<std::size_t>(n_rows) * (n_heads + 8), 2);
    std::vector<std::uint16_t> halves;
    if (is_bf16)
      for (float& x : xbc) {
        halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
        x = std::bit_cast<float>(static_cast<std::uint32_t>(halves.back()) << 16);
      }
    a_log = drawn(n_heads, 3), dt_bias = drawn(n_heads, 4), skip = drawn(n_heads, 5);
    for (float& x : a_log) x = 2 * x - 2;
    states = drawn(static_cast<std::size_t>(n_slots) * n_heads * key_dim * value_dim, 6);
    StepInput input;
    input.header().n_rows = n_rows;
    input.append(SectionKind::state_runs, runs);
    input.finish();
    must(cudaMalloc(&out, static_cast<std::size_t>(n_rows) * n_heads * value_dim * 4));
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0));
    device.compute_capability = compute_capability;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = most_shared_bytes(compute_capability);
    must(cudaStreamCreate(&device.stream));
    params = {.step = on_device(std::vector<std::byte>(input.bytes().begin(), input.bytes().end())),
              .xbc = is_bf16 ? static_cast<const void*>(on_device(halves)) : on_device(xbc),
              .xbc_dtype = is_bf16 ? DType::bf16 : DType::f32,
              .dt = on_device(dt),
              .dt_dtype = DType::f32,
              .dt_columns = n_heads + 8,
              .first_dt = 5,
              .a_log = on_device(a_log),
              .dt_bias = on_device(dt_bias),
              .skip = on_device(skip),
              .matrices = {on_device(states), DType::f32, static_cast<std::int64_t>(n_heads) * key_dim * value_dim},
              .out = out,
              .out_dtype = DType::f32,
              .n_heads = n_heads,
              .n_groups = n_groups,
              .key_dim = key_dim,
              .value_dim = value_dim,
              .most_rows = is_bf16 ? kMostStepRows : 1 << 30};
    if (!is_bf16) return;
    scan_params = {.step = params.step,
                   .values = params.xbc,
                   .values_width = width(),
                   .skip = params.skip,
                   .out = out,
                   .out_dtype = DType::f32,
                   .matrices = params.matrices,
                   .n_heads = n_heads,
                   .n_key_heads = n_groups,
                   .value_dim = value_dim};
    std::byte* data = nullptr;
    must(cudaMalloc(&data, kChunkBytes));
    must(cudaMemset(data, 0xff, kChunkBytes));
    memory = {data, kChunkBytes};
  }
  int width() const { return n_heads * value_dim + 2 * n_groups * key_dim; }
  void sweep() { launch_mamba2_sweep(device, params, static_cast<std::int64_t>(runs.size())); }
  /// Long runs in chunks, if the layer is of bf16.
  void scan() {
    const auto n_runs = static_cast<std::int64_t>(runs.size());
    launch_scan(device, params, n_runs);
    if (memory.empty()) return;
    compute_in_chunks(
        device, ChunkRule::mamba2, scan_params, n_rows, n_runs, memory,
        [&](ChunkRange range, const ChunkOperands& operands) { launch_mamba2_prepare(device, params, range, operands); });
  }

  template <class Body>
  void check_results(const char* name, Body&& body) {
    must(cudaMemcpy(params.matrices.first, states.data(), states.size() * 4, cudaMemcpyHostToDevice));
    must(cudaMemset(out, 0xff, static_cast<std::size_t>(n_rows) * n_heads * value_dim * 4));
    body();
    must(cudaStreamSynchronize(device.stream));
    std::vector<float> got(static_cast<std::size_t>(n_rows) * n_heads * value_dim), after(states.size());
    must(cudaMemcpy(got.data(), out, got.size() * 4, cudaMemcpyDeviceToHost));
    must(cudaMemcpy(after.data(), params.matrices.first, after.size() * 4, cudaMemcpyDeviceToHost));
    double d_out = 0, n_out = 0, d_state = 0, n_state = 0;
    for (const StateRun& run : runs)
      for (int h = 0; h < n_heads; ++h) {
        const std::size_t size = static_cast<std::size_t>(key_dim) * value_dim;
        std::vector<double> s(size);
        if (run.read_slot >= 0)
          for (std::size_t i = 0; i < size; ++i)
            s[i] = states[(static_cast<std::size_t>(run.read_slot) * n_heads + h) * size + i];
        for (int r = run.first_row; r < run.first_row + run.n_rows; ++r) {
          const float* row = xbc.data() + static_cast<std::size_t>(r) * width();
          const float* b = row + n_heads * value_dim + h / (n_heads / n_groups) * key_dim;
          const float* c = b + n_groups * key_dim;
          const double t =
              std::log1p(std::exp(static_cast<double>(dt[static_cast<std::size_t>(r) * (n_heads + 8) + 5 + h]) + dt_bias[h]));
          const double decay = std::exp(-std::exp(static_cast<double>(a_log[h])) * t);
          for (int v = 0; v < value_dim; ++v) {
            const double x = row[h * value_dim + v];
            double y = skip[h] * x;
            for (int i = 0; i < key_dim; ++i) {
              double& element = s[static_cast<std::size_t>(i) * value_dim + v];
              element = decay * element + b[i] * t * x;
              y += c[i] * element;
            }
            const double e = got[(static_cast<std::size_t>(r) * n_heads + h) * value_dim + v] - y;
            d_out += e * e, n_out += y * y;
          }
        }
        for (std::size_t i = 0; i < size; ++i) {
          const double e = after[(static_cast<std::size_t>(run.write_slot) * n_heads + h) * size + i] - s[i];
          d_state += e * e, n_state += s[i] * s[i];
        }
      }
    const double of_out = std::sqrt(d_out / n_out), of_state = std::sqrt(d_state / n_state);
    std::printf("%-34s out %.2e state %.2e %s\n", name, of_out, of_state,
                of_out < 1.9e-6 && of_state < 1.9e-6 ? "ok" : "WRONG");
  }

  void check_results(const char* name) {
    check_results(name, [&] { scan(); });
  }
  /// Both kernels of rows give the same bits.
  void check_bits() {
    const std::size_t n_out = static_cast<std::size_t>(n_rows) * n_heads * value_dim;
    std::vector<float> of_scan(n_out + states.size()), of_sweep(of_scan.size());
    for (std::vector<float>* got : {&of_scan, &of_sweep}) {
      must(cudaMemcpy(params.matrices.first, states.data(), states.size() * 4, cudaMemcpyHostToDevice));
      got == &of_scan ? scan() : sweep();
      must(cudaStreamSynchronize(device.stream));
      must(cudaMemcpy(got->data(), out, n_out * 4, cudaMemcpyDeviceToHost));
      must(cudaMemcpy(got->data() + n_out, params.matrices.first, states.size() * 4, cudaMemcpyDeviceToHost));
    }
    std::printf("%-34s %s\n", "bits of both",
                std::memcmp(of_scan.data(), of_sweep.data(), of_scan.size() * 4) == 0 ? "ok" : "WRONG");
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

/// gated_norm against its formula, in float32, with weights of each head or of all.
void check_norm(const Device& device, int n_rows, int n_heads, int d, int first, GatedNormOrder order, bool has_own_weights) {
  const int width = first + n_heads * d + 2;
  const std::vector<float> x = drawn(static_cast<std::size_t>(n_rows) * n_heads * d, 7);
  const std::vector<float> gate = drawn(static_cast<std::size_t>(n_rows) * width, 8);
  const std::vector<float> weight = drawn(has_own_weights ? n_heads * d : d, 9);
  float* const on = on_device(x);
  const auto view = [](const void* data, const Shape& shape) {
    return TensorView{static_cast<std::byte*>(const_cast<void*>(data)), DType::f32, shape};
  };
  const TensorView in_place = view(on, {n_rows, n_heads, d});
  cuda::gated_norm(device, {in_place, view(on_device(gate), {n_rows, width}), first,
                            view(on_device(weight), {static_cast<std::int64_t>(weight.size())}), in_place, 1e-3f, order});
  must(cudaStreamSynchronize(device.stream));
  std::vector<float> got(x.size());
  must(cudaMemcpy(got.data(), on, got.size() * 4, cudaMemcpyDeviceToHost));
  double difference = 0, norm = 0;
  for (int head = 0; head < n_rows * n_heads; ++head) {
    const bool gate_first = order == GatedNormOrder::gate_first;
    std::vector<double> y(d), silu(d);
    double squares = 0;
    for (int i = 0; i < d; ++i) {
      const double g = gate[static_cast<std::size_t>(head / n_heads) * width + first + head % n_heads * d + i];
      silu[i] = g / (1 + std::exp(-g));
      y[i] = x[static_cast<std::size_t>(head) * d + i] * (gate_first ? silu[i] : 1);
      squares += y[i] * y[i];
    }
    for (int i = 0; i < d; ++i) {
      const double w = weight[has_own_weights ? head % n_heads * d + i : i];
      const double expected = y[i] / std::sqrt(squares / d + 1e-3) * w * (gate_first ? 1 : silu[i]);
      const double e = got[static_cast<std::size_t>(head) * d + i] - expected;
      difference += e * e, norm += expected * expected;
    }
  }
  std::printf("norm of %d x %d %s %s: %.2e %s\n", n_heads, d,
              order == GatedNormOrder::gate_first ? "after the gate" : "before it",
              has_own_weights ? "own weights" : "one weight", std::sqrt(difference / norm),
              std::sqrt(difference / norm) < 5e-7 ? "ok" : "WRONG");
}

void time_prefill(int n_rows) {
  Layer layer(64, 8, 128, 64, 1, {{0, n_rows, 0, -1, 0}});
  Layer in_chunks(64, 8, 128, 64, 1, {{0, n_rows, 0, -1, 0}}, true);
  std::printf("sm_%d, prefill of %d rows: by rows %.1f us, in chunks %.1f us\n", compute_capability, n_rows,
              layer.microseconds([&] { layer.scan(); }), in_chunks.microseconds([&] { in_chunks.scan(); }));
}

void check_chunks(const std::vector<StateRun>& mixed) {
  Layer(4, 2, 128, 64, 7, mixed, true).check_results("4 heads of 128 x 64, chunks");
  Layer(2, 2, 128, 128, 7, mixed, true).check_results("2 heads of 128 x 128, chunks");
  Layer(4, 1, 128, 64, 1, {{0, 3000, 0, -1, 0}}, true).check_results("4 heads, 3000 rows, chunks");
}

/// With the shared memory of an A100, and with that of an RTX 4090, where a block has room for one chunk.
void check_before_sm_90(const std::vector<StateRun>& mixed) {
  for (const int architecture : {80, 89}) {
    compute_capability = architecture;
    check_chunks(mixed);
    time_prefill(8192);
  }
}

}  // namespace

int main(int n_arguments, char** arguments) {
  const std::vector<StateRun> mixed{{0, 1, 5, 0, 0},     {1, 70, 100, 1, 3},   {71, 5, 0, -1, 2},
                                    {76, 33, 63, -1, 4}, {109, 200, 64, 5, 5}, {309, 0, 7, 1, 6}};
  if (n_arguments > 1 && std::string_view(arguments[1]) == "before90") return check_before_sm_90(mixed), 0;
  Layer(4, 2, 128, 64, 7, mixed).check_results("4 heads of 128 x 64");
  Layer(3, 1, 256, 64, 7, mixed).check_results("3 heads of 256 x 64");
  Layer(6, 3, 32, 48, 7, mixed).check_results("6 heads of 32 x 48");
  Layer(1, 1, 16, 16, 7, mixed).check_results("1 head of 16 x 16");
  Layer(2, 2, 64, 256, 7, mixed).check_results("2 heads of 64 x 256");
  check_chunks(mixed);
  std::vector<StateRun> many{{0, 3, 9, 0, 0}, {3, 0, 5, 1, 1}, {3, 0, 5, -1, 2}, {3, 1, 0, -1, 3}};
  for (int i = 4; i < 60; ++i) many.push_back({i, 1, i, i, i});
  for (const bool is_bf16 : {false, true}) {
    Layer decode(8, 2, 128, 64, 60, many, is_bf16);
    decode.check_results("60 runs of few rows, a sweep", [&] { decode.sweep(); });
    decode.check_bits();
  }
  Layer last(4, 2, 128, 64, 7, mixed);
  for (const bool own : {true, false})
    for (const GatedNormOrder order : {GatedNormOrder::gate_first, GatedNormOrder::norm_first})
      for (const auto& [heads, d, first] : {std::tuple{8, 512, 0}, {1, 3072, 8}, {3, 80, 7}, {2, 17, 3}})
        check_norm(last.device, 9, heads, d, first, order, own);
  for (const bool is_bf16 : {false, true})
    for (const int n : {1, 8, 32, 128}) {
      std::vector<StateRun> decodes;
      for (int i = 0; i < n; ++i) decodes.push_back({i, 1, 100 + i, i, i});
      Layer layer(64, 8, 128, 64, n, decodes, is_bf16);
      const double bytes = 2.0 * n * 64 * 128 * 64 * (is_bf16 ? 2 : 4);
      const double us = layer.microseconds([&] { layer.scan(); });
      const double of_sweep = layer.microseconds([&] { layer.sweep(); });
      std::printf("decode %3d requests, 64 heads of 128 x 64 in %s: %7.2f us %5.2f TB/s, a sweep %7.2f us %5.2f TB/s\n", n,
                  is_bf16 ? "bf16" : "f32", us, bytes / us * 1e-6, of_sweep, bytes / of_sweep * 1e-6);
    }
  for (const int n : {512, 8192}) time_prefill(n);
  return 0;
}
