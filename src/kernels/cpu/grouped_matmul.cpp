/// Multiplies expert by expert with the matmuls of any other weight, each of which uses all threads. Experts without
/// rows are skipped, so their weights are not read.
#include "kernels/cpu/grouped_matmul.h"

#include <cstdint>
#include <cstring>
#include <span>

namespace baton::cpu {
namespace {

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

void grouped_matmul(const Parallel& parallel, MatmulEngine& matmuls, const GroupedMatmulArgs& args) {
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
      copy_rows(parallel, args.x, args.rows.rows(begin, end).elements<std::int32_t>(), copy.data());
      x.data = copy.data();
    }
    matmuls.multiply({x, experts.of_expert[e].get(), args.out.rows(begin, end)});
  }
}

}  // namespace baton::cpu
