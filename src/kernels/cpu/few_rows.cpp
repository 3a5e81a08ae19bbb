/// Chooses the kernel and shares a product's panels among the threads.
#include "kernels/cpu/few_rows.h"

namespace baton::cpu {

FewRowsKernel few_rows_kernel(CpuIsa isa, DType dtype) {
  if (dtype == DType::bf16) return isa == CpuIsa::avx512_bf16 ? kFewRowsBf16Dot : nullptr;
  if (dtype != DType::f32) return nullptr;
  switch (isa) {
    case CpuIsa::baseline: return kFewRowsF32Baseline;
    case CpuIsa::avx2: return kFewRowsF32Avx2;
    case CpuIsa::avx512:
    case CpuIsa::avx512_bf16: return kFewRowsF32Avx512;
  }
  return nullptr;
}

void multiply_few_rows(const Parallel& parallel, FewRowsKernel kernel, FewRowsTask task) {
  const std::int64_t n_panels = (task.weight.n + kPanelColumns - 1) / kPanelColumns;
  parallel.for_ranges(n_panels, 1, [&](std::int64_t begin, std::int64_t end) {
    FewRowsTask share = task;
    share.first_panel = begin;
    share.end_panel = end;
    kernel(share);
  });
}

}  // namespace baton::cpu
