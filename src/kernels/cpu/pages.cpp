/// Anonymous memory mappings, aligned to huge pages.
#include "kernels/cpu/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace baton::cpu {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

Result<Buffer> allocate_pages(std::size_t size_bytes) {
  if (size_bytes == 0) return Buffer{};
  const bool is_huge = size_bytes >= kHugePageBytes / 2;
  const bool fills_last = size_bytes % kHugePageBytes >= kHugePageBytes / 2;
  const std::size_t kept = round_up(size_bytes, is_huge && fills_last ? kHugePageBytes : kPageBytes);
  const std::size_t mapped = is_huge ? kept + kHugePageBytes : kept;
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return fail(ErrorCode::out_of_memory, fmt::format("no memory for a buffer of {} bytes", size_bytes));
  auto* data = static_cast<std::byte*>(address);
  if (is_huge) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const std::size_t skipped = round_up(begin, kHugePageBytes) - begin;
    if (skipped > 0) munmap(data, skipped);
    data += skipped;
    if (mapped > skipped + kept) munmap(data + kept, mapped - skipped - kept);
    madvise(data, kept, MADV_HUGEPAGE);  // a hint: without huge pages reads are slower but correct
  }
  return Buffer(data, kept, [](std::byte* start, std::size_t size) { munmap(start, size); });
}

Result<std::shared_ptr<std::byte>> PagePool::allocate(std::size_t size_bytes) {
  constexpr std::size_t kMappingBytes = std::size_t{64} << 20;
  constexpr std::size_t kAlignment = 64;
  if (size_bytes == 0) return std::shared_ptr<std::byte>{};
  if (mapping_ == nullptr || mapping_->size_bytes() - end_ < size_bytes) {
    BATON_TRY(Buffer buffer, allocate_pages(std::max(kMappingBytes, size_bytes)));
    mapping_ = std::make_shared<Buffer>(std::move(buffer));
    end_ = 0;
  }
  std::byte* const data = mapping_->data() + end_;
  end_ = std::min(mapping_->size_bytes(), round_up(end_ + size_bytes, kAlignment));
  return std::shared_ptr<std::byte>(mapping_, data);
}

}  // namespace baton::cpu
