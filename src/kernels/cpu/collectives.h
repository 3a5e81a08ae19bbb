/// Collectives of the CPU backend, which has one rank.
#pragma once

#include "kernels/ops.h"

namespace baton::cpu {

/// See the functions of the same names in kernels/ops.h.
void all_reduce(TensorView x);
void all_gather(TensorView out, ConstTensorView part);

}  // namespace baton::cpu
