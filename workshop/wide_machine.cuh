/// Packed weights of random numbers, and one call of the wide GEMM, for 08_wide.cu.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "kernels/cuda/device/elements.cuh"
#include "measure.cuh"
#include "wide_kernel.cuh"

namespace workshop {
namespace {

template <class T>
T* allocate(std::int64_t n) {
  void* p = nullptr;
  check_cuda(cudaMalloc(&p, static_cast<std::size_t>(n) * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(p);
}

__device__ std::uint32_t random_bits(std::int64_t i, std::uint64_t seed) {
  std::uint64_t z = static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1342543de82ef95ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<std::uint32_t>(z >> 32);
}
/// Bytes with the bits of `mask`; with `is_f8` none is a NaN of e4m3.
__global__ void fill_bytes(std::uint8_t* to, std::int64_t n, std::uint64_t seed, std::uint32_t mask, bool is_f8) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::uint32_t bits = random_bits(i, seed) & mask;
    to[i] = static_cast<std::uint8_t>(is_f8 && (bits & 0x7f) == 0x7f ? 0x11 : bits);
  }
}
/// About normally distributed.
template <class T>
__global__ void fill_floats(T* to, std::int64_t n, std::uint64_t seed, float mean, float deviation) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) sum += static_cast<float>(random_bits(4 * i + j, seed)) * 0x1p-32f;
    to[i] = from_f32<T>(mean + (sum - 2) * 1.7320508f * deviation);
  }
}
std::uint64_t next_seed = 1;

std::byte* random_floats(DType dtype, std::int64_t n, float mean, float deviation) {
  auto* const to = allocate<std::byte>(n * static_cast<std::int64_t>(size_bytes(dtype)));
  visit_element(dtype, [&](auto zero) {
    fill_floats<<<1024, 256>>>(reinterpret_cast<decltype(zero)*>(to), n, next_seed++, mean, deviation);
  });
  check_cuda(cudaDeviceSynchronize(), "fill");
  return to;
}
std::uint8_t* random_bytes(std::int64_t n, std::uint32_t mask, bool is_f8) {
  auto* const to = allocate<std::uint8_t>(n);
  fill_bytes<<<1024, 256>>>(to, n, next_seed++, mask, is_f8);
  check_cuda(cudaDeviceSynchronize(), "fill");
  return to;
}

/// What a weight is made of.
struct WeightForm {
  WeightScheme scheme;
  std::int64_t n;
  std::int64_t k;
  int group_columns;  ///< a power of two, or 0: a scale a row
  bool has_zeros;
  DType scale_dtype;  ///< of groups
};

/// A packed weight of random numbers. Columns from k on have some as well, because x is 0 there.
class Weight {
 public:
  explicit Weight(const WeightForm& form) : scheme(form.scheme) {
    const int columns = chunk_columns(scheme);
    view.n = form.n;
    view.k = form.k;
    view.n_tiles = static_cast<int>((form.n + kSchemeTileRows - 1) / kSchemeTileRows);
    view.n_chunks = static_cast<int>((form.k + columns - 1) / columns + kChunksAtOnce - 1) / kChunksAtOnce * kChunksAtOnce;
    const std::int64_t n_bytes = static_cast<std::int64_t>(view.n_tiles) * view.n_chunks * kPieceBytes;
    view.values = reinterpret_cast<std::byte*>(random_bytes(n_bytes, 255, scheme == WeightScheme::f8));
    if (form.group_columns > 0) {
      view.group_shift = static_cast<int>(std::log2(form.group_columns));
      view.n_groups = (view.n_chunks * columns + form.group_columns - 1) / form.group_columns;
      view.scale_dtype = form.scale_dtype;
    }
    const std::int64_t n_scales = static_cast<std::int64_t>(view.n_tiles) * view.n_groups * kSchemeTileRows;
    if (form.group_columns > 0)
      view.scales = random_floats(form.scale_dtype, n_scales, 0.01f, 0.002f);
    else
      view.row_scales = reinterpret_cast<const float*>(random_floats(DType::f32, n_scales, 0.01f, 0.002f));
    if (form.has_zeros) view.zeros = random_bytes(n_scales, scheme == WeightScheme::i4 ? 15 : 255, false);
  }
  ~Weight() {
    cudaFree(const_cast<std::byte*>(view.values));
    cudaFree(const_cast<std::byte*>(view.scales));
    cudaFree(const_cast<float*>(view.row_scales));
    cudaFree(const_cast<std::uint8_t*>(view.zeros));
  }
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  WeightScheme scheme;
  SchemeView view;
};

struct Machine {
  Machine() {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0), "device");
    device.compute_capability = 10 * properties.major + properties.minor;
    device.n_multiprocessors = properties.multiProcessorCount;
    device.max_shared_bytes = properties.sharedMemPerBlockOptin;
    check_cuda(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), "stream");
    encode = tensor_map_encoder();
    clusters = wide_clusters(device);
    std::printf("%s; clusters of 1 to 4 blocks at once: %d %d %d %d\n", properties.name, clusters[1], clusters[2], clusters[3],
                clusters[4]);
  }
  Device device;
  void* encode = nullptr;
  WideClusters clusters{};
};

/// The narrowest kernel with the fewest passes.
int width_for(std::int64_t n_rows) {
  const std::int64_t n_passes = (n_rows + kMostWideWidth - 1) / kMostWideWidth;
  return *std::find_if(std::begin(kWideWidths), std::end(kWideWidths), [&](int width) { return width * n_passes >= n_rows; });
}

/// Calls `body` with the scheme as a constant.
template <class Body>
void visit_wide(WeightScheme scheme, Body&& body) {
  switch (scheme) {
    case WeightScheme::f8: return body(std::integral_constant<WeightScheme, WeightScheme::f8>{});
    case WeightScheme::i8: return body(std::integral_constant<WeightScheme, WeightScheme::i8>{});
    case WeightScheme::i4: return body(std::integral_constant<WeightScheme, WeightScheme::i4>{});
    default: check_failed("wide: a scheme that has no kernel");
  }
}

struct Matmul {
  DType dtype = DType::bf16;  ///< of x
  const std::byte* x = nullptr;
  std::int64_t n_rows = 0;
  const void* bias = nullptr;
  void* out = nullptr;
  bool out_is_f32 = false;
  int width = 0;
  int blocks_of_tile = 0;
};
void enqueue(const Machine& machine, const Weight& weight, const Matmul& matmul) {
  WideParams params;
  params.weight = weight.view;
  params.bias = matmul.bias;
  params.out = matmul.out;
  params.clusters = machine.clusters;
  params.blocks_of_tile = matmul.blocks_of_tile;
  params.n_rows = static_cast<int>(matmul.n_rows);
  params.out_is_f32 = matmul.out_is_f32;
  params.stores_vectors = !matmul.out_is_f32 && weight.view.n % 8 == 0;
  const ConstTensorView x{matmul.x, matmul.dtype, {matmul.n_rows, weight.view.k}};
  const CUtensorMap x_map = matrix_map(machine.encode, x, matmul.width);
  visit_wide(weight.scheme, [&](auto scheme) {
    launch_wide<decltype(scheme)::value>(machine.device, matmul.dtype, matmul.width, params, x_map);
  });
}

}  // namespace
}  // namespace workshop
