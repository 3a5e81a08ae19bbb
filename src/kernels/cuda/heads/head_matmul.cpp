#include "kernels/cuda/heads/head_matmul.h"

#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/heads/kernel.h"

namespace baton::cuda {
namespace {

/// A block of few rows holds all of k of 96 rows in shared memory, of which devices have 99 KiB or more.
constexpr std::int64_t kMostK = 512;
/// Up to so many rows blocks that hold all of k are faster, the first where the other kernel's tiles of one row of tiles nearly
/// fill the device. bench/results/head-matmul.md.
constexpr std::int64_t kNarrowRowsBesideManyTiles = 32;
constexpr std::int64_t kNarrowRows = 64;

/// [n_heads, n, k] in device memory.
class CudaHeads final : public PackedHeads {
 public:
  CudaHeads() = default;
  ~CudaHeads() override { static_cast<void>(cudaFree(data)); }
  CudaHeads(const CudaHeads&) = delete;
  CudaHeads& operator=(const CudaHeads&) = delete;

  std::byte* data = nullptr;
};

}  // namespace

Result<std::unique_ptr<PackedHeads>> pack_heads(const Device& device, const ConstTensorView& weights, std::string_view name) {
  check(weights.shape.rank() == 3, "pack_heads: weights [n_heads, n, k]");
  if (weights.dtype != DType::bf16 && weights.dtype != DType::f16)
    return fail(ErrorCode::unsupported, fmt::format("{}: CUDA takes matrices of heads in bfloat16 and float16, not in {}", name,
                                                    to_string(weights.dtype)));
  auto heads = std::make_unique<CudaHeads>();
  heads->n_heads = weights.shape[0];
  heads->n = weights.shape[1];
  heads->k = weights.shape[2];
  heads->dtype = weights.dtype;
  if (heads->n % 8 != 0 || heads->k % 8 != 0 || heads->k > kMostK)
    return fail(ErrorCode::unsupported,
                fmt::format("{}: CUDA takes matrices of heads whose sizes are multiples of 8, of up to {} columns, not {} x {}",
                            name, kMostK, heads->n, heads->k));
  heads->size_bytes = weights.size_bytes();
  BATON_TRY(heads->data, device_memory(heads->size_bytes, name));
  check_cuda(cudaMemcpyAsync(heads->data, weights.data, heads->size_bytes, cudaMemcpyHostToDevice, device.stream),
             "pack_heads");
  check_cuda(cudaStreamSynchronize(device.stream), "pack_heads");
  return std::unique_ptr<PackedHeads>(std::move(heads));
}

void head_matmul(const Device& device, const HeadMatmulArgs& args) {
  const auto& heads = static_cast<const CudaHeads&>(*args.weights);
  check(args.out.dtype == heads.dtype || args.out.dtype == DType::f32,
        "head_matmul on CUDA: out must have the weights' dtype or be f32");
  check(is_aligned(args.x.data, 16) && is_aligned(args.out.data, 16) && args.x.shape[1] % 8 == 0 && args.x_stride % 8 == 0 &&
            args.out.shape[2] % 8 == 0,
        "head_matmul on CUDA: heads must be aligned to 16 bytes");
  const std::int64_t n_rows = args.x.shape[0];
  if (n_rows == 0 || heads.size_bytes == 0) return;
  const HeadMatmulParams params{.x = args.x.data,
                                .weights = heads.data,
                                .out = args.out.data,
                                .x_columns = args.x.shape[1],
                                .x_stride = args.x_stride,
                                .out_columns = args.out.shape[1] * args.out.shape[2],
                                .out_stride = args.out.shape[2],
                                .n_rows = static_cast<int>(n_rows),
                                .n_heads = static_cast<int>(heads.n_heads),
                                .n = static_cast<int>(heads.n),
                                .k = static_cast<int>(heads.k),
                                .out_is_f32 = args.out.dtype == DType::f32};
  const std::int64_t n_wide_tiles = heads.n_heads * ((heads.n + kWideTile - 1) / kWideTile);
  if (n_rows <= (10 * n_wide_tiles >= 9 * device.n_multiprocessors ? kNarrowRowsBesideManyTiles : kNarrowRows))
    head_matmul_narrow(device, heads.dtype, params);
  else
    head_matmul_wide(device, heads.dtype, params);
}

}  // namespace baton::cuda
