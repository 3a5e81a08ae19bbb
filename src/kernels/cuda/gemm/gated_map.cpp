#include "kernels/cuda/gemm/gated_map.h"

#include <cuda_runtime_api.h>

#include "core/check.h"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

using EncodeGatedMap = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                    const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

}  // namespace

std::optional<CUtensorMap> gated_map(void* encode, const ConstTensorView& weight, int n_rows, int run) {
  check(weight.dtype == DType::bf16 || weight.dtype == DType::f16, "gated_map: a weight of another dtype");
  const auto n = static_cast<cuuint64_t>(weight.shape[0]);
  const auto k = static_cast<cuuint64_t>(weight.shape[1]);
  const auto rows_of_each = static_cast<cuuint64_t>(run);
  check(n % (2 * rows_of_each) == 0 && n_rows % (2 * run) == 0, "gated_map: rows that are not whole runs");
  // Column, row of a run, gate or up, run.
  const cuuint64_t sizes[] = {k, rows_of_each, 2, n / (2 * rows_of_each)};
  const cuuint64_t strides[] = {2 * k, n / 2 * 2 * k, rows_of_each * 2 * k};  // bytes
  const cuuint32_t box[] = {kBoxK, static_cast<cuuint32_t>(run), 2, static_cast<cuuint32_t>(n_rows / (2 * run))};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = reinterpret_cast<EncodeGatedMap>(encode)(
      &map, weight.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
      const_cast<std::byte*>(weight.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return std::nullopt;
  return map;
}

}  // namespace baton::cuda
