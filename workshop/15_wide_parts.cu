/// Experiment 15: what do bf16 matmuls of 48 to 128 rows lose against reading the weight, and which change brings it back?
///
/// The kernel of broad_gemm.cu with parts left out (matmuls, x, the store of out), and with parts done otherwise: the weight as
/// wgmma's M, other orders of requests, other ways to add the sums of cut tiles (wide_parts_kernel.cuh).
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr --diag-suppress=554 -Isrc -Iworkshop
///         -cudart static -o 15_wide_parts workshop/15_wide_parts.cu
///     ./15_wide_parts gate_up|o|down|qkv|more|stamps SECONDS     checks each form in 4096 places, times it in replayed graphs, prints a table
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "measure.cuh"
#include "wide_parts_kernel.cuh"

namespace workshop {
namespace {

constexpr int kBlocks = 132, kMostRows = 128, kMostK = 22016, kMostN = 28672, kPlaces = 4096;
constexpr std::int64_t kWeights = 400ll << 20;

__host__ __device__ std::uint32_t drawn(std::uint64_t i, std::uint32_t seed) {
  std::uint32_t z = static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(i >> 32) * 0x7FEB352Du + seed;
  z = (z ^ (z >> 15)) * 2246822519u;
  z = (z ^ (z >> 13)) * 3266489917u;
  return z ^ (z >> 16);
}
__global__ void fill(__nv_bfloat16* to, std::int64_t n, std::uint32_t seed) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    to[i] = __float2bfloat16((static_cast<int>(drawn(i, seed) & 0xffffu) - 32768) / 32768.0f);
}
__global__ void count_wrong(const __nv_bfloat16* x, const __nv_bfloat16* w, const __nv_bfloat16* out, int n, int k,
                            std::int64_t n_out, unsigned* n_wrong) {
  const std::int64_t at = drawn(blockIdx.x, 5) % n_out;
  double sum = 0, magnitude = 0;
  for (int i = threadIdx.x; i < k; i += 32) {
    const double term = double(__bfloat162float(x[at / n * k + i])) * __bfloat162float(w[at % n * k + i]);
    sum += term, magnitude += fabs(term);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
    magnitude += __shfl_xor_sync(~0u, magnitude, distance);
  }
  double bound = k / 16 * 0x1p-23 * magnitude;
  bound += (fabs(sum) + bound) * 1.01 * 0x1p-8;
  if (threadIdx.x == 0 && !(fabs(double(__bfloat162float(out[at])) - sum) <= bound)) atomicAdd(n_wrong, 1u);
}
__global__ void count_not_ones(const std::uint32_t* words, std::int64_t n, unsigned* count) {
  for (std::int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    if (words[i] != ~0u) atomicAdd(count, 1u);
}
/// A small kernel between matmuls, as norms are: a block a row copies x, in f32 and back.
template <int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == 512 ? 2 : 4)
    rewrite(const float* residual, const __nv_bfloat16* from, __nv_bfloat16* to, int k) {
  let_next_kernel_start();
  wait_for_kernel_before();
  float values[32 * 256 / kThreads];
  float sum = 0;
  const std::int64_t row = std::int64_t(blockIdx.x) * k;
#pragma unroll
  for (int i = 0; i < 16 * 256 / kThreads; ++i) {
    const int at = (i * kThreads + threadIdx.x) * 2 % k;
    const float2 r = *reinterpret_cast<const float2*>(residual + row + at);
    const auto v = *reinterpret_cast<const __nv_bfloat162*>(from + row + at);
    values[2 * i] = __low2float(v) + 0 * r.x, values[2 * i + 1] = __high2float(v) + 0 * r.y;
    sum += values[2 * i] * values[2 * i];
  }
  __shared__ float of_warps[32];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < kThreads / 32; ++i) sum += of_warps[i];
#pragma unroll
  for (int i = 0; i < 16 * 256 / kThreads; ++i) {
    const int at = (i * kThreads + threadIdx.x) * 2 % k;
    *reinterpret_cast<__nv_bfloat162*>(to + row + at) = __floats2bfloat162_rn(values[2 * i] + 0 * sum, values[2 * i + 1]);
  }
}

