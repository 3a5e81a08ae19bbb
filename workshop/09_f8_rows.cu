/// Experiment 7: what do matmuls of x by weights take, both in f8_e4m3, for 64 to 8192 rows, and in which plan?
///
///     F="-O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr --diag-suppress=554 -Isrc -Iworkshop"
///     S=src/kernels/cuda
///     nvcc $F -cudart static -o 09_f8_rows workshop/09_f8_rows.cu $S/schemes/f8_gemm.cu $S/schemes/wide/wide_8_bits.cu
///         $S/schemes/stream/stream_f8.cu $S/gemm/tensor_map.cpp -lcublasLt -Xlinker -rpath=/usr/local/cuda/lib64
///     ./09_f8_rows check    plans, scales and types of out against float64, bytes behind the end, the same bits again
///     ./09_f8_rows time     microseconds of the matmuls of Llama-3-8B beside x in bf16 and cuBLASLt, weights from memory
///     ./09_f8_rows streams  x in bf16 alone, from 1 row on
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cuda_bf16.h>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/f8_gemm.h"
#include "kernels/cuda/schemes/scheme_stream.h"
#include "kernels/cuda/schemes/scheme_wide.h"
#include "measure.cuh"

namespace workshop {
namespace {

using namespace baton;
using namespace baton::cuda;
using workshop::check_cuda;

__host__ __device__ std::uint32_t drawn(std::uint64_t i, std::uint32_t seed) {
  std::uint32_t z = static_cast<std::uint32_t>(i) * 2654435761u + seed;
  z = (z ^ (z >> 15)) * 2246822519u;
  z = (z ^ (z >> 13)) * 3266489917u;
  return z ^ (z >> 16);
}
/// Of e4m3 codes whose magnitude is below 2 with this mask, so none that is no number.
constexpr std::uint32_t kSmallCodes = 0xbfbfbfbfu;
__global__ void fill_words(std::uint32_t* to, std::int64_t n, std::uint32_t seed, std::uint32_t mask) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) to[i] = drawn(i, seed) & mask;
}
__global__ void fill_bf16(__nv_bfloat16* to, std::int64_t n, std::uint32_t seed) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    to[i] = __float2bfloat16((static_cast<int>(drawn(i, seed) & 0xffffu) - 32768) / 32768.0f);
}

template <class T>
T* device_array(std::int64_t n) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, n * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}
template <class T>
T* on_device(const std::vector<T>& from) {
  T* const to = device_array<T>(static_cast<std::int64_t>(from.size()));
  check_cuda(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return to;
}

/// A packed weight of random codes with scales for rows, or of groups of 128 columns.
class Weight {
 public:
  Weight(int n, int k, bool has_groups, std::uint32_t seed) {
    view_.n = n;
    view_.k = k;
    view_.n_tiles = (n + kSchemeTileRows - 1) / kSchemeTileRows;
    view_.n_chunks = ((k + 31) / 32 + kChunksAtOnce - 1) / kChunksAtOnce * kChunksAtOnce;
    auto* const words = device_array<std::uint32_t>(n_bytes() / 4);
    fill_words<<<1024, 256>>>(words, n_bytes() / 4, seed, kSmallCodes);
    view_.values = reinterpret_cast<const std::byte*>(words);
    if (has_groups) {
      view_.group_shift = 7;
      view_.n_groups = view_.n_chunks * 32 >> 7;
    }
    std::vector<float> scales(static_cast<std::size_t>(view_.n_tiles) * kSchemeTileRows * view_.n_groups);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f + 0.0001f * static_cast<float>(i % 89);
    float* const there = on_device(scales);
    if (has_groups)
      view_.scales = reinterpret_cast<const std::byte*>(there);
    else
      view_.row_scales = there;
  }
  ~Weight() {
    cudaFree(const_cast<std::byte*>(view_.values));
    cudaFree(const_cast<std::byte*>(view_.scales));
    cudaFree(const_cast<float*>(view_.row_scales));
  }
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;
  const SchemeView& view() const { return view_; }
  std::int64_t n_bytes() const { return static_cast<std::int64_t>(view_.n_tiles) * view_.n_chunks * kPieceBytes; }

 private:
  SchemeView view_;
};

struct Machine {
  Device device;
  void* encode = tensor_map_encoder();
  WideClusters clusters;
  uint4* partials = nullptr;

  Machine() {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0), "device");
    device.name = properties.name;
    device.compute_capability = 10 * properties.major + properties.minor;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = properties.sharedMemPerBlockOptin;
    check_cuda(cudaStreamCreate(&device.stream), "stream");
    clusters = wide_clusters(device);
    const auto n = static_cast<std::int64_t>(scheme_partial_bytes(device.n_multiprocessors));
    partials = reinterpret_cast<uint4*>(device_array<std::byte>(n));
    check_cuda(cudaMemset(partials, 0xff, n), "partials");
  }
};

