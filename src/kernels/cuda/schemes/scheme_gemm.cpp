/// Packs weights of 8 and 4 bits in tiles, and chooses a kernel for each matmul.
#include "kernels/cuda/schemes/scheme_gemm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/kernels.h"
#include "kernels/cuda/gemm/partial_memory.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/f8_gemm.h"
#include "kernels/cuda/schemes/scheme_kernels.h"
#include "kernels/cuda/schemes/scheme_layout.h"
#include "kernels/cuda/schemes/scheme_stream.h"
#include "kernels/cuda/schemes/scheme_wide.h"
#include "kernels/named_kernels.h"

namespace baton::cuda {
namespace {

/// Up to this many rows are streamed; 4-bit floats, which the wide kernel does not multiply, up to the second number.
constexpr std::int64_t kMostStreamedRows = kMostSchemeWidth;
constexpr std::int64_t kMostStreamedF4Rows = 2 * kMostStreamedRows;
/// Up to this many rows the kernel without matrix units is used where nothing is streamed.
constexpr std::int64_t kMostGeneralRows = 16;
/// In batch-invariant mode this many rows are always multiplied together, padded.
constexpr std::int64_t kInvariantRows = 64;
/// From so many rows on, x in 8 bits is multiplied faster than x in 16: 32 rows have a kernel that reads the weight as fast as
/// memory gives it.
constexpr std::int64_t kFewestF8Rows = 33;
/// Of the scratch memory; the rest is for dense rows of a weight.
constexpr std::size_t kArrangedBytes = 16 << 20;
/// Rows of a weight that become dense at once: what stays in an L2 of 50 MB until it is multiplied.
constexpr std::size_t kSlabBytes = 32 << 20;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

class SchemeMatrix final : public PackedMatrix, public NamedKernels {
 public:
  SchemeMatrix() = default;
  ~SchemeMatrix() override { cudaFree(data); }
  SchemeMatrix(const SchemeMatrix&) = delete;
  SchemeMatrix& operator=(const SchemeMatrix&) = delete;
  /// Whole tiles that become dense at once.
  std::int64_t slab_rows() const {
    const auto most = static_cast<std::int64_t>(kSlabBytes) / (k * static_cast<std::int64_t>(baton::size_bytes(dtype)));
    const std::int64_t n_slabs = (n + std::max<std::int64_t>(most, 1) - 1) / std::max<std::int64_t>(most, 1);
    return std::max<std::int64_t>(round_up((n + n_slabs - 1) / n_slabs, kSchemeTileRows), kSchemeTileRows);
  }
  std::byte* data = nullptr;
  SchemeView view;
  const std::int32_t* permutation = nullptr;  ///< [k], or null
  std::shared_ptr<SchemeOrder> order;         ///< this weight's place among all that were packed
};

/// A weight, and the one that was packed after it while both exist. Captured launches keep the address of its values: a model
/// frees no weight while its graphs are replayed.
struct SchemeOrder {
  SchemeView weight;
  std::weak_ptr<const SchemeOrder> next;
};

namespace {

/// Describes the tiles of a weight and allocates their memory, all zeros.
Result<std::unique_ptr<SchemeMatrix>> make_matrix(const Device& device, const StoredMatrix& weight, DType dtype,
                                                  std::string_view name) {
  auto matrix = std::make_unique<SchemeMatrix>();
  matrix->n = weight.shape[0];
  matrix->k = weight.shape[1];
  matrix->dtype = dtype;
  matrix->scheme = weight.scheme;
  SchemeView& view = matrix->view;
  view.n = matrix->n;
  view.k = matrix->k;
  view.scale_dtype = weight.scales.dtype;
  view.n_tiles = static_cast<int>((view.n + kSchemeTileRows - 1) / kSchemeTileRows);
  const int columns = chunk_columns(weight.scheme);
  view.n_chunks = static_cast<int>(round_up((view.k + columns - 1) / columns, kChunksAtOnce));
  const bool is_f4 = weight.scheme == WeightScheme::f4;
  if (is_f4) view.f4 = f4_scales(weight.scales.dtype, dtype);
  const bool has_groups = is_f4 || weight.scale_columns < view.k;
  if (has_groups) {  // a group of 96 columns becomes three of 32 with the same scale
    constexpr int kAnyGroup = 5;
    view.group_shift =
        weight.scale_columns < view.k ? std::countr_zero(static_cast<std::uint64_t>(weight.scale_columns)) : kAnyGroup;
    view.n_groups = (view.n_chunks * columns + (1 << view.group_shift) - 1) >> view.group_shift;
  }
  const auto n_places = static_cast<std::size_t>(view.n_tiles) * static_cast<std::size_t>(view.n_groups) * kSchemeTileRows;
  const std::size_t values =
      aligned_part(static_cast<std::size_t>(view.n_tiles) * static_cast<std::size_t>(view.n_chunks) * kPieceBytes);
  const bool scales_groups = has_groups && !is_f4;  // scales of f4 take the place of zeros
  const std::size_t scales =
      aligned_part(scales_groups ? n_places * size_bytes(view.scale_dtype)
                                 : static_cast<std::size_t>(view.n_tiles) * kSchemeTileRows * sizeof(float));
  const std::size_t zeros = is_f4 || weight.zeros.data != nullptr ? aligned_part(n_places) : 0;
  const std::size_t order = weight.permutation.data == nullptr ? 0 : aligned_part(weight.permutation.size_bytes());
  matrix->size_bytes = values + scales + zeros + order;
  BATON_TRY(matrix->data, device_memory(matrix->size_bytes, name));
  check_cuda(cudaMemsetAsync(matrix->data, 0, matrix->size_bytes, device.stream), "pack_matrix");
  view.values = matrix->data;
  std::byte* next = matrix->data + values;
  if (scales_groups)
    view.scales = next;
  else
    view.row_scales = reinterpret_cast<const float*>(next);
  next += scales;
  if (zeros > 0) view.zeros = reinterpret_cast<const std::uint8_t*>(next);
  next += zeros;
  if (order > 0) {
    for (const std::int32_t column : weight.permutation.elements<std::int32_t>())
      check(column >= 0 && column < matrix->k, "pack_matrix: a permutation outside x");
    check_cuda(
        cudaMemcpyAsync(next, weight.permutation.data, weight.permutation.size_bytes(), cudaMemcpyHostToDevice, device.stream),
        "pack_matrix");
    matrix->permutation = reinterpret_cast<const std::int32_t*>(next);
  }
  return matrix;
}

}  // namespace

SchemeGemm::SchemeGemm(const Device& device, CublasMatmul& cublas, std::span<std::byte> scratch, bool batch_invariant)
    : device_(device),
      cublas_(cublas),
      arranged_(scratch.first(kArrangedBytes)),
      slab_(scratch.subspan(kArrangedBytes)),
      batch_invariant_(batch_invariant) {
  check(slab_.size() >= kSlabBytes, "schemes: too little scratch memory");
}
SchemeGemm::~SchemeGemm() { cudaFree(partials_); }

Result<void> SchemeGemm::open() {
  if (partials_ != nullptr || device_.compute_capability != 90) return {};
  encode_ = tensor_map_encoder();
  if (encode_ == nullptr) return {};
  BATON_TRY(partials_, partial_sums_memory(device_, scheme_partial_bytes(device_.n_multiprocessors)));
  clusters_ = wide_clusters(device_);
  return {};
}

Result<std::unique_ptr<PackedMatrix>> SchemeGemm::pack(const StoredMatrix& weight, DType dtype, std::string_view name) {
  check_stored(weight);
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  check(n > 0 && k > 0, "pack_matrix: the weight is empty");
  constexpr std::int64_t kMostColumns = 1 << 16;  // a tile's rows of f32 fit in the scratch memory
  constexpr std::int64_t kMostRows = 1 << 24;
  if (k > kMostColumns || n > kMostRows)
    return fail(ErrorCode::unsupported, fmt::format("{}: {} weights of {} x {}: CUDA has kernels for up to {} x {}", name,
                                                    to_string(weight.scheme), n, k, kMostRows, kMostColumns));
  BATON_TRY_VOID(open());
  BATON_TRY(auto matrix, make_matrix(device_, weight, dtype, name));
  for (const std::int64_t n_rows : {kMostGeneralRows + 1, std::int64_t{4096}})
    if (!cublas_.prepare({n_rows, matrix->slab_rows(), k, dtype, dtype == DType::f32 ? DType::f32 : dtype}))
      return fail(ErrorCode::unsupported, fmt::format("{}: cuBLASLt has no product of {} rows by {} x {} in {}", name, n_rows,
                                                      matrix->slab_rows(), k, to_string(dtype)));
  const bool has_float_scales = matrix->view.scales == nullptr || weight.scales.dtype != DType::u8;
  if (encode_ != nullptr && !batch_invariant_ && weight.scheme == WeightScheme::f8 && matrix->permutation == nullptr &&
      dtype != DType::f32 && has_float_scales && multiplies_f8(k, matrix->view.group_shift))
    matrix->fewest_f8_rows = kFewestF8Rows;
  pack_stored(device_, weight, PieceOrder::wgmma, slab_, matrix->view);
  check_cuda(cudaStreamSynchronize(device_.stream), "pack_matrix");
  matrix->kernels = kernels_of(*matrix);
  matrix->order = std::make_shared<SchemeOrder>(SchemeOrder{matrix->view, {}});
  if (const auto before = last_packed_.lock()) before->next = matrix->order;
  last_packed_ = matrix->order;
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

SchemeGemm::Way SchemeGemm::way_for(const SchemeMatrix& matrix, std::int64_t n_rows, DType out_dtype) const {
  const bool writes = out_dtype == matrix.dtype || out_dtype == DType::f32;
  const bool streams =
      encode_ != nullptr && matrix.dtype != DType::f32 && writes && streams_groups(matrix.scheme, matrix.view.group_shift);
  const bool is_f4 = matrix.scheme == WeightScheme::f4;
  if (streams && (batch_invariant_ || n_rows <= (is_f4 ? kMostStreamedF4Rows : kMostStreamedRows))) return Way::stream;
  if (streams && !is_f4) return Way::wide;
  if (batch_invariant_ || !writes || n_rows <= kMostGeneralRows) return Way::general;
  return Way::slabs;
}

std::string SchemeGemm::kernels_of(const SchemeMatrix& matrix) const {
  std::string names;
  Way last{};
  for (const std::int64_t n_rows : {std::int64_t{1}, kMostGeneralRows + 1, kMostStreamedRows + 1, kMostStreamedF4Rows + 1}) {
    const Way way = way_for(matrix, n_rows, matrix.dtype);
    if (!names.empty() && way == last) continue;
    names += (names.empty() ? "" : ",") + std::string(kWayNames[static_cast<std::size_t>(way)]);
    last = way;
  }
  return names + (matrix.fewest_f8_rows == kNoF8Rows ? "" : ",f8");
}

void SchemeGemm::multiply(const MatmulArgs& args) {
  const auto& matrix = static_cast<const SchemeMatrix&>(*args.weight);
  if (args.x.dtype == DType::f8_e4m3) return multiply_f8_rows(matrix, args);
  const auto& [x, weight, out, bias, x_scales] = args;
  const Way way = way_for(matrix, x.shape[0], out.dtype);
  const bool adds_bias = way != Way::slabs && bias.data != nullptr && bias.dtype == out.dtype;
  // The copies of x's boxes need rows at multiples of 16 bytes.
  const bool copies_boxes = way == Way::stream || way == Way::wide;
  const std::int64_t width = copies_boxes ? round_up(matrix.k, 8) : matrix.k;
  const bool arranges = matrix.permutation != nullptr || width != matrix.k || (copies_boxes && !is_aligned(x.data, 16));
  std::int64_t step = way != Way::stream ? x.shape[0] : batch_invariant_ ? kInvariantRows : kMostStreamedF4Rows;
  if (arranges)
    step = std::min(step, static_cast<std::int64_t>(kArrangedBytes) / (width * static_cast<std::int64_t>(size_bytes(x.dtype))));
  for (std::int64_t begin = 0; begin < x.shape[0]; begin += step) {
    const std::int64_t end = std::min(x.shape[0], begin + step);
    ConstTensorView some_x = x.rows(begin, end);
    if (arranges) {
      const TensorView arranged{arranged_.data(), x.dtype, {end - begin, width}};
      arrange_columns(device_, some_x, matrix.permutation, arranged);
      some_x = arranged;
    }
    multiply_rows(way, matrix, {some_x, weight, out.rows(begin, end), adds_bias ? bias : ConstTensorView{}});
  }
  if (bias.data != nullptr && !adds_bias) add_bias(device_, out, bias);
}

void SchemeGemm::multiply_rows(Way way, const SchemeMatrix& matrix, const MatmulArgs& args) {
  switch (way) {
    case Way::stream: return stream(matrix, args);
    case Way::wide: return multiply_wide(matrix, args);
    case Way::general: return multiply_general(device_, matrix.scheme, args.x, matrix.view, args.bias, args.out);
    case Way::slabs: return multiply_slabs(matrix, args);
  }
}

void SchemeGemm::stream(const SchemeMatrix& matrix, const MatmulArgs& args) {
  const auto n_rows = std::min<std::int64_t>(batch_invariant_ ? kInvariantRows : args.x.shape[0], kMostSchemeWidth);
  const int width = *std::ranges::find_if(kSchemeWidths, [&](int width) { return width >= n_rows; });
  SchemeStreamParams params;
  params.weight = matrix.view;
  params.bias = args.bias.data;
  params.out = args.out.data;
  params.partials = reinterpret_cast<uint4*>(partials_);
  params.n_rows = static_cast<int>(args.x.shape[0]);
  params.out_is_f32 = args.out.dtype == DType::f32;
  params.stores_pairs = matrix.n % 2 == 0 && is_aligned(args.out.data, 4);
  if (const auto next = matrix.order->next.lock()) {
    params.next_values = next->weight.values;
    params.next_bytes = static_cast<std::int64_t>(next->weight.n_tiles) * next->weight.n_chunks * kPieceBytes;
  }
  const CUtensorMap x_map = matrix_map(encode_, args.x, width);
  switch (matrix.scheme) {
    case WeightScheme::f8: return stream_f8(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::i8: return stream_i8(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::i4: return stream_i4(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::f4: return stream_f4(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::dense: break;
  }
  check_failed("schemes: a dense weight");
}

void SchemeGemm::multiply_wide(const SchemeMatrix& matrix, const MatmulArgs& args) {
  const std::int64_t n_rows = args.x.shape[0];
  const int width = wide_width(n_rows);
  SchemeWideParams params;
  params.weight = matrix.view;
  params.bias = args.bias.data;
  params.out = args.out.data;
  params.clusters = clusters_;
  params.n_rows = static_cast<int>(n_rows);
  params.out_is_f32 = args.out.dtype == DType::f32;
  params.stores_vectors = !params.out_is_f32 && matrix.n % 8 == 0 && is_aligned(args.out.data, 16);
  const CUtensorMap x_map = matrix_map(encode_, args.x, width);
  switch (matrix.scheme) {
    case WeightScheme::f8: return wide_f8(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::i8: return wide_i8(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::i4: return wide_i4(device_, matrix.dtype, width, params, x_map);
    case WeightScheme::f4:
    case WeightScheme::dense: break;
  }
  check_failed("schemes: a weight that the wide kernel does not multiply");
}

void SchemeGemm::multiply_f8_rows(const SchemeMatrix& matrix, const MatmulArgs& args) {
  const auto& [x, weight, out, bias, x_scales] = args;
  check(is_aligned(x.data, 16), "matmul: x in 8 bits must be aligned");
  const bool adds_bias = bias.data != nullptr && bias.dtype == out.dtype;
  F8GemmParams params;
  params.weight = matrix.view;
  params.x_scales = reinterpret_cast<const float*>(x_scales.data);
  params.bias = adds_bias ? bias.data : nullptr;
  params.out = out.data;
  params.out_dtype = out.dtype;
  params.n_rows = static_cast<int>(x.shape[0]);
  params.stores_boxes = out.dtype != DType::f32 && matrix.n % 8 == 0 && is_aligned(out.data, 16);
  params.plan =
      f8_plan((matrix.view.n_tiles + 1) / 2, static_cast<int>((matrix.k + kF8Columns - 1) / kF8Columns), x.shape[0], clusters_);
  multiply_f8(device_, params, encode_, x);
  if (bias.data != nullptr && !adds_bias) add_bias(device_, out, bias);
}

void SchemeGemm::multiply_slabs(const SchemeMatrix& matrix, const MatmulArgs& args) {
  const std::int64_t step = matrix.slab_rows();
  for (std::int64_t begin = 0; begin < matrix.n; begin += step) {
    const std::int64_t n = std::min(step, matrix.n - begin);
    const TensorView dense{slab_.data(), matrix.dtype, {n, matrix.k}};
    widen_rows(device_, matrix.scheme, matrix.view, begin, dense);
    const TensorView columns{
        args.out.data + static_cast<std::size_t>(begin) * size_bytes(args.out.dtype), args.out.dtype, {args.x.shape[0], n}};
    cublas_.multiply_columns(args.x, dense, columns, matrix.n);
  }
}

}  // namespace baton::cuda
