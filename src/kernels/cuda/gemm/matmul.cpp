/// Matmuls on a CUDA device: packs weights and passes each matmul to our own kernels, which are for few rows, to cuBLASLt,
/// or to those of the batch-invariant mode.
#include "kernels/cuda/gemm/matmul.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/gemm/chain_gemm.h"
#include "kernels/cuda/gemm/cublas_matmul.h"
#include "kernels/cuda/gemm/invariant_matmul.h"
#include "kernels/cuda/gemm/kernels.h"
#include "kernels/cuda/gemm/stream_gemm.h"

namespace baton::cuda {
namespace {

/// Scratch memory for weights during packing, padded rows, and outputs in dtypes that cuBLASLt does not write.
constexpr std::size_t kScratchBytes = 64 << 20;
/// Above the streaming GEMM's rows and up to this many, the chain GEMM is faster than cuBLASLt for large weights whose
/// tiles fill the device. With more rows its times vary, because it reads x as often as the weight.
constexpr std::int64_t kMostRowsByChain = 48;
/// Rows of the matmul that loads cuBLASLt's kernels.
constexpr std::int64_t kFirstRows = 32;

/// A row-major weight [n, k] in device memory.
class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix() = default;
  ~CudaMatrix() override { cudaFree(data); }
  CudaMatrix(const CudaMatrix&) = delete;
  CudaMatrix& operator=(const CudaMatrix&) = delete;
  ConstTensorView view() const { return {data, dtype, {n, k}}; }
  InvariantWeight invariant() const { return {view(), chain ? &*chain : nullptr}; }
  std::byte* data = nullptr;
  std::optional<StreamWeight> streamed;  ///< for the streaming GEMM, if it takes this weight
  std::optional<ChainWeight> chain;      ///< for the chain GEMM, if it takes this weight
};

}  // namespace

