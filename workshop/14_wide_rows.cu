/// Experiment 14: how near to reading the weight do bf16 matmuls of 33 to 256 rows come with wide tiles?
///
/// A layout is a tile's width (rows of the weight), parts of k, stages that the first part has more than the others or "s" where
/// all blocks of a tile add its sums, and whether pairs of blocks share x by multicast (wide_rows_kernel.cuh). Label: "224x1",
/// "128x4+2 pair", "128x4s".
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr --diag-suppress=554 -Isrc -Iworkshop
///         -cudart static -o 14_wide_rows workshop/14_wide_rows.cu src/kernels/cuda/gemm/chain_gemm.cu src/kernels/cuda/gemm/tensor_map.cpp
///         -lcublasLt -Xlinker -rpath=/usr/local/cuda/lib64
///     ./14_wide_rows check                            small shapes: float64 everywhere, bytes behind the end, the same bits again
///     ./14_wide_rows time MODELS ROWS [between]       "7b,8b,34b" "48,64,96,128"; each layout is compared with float64 in 2048 places first
///     ./14_wide_rows once MODEL WEIGHT ROWS LABEL     three calls, for ncu; LABEL may be "cublas"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda_bf16.h>

#include "kernels/cuda/gemm/chain_gemm.h"
#include "measure.cuh"
#include "wide_rows_machine.cuh"

namespace workshop {
namespace {

// --- check ---

/// A block for each output that is checked: the first `n_out` or, if they are too many, some of them.
__host__ __device__ std::int64_t place_of(int i, int n_places, std::int64_t n_out) {
  return n_places == n_out ? i : drawn(i, 5) % n_out;
}
__global__ void reference(const __nv_bfloat16* x, const __nv_bfloat16* w, int n, int k, int n_places, std::int64_t n_out,
                          double* expected) {
  const std::int64_t at = place_of(blockIdx.x, n_places, n_out);
  double sum = 0, magnitude = 0;
  for (int i = threadIdx.x; i < k; i += 32) {
    const double term = double(__bfloat162float(x[at / n * k + i])) * __bfloat162float(w[at % n * k + i]);
    sum += term, magnitude += fabs(term);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
    magnitude += __shfl_xor_sync(~0u, magnitude, distance);
  }
  if (threadIdx.x == 0) expected[2 * blockIdx.x] = sum, expected[2 * blockIdx.x + 1] = magnitude;
}
/// Bound: half a unit of bf16, and k / 16 additions of 2^-23 of the sum of magnitudes.
__global__ void count_wrong(const double* expected, const __nv_bfloat16* out, int k, int n_places, std::int64_t n_out,
                            unsigned* n_wrong) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n_places) return;
  const double exact = expected[2 * i];
  double bound = k / 16 * 0x1p-23 * expected[2 * i + 1];
  bound += (fabs(exact) + bound) * 1.01 * 0x1p-8;
  const double error = fabs(double(__bfloat162float(out[place_of(i, n_places, n_out)])) - exact);
  if (!(error <= bound)) atomicAdd(n_wrong, 1u);
}
__global__ void count_words(const std::uint16_t* a, const std::uint16_t* b, std::int64_t n, std::int64_t n_out,
                            unsigned* counts) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    if (a[i] != b[i]) atomicAdd(counts + 1, 1u);
    if ((a[i] == 0xffff) != (i >= n_out)) atomicAdd(counts + 2, 1u);  // not written, or behind the end
  }
}
__global__ void count_not_ones(const std::uint32_t* words, std::int64_t n, unsigned* counts) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    if (words[i] != ~0u) atomicAdd(counts + 3, 1u);
}
void make_reference(const Machine& machine, int n_rows, int n, int k, int n_places) {
  reference<<<n_places, 32, 0, machine.stream>>>(machine.x, machine.weights, n, k, n_places, std::int64_t{n_rows} * n,
                                                 machine.expected);
}
bool is_right(const Machine& machine, const Layout& layout, int n_rows, int n, int k, int n_places) {
  auto launch = prepare(machine, layout, n_rows, n, k);
  const std::int64_t n_out = std::int64_t{n_rows} * n, n_all = n_out + n;
  check_cuda(cudaMemsetAsync(machine.counts, 0, 16, machine.stream), "counts");
  for (auto* out : {machine.out, machine.again}) {
    check_cuda(cudaMemsetAsync(out, 0xff, n_all * 2, machine.stream), "out");
    enqueue(machine, *launch, layout, machine.x, machine.weights, out, k);
  }
  count_wrong<<<(n_places + 255) / 256, 256, 0, machine.stream>>>(machine.expected, machine.out, k, n_places, n_out,
                                                                  machine.counts);
  count_words<<<512, 256, 0, machine.stream>>>(reinterpret_cast<const std::uint16_t*>(machine.out),
                                               reinterpret_cast<const std::uint16_t*>(machine.again), n_all, n_out,
                                               machine.counts);
  count_not_ones<<<512, 256, 0, machine.stream>>>(reinterpret_cast<const std::uint32_t*>(machine.partials),
                                                  Machine::kPartialBytes / 4, machine.counts);
  unsigned counts[4];
  check_cuda(cudaMemcpyAsync(counts, machine.counts, 16, cudaMemcpyDeviceToHost, machine.stream), "counts");
  check_cuda(cudaStreamSynchronize(machine.stream), layout.label().c_str());
  if (counts[0] + counts[1] + counts[2] + counts[3] == 0) return true;
  std::printf("WRONG: %d x %d, %d rows, %s: %u wrong, %u other bits, %u unwritten or behind, %u partials left\n", n, k, n_rows,
              layout.label().c_str(), counts[0], counts[1], counts[2], counts[3]);
  return false;
}