struct Output {
  void* to = nullptr;
  const void* bias = nullptr;
  DType dtype = DType::bf16;
};

void multiply_by_f8(const Machine& machine, const Weight& weight, const std::byte* x, const float* x_scales, int n_rows,
                    const Output& out, const F8Plan& plan) {
  F8GemmParams p;
  p.weight = weight.view();
  p.x_scales = x_scales;
  p.bias = out.bias;
  p.out = out.to;
  p.out_dtype = out.dtype;
  p.n_rows = n_rows;
  p.stores_boxes = out.dtype != DType::f32 && weight.view().n % 8 == 0;
  p.plan = plan;
  multiply_f8(machine.device, p, machine.encode, {x, DType::f8_e4m3, {n_rows, weight.view().k}});
}

/// As SchemeGemm does.
void multiply_by_bf16(const Machine& machine, const Weight& weight, const __nv_bfloat16* x, int n_rows, const Output& out) {
  const ConstTensorView view{reinterpret_cast<const std::byte*>(x), DType::bf16, {n_rows, weight.view().k}};
  if (n_rows <= kMostSchemeWidth) {
    const int width = *std::lower_bound(std::begin(kSchemeWidths), std::end(kSchemeWidths), n_rows);
    SchemeStreamParams p;
    p.weight = weight.view();
    p.bias = out.bias;
    p.out = out.to;
    p.out_is_f32 = out.dtype == DType::f32;
    p.partials = machine.partials;
    p.n_rows = n_rows;
    p.stores_pairs = weight.view().n % 2 == 0;
    return stream_f8(machine.device, DType::bf16, width, p, matrix_map(machine.encode, view, width));
  }
  const int width = wide_width(n_rows);
  SchemeWideParams p;
  p.weight = weight.view();
  p.bias = out.bias;
  p.out = out.to;
  p.clusters = machine.clusters;
  p.n_rows = n_rows;
  p.out_is_f32 = out.dtype == DType::f32;
  p.stores_vectors = !p.out_is_f32 && weight.view().n % 8 == 0;
  wide_f8(machine.device, DType::bf16, width, p, matrix_map(machine.encode, view, width));
}

// --- check ---

__device__ double e4m3(std::uint32_t code) { return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 0x1p120f; }
__device__ double value_at(const SchemeView& weight, std::int64_t n, int k) {
  const int row = static_cast<int>(n % kSchemeTileRows);
  const std::int64_t tile = n / kSchemeTileRows;
  const int place = f8_place(k % 64);
  const auto code = static_cast<std::uint32_t>(weight.values[(tile * weight.n_chunks + k / 64 * 2) * kPieceBytes + row * 64 +
                                                             (place / 16 ^ row / 2 % 4) * 16 + place % 16]);
  const std::int64_t group = (tile * weight.n_groups + (k >> weight.group_shift)) * kSchemeTileRows + row;
  const double scale = weight.scales == nullptr ? weight.row_scales[n] : reinterpret_cast<const float*>(weight.scales)[group];
  return e4m3(code) * scale;
}
__device__ double x_at(const std::byte* x, const float* scales, std::int64_t row, int k, std::int64_t n_columns) {
  const std::int64_t at = row * n_columns + k / kF8Block * kF8Block + f8_place(k % kF8Block);
  return e4m3(static_cast<std::uint32_t>(x[at])) * scales[row];
}
__device__ double x_at(const __nv_bfloat16* x, const float*, std::int64_t row, int k, std::int64_t n_columns) {
  return __bfloat162float(x[row * n_columns + k]);
}
/// A block for each of the outputs that are checked.
template <class X>
__global__ void reference_kernel(SchemeView weight, const X* x, const float* scales, const int* places, double* out) {
  __shared__ double parts[128];
  const std::int64_t n = places[2 * blockIdx.x + 1], row = places[2 * blockIdx.x];
  double sum = 0;
  for (int k = threadIdx.x; k < weight.k; k += 128) sum += value_at(weight, n, k) * x_at(x, scales, row, k, weight.k);
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < 128; ++i) sum += parts[i];
  out[blockIdx.x] = sum;
}

float f32_of_bf16(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, 4);
  return value;
}

struct Inputs {
  std::byte* f8 = nullptr;
  __nv_bfloat16* bf16 = nullptr;
  float* scales = nullptr;
};

