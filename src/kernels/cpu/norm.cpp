/// RMSNorm on the CPU: rows in parallel, each in f32.
#include "kernels/cpu/norm.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/row_math.h"

namespace baton::cpu {

void rms_norm(const Parallel& parallel, const RmsNormArgs& args) {
  const std::int64_t d = args.x.shape[1];
  parallel.for_ranges(args.x.shape[0], 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> weight(static_cast<std::size_t>(d));
    std::vector<float> row(static_cast<std::size_t>(d));
    load_f32(args.weight, 0, d, weight.data());
    for (std::int64_t r = begin; r < end; ++r) {
      float* x = args.x.elements<float>().data() + r * d;
      if (args.delta.data != nullptr) {
        load_f32(args.delta, r * d, d, row.data());
        add_to(x, row.data(), d);
      }
      const float mean = sum_of_squares(x, d) / static_cast<float>(d);
      scale_by_weight(x, 1.0f / std::sqrt(mean + args.eps), weight.data(), d, row.data());
      store_f32(row.data(), d, args.out, r * d);
    }
  });
}

}  // namespace baton::cpu