/// Layouts that keep most multiprocessors busy.
std::vector<Layout> layouts_for(const Machine& machine, int n_rows, int n, int k, bool all) {
  std::vector<Layout> layouts;
  const int n_blocks = machine.device.n_multiprocessors;
  for (const int width : kWidths)
    for (const bool pair : {false, true})
      for (int n_parts = 1; n_parts <= 4; ++n_parts)
        for (const int extra : {-1, 0, 2, 3, 4, 6, 8}) {
          if ((n_parts == 1 && extra != 0) || (all && extra > 2 && extra < 8) || (pair && extra > 0)) continue;
          if (width < 64 && n_rows > 64 && !all) continue;
          const Layout layout{width, n_parts, extra, pair};
          const auto launch = prepare(machine, layout, n_rows, n, k);
          if (!launch) continue;
          const int n_items = launch->params.n_tiles * n_parts, waves = (n_items + n_blocks - 1) / n_blocks;
          if (all || n_items >= 0.82 * waves * n_blocks) layouts.push_back(layout);
        }
  return layouts;
}

int run_check(const Machine& machine) {
  int n_cases = 0;
  bool right = true;
  for (const auto& [n, k] : {std::pair{64, 512}, {200, 320}, {264, 1096}, {1000, 4104}, {2048, 2048}})
    for (const int n_rows : {33, 48, 61, 64, 65, 96, 100, 128, 144, 192, 250}) {
      if (n > 1000 && n_rows % 16 != 0) continue;
      const int n_places = static_cast<int>(std::min<std::int64_t>(std::int64_t{n_rows} * n, 131072));
      make_reference(machine, n_rows, n, k, n_places);
      for (const Layout& layout : layouts_for(machine, n_rows, n, k, true)) {
        right &= is_right(machine, layout, n_rows, n, k, n_places);
        ++n_cases;
      }
    }
  std::printf("%d cases: %s\n", n_cases, right ? "all right" : "WRONG");
  return right ? 0 : 1;
}

// --- time ---

