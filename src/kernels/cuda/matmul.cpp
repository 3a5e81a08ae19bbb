/// Matmuls on a CUDA device. This is the only file that includes cuBLASLt; it passes matmuls of few rows to our own kernels.
///
/// Row-major out = x W^T is cuBLASLt's column-major out^T = (W^T)^T x^T, so nothing is transposed in memory. The
/// algorithm of a matmul is requested once for each shape, row bucket, alignment and output dtype, and kept. In
/// batch-invariant mode every matmul has kInvariantRows rows, and missing rows are padded.
#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <fmt/format.h>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/skinny_gemm.h"
#include "kernels/cuda/stream_gemm.h"

namespace baton::cuda {
namespace {

/// The size that cuBLAS itself uses on Hopper.
constexpr std::size_t kWorkspaceBytes = 32 << 20;
/// Scratch memory for weights during packing, padded rows, and outputs in dtypes that cuBLASLt does not write.
constexpr std::size_t kScratchBytes = 64 << 20;
/// Operand alignment in bytes for the widest accesses of matmuls.
constexpr std::int32_t kFullAlignment = 16;

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

/// A row-major weight [n, k] in device memory.
class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix() = default;
  ~CudaMatrix() override { cudaFree(data); }
  CudaMatrix(const CudaMatrix&) = delete;
  CudaMatrix& operator=(const CudaMatrix&) = delete;
  std::byte* data = nullptr;
  std::optional<StreamWeight> streamed;  ///< for the streaming GEMM, if it takes this weight
};

/// The parameters of a cuBLASLt matmul.
struct Product {
  std::int64_t n_rows = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;
  std::int32_t x_alignment = 0;    ///< bytes
  std::int32_t out_alignment = 0;  ///< bytes
  bool adds_bias = false;          ///< adds a vector of out's type in the epilogue
  auto operator<=>(const Product&) const = default;
};

/// cuBLASLt's descriptions of a matmul's operands; they own no memory.
struct Description {
  /// `bias`: the bias to add, if any; to request an algorithm, any address with its alignment.
  Description(const Product& product, const std::byte* bias) {
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
    check_cublas(cublasLtMatrixLayoutInit(&out, cuda_type(product.out_dtype), n, n_rows, product.n),
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

/// The largest power of two that divides the address, up to the largest that matmuls gain from.
std::int32_t alignment_of(const std::byte* address) {
  const auto bits = static_cast<int>(std::countr_zero(reinterpret_cast<std::uintptr_t>(address)));
  return std::min(1 << std::min(bits, 30), kFullAlignment);
}

/// The largest number of rows that one algorithm is used for: powers of two up to 8, then multiples of a growing step.
std::int64_t bucket_of(std::int64_t n_rows) {
  if (n_rows <= 8) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n_rows)));
  const std::int64_t step =
      std::max<std::int64_t>(8, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n_rows - 1))) / 4);
  return (n_rows + step - 1) / step * step;
}

}  // namespace

class MatmulEngine::Impl {
 public:
  Impl(const Device& device, bool batch_invariant) : device_(device), batch_invariant_(batch_invariant) {}
  ~Impl() {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
    cudaFree(workspace_);
    cudaFree(scratch_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> open() {
    if (const cublasStatus_t status = cublasLtCreate(&handle_); status != CUBLAS_STATUS_SUCCESS)
      return fail(ErrorCode::unavailable, fmt::format("cuBLASLt cannot start: {}", cublasLtGetStatusString(status)), "device");
    BATON_TRY(workspace_, memory(kWorkspaceBytes, "the workspace of products"));
    BATON_TRY(scratch_, memory(kScratchBytes, "the scratch memory of products"));
    BATON_TRY(stream_gemm_, StreamGemm::make(device_));
    return {};
  }

  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name) {
    check(weight.shape.rank() == 2, "pack_matrix: the weight must be [n, k]");
    auto matrix = std::make_unique<CudaMatrix>();
    matrix->n = weight.shape[0];
    matrix->k = weight.shape[1];
    matrix->dtype = dtype;
    matrix->size_bytes = static_cast<std::size_t>(weight.shape.n_elements()) * size_bytes(dtype);
    check(matrix->n > 0 && matrix->k > 0, "pack_matrix: the weight is empty");
    BATON_TRY(matrix->data, memory(matrix->size_bytes, name));
    fill(*matrix, weight);
    BATON_TRY_VOID(prepare(*matrix, name));
    matrix->streamed = stream_gemm_->describe({matrix->data, dtype, {matrix->n, matrix->k}});
    if (!std::exchange(has_loaded_cublas_, true)) load_cublas(*matrix);
    if (batch_invariant_ && !proven_.contains({matrix->n, matrix->k, dtype})) {
      BATON_TRY_VOID(prove(*matrix, name));
      proven_.insert({matrix->n, matrix->k, dtype});
    }
    return matrix;
  }

  void multiply(const MatmulArgs& args) {
    const auto& matrix = static_cast<const CudaMatrix&>(*args.weight);
    const std::int64_t n_rows = args.x.shape[0];
    const std::int64_t step = batch_invariant_ ? kInvariantRows : std::max<std::int64_t>(n_rows, 1);
    for (std::int64_t begin = 0; begin < n_rows; begin += step) {
      const std::int64_t end = std::min(n_rows, begin + step);
      if (batch_invariant_)
        multiply_tile(args.x.rows(begin, end), matrix, args.out.rows(begin, end));
      else
        multiply_rows(args.x.rows(begin, end), matrix, args.bias, args.out.rows(begin, end));
    }
    if (batch_invariant_ && args.bias.data != nullptr) add_bias(device_, args.out, args.bias);
  }

 private:
  /// Rows that the test multiplies together.
  struct Run {
    std::int64_t first = 0;
    std::int64_t n_rows = 0;
  };

  static Result<std::byte*> memory(std::size_t size_bytes, std::string_view what) {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, size_bytes);
    if (error == cudaSuccess) return static_cast<std::byte*>(data);
    cudaGetLastError();  // clears the error of the failed allocation, so that the next launch does not report it
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return fail(ErrorCode::out_of_memory, fmt::format("no device memory for {}: {} bytes asked for, {} of {} are free", what,
                                                      size_bytes, free_bytes, total_bytes));
  }