/// `plan` null: x in bf16.
bool check_case(const Machine& machine, int n, int k, int n_rows, bool has_groups, bool is_f32, const F8Plan* plan,
                const Inputs& x) {
  const Weight weight(n, k, has_groups, n + k);
  const std::size_t size = is_f32 ? 4 : 2, n_out = static_cast<std::size_t>(n_rows) * n;
  std::vector<std::uint16_t> bias(n);
  for (int i = 0; i < n; ++i) bias[i] = static_cast<std::uint16_t>(0x3f80 + i % 64);
  std::uint16_t* const bias_there = on_device(bias);
  const std::int64_t n_bytes = static_cast<std::int64_t>((n_out + n) * size);
  std::byte* const out = device_array<std::byte>(n_bytes);
  std::vector<std::byte> found(n_bytes), again(n_bytes);
  const Output to{out, is_f32 ? nullptr : bias_there, is_f32 ? DType::f32 : DType::bf16};
  for (auto* copy : {&found, &again}) {
    check_cuda(cudaMemset(out, 0xff, n_bytes), "out");
    check_cuda(cudaDeviceSynchronize(), "before");
    if (plan == nullptr)
      multiply_by_bf16(machine, weight, x.bf16, n_rows, to);
    else
      multiply_by_f8(machine, weight, x.f8, x.scales, n_rows, to, *plan);
    check_cuda(cudaStreamSynchronize(machine.device.stream), "multiply");
    check_cuda(cudaMemcpy(copy->data(), out, n_bytes, cudaMemcpyDeviceToHost), "out");
  }
  const int n_checked = static_cast<int>(std::min<std::size_t>(n_out, 20000));
  std::vector<int> places;
  for (int i = 0; i < n_checked; ++i) {
    const std::size_t at = n_out <= 20000 ? i : drawn(i, 5) % n_out;
    places.push_back(static_cast<int>(at / n));
    places.push_back(static_cast<int>(at % n));
  }
  int* const places_there = on_device(places);
  double* const reference = device_array<double>(n_checked);
  if (plan == nullptr)
    reference_kernel<<<n_checked, 128>>>(weight.view(), x.bf16, x.scales, places_there, reference);
  else
    reference_kernel<<<n_checked, 128>>>(weight.view(), x.f8, x.scales, places_there, reference);
  std::vector<double> expected(n_checked);
  check_cuda(cudaMemcpy(expected.data(), reference, n_checked * 8ll, cudaMemcpyDeviceToHost), "reference");
  double squares = 0, worst = 0;
  for (const double value : expected) squares += value * value / n_checked;
  for (int i = 0; i < n_checked; ++i) {
    const std::size_t at = static_cast<std::size_t>(places[2 * i]) * n + places[2 * i + 1];
    float value = 0;
    std::uint16_t half = 0;
    std::memcpy(is_f32 ? static_cast<void*>(&value) : &half, found.data() + at * size, size);
    if (!is_f32) value = f32_of_bf16(half);
    const double exact = expected[i] + (is_f32 ? 0 : f32_of_bf16(bias[places[2 * i + 1]]));
    const double bound = 0x1p-8 * std::sqrt(squares) + (is_f32 ? 0 : std::abs(exact) / 256) +
                         (plan == nullptr && has_groups ? 0x1p-6 * std::sqrt(squares) : 0);
    const double error = std::abs(value - exact) / bound;
    if (!(error <= worst)) worst = error;  // also if it is no number
  }
  const bool is_clean = std::all_of(found.begin() + static_cast<std::ptrdiff_t>(n_out * size), found.end(),
                                    [](std::byte b) { return b == std::byte{0xff}; });
  const bool is_right = worst <= 1 && is_clean && found == again;
  if (!is_right || n_out > 3000000)
    std::printf("%d x %d, %d rows, %s, out in %s, %s %d: worst error %.3f of its bound%s%s%s\n", n, k, n_rows,
                has_groups ? "groups" : "rows", is_f32 ? "f32" : "bf16",
                plan == nullptr  ? "x in bf16"
                : plan->shares_x ? "shares x,"
                                 : "divides k by",
                plan == nullptr ? 0 : plan->cluster, worst, is_clean ? "" : ", bytes behind the end",
                found == again ? "" : ", other bits", is_right ? "" : "  WRONG");
  for (void* memory : {static_cast<void*>(bias_there), static_cast<void*>(out), static_cast<void*>(reference),
                       static_cast<void*>(places_there)})
    cudaFree(memory);
  return is_right;
}

