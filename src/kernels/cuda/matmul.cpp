/// Matmuls on a CUDA device: packs weights and, by a table of each weight, passes a matmul to our own kernels, which are for
/// few rows, to cuBLASLt, or to those of the batch-invariant mode. Weights in 8 and 4 bits have theirs in schemes/.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/gemm/gemms.h"
#include "kernels/cuda/gemm/kernels.h"

namespace baton::cuda {
namespace {

using Gemm = GemmChoice::Gemm;

constexpr std::size_t kScratchBytes = Gemms::kScratchBytes;
/// Above the streaming GEMM's rows and up to this many, the chain GEMM is as fast as the broad GEMM or faster for large weights
/// of up to so many columns whose tiles fill the device (bench/results/streaming-gemm.md).
constexpr std::int64_t kMostRowsByChain = 48;
constexpr std::int64_t kMostColumnsByChain = 4096;
/// Rows of the matmul that loads cuBLASLt's kernels.
constexpr std::int64_t kFirstRows = 32;

/// Copies host elements to the matrix, front to back. Other dtypes are rounded on the device, one scratch buffer at
/// a time.
void fill(const Device& device, std::byte* scratch, CudaMatrix& matrix, ConstTensorView weight) {
  const std::size_t from_size = size_bytes(weight.dtype);
  const std::size_t to_size = size_bytes(matrix.dtype);
  const std::int64_t n_elements = weight.shape.n_elements();
  const auto n_at_once = static_cast<std::int64_t>(kScratchBytes / from_size);
  for (std::int64_t begin = 0; begin < n_elements; begin += n_at_once) {
    const std::int64_t n = std::min(n_at_once, n_elements - begin);
    std::byte* to = matrix.data + static_cast<std::size_t>(begin) * to_size;
    std::byte* arrival = weight.dtype == matrix.dtype ? to : scratch;
    check_cuda(cudaMemcpyAsync(arrival, weight.data + static_cast<std::size_t>(begin) * from_size,
                               static_cast<std::size_t>(n) * from_size, cudaMemcpyHostToDevice, device.stream),
               "pack_matrix");
    if (arrival != to) convert(device, arrival, weight.dtype, to, matrix.dtype, n);
  }
  check_cuda(cudaStreamSynchronize(device.stream), "pack_matrix");
}

/// Requests cuBLASLt's algorithms for one row and for many, so that a shape without any is refused at load and not in a
/// step.
Result<void> prepare(CublasMatmul& cublas, const CudaMatrix& matrix, std::string_view name) {
  for (const std::int64_t n_rows : {std::int64_t{1}, kFirstRows, std::int64_t{4096}})
    if (!cublas.prepare({n_rows, matrix.n, matrix.k, matrix.dtype, DType::f32}))
      return fail(ErrorCode::unsupported, fmt::format("{}: cuBLASLt has no product of {} rows by {} x {} in {}", name, n_rows,
                                                      matrix.n, matrix.k, to_string(matrix.dtype)));
  return {};
}

/// Runs one matmul by cuBLASLt, which loads its kernels at the first. Without it the first prompt would wait for that
/// (60 ms on an H200) where steps of few rows have not used cuBLASLt before.
void load_cublas(const Device& device, Gemms& gemms, const CudaMatrix& matrix) {
  const ConstTensorView x{gemms.scratch, matrix.dtype, {kFirstRows, matrix.k}};
  const std::size_t x_room = (x.size_bytes() + 255) / 256 * 256;
  const TensorView out{gemms.scratch + x_room, matrix.dtype, {kFirstRows, matrix.n}};
  if (x_room + out.size_bytes() > kScratchBytes ||
      !gemms.cublas->prepare({kFirstRows, matrix.n, matrix.k, matrix.dtype, matrix.dtype}))
    return;
  check_cuda(cudaMemsetAsync(gemms.scratch, 0, x.size_bytes(), device.stream), "pack_matrix");
  gemms.cublas->multiply(x, matrix.view(), {}, out);
  check_cuda(cudaStreamSynchronize(device.stream), "pack_matrix");
}

/// Lists the GEMMs that multiply by the matrix, the best for each number of rows first.
std::vector<GemmChoice> choices_for(const Device& device, const Gemms& gemms, const CudaMatrix& matrix) {
  if (gemms.invariant) return {{.gemm = Gemm::invariant}};
  std::vector<GemmChoice> choices;
  if (matrix.streamed) choices.push_back({Gemm::stream, 1, StreamGemm::kMostRows, 4});
  if (matrix.streamed && matrix.chain && matrix.chain->fills_device && matrix.k <= kMostColumnsByChain)
    choices.push_back({Gemm::chain, StreamGemm::kMostRows + 1, kMostRowsByChain, 16});
  if (matrix.broad)
    for (const BroadChoice& choice : matrix.broad->choices)
      choices.push_back({Gemm::broad, choice.fewest_rows, choice.most_rows, 16});
  const GemmChoice narrow{Gemm::narrow, 1, matrix.streamed ? 0 : most_narrow_rows(device, matrix.view())};
  if (matrix.n <= kFewOutputs) choices.push_back(narrow);
  for (const std::int64_t n_rows : kSkinnyRows)
    if (can_multiply_skinny(device, n_rows, matrix.view())) choices.push_back({Gemm::skinny, n_rows, n_rows});
  if (matrix.n > kFewOutputs) choices.push_back(narrow);
  choices.push_back({.gemm = Gemm::cublas});
  return choices;
}

Gemm choose(const CudaMatrix& matrix, const MatmulArgs& args) {
  const std::int64_t n_rows = args.x.shape[0];
  const bool takes_ours = (args.out.dtype == matrix.dtype || args.out.dtype == DType::f32) && is_aligned(args.x.data, 16);
  const bool has_bias_like_out = args.bias.data == nullptr || args.bias.dtype == args.out.dtype;
  const auto fits = [&](const GemmChoice& choice) {
    return n_rows >= choice.fewest_rows && n_rows <= choice.most_rows && is_aligned(args.out.data, choice.out_alignment) &&
           (has_bias_like_out || (choice.gemm != Gemm::stream && choice.gemm != Gemm::broad && choice.gemm != Gemm::chain));
  };
  return (takes_ours ? std::ranges::find_if(matrix.choices, fits) : std::prev(matrix.choices.end()))->gemm;
}

/// Runs both operations in one kernel, if the GEMM for this number of rows has one for them.
bool multiply_gated(const Gemms& gemms, const GatedMatmulArgs& args) {
  const auto& [x, weight, gate_up, bias, x_scales] = args.matmul;
  const TensorView& out = args.activation.out;
  const bool is_silu = args.activation.kind == GateKind::silu;
  if (weight->scheme != WeightScheme::dense || x.shape[0] == 0 || bias.data != nullptr || gate_up.dtype != weight->dtype ||
      out.dtype != weight->dtype || !is_aligned(out.data, 16) || (!is_silu && args.activation.kind != GateKind::gelu_tanh))
    return false;
  const FusedGate gate = is_silu ? FusedGate::silu : FusedGate::gelu_tanh;
  const auto& matrix = static_cast<const CudaMatrix&>(*weight);
  switch (choose(matrix, args.matmul)) {
    case Gemm::broad:
      if (!matrix.broad->choice_for(x.shape[0])->gated_map) return false;
      gemms.broad->multiply_gated(x, *matrix.broad, gate, out);
      return true;
    case Gemm::chain:
      if (!matrix.chain->gated_map) return false;
      gemms.chain->multiply_gated(x, *matrix.chain, gate, out);
      return true;
    default: return false;
  }
}

/// Calls `multiply(x, sums)` for some rows at a time and rounds their f32 sums to out.
template <class Multiply>
void multiply_through_f32(const Device& device, std::byte* scratch, const ConstTensorView& x, const TensorView& out,
                          Multiply&& multiply) {
  const std::int64_t n = out.shape[1];
  const auto step = std::max<std::int64_t>(1, static_cast<std::int64_t>(kScratchBytes) / (4 * n));
  check(step * n * 4 <= static_cast<std::int64_t>(kScratchBytes), "matmul: a row of out exceeds the scratch memory");
  for (std::int64_t begin = 0; begin < x.shape[0]; begin += step) {
    const std::int64_t end = std::min(x.shape[0], begin + step);
    multiply(x.rows(begin, end), TensorView{scratch, DType::f32, {end - begin, n}});
    convert(device, scratch, DType::f32, out.rows(begin, end).data, out.dtype, (end - begin) * n);
  }
}

}  // namespace

CudaMatrix::~CudaMatrix() { cudaFree(data); }

Gemms::~Gemms() { cudaFree(scratch); }

Result<std::unique_ptr<Gemms>> Gemms::make(const Device& device, bool batch_invariant) {
  auto gemms = std::make_unique<Gemms>();
  BATON_TRY(gemms->cublas, CublasMatmul::make(device));
  BATON_TRY(gemms->scratch, device_memory(kScratchBytes, "the scratch memory of matmuls"));
  BATON_TRY(gemms->stream, StreamGemm::make(device));
  BATON_TRY(gemms->broad, BroadGemm::make(device));
  gemms->chain.emplace(device);
  if (batch_invariant)
    gemms->invariant.emplace(device, *gemms->cublas, *gemms->chain, std::span(gemms->scratch, kScratchBytes));
  return gemms;
}

/// Copies dense [n, k] to the device as f32, bf16 or f16. In batch-invariant mode each new shape is tested (see
/// InvariantMatmul::prove). Waits for the stream.
Result<std::unique_ptr<PackedMatrix>> CudaBackend::pack_matrix(const StoredMatrix& stored, DType dtype, std::string_view name) {
  const Device& device = this->device();
  if (stored.scheme != WeightScheme::dense) return schemes_->pack(stored, dtype, name);
  const ConstTensorView& weight = stored.values;
  check(weight.shape.rank() == 2, "pack_matrix: the weight must be [n, k]");
  return pack_dense(weight.shape, dtype, name, [&](CudaMatrix& matrix) { fill(device, gemms_->scratch, matrix, weight); });
}

Result<std::unique_ptr<PackedMatrix>> CudaBackend::pack_random(std::span<const RandomRows> rows, std::int64_t k, DType dtype,
                                                               std::string_view name) {
  std::int64_t n = 0;
  for (const RandomRows& part : rows) n += part.n_rows + part.n_zero_rows;
  return pack_dense({n, k}, dtype, name, [&](CudaMatrix& matrix) {
    std::byte* to = matrix.data;
    for (const RandomRows& part : rows) {
      draw(device(), part, k, to, dtype);
      to += static_cast<std::size_t>((part.n_rows + part.n_zero_rows) * k) * size_bytes(dtype);
    }
    check_cuda(cudaStreamSynchronize(device().stream), "pack_random");
  });
}

Result<std::unique_ptr<PackedMatrix>> CudaBackend::pack_dense(const Shape& shape, DType dtype, std::string_view name,
                                                              const std::function<void(CudaMatrix& matrix)>& write) {
  const Device& device = this->device();
  auto matrix = std::make_unique<CudaMatrix>();
  matrix->n = shape[0];
  matrix->k = shape[1];
  matrix->dtype = dtype;
  matrix->size_bytes = static_cast<std::size_t>(shape.n_elements()) * size_bytes(dtype);
  check(matrix->n > 0 && matrix->k > 0, "pack_matrix: the weight is empty");
  BATON_TRY(matrix->data, device_memory(matrix->size_bytes, name));
  write(*matrix);
  BATON_TRY_VOID(prepare(*gemms_->cublas, *matrix, name));
  matrix->streamed = gemms_->stream->describe(matrix->view());
  matrix->broad = gemms_->broad->describe(matrix->view());
  matrix->chain = gemms_->chain->describe(matrix->view());
  matrix->choices = choices_for(device, *gemms_, *matrix);
  if (!std::exchange(gemms_->has_loaded_cublas, true)) load_cublas(device, *gemms_, *matrix);
  if (gemms_->invariant) BATON_TRY_VOID(gemms_->invariant->prove(matrix->invariant(), name));
  return matrix;
}

void CudaBackend::matmul(const MatmulArgs& args) {
  if (args.x.shape[0] == 0) return;
  const Device& device = this->device();
  if (args.weight->scheme != WeightScheme::dense) return schemes_->multiply(args);
  const auto& [x, weight, out, bias, x_scales] = args;
  const auto& matrix = static_cast<const CudaMatrix&>(*weight);
  const Gemm gemm = choose(matrix, args);
  switch (gemm) {
    case Gemm::stream: return gemms_->stream->multiply(x, *matrix.streamed, bias, out);
    case Gemm::broad: return gemms_->broad->multiply(x, *matrix.broad, bias, out);
    case Gemm::chain: return gemms_->chain->multiply(x, *matrix.chain, bias, out);
    case Gemm::skinny: return multiply_skinny(device, x, matrix.view(), bias, out);
    case Gemm::narrow: return multiply_narrow(device, x, matrix.view(), bias, out);
    case Gemm::cublas:
      if (out.dtype == DType::f32 || out.dtype == matrix.dtype) return gemms_->cublas->multiply(x, matrix.view(), bias, out);
      return multiply_through_f32(device, gemms_->scratch, x, out, [&](const ConstTensorView& some_x, const TensorView& sums) {
        gemms_->cublas->multiply(some_x, matrix.view(), args.bias, sums);
      });
    case Gemm::invariant:
      const auto multiply = [&](const ConstTensorView& some_x, const TensorView& sums) {
        gemms_->invariant->multiply(some_x, matrix.invariant(), sums);
      };
      if (InvariantMatmul::writes(matrix.invariant(), args.out.dtype))
        multiply(args.x, args.out);
      else
        multiply_through_f32(device, gemms_->scratch, args.x, args.out, multiply);
      if (args.bias.data != nullptr) add_bias(device, args.out, args.bias);
  }
}

void CudaBackend::gated_matmul(const GatedMatmulArgs& args) {
  if (multiply_gated(*gemms_, args)) return;
  matmul(args.matmul);
  gated_activation(args.activation);
}

}  // namespace baton::cuda
