/// Memory, layouts and launches of experiment 14.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <cublasLt.h>
#include <cuda_bf16.h>

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "measure.cuh"
#include "wide_rows_kernel.cuh"

namespace workshop {
namespace {

using baton::ConstTensorView;
using baton::DType;
using baton::TensorView;
using workshop::check_cuda;

__host__ __device__ std::uint32_t drawn(std::uint64_t i, std::uint32_t seed) {
  std::uint32_t z = static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(i >> 32) * 0x7FEB352Du + seed;
  z = (z ^ (z >> 15)) * 2246822519u;
  z = (z ^ (z >> 13)) * 3266489917u;
  return z ^ (z >> 16);
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

struct Layout {
  int width = 0;
  int n_parts = 1;
  int extra = 0;  ///< stages that the first part has more; -1: all blocks of a tile add its sums
  bool pair = false;
  std::string label() const {
    return std::to_string(width) + "x" + std::to_string(n_parts) +
           (extra > 0   ? "+" + std::to_string(extra)
            : extra < 0 ? "s"
                        : "") +
           (pair ? " pair" : "");
  }
};
constexpr int kWidths[] = {32, 48, 64, 96, 128, 160, 168, 192, 224, 256};
constexpr int boxes_of(int width) { return width <= 96 ? 2 : 1; }

using Kernel = void (*)(WideParams, CUtensorMap, CUtensorMap);
/// Null where registers do not suffice.
template <int kRowGroups, bool kPair>
Kernel kernel_of_width(int width) {
  if constexpr (kRowGroups <= 4) {
    if (width == 64) return wide_rows_kernel<__nv_bfloat16, 64, kRowGroups, 2, kPair>;
    if (width == 96) return wide_rows_kernel<__nv_bfloat16, 96, kRowGroups, 2, kPair>;
    if (width == 128) return wide_rows_kernel<__nv_bfloat16, 128, kRowGroups, 1, kPair>;
  }
  if constexpr (kRowGroups <= 3) {
    if (width == 160) return wide_rows_kernel<__nv_bfloat16, 160, kRowGroups, 1, kPair>;
    if (width == 168) return wide_rows_kernel<__nv_bfloat16, 168, kRowGroups, 1, kPair>;
  }
  if constexpr (kRowGroups <= 2) {
    if (width == 32) return wide_rows_kernel<__nv_bfloat16, 32, kRowGroups, 2, kPair>;
    if (width == 48) return wide_rows_kernel<__nv_bfloat16, 48, kRowGroups, 2, kPair>;
    if (width == 192) return wide_rows_kernel<__nv_bfloat16, 192, kRowGroups, 1, kPair>;
    if (width == 224) return wide_rows_kernel<__nv_bfloat16, 224, kRowGroups, 1, kPair>;
    if (width == 256) return wide_rows_kernel<__nv_bfloat16, 256, kRowGroups, 1, kPair>;
  }
  return nullptr;
}
Kernel kernel_of(const Layout& layout, int n_rows) {
  if (n_rows <= 64) return layout.pair ? kernel_of_width<1, true>(layout.width) : kernel_of_width<1, false>(layout.width);
  if (n_rows <= 128) return layout.pair ? kernel_of_width<2, true>(layout.width) : kernel_of_width<2, false>(layout.width);
  if (layout.pair) return nullptr;
  return n_rows <= 192 ? kernel_of_width<3, false>(layout.width) : kernel_of_width<4, false>(layout.width);
}

struct Machine {
  Device device;
  void* encode = tensor_map_encoder();
  uint4* partials = nullptr;
  __nv_bfloat16 *weights = nullptr, *x = nullptr, *x2 = nullptr, *out = nullptr, *again = nullptr;
  std::uint32_t* words = nullptr;
  std::byte* workspace = nullptr;
  double* expected = nullptr;
  unsigned* counts = nullptr;
  cublasLtHandle_t cublas = nullptr;
  cudaStream_t stream = nullptr;

  static constexpr std::int64_t kPartialBytes = 132ll * 256 * 224 * 4;
  static constexpr std::int64_t kWeights = 1100ll << 20;  ///< numbers
  static constexpr int kMostRows = 256, kMostK = 22016, kMostN = 128256;
  static constexpr std::size_t kWorkspace = 32 << 20;
  static constexpr int kPlaces = 2048;

  Machine() {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0), "device");
    device.name = properties.name;
    device.compute_capability = 10 * properties.major + properties.minor;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = properties.sharedMemPerBlockOptin;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    device.stream = stream;
    partials = reinterpret_cast<uint4*>(device_array<std::byte>(kPartialBytes));
    check_cuda(cudaMemset(partials, 0xff, kPartialBytes), "partials");
    weights = device_array<__nv_bfloat16>(kWeights);
    x = device_array<__nv_bfloat16>(kMostRows * kMostK);
    x2 = device_array<__nv_bfloat16>(kMostRows * kMostK);
    out = device_array<__nv_bfloat16>((kMostRows + 1) * kMostN);
    again = device_array<__nv_bfloat16>((kMostRows + 1) * kMostN);
    words = device_array<std::uint32_t>(1 << 24);
    workspace = device_array<std::byte>(kWorkspace);
    expected = device_array<double>((kMostRows + 1) * 4096);
    counts = device_array<unsigned>(4);
    fill_bf16<<<2048, 256>>>(weights, kWeights, 1);
    fill_bf16<<<1024, 256>>>(x, kMostRows * kMostK, 2);
    fill_bf16<<<1024, 256>>>(x2, kMostRows * kMostK, 2);
    check_cuda(cudaDeviceSynchronize(), "fill");
    cublasLtCreate(&cublas);
  }
};

ConstTensorView view_of(const __nv_bfloat16* data, int rows, int columns) {
  return {reinterpret_cast<const std::byte*>(data), DType::bf16, {rows, columns}};
}

struct Launch {
  Kernel kernel = nullptr;
  WideParams params;
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[2] = {};
};

/// Nothing where the layout does not suit the shape.
std::optional<Launch> prepare(const Machine& machine, const Layout& layout, int n_rows, int n, int k) {
  Launch launch;
  launch.kernel = kernel_of(layout, n_rows);
  if (launch.kernel == nullptr) return {};
  WideParams& p = launch.params;
  const int n_blocks = machine.device.n_multiprocessors;
  const int boxes = boxes_of(layout.width), pair = layout.pair ? 2 : 1, row_groups = (n_rows + 63) / 64;
  p.partials = machine.partials;
  p.n_rows = n_rows;
  p.n = n;
  p.n_tiles = (n + layout.width * pair - 1) / (layout.width * pair) * pair;
  p.k_stages = (k + boxes * kBoxK - 1) / (boxes * kBoxK);
  p.n_parts = layout.n_parts;
  p.first_part = (p.k_stages + layout.n_parts - 1) / layout.n_parts + std::max(layout.extra, 0);
  p.shares = layout.extra < 0;
  p.x_rows = (n_rows + 8 * pair - 1) / (8 * pair) * 8 * pair;
  if (layout.n_parts > 1 && (p.n_tiles * p.n_parts > n_blocks || p.k_stages - p.first_part < p.n_parts - 1)) return {};
  const std::int64_t partial_bytes = (p.n_parts - (p.shares ? 0ll : 1ll)) * p.n_tiles * row_groups * 64 * layout.width * 4;
  if (partial_bytes > Machine::kPartialBytes) return {};
  const int weight_bytes = boxes * box_bytes(layout.width), stage_bytes = weight_bytes + boxes * box_bytes(p.x_rows);
  const int other = box_bytes(row_groups * kTileRows - p.x_rows) + kBarrierBytes;
  p.n_stages = std::min(kMaxStages, (static_cast<int>(machine.device.max_shared_bytes) - other) / stage_bytes);
  p.fill_stages = std::max(2, (64 << 10) / weight_bytes);
  const int shared_bytes = p.n_stages * stage_bytes + other;
  check_cuda(cudaFuncSetAttribute(launch.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(machine.device.max_shared_bytes)),
             "shared memory");
  launch.config.gridDim = dim3(static_cast<unsigned>(std::min(p.n_tiles * p.n_parts, n_blocks)));
  launch.config.blockDim = dim3(static_cast<unsigned>(row_groups * 128 + 64));
  launch.config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  launch.config.stream = machine.stream;
  launch.attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  launch.attributes[0].val.programmaticStreamSerializationAllowed = 1;
  launch.attributes[1].id = cudaLaunchAttributeClusterDimension;
  launch.attributes[1].val.clusterDim = {2, 1, 1};
  launch.config.numAttrs = static_cast<unsigned>(pair);
  return launch;
}

void enqueue(const Machine& machine, Launch& launch, const Layout& layout, const __nv_bfloat16* x, const __nv_bfloat16* weight,
             __nv_bfloat16* out, int k) {
  launch.config.attrs = launch.attributes;
  launch.params.out = out;
  check_cuda(cudaLaunchKernelEx(
                 &launch.config, launch.kernel, launch.params,
                 matrix_map(machine.encode, view_of(x, launch.params.n_rows, k), launch.params.x_rows / (layout.pair ? 2 : 1)),
                 matrix_map(machine.encode, view_of(weight, launch.params.n, k), layout.width)),
             "wide_rows");
}

}  // namespace
}  // namespace workshop
