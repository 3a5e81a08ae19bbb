#include "kernels/cuda/gemm/invariant_matmul.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/gemm/kernels.h"

namespace baton::cuda {
namespace {

/// Row count of matmuls without chains.
constexpr std::int64_t kPaddedRows = 32;
/// Above it cuBLASLt is faster than the chain GEMM, which reads the weight once for each 64 rows.
constexpr std::int64_t kMostChainRows = 64;
/// Algorithms with the chain's bits that are timed for a row bucket. Those after them are hardly ever the fastest.
constexpr int kTimedChoices = 6;
/// Bounds of the rows that a proof multiplies at once, and of their f32 sums.
constexpr std::int64_t kMostProvenRows = 2048;
constexpr std::int64_t kMostProvenBytes = 256 << 20;

/// The most rows, a whole bucket, within both bounds.
std::int64_t proven_rows(std::int64_t n) {
  const std::int64_t most = std::clamp(kMostProvenBytes / (4 * n), kPaddedRows, kMostProvenRows);
  std::int64_t bucket = kPaddedRows;
  while (row_bucket_of(bucket + 1) <= most) bucket = row_bucket_of(bucket + 1);
  return bucket;
}

std::size_t rounded_up(std::size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

}  // namespace

/// Random rows, their expected sums, and room for others. The memory is freed at the end.
class InvariantMatmul::Proof {
 public:
  Proof(const Device& device, const ConstTensorView& weight)
      : device_(device),
        n_rows_(proven_rows(weight.shape[0])),
        n_(weight.shape[0]),
        k_(weight.shape[1]),
        dtype_(weight.dtype) {}
  ~Proof() {
    cudaFree(x_);
    for (const cudaEvent_t event : {begin_, end_})
      if (event != nullptr) cudaEventDestroy(event);
  }
  Proof(const Proof&) = delete;
  Proof& operator=(const Proof&) = delete;

  Result<void> open(std::string_view name) {
    const std::size_t x_bytes = rounded_up(x().size_bytes());
    const std::size_t out_bytes = rounded_up(static_cast<std::size_t>(n_rows_ * n_) * sizeof(float));
    const std::size_t all_bytes = x_bytes + 3 * out_bytes + 256;
    BATON_TRY(x_, device_memory(all_bytes, fmt::format("testing {} for --batch-invariant", name)));
    check_cuda(cudaEventCreate(&begin_), "prove");
    check_cuda(cudaEventCreate(&end_), "prove");
    sums_ = x_ + x_bytes;
    expected_ = sums_ + out_bytes;
    got_ = expected_ + out_bytes;
    flag_ = got_ + out_bytes;
    fill_x();
    return {};
  }

  std::int64_t n_rows() const { return n_rows_; }
  ConstTensorView x() const { return {x_, dtype_, {n_rows_, k_}}; }
  /// The f32 sums of all rows, to be written before the first comparison.
  TensorView sums() const { return {sums_, DType::f32, {n_rows_, n_}}; }
  /// What matmuls of this dtype are compared with from now on.
  void expect(DType out_dtype) {
    out_dtype_ = out_dtype;
    convert(device_, sums_, DType::f32, expected_, out_dtype, n_rows_ * n_);
  }
  /// Whether `multiply(x, out)` of these rows returns true and gives the expected bits.
  template <class Multiply>
  bool holds(std::int64_t first, std::int64_t n_rows, Multiply&& multiply) {
    const TensorView out{got_, out_dtype_, {n_rows, n_}};
    check_cuda(cudaMemsetAsync(got_, 0xff, out.size_bytes(), device_.stream), "prove");
    if (!multiply(x().rows(first, first + n_rows), out)) return false;
    const ConstTensorView expected{expected_, out_dtype_, {n_rows_, n_}};
    const std::size_t whole = out.size_bytes() / 4 * 4;
    const std::byte* const from = expected.rows(first, first + n_rows).data;
    return reinterpret_cast<std::uintptr_t>(from) % 4 == 0 && equal_bits(device_, got_, from, whole, flag_);
  }
  /// Milliseconds of some calls of `multiply(x, out)` with the first rows.
  template <class Multiply>
  float time_ms(std::int64_t n_rows, Multiply&& multiply) {
    constexpr int kCalls = 4;
    const TensorView out{got_, out_dtype_, {n_rows, n_}};
    check_cuda(cudaEventRecord(begin_, device_.stream), "prove");
    for (int i = 0; i < kCalls; ++i) multiply(x().rows(0, n_rows), out);
    check_cuda(cudaEventRecord(end_, device_.stream), "prove");
    check_cuda(cudaEventSynchronize(end_), "prove");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "prove");
    return milliseconds;
  }

