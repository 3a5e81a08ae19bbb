/// Alignment of addresses in device memory, on which the widths of a kernel's accesses depend.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cuda {

/// Whether an address is a multiple of `n_bytes`.
inline bool is_aligned(const void* address, std::size_t n_bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % n_bytes == 0;
}

}  // namespace baton::cuda
