/// Linear layers on the CPU: matmuls, and then biases, rows in parallel.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/row_math.h"

namespace baton::cpu {
namespace {

/// out[r] += bias, in f32, rounded once. out [rows, n] float, bias [n] float.
void add_bias(const Parallel& parallel, const TensorView& out, const ConstTensorView& bias) {
  constexpr std::int64_t kGrain = 1 << 14;  // least number of elements for one thread
  const std::int64_t n = out.shape[1];
  parallel.for_ranges(out.shape[0], std::max<std::int64_t>(1, kGrain / n), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> added(static_cast<std::size_t>(n));
    std::vector<float> row(out.dtype == DType::f32 ? 0 : static_cast<std::size_t>(n));
    load_f32(bias, 0, n, added.data());
    for (std::int64_t r = begin; r < end; ++r) {
      if (out.dtype == DType::f32) {
        add_to(out.elements<float>().data() + r * n, added.data(), n);
        continue;
      }
      load_f32(out, r * n, n, row.data());
      add_to(row.data(), added.data(), n);
      store_f32(row.data(), n, out, r * n);
    }
  });
}

}  // namespace

void CpuBackend::matmul(const MatmulArgs& args) {
  matmuls_.multiply(args);
  if (args.bias.data != nullptr) add_bias(parallel_, args.out, args.bias);
}

}  // namespace baton::cpu