class MatmulEngine::Impl {
 public:
  Impl(const Device& device, bool batch_invariant) : device_(device), batch_invariant_(batch_invariant) {}
  ~Impl() { cudaFree(scratch_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> open() {
    BATON_TRY(cublas_, CublasMatmul::make(device_));
    BATON_TRY(scratch_, device_memory(kScratchBytes, "the scratch memory of matmuls"));
    BATON_TRY(stream_gemm_, StreamGemm::make(device_));
    chain_gemm_.emplace(device_);
    if (batch_invariant_) invariant_.emplace(device_, *cublas_, *chain_gemm_, std::span(scratch_, kScratchBytes));
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
    BATON_TRY(matrix->data, device_memory(matrix->size_bytes, name));
    fill(*matrix, weight);
    BATON_TRY_VOID(prepare(*matrix, name));
    matrix->streamed = stream_gemm_->describe(matrix->view());
    matrix->chain = chain_gemm_->describe(matrix->view());
    if (!std::exchange(has_loaded_cublas_, true)) load_cublas(*matrix);
    if (invariant_) BATON_TRY_VOID(invariant_->prove(matrix->invariant(), name));
    return matrix;
  }

  void multiply(const MatmulArgs& args) {
    const auto& matrix = static_cast<const CudaMatrix&>(*args.weight);
    if (args.x.shape[0] == 0) return;
    if (!invariant_) return multiply_rows(args.x, matrix, args.bias, args.out);
    const auto multiply_some = [&](const ConstTensorView& x, const TensorView& out) {
      invariant_->multiply(x, matrix.invariant(), out);
    };
    if (InvariantMatmul::writes(matrix.invariant(), args.out.dtype))
      multiply_some(args.x, args.out);
    else
      multiply_through_f32(args.x, matrix, args.out, multiply_some);
    if (args.bias.data != nullptr) add_bias(device_, args.out, args.bias);
  }

 private:
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
    for (const std::int64_t n_rows : {std::int64_t{1}, kFirstRows, std::int64_t{4096}})
      if (!cublas_->prepare({n_rows, matrix.n, matrix.k, matrix.dtype, DType::f32}))
        return fail(ErrorCode::unsupported, fmt::format("{}: cuBLASLt has no product of {} rows by {} x {} in {}", name, n_rows,
                                                        matrix.n, matrix.k, to_string(matrix.dtype)));
    return {};
  }

  /// Runs one matmul by cuBLASLt, which loads its kernels at the first. Without it the first prompt would wait for that
  /// (60 ms on an H200) where steps of few rows have not used cuBLASLt before.
  void load_cublas(const CudaMatrix& matrix) {
    const ConstTensorView x{scratch_, matrix.dtype, {kFirstRows, matrix.k}};
    const std::size_t x_room = (x.size_bytes() + 255) / 256 * 256;
    const TensorView out{scratch_ + x_room, matrix.dtype, {kFirstRows, matrix.n}};
    if (x_room + out.size_bytes() > kScratchBytes ||
        !cublas_->prepare({kFirstRows, matrix.n, matrix.k, matrix.dtype, matrix.dtype}))
      return;
    check_cuda(cudaMemsetAsync(scratch_, 0, x.size_bytes(), device_.stream), "pack_matrix");
    cublas_->multiply(x, matrix.view(), {}, out);
    check_cuda(cudaStreamSynchronize(device_.stream), "pack_matrix");
  }

  bool uses_chain(const ConstTensorView& x, const CudaMatrix& matrix, const TensorView& out) const {
    return x.shape[0] <= kMostRowsByChain && matrix.streamed && matrix.chain && matrix.chain->fills_device &&
           chain_gemm_->can_multiply(x, *matrix.chain, out);
  }

  void multiply_rows(const ConstTensorView& x, const CudaMatrix& matrix, const ConstTensorView& bias, const TensorView& out) {
    if (bias.data == nullptr || bias.dtype == out.dtype) {
      if (matrix.streamed && stream_gemm_->can_multiply(x, *matrix.streamed, out))
        return stream_gemm_->multiply(x, *matrix.streamed, bias, out);
      if (uses_chain(x, matrix, out)) return chain_gemm_->multiply(x, *matrix.chain, bias, out);
      if (can_multiply_skinny(device_, x, matrix.view(), out)) return multiply_skinny(device_, x, matrix.view(), bias, out);
    }
    if (out.dtype == DType::f32 || out.dtype == matrix.dtype) return cublas_->multiply(x, matrix.view(), bias, out);
    multiply_through_f32(x, matrix, out, [&](const ConstTensorView& some_x, const TensorView& sums) {
      cublas_->multiply(some_x, matrix.view(), bias, sums);
    });
  }

  /// Calls `multiply(x, sums)` for some rows at a time and rounds their f32 sums to out.
  template <class Multiply>
  void multiply_through_f32(const ConstTensorView& x, const CudaMatrix& matrix, const TensorView& out, Multiply&& multiply) {
    const auto step = std::max<std::int64_t>(1, static_cast<std::int64_t>(kScratchBytes) / (4 * matrix.n));
    check(step * matrix.n * 4 <= static_cast<std::int64_t>(kScratchBytes), "matmul: a row of out exceeds the scratch memory");
    for (std::int64_t begin = 0; begin < x.shape[0]; begin += step) {
      const std::int64_t end = std::min(x.shape[0], begin + step);
      multiply(x.rows(begin, end), TensorView{scratch_, DType::f32, {end - begin, matrix.n}});
      convert(device_, scratch_, DType::f32, out.rows(begin, end).data, out.dtype, (end - begin) * matrix.n);
    }
  }

  const Device& device_;
  bool batch_invariant_;
  bool has_loaded_cublas_ = false;
  std::byte* scratch_ = nullptr;
  std::unique_ptr<CublasMatmul> cublas_;
  std::unique_ptr<StreamGemm> stream_gemm_;
  std::optional<ChainGemm> chain_gemm_;
  std::optional<InvariantMatmul> invariant_;  ///< in batch-invariant mode
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
