/// Packs experts one after the other, as they are read.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/packed_experts.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/scheme_kernels.h"

namespace baton::cuda {
namespace {

/// What experts must have in common: one kernel multiplies by all of them.
struct ExpertForm {
  explicit ExpertForm(const StoredMatrix& weight)
      : scheme(weight.scheme),
        scale_columns(weight.scale_columns),
        scale_dtype(weight.scales.dtype),
        has_zeros(weight.zeros.data != nullptr),
        is_permuted(weight.permutation.data != nullptr) {}
  bool operator==(const ExpertForm&) const = default;
  WeightScheme scheme;
  std::int64_t scale_columns;
  DType scale_dtype;
  bool has_zeros;
  bool is_permuted;
};

Result<void> expect_alike(const ExpertForm& first, const ExpertForm& other, std::string_view name) {
  if (first == other) return {};
  if (first.scheme != other.scheme)
    return fail(ErrorCode::unsupported, fmt::format("{}: its experts are stored as {} and {}, and must be stored alike", name,
                                                    to_string(first.scheme), to_string(other.scheme)));
  return fail(ErrorCode::unsupported, fmt::format("{}: its experts are all stored as {}, but their scales, zeros or orders of "
                                                  "columns are of different kinds; the CPU serves them (--device cpu)",
                                                  name, to_string(first.scheme)));
}

/// Errors (unsupported): rows longer than the scratch memory.
Result<void> expect_kernels(const StoredMatrix& weight, std::span<const std::byte> room, std::string_view name) {
  constexpr std::int64_t kMostRows = 1 << 24;
  const auto most_columns = static_cast<std::int64_t>(room.size()) / (16 * kSchemeTileRows);
  if (weight.shape[0] <= kMostRows && weight.shape[1] <= most_columns) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{}: {} weights of {} x {}: CUDA has kernels for up to {} x {}", name, to_string(weight.scheme),
                          weight.shape[0], weight.shape[1], kMostRows, most_columns));
}

/// The tiles of an expert like this one, for x of `dtype`, without memory. A scale for the row is that of a group of all
/// columns; f4 always has groups.
SchemeView tiles_of(const StoredMatrix& weight, DType dtype) {
  SchemeView view;
  view.n = weight.shape[0];
  view.k = weight.shape[1];
  view.scale_dtype = weight.scales.dtype;
  view.n_tiles = static_cast<int>((view.n + kSchemeTileRows - 1) / kSchemeTileRows);
  const auto n_columns = static_cast<int>((view.k + kLaneStageColumns - 1) / kLaneStageColumns * kLaneStageColumns);
  view.n_chunks = n_columns / chunk_columns(weight.scheme);
  const bool is_f4 = weight.scheme == WeightScheme::f4;
  if (is_f4) view.f4 = f4_scales(weight.scales.dtype, dtype);
  if (is_f4 || weight.scale_columns < view.k) {  // a group of 96 columns becomes three of 32 with the same scale
    constexpr int kAnyGroup = 5;
    view.group_shift =
        weight.scale_columns < view.k ? std::countr_zero(static_cast<std::uint64_t>(weight.scale_columns)) : kAnyGroup;
    view.n_groups = (n_columns + (1 << view.group_shift) - 1) >> view.group_shift;
  }
  return view;
}

/// Packs experts of one form in memory of their own.
class ExpertPacker {
 public:
  ExpertPacker(const Device& device, std::span<std::byte> room, const Shape& shape, DType dtype)
      : device_(device), room_(room), shape_(shape) {
    experts_->n_experts = shape[0];
    experts_->n = shape[1];
    experts_->k = shape[2];
    experts_->dtype = dtype;
  }

  /// Allocates memory for experts like the first.
  Result<void> allocate(const StoredMatrix& first, std::string_view name) {
    experts_->scheme = first.scheme;
    if (first.scheme == WeightScheme::dense) {
      value_bytes_ = ConstTensorView{nullptr, experts_->dtype, shape_}.size_bytes();
    } else {
      check_stored(first);
      BATON_TRY_VOID(expect_kernels(first, room_, name));
      experts_->view = tiles_of(first, experts_->dtype);
      const bool is_f4 = first.scheme == WeightScheme::f4;  // whose scales of groups take the place of zeros
      const auto n_tiles = static_cast<std::size_t>(shape_[0] * experts_->view.n_tiles);
      const std::size_t n_scales = n_tiles * static_cast<std::size_t>(experts_->view.n_groups) * kSchemeTileRows;
      value_bytes_ = aligned_part(n_tiles * static_cast<std::size_t>(experts_->view.n_chunks) * kPieceBytes);
      scale_bytes_ =
          aligned_part(is_f4 ? n_tiles * kSchemeTileRows * sizeof(float) : n_scales * size_bytes(first.scales.dtype));
      zero_bytes_ = is_f4 || first.zeros.data != nullptr ? aligned_part(n_scales) : 0;
      permutation_bytes_ = first.permutation.data == nullptr ? 0 : first.permutation.size_bytes();
    }
    experts_->size_bytes = value_bytes_ + scale_bytes_ + zero_bytes_ + permutation_bytes_ * static_cast<std::size_t>(shape_[0]);
    BATON_TRY(std::byte* const data, device_memory(experts_->size_bytes, name));
    experts_->buffer = Buffer(data, experts_->size_bytes, [](std::byte* address, std::size_t) { cudaFree(address); });
    if (first.scheme == WeightScheme::dense) {
      describe();
      return {};
    }
    check_cuda(cudaMemsetAsync(data, 0, experts_->size_bytes, device_.stream), "pack_experts");
    experts_->view.values = data;
    if (first.scheme == WeightScheme::f4)
      experts_->view.row_scales = reinterpret_cast<const float*>(data + value_bytes_);
    else
      experts_->view.scales = data + value_bytes_;
    if (zero_bytes_ > 0) experts_->view.zeros = reinterpret_cast<const std::uint8_t*>(data + value_bytes_ + scale_bytes_);
    if (permutation_bytes_ > 0) experts_->permutations = reinterpret_cast<const std::int32_t*>(permutations());
    return {};
  }