template <class T>
T* device_array(std::int64_t n) {
  void* memory = nullptr;
  workshop::check_cuda(cudaMalloc(&memory, n * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}

struct Machine {
  void* encode = tensor_map_encoder();
  __nv_bfloat16 *weights = device_array<__nv_bfloat16>(kWeights), *x = device_array<__nv_bfloat16>(kMostRows * kMostK),
                *x2 = device_array<__nv_bfloat16>(kMostRows * kMostK), *out = device_array<__nv_bfloat16>(kMostRows * kMostN);
  float* residual = device_array<float>(kMostRows * kMostK);
  std::int64_t partial_words = std::int64_t{kBlocks} * 128 * 128;
  std::uint32_t* partials = device_array<std::uint32_t>(partial_words);
  std::uint64_t* stamps = device_array<std::uint64_t>(64 * kBlocks * 6);
  unsigned* counts = device_array<unsigned>(2);
  cudaStream_t stream = nullptr;
  int max_shared = 0;
  Machine() {
    workshop::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    cudaDeviceGetAttribute(&max_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    cudaMemset(partials, 0xff, partial_words * 4);
    cudaMemset(residual, 0, kMostRows * kMostK * 4);
    fill<<<2048, 256>>>(weights, kWeights, 1);
    fill<<<1024, 256>>>(x, kMostRows * kMostK, 2);
    fill<<<1024, 256>>>(x2, kMostRows * kMostK, 2);
    workshop::check_cuda(cudaDeviceSynchronize(), "fill");
  }
};

CUtensorMap map_of(const Machine& machine, const __nv_bfloat16* data, int rows, int columns, int box_rows, bool promote) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                              const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)}, row_bytes = sizes[0] * 2;
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)}, strides[] = {1, 1};
  if (reinterpret_cast<Encode>(machine.encode)(
          &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(data), sizes, &row_bytes, box, strides,
          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          promote ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    workshop::check_cuda(cudaErrorInvalidValue, "map");
  return map;
}

struct How {
  int flags = 0;
  bool promote = false;
  int most_stages = kMaxStages;
  int extra = 3;  ///< stages that the first part has more, where it adds
  int fill_bytes = 64 << 10;
};

using Kernel = void (*)(PartsParams, CUtensorMap, CUtensorMap);
struct Named {
  Kernel kernel;
  Form form;
};
template <Form f>
Named form() {
  return {parts_kernel<code_of(f)>, f};
}

struct Launch {
  Named named;
  How how;
  PartsParams params;
  int n_rows = 0, n = 0, k = 0;
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[2] = {};
  bool fits = false;
};
Launch prepare(const Machine& machine, const Named& named, const How& how, int n_rows, int n, int k) {
  Launch l{named, how, {}, n_rows, n, k};
  const Form& f = named.form;
  PartsParams& p = l.params;
  const int boxes = boxes_of(f);
  p.partials = reinterpret_cast<uint4*>(machine.partials);
  p.out = machine.out;
  p.n_rows = n_rows, p.n = n;
  p.n_tiles = (n + f.width - 1) / f.width;
  p.k_stages = (k + boxes * 64 - 1) / (boxes * 64);
  p.first_part =
      f.parts == 1 ? p.k_stages : (p.k_stages + f.parts - 1) / f.parts + (f.exchange == Exchange::first_adds ? how.extra : 0);
  p.x_rows = f.weight_is_m ? f.rows : (n_rows + 7) / 8 * 8;
  if (n_rows > f.rows || (f.parts > 1 && p.n_tiles * f.parts > kBlocks)) return l;
  const int stage = boxes * (box_bytes(f.width) + box_bytes(p.x_rows));
  const int other = box_bytes(f.rows - p.x_rows) + exchange_bytes(f) + kBarrierBytes;
  p.n_stages = std::min({kMaxStages, how.most_stages, (machine.max_shared - other) / stage});
  p.fill_stages = std::max(2, how.fill_bytes / (boxes * box_bytes(f.width)));
  p.flags = how.flags;
  workshop::check_cuda(cudaFuncSetAttribute(named.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, machine.max_shared),
                       "shared memory");
  l.config.gridDim = dim3(static_cast<unsigned>(std::min(p.n_tiles * f.parts, kBlocks)));
  l.config.blockDim = dim3(static_cast<unsigned>(n_multipliers(f) + 64));
  l.config.dynamicSmemBytes = static_cast<std::size_t>(p.n_stages * stage + other);
  l.config.stream = machine.stream;
  l.attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  l.attributes[0].val.programmaticStreamSerializationAllowed = 1;
  l.attributes[1].id = cudaLaunchAttributeClusterDimension;
  l.attributes[1].val.clusterDim = {static_cast<unsigned>(f.parts), 1, 1};
  l.config.numAttrs = f.exchange == Exchange::cluster && f.parts > 1 ? 2 : 1;
  if (l.config.numAttrs == 2) {
    int most = 0;
    l.config.attrs = l.attributes + 1, l.config.numAttrs = 1;
    workshop::check_cuda(cudaOccupancyMaxActiveClusters(&most, named.kernel, &l.config), "clusters");
    l.config.numAttrs = 2;
    if (most * f.parts < static_cast<int>(l.config.gridDim.x)) {
      std::printf("only %d clusters of %d run at once\n", most, f.parts);
      return l;
    }
  }
  l.fits = true;
  return l;
}
void enqueue(const Machine& machine, Launch& l, const __nv_bfloat16* x, const __nv_bfloat16* weight,
             std::uint64_t* stamps = nullptr) {
  l.config.attrs = l.attributes;
  l.params.stamps = stamps;
  workshop::check_cuda(
      cudaLaunchKernelEx(&l.config, l.named.kernel, l.params, map_of(machine, x, l.n_rows, l.k, l.params.x_rows, false),
                         map_of(machine, weight, l.n, l.k, l.named.form.width, l.how.promote)),
      "parts");
}
bool is_right(const Machine& machine, Launch& l) {
  unsigned counts[2];
  cudaMemsetAsync(machine.counts, 0, 8, machine.stream);
  for (int i = 0; i < 2; ++i) {
    cudaMemsetAsync(machine.out, 0xff, std::int64_t{l.n_rows} * l.n * 2, machine.stream);
    enqueue(machine, l, machine.x, machine.weights);
  }
  count_wrong<<<kPlaces, 32, 0, machine.stream>>>(machine.x, machine.weights, machine.out, l.n, l.k,
                                                  std::int64_t{l.n_rows} * l.n, machine.counts);
  count_not_ones<<<512, 256, 0, machine.stream>>>(machine.partials, machine.partial_words, machine.counts + 1);
  workshop::check_cuda(cudaMemcpyAsync(counts, machine.counts, 8, cudaMemcpyDeviceToHost, machine.stream), "counts");
  workshop::check_cuda(cudaStreamSynchronize(machine.stream), "check");
  if (counts[0] + counts[1] > 0) std::printf("WRONG: %u of %d, %u partials left\n", counts[0], kPlaces, counts[1]);
  return counts[0] + counts[1] == 0;
}

std::chrono::steady_clock::time_point begun;
double most_seconds = 60;
bool has_time() { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() < most_seconds; }

/// between: 0 nothing, otherwise threads of a small kernel that writes x.
double time(const Machine& machine, Launch& l, int between = 0) {
  const std::int64_t size = std::int64_t{l.n} * l.k;
  const int n_copies = static_cast<int>(std::clamp<std::int64_t>(kWeights / size, 2, 16));
  return time_graph(
             machine.stream, std::max(8, n_copies),
             [&](cudaStream_t stream, int call) {
               const bool odd = call % 2 != 0;
               if (between > 0) {
                 launch(stream, between == 512 ? rewrite<512> : rewrite<256>, l.n_rows, between, 0, true, machine.residual,
                        odd ? machine.x2 : machine.x, odd ? machine.x : machine.x2, 4096);
               }
               enqueue(machine, l, between > 0 && !odd ? machine.x2 : machine.x, machine.weights + call % n_copies * size);
             },
             {}, 7)
      .us;
}
/// When blocks start, may read x, have their first stage, end their matmuls and end: after the end of the call before, us.
void print_stamps(const Machine& machine, Launch& l, const char* label) {
  constexpr int kCalls = 40;
  const std::int64_t size = std::int64_t{l.n} * l.k;
  const int n_copies = static_cast<int>(std::clamp<std::int64_t>(kWeights / size, 2, 16));
  time_graph(
      machine.stream, kCalls,
      [&](cudaStream_t, int call) {
        enqueue(machine, l, machine.x, machine.weights + call % n_copies * size, machine.stamps + call * kBlocks * 6);
      },
      {}, 2);
  std::vector<std::uint64_t> s(kCalls * kBlocks * 6);
  cudaMemcpy(s.data(), machine.stamps, s.size() * 8, cudaMemcpyDeviceToHost);
  const int n_blocks = static_cast<int>(l.config.gridDim.x);
  double least[5] = {}, mean[5] = {}, most[5] = {};
  for (int call = 3; call < kCalls; ++call) {
    std::uint64_t end_before = 0;
    for (int b = 0; b < n_blocks; ++b) end_before = std::max(end_before, s[((call - 1) * kBlocks + b) * 6 + 4]);
    for (int i = 0; i < 5; ++i) {
      double lo = 1e9, hi = -1e9, sum = 0;
      for (int b = 0; b < n_blocks; ++b) {
        const double t = (static_cast<double>(s[(call * kBlocks + b) * 6 + i]) - static_cast<double>(end_before)) * 1e-3;
        lo = std::min(lo, t), hi = std::max(hi, t), sum += t / n_blocks;
      }
      least[i] += lo / (kCalls - 3), mean[i] += sum / (kCalls - 3), most[i] += hi / (kCalls - 3);
    }
  }
  std::printf("%s: start %.1f %.1f %.1f | x %.1f %.1f %.1f | first %.1f %.1f %.1f | last %.1f %.1f %.1f | end %.1f %.1f %.1f\n",
              label, least[0], mean[0], most[0], least[1], mean[1], most[1], least[2], mean[2], most[2], least[3], mean[3],
              most[3], least[4], mean[4], most[4]);
  // Does the multiprocessor or the block make a run of matmuls long?
  const auto spread = [&](bool by_multiprocessor) {
    std::vector<double> sum(kBlocks), squares(kBlocks);
    std::vector<int> count(kBlocks);
    for (int call = 3; call < kCalls; ++call)
      for (int b = 0; b < n_blocks; ++b) {
        const std::uint64_t* const of = &s[(call * kBlocks + b) * 6];
        const double us = static_cast<double>(of[3] - of[2]) * 1e-3;
        const auto key = static_cast<std::size_t>(by_multiprocessor ? of[5] : static_cast<std::uint64_t>(b));
        sum[key] += us, squares[key] += us * us, ++count[key];
      }
    std::vector<std::pair<double, int>> means;
    double within = 0, mean = 0, between = 0;
    for (int i = 0; i < kBlocks; ++i)
      if (count[i] > 1) {
        const double m = sum[i] / count[i];
        means.push_back({m, i});
        within += squares[i] / count[i] - m * m, mean += m;
      }
    mean /= means.size(), within /= means.size();
    for (const auto& [m, i] : means) between += (m - mean) * (m - mean) / means.size();
    std::sort(means.begin(), means.end());
    std::printf("  by %s: mean %.1f, deviation between %.2f, within %.2f; slowest",
                by_multiprocessor ? "multiprocessor" : "block", mean, std::sqrt(between), std::sqrt(within));
    for (std::size_t i = 0; i < 24; ++i) std::printf(" %d", means[means.size() - 1 - i].second);
    std::printf("; fastest");
    for (std::size_t i = 0; i < 24; ++i) std::printf(" %d", means[i].second);
    std::printf("\n");
  };
  spread(true);
  spread(false);
}

struct Arm {
  const char* label;
  Named named;
  How how;
};
void table(const Machine& machine, const char* title, int n, int k, const std::vector<int>& rows,
           const std::vector<Arm>& arms) {
  std::printf("\n%s %d x %d: bytes %.1f us |", title, n, k, 2e-6 * n * k / 4.565);
  for (const int r : rows) std::printf(" %d", r);
  std::printf(" rows | and behind a small kernel of 512, 256 threads\n");
  for (const Arm& arm : arms) {
    if (!has_time()) return;
    std::printf("%-26s", arm.label);
    std::string others;
    int stages = 0;
    for (const int r : rows) {
      Launch l = prepare(machine, arm.named, arm.how, r, n, k);
      if (!l.fits) {
        std::printf("     -");
        continue;
      }
      stages = l.params.n_stages;
      if (arm.named.form.multiplies && (arm.how.flags & (kNoX | kNoStore)) == 0 && !is_right(machine, l)) return;
      std::printf(" %5.1f", time(machine, l));
      if (k == 4096) {
        char text[32];
        std::snprintf(text, sizeof text, " %5.1f %5.1f", time(machine, l, 512), time(machine, l, 256));
        others += text;
      }
      std::fflush(stdout);
    }
    std::printf(" |%s | %d stages\n", others.c_str(), stages);
    std::fflush(stdout);
  }
}

template <Form f>
Arm arm(const char* label, How how = {}) {
  return {label, form<f>(), how};
}

}  // namespace
}  // namespace workshop