/// A small kernel between the matmuls, as norms are: a block a row rewrites x.
__global__ void rewrite_rows(const __nv_bfloat16* from, __nv_bfloat16* to, int k) {
  let_next_kernel_start();
  wait_for_kernel_before();
  const auto* in = reinterpret_cast<const uint4*>(from + std::int64_t(blockIdx.x) * k);
  auto* out = reinterpret_cast<uint4*>(to + std::int64_t(blockIdx.x) * k);
  std::uint32_t any = 0;
  for (int i = threadIdx.x; i < k / 8; i += blockDim.x) any |= __ldcg(in + i).x;
  any = __reduce_or_sync(~0u, any);
  for (int i = threadIdx.x; i < k / 8; i += blockDim.x) {
    uint4 v = __ldcg(in + i);
    v.y |= any & 0;
    out[i] = v;
  }
}
template <int kLoads>
__global__ void __launch_bounds__(512, 2) read_once(const uint4* in, std::int64_t n, std::uint32_t* sums) {
  const std::int64_t first = std::int64_t(blockIdx.x) * (512 * kLoads) + threadIdx.x;
  uint4 v[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) v[i] = first + i * 512 < n ? __ldcs(in + first + i * 512) : make_uint4(0, 0, 0, 0);
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
  sum = __reduce_add_sync(~0u, sum);
  if (threadIdx.x % 32 == 0) sums[blockIdx.x * 16 + threadIdx.x / 32] = sum;
}

struct Shape {
  std::string model, name;
  int n, k;
};
std::vector<Shape> shapes() {
  return {{"7b", "qkv", 12288, 4096},     {"7b", "o", 4096, 4096},         {"7b", "gate_up", 22016, 4096},
          {"7b", "down", 4096, 11008},    {"8b", "qkv", 6144, 4096},       {"8b", "o", 4096, 4096},
          {"8b", "gate_up", 28672, 4096}, {"8b", "down", 4096, 14336},     {"34b", "qkv", 10240, 8192},
          {"34b", "o", 8192, 8192},       {"34b", "gate_up", 44032, 8192}, {"34b", "down", 8192, 22016},
          {"heads", "7b", 32000, 4096},   {"heads", "8b", 128256, 4096},   {"heads", "34b", 32000, 8192}};
}

/// Calls over rotated copies of a weight, so that none is in the L2.
class Calls {
 public:
  Calls(const Machine& machine, const Shape& shape, int n_rows, bool between)
      : machine_(machine), shape_(shape), n_rows_(n_rows), between_(between), size_(std::int64_t{shape.n} * shape.k) {
    n_copies_ = static_cast<int>(std::clamp<std::int64_t>((192ll << 20) / size_, 2, 16));
    n_calls_ = std::max(8, n_copies_);
  }
  /// `multiply(stream, x, weight)`.
  Timing time(const std::function<void(cudaStream_t, const __nv_bfloat16*, const __nv_bfloat16*)>& multiply,
              int n_replays = 9) const {
    return time_graph(
        machine_.stream, n_calls_,
        [&](cudaStream_t stream, int call) {
          const bool odd = call % 2 != 0;
          if (between_) {
            cudaLaunchConfig_t config{};
            config.gridDim = dim3(static_cast<unsigned>(n_rows_));
            config.blockDim = dim3(256);
            config.stream = stream;
            cudaLaunchAttribute overlap{};
            overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
            overlap.val.programmaticStreamSerializationAllowed = 1;
            config.attrs = &overlap;
            config.numAttrs = 1;
            check_cuda(
                cudaLaunchKernelEx(&config, rewrite_rows, static_cast<const __nv_bfloat16*>(odd ? machine_.x2 : machine_.x),
                                   odd ? machine_.x : machine_.x2, shape_.k),
                "between");
          }
          multiply(stream, between_ && !odd ? machine_.x2 : machine_.x, machine_.weights + call % n_copies_ * size_);
        },
        {}, n_replays);
  }
  Timing time_read() const {
    Timing best{1e30, 0};
    for (const int loads : {2, 4, 8}) {
      auto* const kernel = loads == 2 ? &read_once<2> : loads == 4 ? &read_once<4> : &read_once<8>;
      const auto blocks = static_cast<unsigned>((size_ / 8 + 512 * loads - 1) / (512 * loads));
      if (blocks * 16ull > (1u << 24)) continue;
      const Timing timing = time_graph(
          machine_.stream, n_calls_,
          [&](cudaStream_t stream, int call) {
            kernel<<<blocks, 512, 0, stream>>>(reinterpret_cast<const uint4*>(machine_.weights + call % n_copies_ * size_),
                                               size_ / 8, machine_.words);
          },
          {}, 9);
      if (timing.us < best.us) best = timing;
    }
    return best;
  }

