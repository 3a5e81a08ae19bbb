/// Runs the forms of the streaming GEMM: memory, maps, launch plans, and the options that choose them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "measure.cuh"
#include "streaming_variants.cuh"

namespace workshop {
namespace {

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("FAILED %s: %s\n", what, cublasLtGetStatusString(status));
  std::fflush(stdout);
  std::_Exit(1);
}

__device__ __forceinline__ std::uint32_t hash(std::uint64_t i, std::uint32_t seed) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B1u + static_cast<std::uint32_t>(i >> 32) * 0x7FEB352Du + seed;
  x ^= x >> 16, x *= 0x85EBCA6Bu, x ^= x >> 13, x *= 0xC2B2AE35u, x ^= x >> 16;
  return x;
}
/// bf16 of random sign and mantissa, in [0.5, 1) or (-1, -0.5].
__global__ void fill_random(std::uint16_t* data, std::uint64_t n, std::uint32_t seed) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    const std::uint32_t h = hash(i, seed);
    data[i] = static_cast<std::uint16_t>(0x3f00u | (h & 0x7fu) | ((h >> 8 & 1u) << 15));
  }
}
/// Packs W [n, k]; with `joins_gate_up` W is gate over up, [2, n / 2, k].
__global__ void pack(const std::uint16_t* w, unsigned char* to, int n, int k, bool joins_gate_up) {
  const std::int64_t total = static_cast<std::int64_t>(n) * k / 8;
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < total;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t row = i / (k / 8), at = i % (k / 8) * 8;
    const std::int64_t to_row = joins_gate_up ? gate_up_row(row % (n / 2), row >= n / 2 ? 1 : 0) : row;
    *reinterpret_cast<uint4*>(to + packed_byte(to_row, at, k / kTileK)) = *reinterpret_cast<const uint4*>(w + row * k + at);
  }
}

constexpr std::int64_t kWeightRoom = 2304LL << 20;
constexpr std::int64_t kPartialBytes = 160LL * 4 * kTileRows * 256 * 4;
constexpr int kMaxRows = 256;
constexpr std::int64_t kMaxK = 22528, kMaxN = 131072;
constexpr std::size_t kWorkspace = 32 << 20;

struct Machine {
  cudaStream_t stream = nullptr;
  int n_sms = 0, max_shared = 0;
  unsigned char* weights = nullptr;  ///< kWeightRoom of random bf16
  __nv_bfloat16 *x = nullptr, *x2 = nullptr, *y = nullptr, *y2 = nullptr, *residual = nullptr;
  uint4* partials = nullptr;
  std::uint32_t* words = nullptr;
  void* workspace = nullptr;
  cublasLtHandle_t cublas = nullptr;
  PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
};

template <class T>
T* allocate(std::int64_t n) {
  T* pointer = nullptr;
  check_cuda(cudaMalloc(&pointer, static_cast<std::size_t>(n) * sizeof(T)), "cudaMalloc");
  return pointer;
}

