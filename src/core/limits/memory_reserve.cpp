/// Installs a new_handler, for the whole program, that releases the calling thread's reserve.
#include "core/limits/memory_reserve.h"

#include <cstdlib>
#include <exception>
#include <new>

namespace baton {
namespace {

/// Small enough that the allocator takes it from the thread's own memory and not from the system.
constexpr std::size_t kReserveBlockBytes = std::size_t{64} << 10;

thread_local MemoryReserve* reserve_of_this_thread = nullptr;

/// Operator new calls it when it finds no memory, and tries again when it returns.
void find_memory() {
  if (reserve_of_this_thread != nullptr && reserve_of_this_thread->release_block()) return;
  throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve(std::size_t n_bytes) : n_blocks_((n_bytes + kReserveBlockBytes - 1) / kReserveBlockBytes) {
  static const std::new_handler before = std::set_new_handler(find_memory);
  (void)before;
  blocks_.reserve(n_blocks_);
}

MemoryReserve::~MemoryReserve() {
  for (void* const block : blocks_) std::free(block);
}

void MemoryReserve::restore() {
  while (blocks_.size() < n_blocks_) {
    void* const block = std::malloc(kReserveBlockBytes);  // not operator new: that would use the reserve to fill it
    if (block == nullptr) return is_short_.store(true, std::memory_order_relaxed);
    blocks_.push_back(block);
  }
  is_short_.store(false, std::memory_order_relaxed);
}

bool MemoryReserve::release_block() {
  is_short_.store(true, std::memory_order_relaxed);
  const std::size_t n_kept = std::uncaught_exceptions() > 0 ? 0 : n_blocks_ / 4;
  if (blocks_.size() <= n_kept) return false;
  std::free(blocks_.back());
  blocks_.pop_back();
  return true;
}

MemoryReserve::User::User(MemoryReserve& reserve) : before_(reserve_of_this_thread) {
  reserve.restore();
  reserve_of_this_thread = &reserve;
}
MemoryReserve::User::~User() { reserve_of_this_thread = before_; }

}  // namespace baton
