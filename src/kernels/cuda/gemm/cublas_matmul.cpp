/// This is the only file that includes cuBLASLt. The algorithm of a matmul is requested once for each shape, row bucket,
/// alignment and output dtype, and kept.
#include "kernels/cuda/gemm/cublas_matmul.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include <cublasLt.h>
#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/kernels.h"

namespace baton::cuda {
namespace {

/// The size that cuBLAS itself uses on Hopper.
constexpr std::size_t kWorkspaceBytes = 32 << 20;
/// Operand alignment in bytes for the widest accesses of matmuls.
constexpr std::int32_t kFullAlignment = 16;
/// Choices that are requested where the first may split k.
constexpr int kMostChoices = 24;

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) check_failed(std::string(what) + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: check_failed("matmul: not a float dtype");
  }
}

/// The largest power of two that divides the address, up to the largest that matmuls gain from.
std::int32_t alignment_of(const std::byte* address) {
  const auto bits = static_cast<int>(std::countr_zero(reinterpret_cast<std::uintptr_t>(address)));
  return std::min(1 << std::min(bits, 30), kFullAlignment);
}

CublasProduct product_of(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out) {
  return {x.shape[0], weight.shape[0], weight.shape[1], weight.dtype, out.dtype, alignment_of(x.data), alignment_of(out.data)};
}

}  // namespace

std::int64_t row_bucket_of(std::int64_t n_rows) {
  if (n_rows <= 8) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n_rows)));
  const std::int64_t step =
      std::max<std::int64_t>(8, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n_rows - 1))) / 4);
  return (n_rows + step - 1) / step * step;
}

/// cuBLASLt's descriptions of a matmul's operands; they own no memory.
struct CublasMatmul::Description {
  /// `bias`: the bias to add, if any; to request an algorithm, any address with its alignment.
  Description(const CublasProduct& product, const std::byte* bias) {
    const auto n = static_cast<std::uint64_t>(product.n);
    const auto k = static_cast<std::uint64_t>(product.k);
    const auto n_rows = static_cast<std::uint64_t>(product.n_rows);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (product.adds_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
    }
    check_cublas(cublasLtMatrixLayoutInit(&weight, cuda_type(product.dtype), k, n, product.k), "cublasLtMatrixLayoutInit");
    check_cublas(cublasLtMatrixLayoutInit(&x, cuda_type(product.dtype), k, n_rows, product.k), "cublasLtMatrixLayoutInit");
    check_cublas(cublasLtMatrixLayoutInit(&out, cuda_type(product.out_dtype), n, n_rows,
                                          product.out_stride > 0 ? product.out_stride : product.n),
                 "cublasLtMatrixLayoutInit");
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t weight;
  cublasLtMatrixLayoutOpaque_t x;
  cublasLtMatrixLayoutOpaque_t out;
};

Result<std::unique_ptr<CublasMatmul>> CublasMatmul::make(const Device& device) {
  std::unique_ptr<CublasMatmul> made(new CublasMatmul(device));
  BATON_TRY_VOID(made->open());
  return made;
}

CublasMatmul::~CublasMatmul() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
  cudaFree(workspace_);
}

Result<void> CublasMatmul::open() {
  if (const cublasStatus_t status = cublasLtCreate(&handle_); status != CUBLAS_STATUS_SUCCESS)
    return fail(ErrorCode::unavailable, fmt::format("cuBLASLt cannot start: {}", cublasLtGetStatusString(status)), "device");
  BATON_TRY(workspace_, device_memory(kWorkspaceBytes, "the workspace of matmuls"));
  return {};
}

bool CublasMatmul::prepare(const CublasProduct& product) { return algorithm_of(product) != nullptr; }

/// cuBLASLt's first choice for the matmul; null if it has none. The result is kept.
const CublasAlgorithm* CublasMatmul::algorithm_of(const CublasProduct& product) {
  if (const auto found = algorithms_.find(product); found != algorithms_.end()) return &found->second;
  const std::vector<CublasAlgorithm> found = choices(product, 1);
  return found.empty() ? nullptr : &algorithms_.emplace(product, found.front()).first->second;
}

