/// Multiplies head by head with the matmuls of any other weight, each of which uses all threads.
#include "kernels/cpu/backend.h"

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/elements.h"

namespace baton::cpu {
namespace {

/// Rows that a thread copies at a time.
constexpr std::int64_t kCopyGrain = 16;

/// Each head's matrix as pack_matrix packs it.
class CpuHeads final : public PackedHeads {
 public:
  std::vector<std::unique_ptr<PackedMatrix>> of_head;
};

}  // namespace

Result<std::unique_ptr<PackedHeads>> CpuBackend::pack_heads(const ConstTensorView& weights, std::string_view name) {
  check(weights.shape.rank() == 3, "pack_heads: weights [n_heads, n, k]");
  auto heads = std::make_unique<CpuHeads>();
  heads->n_heads = weights.shape[0];
  heads->n = weights.shape[1];
  heads->k = weights.shape[2];
  heads->dtype = weights.dtype;
  for (std::int64_t h = 0; h < heads->n_heads; ++h) {
    const ConstTensorView weight{weights.rows(h, h + 1).data, weights.dtype, {heads->n, heads->k}};
    BATON_TRY(std::unique_ptr<PackedMatrix> matrix, pack_matrix(StoredMatrix(weight), weights.dtype, name));
    heads->size_bytes += matrix->size_bytes;
    heads->of_head.push_back(std::move(matrix));
  }
  return std::unique_ptr<PackedHeads>(std::move(heads));
}

void CpuBackend::head_matmul(const HeadMatmulArgs& args) {
  const auto& heads = static_cast<const CpuHeads&>(*args.weights);
  const std::int64_t n_rows = args.x.shape[0];
  const std::int64_t out_stride = args.out.shape[2];
  const std::size_t element_bytes = size_bytes(args.x.dtype);
  std::vector<std::byte> x_memory(static_cast<std::size_t>(n_rows * heads.k) * element_bytes);
  std::vector<float> product(static_cast<std::size_t>(n_rows * heads.n));
  const TensorView x{x_memory.data(), args.x.dtype, {n_rows, heads.k}};
  const TensorView out = view_of(std::span(product), {n_rows, heads.n});
  for (std::int64_t h = 0; h < heads.n_heads; ++h) {
    parallel_.for_ranges(n_rows, kCopyGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        std::memcpy(x.rows(row, row + 1).data,
                    args.x.rows(row, row + 1).data + static_cast<std::size_t>(h * args.x_stride) * element_bytes,
                    static_cast<std::size_t>(heads.k) * element_bytes);
    });
    matmul({x, heads.of_head[static_cast<std::size_t>(h)].get(), out});
    parallel_.for_ranges(n_rows, kCopyGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        store_f32(product.data() + row * heads.n, heads.n, args.out, (row * heads.n_heads + h) * out_stride);
    });
  }
}

}  // namespace baton::cpu