constexpr F8Plan kPlans[] = {{1, false}, {2, true}, {2, false}, {3, false}, {4, false}};

bool is_possible(const Machine& machine, const F8Plan& plan, int n, int k, int n_rows) {
  if (plan.shares_x || plan.cluster == 1) return true;
  return (n + 127) / 128 * ((n_rows + 255) / 256) <= machine.clusters[plan.cluster] && plan.cluster <= k / kF8Columns;
}

// --- time ---

/// cuBLASLt's best matmul for x [n_rows, k] and weights [n, k] in rows.
class Cublas {
 public:
  Cublas() {
    cublasLtCreate(&handle_);
    workspace_ = device_array<std::byte>(kWorkspace);
  }
  bool prepare(cudaDataType type, int n, int k, int n_rows, const float* weight_scales, const float* x_scales) {
    cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (type == CUDA_R_8F_E4M3) {
      const cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
      cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode);
      cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode);
      cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &weight_scales, sizeof weight_scales);
      cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x_scales, sizeof x_scales);
    }
    cublasLtMatrixLayoutInit(&a_, type, k, n, k);
    cublasLtMatrixLayoutInit(&b_, type, k, n_rows, k);
    cublasLtMatrixLayoutInit(&c_, CUDA_R_16BF, n, n_rows, n);
    cublasLtMatmulPreferenceOpaque_t preference{};
    cublasLtMatmulPreferenceInit(&preference);
    const std::size_t most = kWorkspace;
    cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    int n_found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, &operation_, &a_, &b_, &c_, &c_, &preference, 1, &found_, &n_found);
    return status == CUBLAS_STATUS_SUCCESS && n_found > 0;
  }
  void run(const void* weight, const void* x, void* out, cudaStream_t stream) {
    const float one = 1, zero = 0;
    cublasLtMatmul(handle_, &operation_, &one, weight, &a_, x, &b_, &zero, out, &c_, out, &c_, &found_.algo, workspace_,
                   kWorkspace, stream);
  }

 private:
  static constexpr std::size_t kWorkspace = 32 << 20;
  cublasLtHandle_t handle_ = nullptr;
  std::byte* workspace_ = nullptr;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t a_, b_, c_;
  cublasLtMatmulHeuristicResult_t found_;
};

struct Shape {
  const char* name;
  int n, k;
};
constexpr Shape kShapes[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};

void time_shape(const Machine& machine, const Shape& shape, const std::vector<int>& all_rows, const Inputs& x, void* out) {
  const std::int64_t n_bytes = static_cast<std::int64_t>(shape.n) * shape.k;
  const int n_weights = static_cast<int>(std::max<std::int64_t>(3, (160ll << 20) / n_bytes + 1));
  std::vector<std::unique_ptr<Weight>> weights;
  for (int i = 0; i < n_weights; ++i) weights.push_back(std::make_unique<Weight>(shape.n, shape.k, false, i));
  const Weight grouped(shape.n, shape.k, true, 99);
  std::vector<__nv_bfloat16*> dense;
  for (int i = 0; i < n_weights; ++i) {
    dense.push_back(device_array<__nv_bfloat16>(n_bytes));
    fill_bf16<<<1024, 256>>>(dense.back(), n_bytes, i);
  }
  check_cuda(cudaDeviceSynchronize(), "weights");
  Cublas cublas;
  for (const int n_rows : all_rows) {
    const int n_calls = n_rows <= 512 ? 24 : n_rows <= 2048 ? 6 : 3;
    const auto time = [&](const std::function<void(cudaStream_t, int)>& call) {
      return time_graph(machine.device.stream, n_calls, call, {}, n_rows <= 512 ? 9 : 5).us;
    };
    std::printf("%-8s %5d", shape.name, n_rows);
    double us = -1;
    if (cublas.prepare(CUDA_R_16BF, shape.n, shape.k, n_rows, nullptr, nullptr))
      us = time([&](cudaStream_t stream, int i) { cublas.run(dense[i % n_weights], x.bf16, out, stream); });
    std::printf(" | %7.1f", us);
    us = -1;
    if (cublas.prepare(CUDA_R_8F_E4M3, shape.n, shape.k, n_rows, weights[0]->view().row_scales, x.scales))
      us = time([&](cudaStream_t stream, int i) { cublas.run(weights[i % n_weights]->view().values, x.f8, out, stream); });
    std::printf(" %7.1f", us);
    us = time([&](cudaStream_t, int i) { multiply_by_bf16(machine, *weights[i % n_weights], x.bf16, n_rows, {out}); });
    std::printf(" %7.1f |", us);
    for (const F8Plan& plan : kPlans) {
      us = -1;
      if (is_possible(machine, plan, shape.n, shape.k, n_rows))
        us = time([&](cudaStream_t, int i) {
          multiply_by_f8(machine, *weights[i % n_weights], x.f8, x.scales, n_rows, {out}, plan);
        });
      std::printf(" %7.1f", us);
    }
    us = time([&](cudaStream_t, int) {
      multiply_by_f8(machine, grouped, x.f8, x.scales, n_rows, {out},
                     f8_plan(shape.n / 128, shape.k / 128, n_rows, machine.clusters));
    });
    std::printf(" %7.1f", us);
    std::printf("\n");
    std::fflush(stdout);
  }
  for (auto* memory : dense) cudaFree(memory);
}