  /// Copies host elements to the matrix, front to back. Other dtypes are rounded on the device, one scratch buffer at
  /// a time.
  void fill(CudaMatrix& matrix, ConstTensorView weight) {
    const std::size_t from_size = size_bytes(weight.dtype);
    const std::size_t to_size = size_bytes(matrix.dtype);
    const std::int64_t n_elements = weight.shape.n_elements();
    const auto n_at_once = static_cast<std::int64_t>(kScratchBytes / from_size);
    for (std::int64_t begin = 0; begin < n_elements; begin += n_at_once) {
      const std::int64_t n = std::min(n_at_once, n_elements - begin);
      std::byte* to = matrix.data + static_cast<std::size_t>(begin) * to_size;
      std::byte* arrival = weight.dtype == matrix.dtype ? to : scratch_;
      check_cuda(cudaMemcpyAsync(arrival, weight.data + static_cast<std::size_t>(begin) * from_size,
                                 static_cast<std::size_t>(n) * from_size, cudaMemcpyHostToDevice, device_.stream),
                 "pack_matrix");
      if (arrival != to) convert(device_, arrival, weight.dtype, to, matrix.dtype, n);
    }
    check_cuda(cudaStreamSynchronize(device_.stream), "pack_matrix");
  }

  /// Requests the algorithms for one row and for many, so that a shape without any is refused at load and not in a
  /// step.
  Result<void> prepare(const CudaMatrix& matrix, std::string_view name) {
    for (const std::int64_t n_rows : {std::int64_t{1}, kInvariantRows, std::int64_t{4096}}) {
      const Product product{n_rows, matrix.n, matrix.k, matrix.dtype, DType::f32, kFullAlignment, kFullAlignment};
      if (algorithm_of(product) == nullptr)
        return fail(ErrorCode::unsupported, fmt::format("{}: cuBLASLt has no product of {} rows by {} x {} in {}", name, n_rows,
                                                        matrix.n, matrix.k, to_string(matrix.dtype)));
    }
    return {};
  }

  /// Runs one matmul by cuBLASLt, which loads its kernels at the first. Without it the first prompt would wait for that
  /// (60 ms on an H200) where steps of few rows have not used cuBLASLt before.
  void load_cublas(const CudaMatrix& matrix) {
    const Product product{kInvariantRows, matrix.n, matrix.k, matrix.dtype, matrix.dtype, kFullAlignment, kFullAlignment};
    const ConstTensorView x{scratch_, matrix.dtype, {kInvariantRows, matrix.k}};
    const std::size_t x_room = (x.size_bytes() + 255) / 256 * 256;
    const TensorView out{scratch_ + x_room, matrix.dtype, {kInvariantRows, matrix.n}};
    if (x_room + out.size_bytes() > kScratchBytes || algorithm_of(product) == nullptr) return;
    check_cuda(cudaMemsetAsync(scratch_, 0, x.size_bytes(), device_.stream), "pack_matrix");
    run(x, matrix, {}, out);
    check_cuda(cudaStreamSynchronize(device_.stream), "pack_matrix");
  }

