/// Chooses the kernels for weights in 8 and 4 bits.
#include "core/check.h"
#include "kernels/cpu/schemes/panels.h"

namespace baton::cpu {

const SchemeKernels& scheme_kernels(CpuIsa isa, bool has_vbmi, DType dtype) {
  if (dtype == DType::bf16) {
    check(isa >= CpuIsa::avx512_bf16, "scheme_kernels: bf16 needs dot products");
    return has_vbmi ? kSchemeBf16Vbmi : kSchemeBf16;
  }
  if (isa >= CpuIsa::avx512) return kSchemeF32Avx512;
  return isa == CpuIsa::avx2 ? kSchemeF32Avx2 : kSchemeF32Baseline;
}

}  // namespace baton::cpu
