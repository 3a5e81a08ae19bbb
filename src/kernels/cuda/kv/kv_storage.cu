/// Keys and values on a CUDA device: memory, copies, and conversion to and from the canonical form.
#include "kernels/cuda/kv/kv_storage.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace baton::cuda {
namespace {

constexpr std::size_t kTileAlignment = 1024;
constexpr std::int32_t kMaxHeadDim = 256;

/// Pairs of blocks that one launch copies. They are kernel arguments (2 KiB of 4), so a copy allocates no memory.
constexpr int kCopiesPerLaunch = 256;
constexpr int kCopyThreads = 256;

struct BlockPairs {
  std::byte* data;
  std::int64_t layer_bytes;
  std::int64_t block_bytes;
  std::int32_t from[kCopiesPerLaunch];
  std::int32_t to[kCopiesPerLaunch];
};

/// Block x of the grid copies pair x in layer y.
__global__ void __launch_bounds__(kCopyThreads) copy_kernel(const __grid_constant__ BlockPairs pairs) {
  std::byte* layer = pairs.data + blockIdx.y * pairs.layer_bytes;
  const auto* from = reinterpret_cast<const uint4*>(layer + pairs.from[blockIdx.x] * pairs.block_bytes);
  auto* to = reinterpret_cast<uint4*>(layer + pairs.to[blockIdx.x] * pairs.block_bytes);
  for (std::int64_t i = threadIdx.x; i < pairs.block_bytes / static_cast<std::int64_t>(sizeof(uint4)); i += kCopyThreads)
    to[i] = from[i];
}

/// Calls body(byte in a layer's block, byte in its canonical form, n) for each run of bytes that is contiguous in
/// both.
template <class Body>
void for_runs(const KvLayout& layout, std::size_t canonical_row_bytes, Body&& body) {
  std::size_t canonical = 0;
  for (int part = 0; part < layout.n_parts; ++part)
    for (int head = 0; head < layout.n_kv_heads; ++head) {
      const auto tile = static_cast<std::size_t>(layout.tile_offset(0, part, head));
      for (int token = 0; token < layout.block_len; ++token)
        for (std::size_t byte = 0; byte < canonical_row_bytes;) {
          const std::size_t n = std::min<std::size_t>(KvLayout::kChunkBytes, canonical_row_bytes - byte);
          body(tile + static_cast<std::size_t>(layout.byte_in_tile(token, static_cast<int>(byte))), canonical, n);
          byte += n;
          canonical += n;
        }
    }
}

/// In double, because the size of a shape that no machine can hold must not overflow.
double storage_bytes(const KvShape& shape, const KvLayout& layout) {
  return static_cast<double>(layout.tile_bytes()) * layout.n_parts * shape.n_kv_heads * shape.n_blocks * shape.n_layers;
}

std::string in_mib(double bytes) {
  return std::to_string(static_cast<std::int64_t>(std::min(bytes / (1 << 20), 9e18))) + " MiB";
}

/// Checks the scales: either none, or one for each layer that can be divided by.
Result<void> check_scales(const KvShape& shape, const std::vector<float>& scales) {
  if (scales.empty()) return {};
  check(shape.dtype == DType::f8_e4m3, "CudaKvStorage: scales of a 16-bit type");
  check(static_cast<int>(scales.size()) == shape.n_layers, "CudaKvStorage: not one scale a layer");
  for (std::size_t layer = 0; layer < scales.size(); ++layer)
    if (!std::isfinite(scales[layer]) || scales[layer] <= 0)
      return fail(ErrorCode::unsupported, "the scales of float8_e4m3 keys and values must be finite and over 0, not " +
                                              std::to_string(scales[layer]) + " as in layer " + std::to_string(layer));
  return {};
}

}  // namespace

Result<std::unique_ptr<CudaKvStorage>> CudaKvStorage::make(const Device& device, const KvShape& shape) {
  if (shape.dtype != DType::bf16 && shape.dtype != DType::f16 && shape.dtype != DType::f8_e4m3)
    return fail(ErrorCode::unsupported, "CUDA keeps keys and values as bfloat16, float16 or float8_e4m3, not as " +
                                            std::string(to_string(shape.dtype)));
  if (shape.has_values() && (shape.head_dim < 2 || shape.head_dim > kMaxHeadDim || shape.head_dim % 2 != 0))
    return fail(ErrorCode::unsupported, "CUDA's attention takes even head sizes up to " + std::to_string(kMaxHeadDim) +
                                            ", not " + std::to_string(shape.head_dim));
  BATON_TRY_VOID(check_scales(shape, shape.k_scales));
  BATON_TRY_VOID(check_scales(shape, shape.v_scales));
  check(shape.has_values() || (shape.n_kv_heads == 1 && shape.head_dim * static_cast<int>(size_bytes(shape.dtype)) % 128 == 0),
        "CudaKvStorage: latent vectors that do not fill panels");
  check(shape.n_layers >= 1 && shape.n_blocks >= 1 && shape.n_kv_heads >= 1, "CudaKvStorage: an empty shape");
  check(shape.block_len >= 16 && shape.block_len <= 256 && (shape.block_len & (shape.block_len - 1)) == 0,
        "CudaKvStorage: block_len is not a power of two from 16 to 256");
  check_cuda(cudaSetDevice(device.ordinal), "cudaSetDevice");
  constexpr double kMostBytes = 1ull << 46;
  const double wanted = storage_bytes(shape, kv_layout(shape)) + kTileAlignment;
  void* allocated = nullptr;
  const cudaError_t error =
      wanted > kMostBytes ? cudaErrorMemoryAllocation : cudaMalloc(&allocated, static_cast<std::size_t>(wanted));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // clears the error, so that the next launch does not report it
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return fail(ErrorCode::out_of_memory, "keys and values need " + in_mib(wanted) + " of " + device.name + ", which has " +
                                              in_mib(static_cast<double>(free)) + " free");
  }
  check_cuda(error, "cudaMalloc of keys and values");
  return std::unique_ptr<CudaKvStorage>(new CudaKvStorage(device, shape, static_cast<std::byte*>(allocated)));
}