 private:
  const Machine& machine_;
  const Shape& shape_;
  int n_rows_;
  bool between_;
  std::int64_t size_;
  int n_copies_ = 0, n_calls_ = 0;
};

/// cuBLASLt's first eight choices.
class Cublas {
 public:
  Cublas(const Machine& machine, const Shape& shape, int n_rows) : machine_(machine) {
    cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatrixLayoutInit(&a_, CUDA_R_16BF, shape.k, shape.n, shape.k);
    cublasLtMatrixLayoutInit(&b_, CUDA_R_16BF, shape.k, n_rows, shape.k);
    cublasLtMatrixLayoutInit(&c_, CUDA_R_16BF, shape.n, n_rows, shape.n);
    cublasLtMatmulPreferenceOpaque_t preference{};
    cublasLtMatmulPreferenceInit(&preference);
    const std::size_t most = Machine::kWorkspace;
    cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    if (cublasLtMatmulAlgoGetHeuristic(machine.cublas, &operation_, &a_, &b_, &c_, &c_, &preference, 8, found_, &n_found_) !=
        CUBLAS_STATUS_SUCCESS)
      n_found_ = 0;
  }
  int n_found() const { return n_found_; }
  void run(int i, cudaStream_t stream, const __nv_bfloat16* x, const __nv_bfloat16* weight) {
    const float one = 1, zero = 0;
    cublasLtMatmul(machine_.cublas, &operation_, &one, weight, &a_, x, &b_, &zero, machine_.out, &c_, machine_.out, &c_,
                   &found_[i].algo, machine_.workspace, Machine::kWorkspace, stream);
  }