  void pack(std::int64_t expert, const StoredMatrix& weight) {
    const auto e = static_cast<std::size_t>(expert);
    if (weight.scheme == WeightScheme::dense) {
      check(weight.values.dtype == experts_->dtype, "pack_experts: another dtype");
      upload(weight.values, experts_->buffer.data() + e * weight.values.size_bytes());
    } else {
      check_stored(weight);
      if (permutation_bytes_ > 0) {
        for (const std::int32_t column : weight.permutation.elements<std::int32_t>())
          check(column >= 0 && column < experts_->k, "pack_experts: a permutation outside x");
        upload(weight.permutation, permutations() + e * permutation_bytes_);
      }
      pack_stored(device_, weight, PieceOrder::lanes, room_, view_of(expert));
    }
    check_cuda(cudaStreamSynchronize(device_.stream), "pack_experts");  // the next read reuses the host memory
  }

  std::unique_ptr<PackedExperts> packed() {
    if (experts_->scheme != WeightScheme::dense) experts_->kernels = experts_->fits_scheme_units() ? "units" : "general";
    return std::move(experts_);
  }

 private:
  std::byte* permutations() const { return experts_->buffer.data() + value_bytes_ + scale_bytes_ + zero_bytes_; }

  void upload(const ConstTensorView& from, std::byte* to) const {
    check_cuda(cudaMemcpyAsync(to, from.data, from.size_bytes(), cudaMemcpyHostToDevice, device_.stream), "pack_experts");
  }

  /// Describes dense experts, one below the other, to the copies of compute capability 9.0.
  void describe() {
    const DType dtype = experts_->dtype;
    const std::int64_t n_rows = shape_[0] * shape_[1];
    if (device_.compute_capability != 90 || (dtype != DType::bf16 && dtype != DType::f16) || shape_[2] % 8 != 0 ||
        n_rows == 0 || n_rows > std::numeric_limits<std::int32_t>::max())
      return;
    if (void* const encode = tensor_map_encoder(); encode != nullptr)
      experts_->map = matrix_map(encode, {experts_->buffer.data(), dtype, {n_rows, shape_[2]}}, kSchemeTileRows);
  }

  SchemeView view_of(std::int64_t expert) const {
    SchemeView view = experts_->view;
    const std::int64_t tile = expert * view.n_tiles;
    const std::int64_t n_scales = tile * view.n_groups * kSchemeTileRows;
    view.values += tile * view.n_chunks * kPieceBytes;
    if (view.scales != nullptr) view.scales += n_scales * static_cast<std::int64_t>(size_bytes(view.scale_dtype));
    if (view.row_scales != nullptr) view.row_scales += tile * kSchemeTileRows;
    if (view.zeros != nullptr) view.zeros += n_scales;
    return view;
  }

  const Device& device_;
  std::span<std::byte> room_;
  Shape shape_;
  std::unique_ptr<CudaExperts> experts_ = std::make_unique<CudaExperts>();
  std::size_t value_bytes_ = 0;
  std::size_t scale_bytes_ = 0;
  std::size_t zero_bytes_ = 0;
  std::size_t permutation_bytes_ = 0;  ///< of an expert
};

}  // namespace

Result<std::unique_ptr<PackedExperts>> pack_experts(const Device& device, std::span<std::byte> room, const Shape& shape,
                                                    DType dtype, std::string_view name, const ReadExpert& read) {
  ExpertPacker packer(device, room, shape, dtype);
  std::optional<ExpertForm> first;
  for (std::int64_t e = 0; e < shape[0]; ++e) {
    BATON_TRY(const StoredMatrix weight, read(e));
    check(weight.shape == Shape{shape[1], shape[2]}, "pack_experts: another shape");
    const ExpertForm form(weight);
    if (first) {
      BATON_TRY_VOID(expect_alike(*first, form, name));
    } else {
      BATON_TRY_VOID(packer.allocate(weight, name));
      first = form;
    }
    packer.pack(e, weight);
  }
  return packer.packed();
}

}  // namespace baton::cuda