int main(int n_arguments, char** arguments) {
  using namespace workshop;
  if (n_arguments < 3) return 2;
  begun = std::chrono::steady_clock::now();
  const std::string wanted = arguments[1];
  most_seconds = std::atof(arguments[2]);
  const Machine machine;
  constexpr auto F = Exchange::first_adds, H = Exchange::halves, C = Exchange::cluster;
  // 128 rows of the forms: two warpgroups where x is M
  if (wanted == "gate_up")
    table(machine, "gate_up", 28672, 4096, {96, 128},
          {arm<Form{false, 224, 128}>("224x1"), arm<Form{false, 224, 128}>("no store", {kNoStore}),
           arm<Form{false, 224, 128, false}>("no matmul", {kNoStore}),
           arm<Form{false, 224, 128, false}>("only the weight", {kNoStore | kNoX}),
           arm<Form{false, 224, 128, false}>("weight, in pairs", {kNoStore | kNoX | kPairs}),
           arm<Form{false, 224, 128, false}>("weight, rotated", {kNoStore | kNoX | kRotated}),
           arm<Form{false, 224, 128, false}>("weight, promoted", {kNoStore | kNoX, true}),
           arm<Form{false, 224, 128, false}>("weight, 3 stages", {kNoStore | kNoX, false, 3}),
           arm<Form{false, 224, 128, false}>("weight, fill at once", {kNoStore | kNoX, false, 24, 3, 1 << 20}),
           arm<Form{false, 224, 128, true, true}>("early"), arm<Form{false, 224, 128, true, true}>("early, pairs", {kPairs}),
           arm<Form{false, 224, 128, true, true}>("early, rotated", {kRotated}),
           arm<Form{false, 224, 128, true, true}>("early, promoted", {0, true}),
           arm<Form{false, 224, 128, true, true}>("early, fill at once", {0, false, 24, 3, 1 << 20}),
           arm<Form{false, 112, 128, true, true}>("112x1 early"),
           arm<Form{false, 112, 128, true, true}>("112x1 early, pairs", {kPairs})});
  if (wanted == "gate_up")
    table(machine, "gate_up", 28672, 4096, {64},
          {arm<Form{false, 224, 64}>("224x1"), arm<Form{false, 224, 64, true, true}>("early"),
           arm<Form{false, 224, 64, true, true}>("early, pairs", {kPairs}),
           arm<Form{false, 224, 64, true, true}>("early, rotated", {kRotated}),
           arm<Form{false, 224, 64, true, true}>("early, promoted", {0, true})});
  for (const auto& [title, n, k] : {std::tuple{"o", 4096, 4096}, {"down", 4096, 14336}})
    if (wanted == title)
      table(machine, title, n, k, {96, 128},
            {arm<Form{false, 64, 128, true, false, F, 2}>("64x2"),
             arm<Form{false, 64, 128, true, false, F, 2}>("64x2, no store", {kNoStore}),
             arm<Form{false, 64, 128, false, false, F, 2}>("64x2, no matmul", {kNoStore}),
             arm<Form{false, 64, 128, false, false, F, 2}>("64x2, only the weight", {kNoStore | kNoX}),
             arm<Form{false, 64, 128, true, true, F, 2}>("64x2 early"),
             arm<Form{false, 64, 128, true, true, H, 2}>("64x2 halves"),
             arm<Form{false, 64, 128, true, true, C, 2}>("64x2 cluster"),
             arm<Form{false, 128, 128, true, true, C, 4}>("128x4 cluster"),
             arm<Form{true, 64, 96, true, false, F, 2}>("64x2 M=w N=96"),
             arm<Form{true, 64, 96, true, true, C, 2}>("64x2 M=w N=96 cluster"),
             arm<Form{true, 64, 128, true, false, F, 2}>("64x2 M=w N=128"),
             arm<Form{true, 64, 128, true, true, F, 2}>("64x2 M=w N=128 early"),
             arm<Form{true, 64, 128, true, true, H, 2}>("64x2 M=w N=128 halves"),
             arm<Form{true, 64, 128, true, true, C, 2}>("64x2 M=w N=128 cluster"),
             arm<Form{true, 128, 96, true, true, C, 4}>("128x4 M=w N=96 cluster"),
             arm<Form{true, 128, 128, true, true, C, 4}>("128x4 M=w N=128 cluster")});
  if (wanted == "qkv")
    table(machine, "qkv", 6144, 4096, {96, 128},
          {arm<Form{false, 48, 128}>("48x1"), arm<Form{false, 48, 128, true, true}>("48x1 early"),
           arm<Form{false, 96, 128, true, false, F, 2}>("96x2"), arm<Form{false, 96, 128, true, true, H, 2}>("96x2 halves"),
           arm<Form{false, 96, 128, true, true, C, 2}>("96x2 cluster"),
           arm<Form{false, 192, 128, true, true, C, 4}>("192x4 cluster"),
           arm<Form{true, 192, 96, true, true, C, 4}>("192x4 M=w N=96 cluster"),
           arm<Form{true, 192, 128, true, true, C, 4}>("192x4 M=w N=128 cluster")});
  if (wanted == "more") {
    const std::vector<int> rows{72, 80, 96, 112, 128};
    const auto with = [](std::vector<Arm> arms, const std::vector<Arm>& others) {
      arms.insert(arms.end(), others.begin(), others.end());
      return arms;
    };
    const std::vector<Arm> halves{arm<Form{false, 64, 128, true, false, F, 2}>("64x2"),
                                  arm<Form{true, 64, 80, true, false, F, 2}>("64x2 M=w N=80"),
                                  arm<Form{true, 64, 96, true, false, F, 2}>("64x2 M=w N=96"),
                                  arm<Form{true, 64, 112, true, false, F, 2}>("64x2 M=w N=112"),
                                  arm<Form{true, 64, 128, true, false, F, 2}>("64x2 M=w N=128")};
    const std::vector<Arm> whole{arm<Form{false, 64, 128}>("64x1"), arm<Form{true, 64, 80}>("64x1 M=w N=80"),
                                 arm<Form{true, 64, 96}>("64x1 M=w N=96"), arm<Form{true, 64, 128}>("64x1 M=w N=128")};
    const std::vector<Arm> wide{arm<Form{false, 128, 128, true, false, F, 2}>("128x2"),
                                arm<Form{true, 128, 96, true, false, F, 2}>("128x2 M=w N=96"),
                                arm<Form{true, 128, 128, true, false, F, 2}>("128x2 M=w N=128")};
    table(machine, "o", 4096, 4096, rows, halves);
    table(machine, "7B down", 4096, 11008, rows, halves);
    table(machine, "8B down", 4096, 14336, rows, halves);
    table(machine, "34B o", 8192, 8192, rows, with(whole, wide));
    table(machine, "34B down", 8192, 22016, rows, with(whole, wide));
    table(machine, "-", 3584, 18944, rows, halves);
    table(machine, "-", 8192, 4096, rows, with(whole, wide));
  }
  if (wanted != "stamps") return 0;
  for (const auto& [label, named, n, k] :
       {std::tuple{"gate_up 224x1 early rotated", form<Form{false, 224, 128, true, true}>(), 28672, 4096},
        {"gate_up 224x1 no matmul", form<Form{false, 224, 128, false}>(), 28672, 4096},
        {"gate_up 224x1", form<Form{false, 224, 128}>(), 28672, 4096},
        {"o 64x2", form<Form{false, 64, 128, true, false, F, 2}>(), 4096, 4096},
        {"o 64x2 cluster", form<Form{false, 64, 128, true, true, C, 2}>(), 4096, 4096},
        {"o 64x2 M=w N=128", form<Form{true, 64, 128, true, false, F, 2}>(), 4096, 4096},
        {"o 128x4 cluster", form<Form{false, 128, 128, true, true, C, 4}>(), 4096, 4096}}) {
    Launch l = prepare(machine, named, {std::string(label).find("rotated") != std::string::npos ? kRotated : 0}, 128, n, k);
    if (l.fits) print_stamps(machine, l, label);
  }
  return 0;
}
