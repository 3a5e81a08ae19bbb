/// Matmuls of several experts on the CPU.
#pragma once

#include <memory>
#include <vector>

#include "core/parallel.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"

namespace baton::cpu {

/// Each expert's weight as MatmulEngine packs it.
class CpuExperts final : public PackedExperts {
 public:
  std::vector<std::unique_ptr<PackedMatrix>> of_expert;
};

/// See grouped_matmul in kernels/ops.h.
void grouped_matmul(const Parallel& parallel, MatmulEngine& matmuls, const GroupedMatmulArgs& args);

}  // namespace baton::cpu