  /// cuBLASLt's first choice for the matmul; null if it has none. The result is kept.
  const cublasLtMatmulAlgo_t* algorithm_of(const Product& product) {
    if (const auto found = algorithms_.find(product); found != algorithms_.end()) return &found->second;
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
    cublasLtMatmulHeuristicResult_t found{};
    int n_found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, &description.operation, &description.weight, &description.x, &description.out,
                                       &description.out, &preference, 1, &found, &n_found);
    if (status != CUBLAS_STATUS_SUCCESS || n_found == 0 || found.state != CUBLAS_STATUS_SUCCESS) return nullptr;
    return &algorithms_.emplace(product, found.algo).first->second;
  }

  /// The algorithm of the matmul's bucket if it supports this number of rows, otherwise another one; null if there is
  /// none.
  const cublasLtMatmulAlgo_t* algorithm_for(const Product& product, Description& description) {
    Product bucket = product;
    bucket.n_rows = bucket_of(product.n_rows);
    const cublasLtMatmulAlgo_t* algorithm = algorithm_of(bucket);
    cublasLtMatmulHeuristicResult_t checked{};
    if (algorithm != nullptr && bucket.n_rows != product.n_rows &&
        (cublasLtMatmulAlgoCheck(handle_, &description.operation, &description.weight, &description.x, &description.out,
                                 &description.out, algorithm, &checked) != CUBLAS_STATUS_SUCCESS ||
         checked.workspaceSize > kWorkspaceBytes))
      algorithm = algorithm_of(product);
    return algorithm;
  }

  /// out = x W^T + bias by cuBLASLt, which writes f32 and the weight's dtype. A bias that the matmul cannot add is
  /// added afterwards.
  void run(const ConstTensorView& x, const CudaMatrix& matrix, const ConstTensorView& bias, const TensorView& out) {
    const bool adds_bias = bias.data != nullptr && bias.dtype == out.dtype && alignment_of(bias.data) == kFullAlignment;
    const Product product{x.shape[0], matrix.n, matrix.k, matrix.dtype, out.dtype, alignment_of(x.data), alignment_of(out.data),
                          adds_bias};
    Description description(product, bias.data);
    const cublasLtMatmulAlgo_t* const algorithm = algorithm_for(product, description);
    if (bias.data != nullptr && (!adds_bias || algorithm == nullptr)) {
      run(x, matrix, {}, out);
      return add_bias(device_, out, bias);
    }
    check(algorithm != nullptr, "matmul: cuBLASLt has no product of this shape at this alignment");
    const float one = 1;
    const float zero = 0;
    check_cublas(cublasLtMatmul(handle_, &description.operation, &one, matrix.data, &description.weight, x.data, &description.x,
                                &zero, out.data, &description.out, out.data, &description.out, algorithm, workspace_,
                                kWorkspaceBytes, device_.stream),
                 "matmul");
  }

  /// The same for any float dtype of out: dtypes that cuBLASLt does not write are rounded from f32, some rows at a
  /// time.
  void multiply_rows(const ConstTensorView& x, const CudaMatrix& matrix, const ConstTensorView& bias, const TensorView& out) {
    const ConstTensorView weight{matrix.data, matrix.dtype, {matrix.n, matrix.k}};
    if (bias.data == nullptr || bias.dtype == out.dtype) {
      if (matrix.streamed && stream_gemm_->can_multiply(x, *matrix.streamed, out))
        return stream_gemm_->multiply(x, *matrix.streamed, bias, out);
      if (can_multiply_skinny(device_, x, weight, out)) return multiply_skinny(device_, x, weight, bias, out);
    }
    if (out.dtype == DType::f32 || out.dtype == matrix.dtype) return run(x, matrix, bias, out);
    const auto step = std::max<std::int64_t>(1, static_cast<std::int64_t>(kScratchBytes) / (4 * matrix.n));
    check(step * matrix.n * 4 <= static_cast<std::int64_t>(kScratchBytes), "matmul: a row of out exceeds the scratch memory");
    for (std::int64_t begin = 0; begin < x.shape[0]; begin += step) {
      const std::int64_t end = std::min(x.shape[0], begin + step);
      run(x.rows(begin, end), matrix, bias, {scratch_, DType::f32, {end - begin, matrix.n}});
      convert(device_, scratch_, DType::f32, out.rows(begin, end).data, out.dtype, (end - begin) * matrix.n);
    }
  }

  /// Multiplies up to kInvariantRows rows as one f32 matmul of kInvariantRows, always at the same alignment.
  void multiply_tile(const ConstTensorView& x, const CudaMatrix& matrix, const TensorView& out) {
    const std::size_t x_bytes = static_cast<std::size_t>(kInvariantRows * matrix.k) * size_bytes(matrix.dtype);
    const std::size_t x_room = (x_bytes + 255) / 256 * 256;
    check(x_room + static_cast<std::size_t>(kInvariantRows * matrix.n) * sizeof(float) <= kScratchBytes,
          "matmul: a tile of rows exceeds the scratch memory");
    const TensorView tile_x{scratch_, matrix.dtype, {kInvariantRows, matrix.k}};
    const TensorView tile_out{scratch_ + x_room, DType::f32, {kInvariantRows, matrix.n}};
    check_cuda(cudaMemcpyAsync(tile_x.data, x.data, x.size_bytes(), cudaMemcpyDeviceToDevice, device_.stream), "matmul");
    if (x.size_bytes() < x_bytes)
      check_cuda(cudaMemsetAsync(tile_x.data + x.size_bytes(), 0, x_bytes - x.size_bytes(), device_.stream), "matmul");
    run(tile_x, matrix, {}, tile_out);
    convert(device_, tile_out.data, DType::f32, out.data, out.dtype, out.shape.n_elements());
  }

  /// Multiplies 2048 random rows, then the first 1 to 256 of them, then 32 rows that begin elsewhere, and compares
  /// bits.
  Result<void> prove(const CudaMatrix& matrix, std::string_view name) {
    constexpr std::int64_t kRows = 2048;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(kRows * matrix.k));
    for (float& value : x) value = normal(random);
    const std::size_t x_bytes = x.size() * size_bytes(matrix.dtype);
    const std::size_t out_bytes = static_cast<std::size_t>(kRows * matrix.n) * sizeof(float);
    BATON_TRY(std::byte* const all_x, memory(x.size() * sizeof(float) + x_bytes + out_bytes, name));
    std::byte* const rounded_x = all_x + x.size() * sizeof(float);
    std::byte* const all_out = rounded_x + x_bytes;
    check_cuda(cudaMemcpyAsync(all_x, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice, device_.stream), "prove");
    convert(device_, all_x, DType::f32, rounded_x, matrix.dtype, kRows * matrix.k);
    const ConstTensorView rows{rounded_x, matrix.dtype, {kRows, matrix.k}};
    const auto product_of = [&](std::int64_t first, std::int64_t n_rows) {
      const TensorView out{all_out, DType::f32, {n_rows, matrix.n}};
      multiply({rows.rows(first, first + n_rows), &matrix, out});
      std::vector<float> got(static_cast<std::size_t>(n_rows * matrix.n));
      check_cuda(cudaMemcpyAsync(got.data(), all_out, out.size_bytes(), cudaMemcpyDeviceToHost, device_.stream), "prove");
      check_cuda(cudaStreamSynchronize(device_.stream), "prove");
      return got;
    };
    const std::vector<float> expected = product_of(0, kRows);
    // Counts up to 32 fill tiles with every number of rows from 1 to 32; larger counts repeat whole tiles.
    std::vector<Run> runs;
    for (std::int64_t n_rows = 1; n_rows <= kInvariantRows; ++n_rows) runs.push_back({0, n_rows});
    for (const std::int64_t n_rows : {33, 64, 100, 255, 256}) runs.push_back({0, n_rows});
    for (std::int64_t first = 1; first < kInvariantRows; first += 6) runs.push_back({first, kInvariantRows});
    std::int64_t unequal_rows = 0;
    for (const auto& [first, n_rows] : runs) {
      const std::vector<float> got = product_of(first, n_rows);
      if (std::memcmp(got.data(), expected.data() + first * matrix.n, got.size() * sizeof(float)) != 0) unequal_rows = n_rows;
    }
    cudaFree(all_x);
    if (unequal_rows != 0)
      return fail(ErrorCode::unsupported,
                  fmt::format("--batch-invariant: {} ({} x {}) gives other bits for {} rows than among {}", name, matrix.n,
                              matrix.k, unequal_rows, kRows));
    return {};
  }

  const Device& device_;
  bool batch_invariant_;
  bool has_loaded_cublas_ = false;
  cublasLtHandle_t handle_ = nullptr;
  std::byte* workspace_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::unique_ptr<StreamGemm> stream_gemm_;
  std::map<Product, cublasLtMatmulAlgo_t> algorithms_;
  std::set<std::tuple<std::int64_t, std::int64_t, DType>> proven_;
};

MatmulEngine::MatmulEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatmulEngine::~MatmulEngine() = default;

Result<std::unique_ptr<MatmulEngine>> MatmulEngine::make(const Device& device, bool batch_invariant) {
  auto impl = std::make_unique<Impl>(device, batch_invariant);
  BATON_TRY_VOID(impl->open());
  return std::unique_ptr<MatmulEngine>(new MatmulEngine(std::move(impl)));
}

Result<std::unique_ptr<PackedMatrix>> MatmulEngine::pack(ConstTensorView weight, DType dtype, std::string_view name) {
  return impl_->pack(weight, dtype, name);
}

void MatmulEngine::multiply(const MatmulArgs& args) { impl_->multiply(args); }

}  // namespace baton::cuda
