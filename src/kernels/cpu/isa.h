/// The instruction sets that the CPU kernels are written for, and the choice of one for this process.
#pragma once

#include <optional>
#include <string_view>

#include "core/result.h"

namespace baton::cpu {

/// Each one includes those above it.
enum class CpuIsa {
  baseline,     ///< SSE2, which every x86-64 processor has
  avx2,         ///< AVX2, FMA and F16C
  avx512,       ///< AVX-512 F, BW, VL and DQ
  avx512_bf16,  ///< also bf16 dot products
  amx_bf16,     ///< also AMX: matmuls of 16 x 32 tiles of bf16
};

constexpr std::string_view to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::baseline: return "baseline";
    case CpuIsa::avx2: return "avx2";
    case CpuIsa::avx512: return "avx512";
    case CpuIsa::avx512_bf16: return "avx512_bf16";
    case CpuIsa::amx_bf16: return "amx_bf16";
  }
  return "unknown";
}

/// The instruction set with this name (see to_string); nothing for any other name.
std::optional<CpuIsa> isa_from_name(std::string_view name);

/// The best set that this processor and its operating system offer. Asks the kernel for the AMX tile registers, which
/// a process must do before it uses them: the set is amx_bf16 only if the kernel grants them.
CpuIsa best_cpu_isa();

/// Whether this processor looks up bytes in tables of 128 (AVX-512 VBMI).
bool has_vbmi();

/// The set to use: the one that the environment variable BATON_CPU_ISA names, otherwise the best. Errors:
/// invalid_request for an unknown name, unsupported for a set that the processor lacks. Reads the environment at each
/// call.
Result<CpuIsa> detect_cpu_isa();

}  // namespace baton::cpu
