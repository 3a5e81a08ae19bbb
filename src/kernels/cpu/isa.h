/// The instruction sets that the CPU kernels are written for, and which of them this process uses.
#pragma once

#include <optional>
#include <string_view>

#include "core/result.h"

namespace baton::cpu {

/// Each includes those before it.
enum class CpuIsa {
  baseline,     ///< SSE2, which every x86-64 processor has
  avx2,         ///< AVX2 and FMA
  avx512,       ///< AVX-512 F, BW, VL and DQ
  avx512_bf16,  ///< and the dot products of bf16 pairs
  amx_bf16,     ///< and AMX: products of 16 x 32 tiles of bf16
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

/// The instruction set named as to_string names it; nothing for another name.
std::optional<CpuIsa> isa_from_name(std::string_view name);

/// The best set this processor and its operating system offer. Asks the kernel for the tile registers of AMX, which a
/// process may not use before: the set is amx_bf16 only if the kernel grants them.
CpuIsa best_cpu_isa();

/// The set to use: what the environment variable BATON_CPU_ISA asks for, else the best. Fails for a name that does not
/// exist (invalid_request) and for a set that the processor does not have (unsupported). Reads the environment at each
/// call.
Result<CpuIsa> detect_cpu_isa();

}  // namespace baton::cpu
