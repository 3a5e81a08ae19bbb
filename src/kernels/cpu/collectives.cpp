/// Collectives of the CPU backend, which has one rank.
#include "kernels/cpu/collectives.h"

#include <cstring>

namespace baton::cpu {

void all_reduce(TensorView) {}  // the sum over one rank

void all_gather(TensorView out, ConstTensorView part) {
  if (part.size_bytes() > 0) std::memcpy(out.data, part.data, part.size_bytes());
}

}  // namespace baton::cpu