 private:
  /// Fills x with normally distributed numbers. They repeat, but hardly at the same place of a row.
  void fill_x() {
    constexpr std::int64_t kNumbers = 1'000'003;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(kNumbers);
    for (float& number : numbers) number = normal(random);
    const std::int64_t n_elements = n_rows_ * k_;
    const std::int64_t n_at_once = n_rows_ * n_;  // in the memory of the sums, which is not yet used
    for (std::int64_t begin = 0; begin < n_elements;) {
      const std::int64_t from = begin % kNumbers;
      const std::int64_t n = std::min({n_at_once, n_elements - begin, kNumbers - from});
      check_cuda(cudaMemcpyAsync(sums_, numbers.data() + from, static_cast<std::size_t>(n) * sizeof(float),
                                 cudaMemcpyHostToDevice, device_.stream),
                 "prove");
      convert(device_, sums_, DType::f32, x_ + static_cast<std::size_t>(begin) * size_bytes(dtype_), dtype_, n);
      begin += n;
    }
    check_cuda(cudaStreamSynchronize(device_.stream), "prove");  // the copies have read the numbers
  }

  const Device& device_;
  std::int64_t n_rows_;
  std::int64_t n_;
  std::int64_t k_;
  DType dtype_;
  DType out_dtype_ = DType::f32;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::byte* x_ = nullptr;  ///< the first of the memory, which holds all that follows
  std::byte* sums_ = nullptr;
  std::byte* expected_ = nullptr;
  std::byte* got_ = nullptr;
  std::byte* flag_ = nullptr;
};

InvariantMatmul::InvariantMatmul(const Device& device, CublasMatmul& cublas, const ChainGemm& chain_gemm,
                                 std::span<std::byte> scratch)
    : device_(device), cublas_(cublas), chain_gemm_(chain_gemm), scratch_(scratch) {}

InvariantMatmul::Shape InvariantMatmul::shape_of(const ConstTensorView& weight, DType out_dtype) {
  return {weight.shape[0], weight.shape[1], weight.dtype, out_dtype};
}

std::optional<CublasAlgorithm> InvariantMatmul::choose(Proof& proof, const ConstTensorView& weight, std::int64_t fewest,
                                                       std::int64_t most, DType out_dtype) {
  std::optional<CublasAlgorithm> fastest;
  float fastest_ms = 0;
  int n_timed = 0;
  for (const CublasAlgorithm& algorithm :
       cublas_.unsplit_choices({most, weight.shape[0], weight.shape[1], weight.dtype, out_dtype})) {
    const auto multiply_by = [&](const ConstTensorView& x, const TensorView& out) {
      return cublas_.multiply_by(algorithm, x, weight, out);
    };
    if (!proof.holds(0, most, multiply_by) || !proof.holds(1, fewest, multiply_by)) continue;
    const float ms = proof.time_ms(most, multiply_by);
    if (!fastest || ms < fastest_ms) {
      fastest = algorithm;
      fastest_ms = ms;
    }
    if (++n_timed == kTimedChoices) break;
  }
  return fastest;
}

Result<void> InvariantMatmul::prove(const InvariantWeight& packed, std::string_view name) {
  const ConstTensorView& weight = packed.matrix;
  if (proven_.contains({weight.shape[0], weight.shape[1], weight.dtype})) return {};
  Proof proof(device_, weight);
  BATON_TRY_VOID(proof.open(name));
  const std::int64_t n_all = proof.n_rows();
  const auto differs = [&](std::int64_t n_rows) {
    return fail(ErrorCode::unsupported,
                fmt::format("--batch-invariant: {} ({} x {}) gives other bits for {} rows than among {}", name, weight.shape[0],
                            weight.shape[1], n_rows, n_all));
  };
  const auto ours = [&](const ConstTensorView& x, const TensorView& out) {
    multiply(x, packed, out);
    return true;
  };
  if (packed.chain != nullptr) {
    chain_gemm_.multiply(proof.x(), *packed.chain, {}, proof.sums());
    for (const DType out_dtype : {DType::f32, weight.dtype}) {
      proof.expect(out_dtype);
      Choices& choices = choices_[shape_of(weight, out_dtype)];
      choices.most_rows = n_all;
      for (std::int64_t fewest = kMostChainRows + 1; fewest <= n_all;) {
        const std::int64_t bucket = row_bucket_of(fewest);
        if (const auto choice = choose(proof, weight, fewest, bucket, out_dtype)) choices.of_bucket.emplace(bucket, *choice);
        fewest = bucket + 1;
      }
      // What multiply does from now on. The fewest rows of each kernel's boxes, and rows that begin elsewhere.
      for (const std::int64_t n_rows : {1, 5, 9, 16, 17, 33, 64})
        if (n_rows < n_all && !proof.holds(n_rows % 2 == 0 ? 0 : n_all - n_rows, n_rows, ours)) return differs(n_rows);
      if (!proof.holds(0, n_all, ours)) return differs(n_all);
    }
  } else {
    multiply(proof.x(), packed, proof.sums());
    proof.expect(DType::f32);
    for (std::int64_t n_rows = 1; n_rows <= kPaddedRows; ++n_rows)
      if (!proof.holds(n_all - n_rows, n_rows, ours)) return differs(n_rows);
  }
  proven_.insert({weight.shape[0], weight.shape[1], weight.dtype});
  return {};
}

bool InvariantMatmul::writes(const InvariantWeight& weight, DType out_dtype) {
  return out_dtype == DType::f32 || out_dtype == weight.matrix.dtype || weight.chain == nullptr;
}

void InvariantMatmul::multiply(const ConstTensorView& x, const InvariantWeight& weight, const TensorView& out) {
  if (weight.chain != nullptr) return multiply_chains(x, *weight.chain, out);
  for (std::int64_t begin = 0; begin < x.shape[0]; begin += kPaddedRows) {
    const std::int64_t end = std::min(x.shape[0], begin + kPaddedRows);
    multiply_tile(x.rows(begin, end), weight.matrix, out.rows(begin, end));
  }
}

void InvariantMatmul::multiply_chains(const ConstTensorView& x, const ChainWeight& weight, const TensorView& out) {
  const std::int64_t n_rows = x.shape[0];
  if (n_rows <= kMostChainRows) return chain_gemm_.multiply(x, weight, {}, out);
  const Choices& choices = choices_.at(shape_of(weight.matrix, out.dtype));
  for (std::int64_t begin = 0; begin < n_rows; begin += choices.most_rows) {
    const std::int64_t end = std::min(n_rows, begin + choices.most_rows);
    const ConstTensorView some_x = x.rows(begin, end);
    const TensorView some_out = out.rows(begin, end);
    const auto found =
        end - begin <= kMostChainRows ? choices.of_bucket.end() : choices.of_bucket.find(row_bucket_of(end - begin));
    if (found == choices.of_bucket.end() || !cublas_.multiply_by(found->second, some_x, weight.matrix, some_out))
      chain_gemm_.multiply(some_x, weight, {}, some_out);
  }
}

/// Multiplies up to kPaddedRows rows as one f32 matmul of kPaddedRows, always at the same alignment.
void InvariantMatmul::multiply_tile(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out) {
  const std::size_t x_bytes = static_cast<std::size_t>(kPaddedRows * weight.shape[1]) * size_bytes(weight.dtype);
  const TensorView tile_x{scratch_.data(), weight.dtype, {kPaddedRows, weight.shape[1]}};
  const TensorView tile_out{scratch_.data() + rounded_up(x_bytes), DType::f32, {kPaddedRows, weight.shape[0]}};
  check(rounded_up(x_bytes) + tile_out.size_bytes() <= scratch_.size(), "matmul: a tile of rows exceeds the scratch memory");
  check_cuda(cudaMemcpyAsync(tile_x.data, x.data, x.size_bytes(), cudaMemcpyDeviceToDevice, device_.stream), "matmul");
  if (x.size_bytes() < x_bytes)
    check_cuda(cudaMemsetAsync(tile_x.data + x.size_bytes(), 0, x_bytes - x.size_bytes(), device_.stream), "matmul");
  cublas_.multiply(tile_x, weight, {}, tile_out);
  convert(device_, tile_out.data, DType::f32, out.data, out.dtype, out.shape.n_elements());
}

}  // namespace baton::cuda
