/// Scale and soft-cap of logits on the CPU: parts of all rows in parallel.
#include "kernels/cpu/backend.h"

#include <cstdint>

#include "kernels/cpu/rows/row_math.h"

namespace baton::cpu {

void CpuBackend::scale_logits(const ScaleLogitsArgs& args) {
  constexpr std::int64_t kGrain = 1 << 14;  // logits of a thread at least
  float* const logits = args.logits.elements<float>().data();
  parallel_.for_ranges(args.logits.shape.n_elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    scale_and_cap(logits + begin, args.scale, args.softcap, end - begin);
  });
}

}  // namespace baton::cpu