CudaKvStorage::CudaKvStorage(const Device& device, const KvShape& shape, std::byte* allocated)
    : KvStorage(shape),
      device_(device),
      layout_(kv_layout(shape)),
      allocated_(allocated),
      data_(allocated + (kTileAlignment - reinterpret_cast<std::uintptr_t>(allocated) % kTileAlignment) % kTileAlignment) {}

// A failed device has already been reported where it was used, so the result is ignored.
CudaKvStorage::~CudaKvStorage() { static_cast<void>(cudaFree(allocated_)); }

void CudaKvStorage::check_block(BlockId block) const {
  check(block.value >= 0 && block.value < shape().n_blocks, "CudaKvStorage: a block that does not exist");
}

void CudaKvStorage::copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) {
  check(from.size() == to.size(), "CudaKvStorage::copy_blocks: lists of different lengths");
  for (std::size_t done = 0; done < from.size(); done += kCopiesPerLaunch) {
    const std::size_t n = std::min<std::size_t>(kCopiesPerLaunch, from.size() - done);
    BlockPairs pairs{data_, layer_bytes(), layout_.block_bytes(), {}, {}};
    for (std::size_t i = 0; i < n; ++i) {
      check_block(from[done + i]);
      check_block(to[done + i]);
      pairs.from[i] = from[done + i].value;
      pairs.to[i] = to[done + i].value;
    }
    copy_kernel<<<dim3(static_cast<unsigned>(n), static_cast<unsigned>(shape().n_layers)), kCopyThreads, 0, device_.stream>>>(
        pairs);
    check_launch("copy of KV blocks");
  }
}

void CudaKvStorage::export_block(BlockId block, TensorView out) const {
  check_block(block);
  check(out.size_bytes() == static_cast<std::size_t>(shape().block_bytes()),
        "CudaKvStorage::export_block: `out` has the wrong size");
  std::vector<std::byte> image(static_cast<std::size_t>(layout_.block_bytes()));
  const std::size_t row_bytes = static_cast<std::size_t>(shape().head_dim) * size_bytes(shape().dtype);
  std::byte* to = out.data;
  for (int layer = 0; layer < shape().n_layers; ++layer) {
    check_cuda(cudaMemcpyAsync(image.data(), layer_data(layer) + layout_.tile_offset(block.value, 0, 0), image.size(),
                               cudaMemcpyDeviceToHost, device_.stream),
               "copy of a KV block to the host");
    check_cuda(cudaStreamSynchronize(device_.stream), "copy of a KV block to the host");
    for_runs(layout_, row_bytes,
             [&](std::size_t at, std::size_t canonical, std::size_t n) { std::memcpy(to + canonical, image.data() + at, n); });
    to += shape().token_bytes() * shape().block_len;
  }
}

void CudaKvStorage::import_block(BlockId block, ConstTensorView in) {
  check_block(block);
  check(in.size_bytes() == static_cast<std::size_t>(shape().block_bytes()),
        "CudaKvStorage::import_block: `in` has the wrong size");
  std::vector<std::byte> image(static_cast<std::size_t>(layout_.block_bytes()));  // zeros, which stay in the padding
  const std::size_t row_bytes = static_cast<std::size_t>(shape().head_dim) * size_bytes(shape().dtype);
  const std::byte* from = in.data;
  for (int layer = 0; layer < shape().n_layers; ++layer) {
    for_runs(layout_, row_bytes, [&](std::size_t at, std::size_t canonical, std::size_t n) {
      std::memcpy(image.data() + at, from + canonical, n);
    });
    check_cuda(cudaMemcpyAsync(layer_data(layer) + layout_.tile_offset(block.value, 0, 0), image.data(), image.size(),
                               cudaMemcpyHostToDevice, device_.stream),
               "copy of a KV block to the device");
    check_cuda(cudaStreamSynchronize(device_.stream), "copy of a KV block to the device");
    from += shape().token_bytes() * shape().block_len;
  }
}

void CudaKvStorage::save_block(BlockId block, std::byte* host) const {
  check_block(block);
  const auto n_bytes = static_cast<std::size_t>(layout_.block_bytes());
  for (int layer = 0; layer < shape().n_layers; ++layer, host += n_bytes)
    check_cuda(cudaMemcpyAsync(host, layer_data(layer) + layout_.tile_offset(block.value, 0, 0), n_bytes,
                               cudaMemcpyDeviceToHost, device_.stream),
               "copy of a KV block to the host");
}

void CudaKvStorage::load_block(BlockId block, const std::byte* host) {
  check_block(block);
  const auto n_bytes = static_cast<std::size_t>(layout_.block_bytes());
  for (int layer = 0; layer < shape().n_layers; ++layer, host += n_bytes)
    check_cuda(cudaMemcpyAsync(layer_data(layer) + layout_.tile_offset(block.value, 0, 0), host, n_bytes,
                               cudaMemcpyHostToDevice, device_.stream),
               "copy of a KV block to the device");
}

void CudaKvStorage::fill_bytes(std::uint8_t value) {
  check_cuda(cudaMemsetAsync(data_, value, static_cast<std::size_t>(layer_bytes() * shape().n_layers), device_.stream),
             "filling keys and values");
}

}  // namespace baton::cuda
