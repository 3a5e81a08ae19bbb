/// Asks the processor for its instruction sets.
#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

namespace baton::cpu {

std::optional<CpuIsa> isa_from_name(std::string_view name) {
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16})
    if (to_string(isa) == name) return isa;
  return std::nullopt;
}

CpuIsa best_cpu_isa() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuIsa::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq"))
    return CpuIsa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? CpuIsa::avx512_bf16 : CpuIsa::avx512;
}

Result<CpuIsa> detect_cpu_isa() {
  const CpuIsa best = best_cpu_isa();
  const char* wanted = std::getenv("BATON_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  const std::optional<CpuIsa> isa = isa_from_name(wanted);
  if (!isa)
    return fail(ErrorCode::invalid_request,
                "BATON_CPU_ISA is \"" + std::string(wanted) + "\"; it can be baseline, avx2, avx512 or avx512_bf16");
  if (*isa > best)
    return fail(ErrorCode::unsupported, "BATON_CPU_ISA is \"" + std::string(wanted) +
                                            "\", and the best this processor offers is " + std::string(to_string(best)));
  return *isa;
}

}  // namespace baton::cpu