Machine open_machine() {
  Machine machine;
  cudaDeviceProp p{};
  check_cuda(cudaGetDeviceProperties(&p, 0), "device");
  std::printf("%s, %d SMs, %.1f MB L2, %zu bytes of shared memory a block\n", p.name, p.multiProcessorCount,
              p.l2CacheSize / 1e6, p.sharedMemPerBlockOptin);
  machine.n_sms = p.multiProcessorCount;
  machine.max_shared = static_cast<int>(p.sharedMemPerBlockOptin);
  check_cuda(cudaStreamCreateWithFlags(&machine.stream, cudaStreamNonBlocking), "stream");
  machine.weights = allocate<unsigned char>(kWeightRoom);
  machine.x = allocate<__nv_bfloat16>(kMaxRows * kMaxK);
  machine.x2 = allocate<__nv_bfloat16>(kMaxRows * kMaxK);
  machine.y = allocate<__nv_bfloat16>((kMaxRows + 1) * kMaxN * 2);  // room for f32 too
  machine.y2 = allocate<__nv_bfloat16>((kMaxRows + 1) * kMaxN * 2);
  check_cuda(cudaMemset(machine.y, 0, (kMaxRows + 1) * kMaxN * 4), "memset");
  machine.residual = allocate<__nv_bfloat16>(kMaxRows * kMaxN);
  machine.partials = reinterpret_cast<uint4*>(allocate<unsigned char>(kPartialBytes));
  machine.words = allocate<std::uint32_t>(1 << 24);
  machine.workspace = allocate<unsigned char>(kWorkspace);
  check_cuda(cudaMemset(machine.partials, 0xff, kPartialBytes), "memset");
  const auto fill = [&](void* data, std::int64_t n, std::uint32_t seed) {
    fill_random<<<1024, 256, 0, machine.stream>>>(static_cast<std::uint16_t*>(data), static_cast<std::uint64_t>(n), seed);
  };
  fill(machine.weights, kWeightRoom / 2, 1);
  fill(machine.x, kMaxRows * kMaxK, 2);
  fill(machine.x2, kMaxRows * kMaxK, 2);
  fill(machine.residual, kMaxRows * kMaxN, 3);
  check_cuda(cudaStreamSynchronize(machine.stream), "fill");
  check_cublas(cublasLtCreate(&machine.cublas), "cublasLtCreate");
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
             "entry point");
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    std::printf("FAILED: no cuTensorMapEncodeTiled\n");
    std::_Exit(1);
  }
  machine.encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  return machine;
}

/// Of a row-major matrix [m, k], boxes of `width` rows of 64 numbers.
CUtensorMap map_of(const Machine& machine, const __nv_bfloat16* x, int m, int k, int width) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(m)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(k) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(width)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = machine.encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(x), dims,
                                         strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::printf("FAILED cuTensorMapEncodeTiled: %d\n", static_cast<int>(result));
    std::_Exit(1);
  }
  return map;
}

/// A variant with its run-time choices for one weight's shape.
struct Plan {
  Variant variant;
  int n = 0, k = 0, cluster = 0, flags = 0, ring_kb = 0;
  int n_stages = 0, shared_bytes = 0;
  Schedule schedule;
  bool overlaps = true;
  std::string label() const {
    char text[96];
    std::snprintf(text, sizeof text, "N%d T%dC%dU%dx%d%s%s%s f%d s%d", variant.n, variant.t, variant.c, variant.u,
                  variant.chains, variant.share > 1 ? " h2" : "",
                  cluster == 0   ? ""
                  : cluster == 2 ? " q2"
                                 : " q4",
                  variant.end == 1   ? " res"
                  : variant.end == 2 ? " silu"
                                     : "",
                  flags, n_stages);
    return text;
  }
};