void CublasMatmul::multiply(const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                            const TensorView& out) {
  const bool adds_bias = bias.data != nullptr && bias.dtype == out.dtype && alignment_of(bias.data) == kFullAlignment;
  CublasProduct product = product_of(x, weight, out);
  product.adds_bias = adds_bias;
  Description description(product, bias.data);
  const CublasAlgorithm* const algorithm = algorithm_for(product, description);
  if (bias.data != nullptr && (!adds_bias || algorithm == nullptr)) {
    multiply(x, weight, {}, out);
    return add_bias(device_, out, bias);
  }
  check(algorithm != nullptr, "matmul: cuBLASLt has no product of this shape at this alignment");
  run(*algorithm, description, x, weight, out);
}

void CublasMatmul::multiply_columns(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out,
                                    std::int64_t out_stride) {
  CublasProduct product = product_of(x, weight, out);
  product.out_stride = out_stride;
  Description description(product, nullptr);
  const CublasAlgorithm* const algorithm = algorithm_for(product, description);
  check(algorithm != nullptr, "matmul: cuBLASLt has no product of this shape at this alignment");
  run(*algorithm, description, x, weight, out);
}

std::vector<CublasAlgorithm> CublasMatmul::unsplit_choices(const CublasProduct& product) {
  std::vector<CublasAlgorithm> unsplit;
  for (const CublasAlgorithm& algorithm : choices(product, kMostChoices)) {
    const auto bits = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    std::int32_t n_splits = 0;
    std::uint32_t reduction = 0;
    const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
      std::size_t n_written = 0;
      check_cublas(cublasLtMatmulAlgoConfigGetAttribute(&bits, attribute, &value, sizeof(value), &n_written),
                   "cublasLtMatmulAlgoConfigGetAttribute");
    };
    get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, n_splits);
    get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction);
    if (n_splits <= 1 && reduction == 0) unsplit.push_back(algorithm);
  }
  return unsplit;
}

bool CublasMatmul::multiply_by(const CublasAlgorithm& algorithm, const ConstTensorView& x, const ConstTensorView& weight,
                               const TensorView& out) {
  Description description(product_of(x, weight, out), nullptr);
  if (!supports(algorithm, description)) return false;
  run(algorithm, description, x, weight, out);
  return true;
}

std::vector<CublasAlgorithm> CublasMatmul::choices(const CublasProduct& product, int n_choices) {
  Description description(product, workspace_);
  cublasLtMatmulPreferenceOpaque_t preference;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(kFullAlignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(product.x_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(product.out_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(product.out_alignment));
  std::array<cublasLtMatmulHeuristicResult_t, kMostChoices> found{};
  int n_found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, &description.operation, &description.weight, &description.x, &description.out,
                                     &description.out, &preference, n_choices, found.data(), &n_found);
  std::vector<CublasAlgorithm> made;
  if (status != CUBLAS_STATUS_SUCCESS) return made;
  for (int i = 0; i < n_found; ++i)
    if (const auto& one = found.at(static_cast<std::size_t>(i)); one.state == CUBLAS_STATUS_SUCCESS)
      made.push_back(std::bit_cast<CublasAlgorithm>(one.algo));
  return made;
}

bool CublasMatmul::supports(const CublasAlgorithm& algorithm, Description& description) {
  const auto bits = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  cublasLtMatmulHeuristicResult_t checked{};
  return cublasLtMatmulAlgoCheck(handle_, &description.operation, &description.weight, &description.x, &description.out,
                                 &description.out, &bits, &checked) == CUBLAS_STATUS_SUCCESS &&
         checked.workspaceSize <= kWorkspaceBytes;
}

/// The algorithm of the matmul's bucket if it supports this number of rows, otherwise another one; null if there is
/// none.
const CublasAlgorithm* CublasMatmul::algorithm_for(const CublasProduct& product, Description& description) {
  CublasProduct bucket = product;
  bucket.n_rows = row_bucket_of(product.n_rows);
  const CublasAlgorithm* algorithm = algorithm_of(bucket);
  if (algorithm != nullptr && bucket.n_rows != product.n_rows && !supports(*algorithm, description))
    algorithm = algorithm_of(product);
  return algorithm;
}

void CublasMatmul::run(const CublasAlgorithm& algorithm, Description& description, const ConstTensorView& x,
                       const ConstTensorView& weight, const TensorView& out) {
  const auto bits = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  const float one = 1;
  const float zero = 0;
  check_cublas(cublasLtMatmul(handle_, &description.operation, &one, weight.data, &description.weight, x.data, &description.x,
                              &zero, out.data, &description.out, out.data, &description.out, &bits, workspace_, kWorkspaceBytes,
                              device_.stream),
               "matmul");
}

}  // namespace baton::cuda
