/// Memory that is kept for a thread whose allocations must not fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace baton {

/// Blocks of memory for one thread. When an allocation of the thread fails, a block is given back to the allocator and
/// the allocation is tried again, until no block is left; then std::bad_alloc is thrown. So the thread survives a
/// shortage, and others can be told to ask for less meanwhile: `is_held` says whether all blocks are there.
///
/// The thread takes the blocks itself, because allocators keep memory by thread: what it gives back is there for it and
/// for no other thread. A quarter is for destructors that run while an exception is thrown: one that allocates and fails
/// would end the program. Allocations of threads that use no reserve throw std::bad_alloc at once, as ever.
class MemoryReserve {
 public:
  explicit MemoryReserve(std::size_t n_bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  /// While it lives, the thread that made it uses the reserve, which must outlive it. One at a time.
  class User {
   public:
    explicit User(MemoryReserve& reserve);
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    MemoryReserve* const before_;
  };

  /// Thread: any. True until it is first used.
  bool is_held() const { return !is_short_.load(std::memory_order_relaxed); }
  /// Takes the missing blocks again, as far as there is memory. Cheap while none is missing. Thread: the user's.
  void restore();
  /// Gives a block back. False if none is left, or only those for destructors. Thread: the user's.
  bool release_block();

 private:
  const std::size_t n_blocks_;
  std::vector<void*> blocks_;  // has room for all
  std::atomic<bool> is_short_ = false;
};

}  // namespace baton
