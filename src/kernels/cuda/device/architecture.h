/// The compute capability whose kernels a device runs: its own or, for tests and comparisons, a lower one.
#pragma once

#include <cstddef>
#include <string>

#include "core/result.h"

namespace baton::cuda {

inline constexpr int kOldestArchitecture = 80;

/// Most dynamic shared memory of a block, in bytes. Source: CUDA C++ Programming Guide, technical specifications for
/// each compute capability.
constexpr std::size_t most_shared_bytes(int architecture) {
  switch (architecture) {
    case 80:
    case 87: return 163 << 10;
    case 86:
    case 89:
    case 120: return 99 << 10;
    default: return 227 << 10;
  }
}

/// The architecture (10 * major + minor) whose kernels run on a device of compute capability `of_device`: that one, but 80 where
/// a driver compiles the code for 8.0 for a device after 9.0 (code for 9.0a runs on 9.0 alone). `wanted` (the value of
/// BATON_CUDA_ARCH, or null) may name a lower one. Errors: invalid_request for a value that is none of 80, 86, 89, 90;
/// unsupported for one that the device lacks.
inline Result<int> choose_architecture(int of_device, const char* wanted) {
  const int own = of_device > 90 ? kOldestArchitecture : of_device;
  if (wanted == nullptr || *wanted == '\0') return own;
  for (const int architecture : {80, 86, 89, 90}) {
    if (std::to_string(architecture) != wanted) continue;
    if (architecture <= of_device && (architecture < 90 || of_device == 90)) return architecture;
    return fail(ErrorCode::unsupported, "BATON_CUDA_ARCH is " + std::string(wanted) +
                                            ", and this device has compute capability " + std::to_string(of_device));
  }
  return fail(ErrorCode::invalid_request, "BATON_CUDA_ARCH is \"" + std::string(wanted) + "\"; it can be 80, 86, 89 or 90",
              "device");
}

}  // namespace baton::cuda
