/// Host memory in whole pages, and in huge pages if they help: every step reads all weights, keys and values once.
#pragma once

#include <cstddef>
#include <memory>

#include "core/result.h"
#include "kernels/backend.h"

namespace baton::cpu {

/// Zeroed memory of at least `size_bytes`, page-aligned. From half a huge page (2 MiB) on it uses huge pages if the
/// system grants them; the size is rounded up to huge pages if this adds at most half of one. Error: out_of_memory if
/// the system has no address space left.
Result<Buffer> allocate_pages(std::size_t size_bytes);

/// Memory for many weights, side by side in large mappings: none of them ends with a part of a page for itself. Thread: one.
class PagePool {
 public:
  /// Zeroed memory, aligned to 64 bytes; null for no bytes. A mapping is freed with the last memory in it. Error: out_of_memory.
  Result<std::shared_ptr<std::byte>> allocate(std::size_t size_bytes);

 private:
  std::shared_ptr<Buffer> mapping_;
  std::size_t end_ = 0;  ///< of what is taken of it
};

}  // namespace baton::cpu
