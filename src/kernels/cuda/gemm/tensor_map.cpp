#include "kernels/cuda/gemm/tensor_map.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/device.h"

namespace baton::cuda {
namespace {

using EncodeMap = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                               const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

}  // namespace

void* tensor_map_encoder() {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  return found == cudaDriverEntryPointSuccess ? encode : nullptr;
}

CUtensorMap matrix_map(void* encode, const ConstTensorView& matrix, int n_rows) {
  CUtensorMap map;
  const std::size_t element = size_bytes(matrix.dtype);
  const auto type = [&] {
    switch (matrix.dtype) {
      case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
      case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      case DType::f8_e4m3: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
      default: check_failed("matmul: a matrix of this dtype is not copied in boxes");
    }
  }();
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.shape[1]), static_cast<cuuint64_t>(matrix.shape[0])};
  const cuuint64_t row_bytes = sizes[0] * element;
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kBoxBytes / element), static_cast<cuuint32_t>(n_rows)};
  const cuuint32_t strides[] = {1, 1};
  const CUresult result = reinterpret_cast<EncodeMap>(encode)(
      &map, type, 2, const_cast<std::byte*>(matrix.data), sizes, &row_bytes, box, strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "matmul: the driver refuses to describe a matrix");
  return map;
}

}  // namespace baton::cuda