 private:
  const Machine& machine_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t a_, b_, c_;
  cublasLtMatmulHeuristicResult_t found_[8];
  int n_found_ = 0;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

int run_time(const Machine& machine, const std::string& models, const std::string& all_rows, bool between) {
  std::FILE* json = nullptr;
  if (const char* folder = std::getenv("OUT")) json = std::fopen((std::string(folder) + "/wide_rows.jsonl").c_str(), "a");
  const ChainGemm chain(machine.device);
  const auto wanted = split(models);
  std::printf("%-14s %4s %7s | cublas first, best | chain | best layouts%s\n", "", "rows", "read", between ? " (pairs)" : "");
  for (const Shape& shape : shapes()) {
    if (std::find(wanted.begin(), wanted.end(), shape.model) == wanted.end()) continue;
    const double read = Calls(machine, shape, 1, false).time_read().us;
    for (const std::string& rows_text : split(all_rows)) {
      const int n_rows = std::stoi(rows_text);
      const Calls calls(machine, shape, n_rows, between);
      Cublas cublas(machine, shape, n_rows);
      double first = 1e9, best = 1e9, chain_us = -1;
      for (int i = 0; i < cublas.n_found(); ++i) {
        const double us =
            calls
                .time([&](cudaStream_t stream, const __nv_bfloat16* x, const __nv_bfloat16* w) { cublas.run(i, stream, x, w); },
                      5)
                .us;
        if (i == 0) first = us;
        best = std::min(best, us);
      }
      if (n_rows <= 64) {
        const auto described = chain.describe(view_of(machine.weights, shape.n, shape.k));
        std::vector<ChainWeight> copies;
        chain_us = calls
                       .time([&](cudaStream_t, const __nv_bfloat16* x, const __nv_bfloat16* w) {
                         const auto weight = chain.describe(view_of(w, shape.n, shape.k));
                         chain.multiply(view_of(x, n_rows, shape.k), *weight, {},
                                        TensorView{reinterpret_cast<std::byte*>(machine.out), DType::bf16, {n_rows, shape.n}});
                       })
                       .us;
      }
      make_reference(machine, n_rows, shape.n, shape.k, Machine::kPlaces);
      struct Found {
        std::string label;
        Timing timing;
      };
      std::vector<Found> found;
      for (const Layout& layout : layouts_for(machine, n_rows, shape.n, shape.k, false)) {
        if (!is_right(machine, layout, n_rows, shape.n, shape.k, Machine::kPlaces)) return 1;
        auto launch = prepare(machine, layout, n_rows, shape.n, shape.k);
        found.push_back({layout.label(), calls.time([&](cudaStream_t, const __nv_bfloat16* x, const __nv_bfloat16* w) {
                           enqueue(machine, *launch, layout, x, w, machine.out, shape.k);
                         })});
        if (json != nullptr)
          std::fprintf(
              json,
              "{\"weight\": \"%s %s\", \"n\": %d, \"k\": %d, \"rows\": %d, \"layout\": \"%s\", \"us\": %.3f, \"spread\": "
              "%.4f, \"read\": %.3f, \"cublas_first\": %.3f, \"cublas\": %.3f, \"chain\": %.3f, \"between\": %d}\n",
              shape.model.c_str(), shape.name.c_str(), shape.n, shape.k, n_rows, found.back().label.c_str(),
              found.back().timing.us, found.back().timing.spread, read, first, best, chain_us, between);
      }
      std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.timing.us < b.timing.us; });
      std::printf("%-5s %-8s %4d %7.2f | %7.2f %7.2f | %7.2f | %.3f %.3f |", shape.model.c_str(), shape.name.c_str(), n_rows,
                  read, first, best, chain_us, found.empty() ? 0 : read / found[0].timing.us,
                  found.empty() ? 0 : best / found[0].timing.us);
      for (std::size_t i = 0; i < found.size() && i < 5; ++i)
        std::printf(" %s %.2f;", found[i].label.c_str(), found[i].timing.us);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  if (json != nullptr) std::fclose(json);
  return 0;
}

int run_once(const Machine& machine, const std::string& model, const std::string& name, int n_rows, const std::string& label) {
  for (const Shape& shape : shapes()) {
    if (shape.model != model || shape.name != name) continue;
    const std::int64_t size = std::int64_t{shape.n} * shape.k;
    if (label == "cublas") {
      Cublas cublas(machine, shape, n_rows);
      for (int call = 0; call < 3; ++call) cublas.run(0, machine.stream, machine.x, machine.weights + call * size);
    }
    for (const Layout& layout : layouts_for(machine, n_rows, shape.n, shape.k, true)) {
      if (layout.label() != label) continue;
      auto launch = prepare(machine, layout, n_rows, shape.n, shape.k);
      for (int call = 0; call < 3; ++call)
        enqueue(machine, *launch, layout, machine.x, machine.weights + call * size, machine.out, shape.k);
    }
    check_cuda(cudaStreamSynchronize(machine.stream), "once");
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    std::fprintf(stderr, "14_wide_rows check | time MODELS ROWS [between] | once MODEL WEIGHT ROWS LABEL\n");
    return 2;
  }
  const Machine machine;
  std::printf("%s\n", machine.device.name.c_str());
  if (arguments[0] == "check") return run_check(machine);
  if (arguments[0] == "time" && arguments.size() >= 3)
    return run_time(machine, arguments[1], arguments[2], arguments.size() > 3);
  if (arguments[0] == "once" && arguments.size() == 5)
    return run_once(machine, arguments[1], arguments[2], std::stoi(arguments[3]), arguments[4]);
  return 2;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) { return workshop::run(argc, argv); }
