/// Multiplies expert by expert with the matmuls of any other weight, each of which uses all threads. Experts without
/// rows are skipped, so their weights are not read.
#include "kernels/cpu/backend.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/named_kernels.h"

namespace baton::cpu {
namespace {

/// Each expert's weight as pack_matrix packs it.
class CpuExperts final : public PackedExperts, public NamedKernels {
 public:
  std::vector<std::unique_ptr<PackedMatrix>> of_expert;
};

/// Copies rows of x to `out`, which is as long.
void copy_rows(const Parallel& parallel, const ConstTensorView& x, std::span<const std::int32_t> rows, std::byte* out) {
  constexpr std::int64_t kRowsPerTask = 16;
  const std::size_t row_bytes = static_cast<std::size_t>(x.shape[1]) * size_bytes(x.dtype);
  parallel.for_ranges(static_cast<std::int64_t>(rows.size()), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t row = rows[static_cast<std::size_t>(i)];
      check(row >= 0 && row < x.shape[0], "grouped_matmul: a row outside x");
      std::memcpy(out + static_cast<std::size_t>(i) * row_bytes, x.data + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    }
  });
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> CpuBackend::pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                                const ReadExpert& read) {
  auto experts = std::make_unique<CpuExperts>();
  experts->n_experts = shape[0];
  experts->n = shape[1];
  experts->k = shape[2];
  experts->dtype = dtype;
  for (std::int64_t e = 0; e < shape[0]; ++e) {
    BATON_TRY(const StoredMatrix weight, read(e));
    check(weight.shape == Shape{shape[1], shape[2]}, "pack_experts: another shape");
    BATON_TRY(std::unique_ptr<PackedMatrix> matrix, pack_matrix(weight, dtype, name));
    if (e > 0 && matrix->scheme != experts->scheme)
      return fail(ErrorCode::unsupported, fmt::format("{}: its experts are stored as {} and {}, and must be stored alike", name,
                                                      to_string(experts->scheme), to_string(matrix->scheme)));
    experts->scheme = matrix->scheme;
    if (const auto* named = dynamic_cast<const NamedKernels*>(matrix.get()); named != nullptr)
      experts->kernels = named->kernels;
    experts->size_bytes += matrix->size_bytes;
    experts->of_expert.push_back(std::move(matrix));
  }
  return std::unique_ptr<PackedExperts>(std::move(experts));
}

void CpuBackend::grouped_matmul(const GroupedMatmulArgs& args) {
  const auto& experts = static_cast<const CpuExperts&>(*args.experts);
  const auto offsets = args.offsets.elements<std::int32_t>();
  std::vector<std::byte> copy;
  for (std::size_t e = 0; e < experts.of_expert.size(); ++e) {
    const std::int64_t begin = offsets[e];
    const std::int64_t end = offsets[e + 1];
    check(0 <= begin && begin <= end && end <= args.out.shape[0], "grouped_matmul: offsets outside the places");
    if (begin == end) continue;
    ConstTensorView x{nullptr, args.x.dtype, {end - begin, experts.k}};
    if (args.rows.data == nullptr) {
      x = args.x.rows(begin, end);
    } else {
      if (copy.size() < x.size_bytes()) copy.resize(x.size_bytes());
      copy_rows(parallel_, args.x, args.rows.rows(begin, end).elements<std::int32_t>(), copy.data());
      x.data = copy.data();
    }
    ConstTensorView bias;
    if (args.bias.data != nullptr) {
      const auto expert = static_cast<std::int64_t>(e);
      bias = ConstTensorView{args.bias.rows(expert, expert + 1).data, DType::f32, {experts.n}};
    }
    matmul({x, experts.of_expert[e].get(), args.out.rows(begin, end), bias});
  }
}

}  // namespace baton::cpu