cudaLaunchConfig_t config_of(const Plan& plan, cudaStream_t stream, cudaLaunchAttribute (&attributes)[2]) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.schedule.n_blocks * plan.variant.share));
  config.blockDim = dim3(static_cast<unsigned>(plan.variant.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = stream;
  unsigned n = 0;
  if (plan.overlaps) {
    attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[n++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (plan.cluster > 0 || plan.variant.share > 1) {
    attributes[n].id = cudaLaunchAttributeClusterDimension;
    attributes[n++].val.clusterDim = {static_cast<unsigned>(std::max(plan.cluster, plan.variant.share)), 1, 1};
  }
  config.attrs = attributes;
  config.numAttrs = n;
  return config;
}

/// False where the variant does not take the shape.
bool make_plan(const Machine& machine, const Variant& variant, int n, int k, int cluster, int ring_kb, int flags, bool overlaps,
               Plan& plan) {
  if (n % (kTileRows * variant.t * variant.share) != 0 || k % (kTileK * variant.u) != 0 || (cluster > 0) != variant.cluster)
    return false;
  plan = {variant, n, k, cluster, flags, ring_kb, 0, 0, {}, overlaps};
  const int n_tiles = n / (kTileRows * variant.t * variant.share), k_stages = k / (kTileK * variant.u);
  const int other = variant.way_bytes + (cluster > 0 ? (cluster - 1) * variant.sum_bytes : 0) + kBarrierBytes;
  const int room = std::min(ring_kb * 1024, machine.max_shared - other);
  plan.n_stages = std::min(kMaxStages, room / variant.stage_bytes);
  if (plan.n_stages < 2 || k_stages < std::max(1, cluster)) return false;
  plan.shared_bytes = plan.n_stages * variant.stage_bytes + other;
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes),
             "shared memory");
  if (cluster == 0 && variant.share == 1) {
    plan.schedule = make_schedule(n_tiles, k_stages, std::min(machine.n_sms, n_tiles * k_stages), 0);
    return static_cast<std::int64_t>(plan.schedule.n_blocks) * variant.sum_bytes <= kPartialBytes;
  }
  plan.schedule = make_schedule(n_tiles, k_stages, std::max(cluster, 1), cluster);
  cudaLaunchAttribute attributes[2];
  const bool overlaps_too = plan.overlaps;
  plan.overlaps = false;  // the question is of clusters alone
  cudaLaunchConfig_t config = config_of(plan, machine.stream, attributes);
  plan.overlaps = overlaps_too;
  int n_clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&n_clusters, variant.kernel, &config), "cudaOccupancyMaxActiveClusters");
  if (n_clusters == 0) return false;
  if (variant.share > 1) {
    plan.schedule = make_schedule(n_tiles, k_stages, std::min(n_clusters, n_tiles * k_stages), 0);
    return static_cast<std::int64_t>(plan.schedule.n_blocks) * variant.share * variant.sum_bytes <= kPartialBytes;
  }
  plan.schedule.n_blocks = cluster * std::min(n_clusters, n_tiles);
  return true;
}

void enqueue(const Machine& machine, const Plan& plan, cudaStream_t stream, const CUtensorMap& map, const unsigned char* weight,
             __nv_bfloat16* out, int m) {
  Params params;
  params.weight = weight;
  params.out = out;
  params.residual = reinterpret_cast<float*>(out);
  params.partials = machine.partials;
  params.schedule = plan.schedule;
  params.k_tiles = plan.k / kTileK;
  params.m = m;
  params.out_stride = plan.variant.end == 2 ? plan.n / 2 : plan.n;
  params.n_stages = plan.n_stages;
  params.flags = plan.flags;
  // The map of the weight as it is. (Encoding is host arithmetic; replays of a graph do not repeat it.)
  const CUtensorMap weight_map = map_of(machine, reinterpret_cast<const __nv_bfloat16*>(weight), plan.n, plan.k, kTileRows);
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = config_of(plan, stream, attributes);
  // The attribute belongs to the function: another plan of it may have set less.
  check_cuda(cudaFuncSetAttribute(plan.variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes),
             "shared memory");
  void* arguments[] = {&params, const_cast<CUtensorMap*>(&map), const_cast<CUtensorMap*>(&weight_map)};
  check_cuda(cudaLaunchKernelExC(&config, plan.variant.kernel, arguments), "launch");
}

struct Options {
  std::vector<std::string> models{"8b"}, weights{"qkv", "o", "gate_up", "down"}, forms{"all"}, without;
  std::vector<int> rows{1, 8, 32, 64, 128, 256}, flags{0}, rings{227};
  bool quick = false, between = false, overlaps = true, peers = true, all = false;
};

/// Whether --forms and --without take this label; `all` names the plain ends.
bool is_named(const Options& options, const Plan& plan, bool all_ends) {
  const std::string label = plan.label();
  const auto holds = [&](const std::string& part) { return label.find(part) != std::string::npos; };
  if (std::any_of(options.without.begin(), options.without.end(), holds)) return false;
  return std::any_of(options.forms.begin(), options.forms.end(),
                     [&](const std::string& form) { return form == "all" ? all_ends || plan.variant.end == 0 : holds(form); });
}

}  // namespace
}  // namespace workshop
