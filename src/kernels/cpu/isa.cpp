/// Detects the instruction sets of the processor and asks the kernel for AMX.
#include "kernels/cpu/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace baton::cpu {
namespace {

constexpr std::array kAllSets{CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16, CpuIsa::amx_bf16};

/// Whether the kernel lets this process use the tile registers. The kernel saves them for a thread only after the
/// process has asked, and it may refuse.
bool is_tile_data_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of <asm/prctl.h>, Linux 5.16
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::optional<CpuIsa> isa_from_name(std::string_view name) {
  for (const CpuIsa isa : kAllSets)
    if (to_string(isa) == name) return isa;
  return std::nullopt;
}

CpuIsa best_cpu_isa() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return CpuIsa::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq"))
    return CpuIsa::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuIsa::avx512;
  const bool has_tiles = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
  return has_tiles && is_tile_data_permitted() ? CpuIsa::amx_bf16 : CpuIsa::avx512_bf16;
}

bool has_vbmi() { return __builtin_cpu_supports("avx512vbmi"); }

Result<CpuIsa> detect_cpu_isa() {
  const CpuIsa best = best_cpu_isa();
  const char* wanted = std::getenv("BATON_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  const std::optional<CpuIsa> isa = isa_from_name(wanted);
  if (!isa)
    return fail(ErrorCode::invalid_request,
                "BATON_CPU_ISA is \"" + std::string(wanted) + "\"; it can be baseline, avx2, avx512, avx512_bf16 or amx_bf16");
  if (*isa > best)
    return fail(ErrorCode::unsupported, "BATON_CPU_ISA is \"" + std::string(wanted) +
                                            "\", and the best this machine offers is " + std::string(to_string(best)));
  return *isa;
}

}  // namespace baton::cpu