/// x in bf16 alone.
void time_streams(const Machine& machine, const Shape& shape, const Inputs& x, void* out) {
  std::vector<std::unique_ptr<Weight>> weights;
  const int n_weights = static_cast<int>(std::max<std::int64_t>(3, (160ll << 20) / shape.n / shape.k + 1));
  for (int i = 0; i < n_weights; ++i) weights.push_back(std::make_unique<Weight>(shape.n, shape.k, false, i));
  check_cuda(cudaDeviceSynchronize(), "weights");
  std::printf("%-8s, x in bf16:", shape.name);
  for (const int n_rows : {1, 8, 16, 32, 64, 128, 160, 192, 256, 2048})
    std::printf(
        " %d: %.2f", n_rows,
        time_graph(
            machine.device.stream, n_rows > 256 ? 6 : 24,
            [&](cudaStream_t, int i) { multiply_by_bf16(machine, *weights[i % n_weights], x.bf16, n_rows, {out}); }, {}, 15)
            .us);
  std::printf("\n");
}

int run(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "check" && mode != "time" && mode != "streams") {
    std::fprintf(stderr, "09_f8_rows check | time | streams\n");
    return 2;
  }
  Machine machine;
  std::printf("%s, clusters of 2, 3, 4 at once: %d %d %d\n", machine.device.name.c_str(), machine.clusters[2],
              machine.clusters[3], machine.clusters[4]);
  constexpr std::int64_t kMostRows = 8192, kMostColumns = 14336;
  Inputs x{device_array<std::byte>(kMostRows * kMostColumns), device_array<__nv_bfloat16>(kMostRows * kMostColumns)};
  fill_words<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(x.f8), kMostRows * kMostColumns / 4, 77, kSmallCodes);
  fill_bf16<<<1024, 256>>>(x.bf16, kMostRows * kMostColumns, 78);
  std::vector<float> scales(28672);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.5f + 0.001f * static_cast<float>(i % 501);
  x.scales = on_device(scales);
  check_cuda(cudaDeviceSynchronize(), "x");
  if (mode == "check") {
    bool is_right = true;
    int n_cases = 0;
    for (const auto& [n, k] : {std::pair{64, 512}, {200, 320}, {260, 1088}, {1024, 8192}, {6144, 4096}, {4096, 14336}})
      for (const int n_rows : {1, 8, 64, 100, 128, 160, 192, 256, 300, 513, 1030}) {
        if (n > 4096 && n_rows % 64 == 0 && n_rows > 64) continue;
        for (const bool has_groups : {false, true})
          for (const bool is_f32 : {false, true}) {
            is_right &= check_case(machine, n, k, n_rows, has_groups, is_f32, nullptr, x);
            ++n_cases;
            for (const F8Plan& plan : kPlans) {
              if (!is_possible(machine, plan, n, k, n_rows) || (plan.shares_x && n <= 128)) continue;
              is_right &= check_case(machine, n, k, n_rows, has_groups, is_f32, &plan, x);
              ++n_cases;
            }
          }
      }
    std::printf("%d cases: %s\n", n_cases, is_right ? "all right" : "WRONG");
    return is_right ? 0 : 1;
  }
  void* const out = device_array<__nv_bfloat16>(kMostRows * 28672);
  if (mode == "streams") {
    for (const Shape& shape : kShapes) time_streams(machine, shape, x, out);
    return 0;
  }
  std::printf("%-14s | bf16, cuBLASLt; f8, cuBLASLt; f8 x bf16 | f8: 1 block, 2 share x, 2, 3, 4 divide k; groups, own plan\n",
              "");
  for (const Shape& shape : kShapes) time_shape(machine, shape, {64, 96, 128, 160, 192, 256, 512, 1024, 2048, 8192}, x, out);
  return 0;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) { return workshop::run(argc, argv); }
