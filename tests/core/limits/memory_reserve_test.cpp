/// What a thread can still allocate when there is no memory left.
#include "core/limits/memory_reserve.h"

#include <sys/resource.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Limits the address space of this process to what it has.
void forbid_more_memory() {
  std::size_t n_pages = 0;
  std::ifstream("/proc/self/statm") >> n_pages;
  const rlimit limit{n_pages * 4096, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

/// Allocates small pieces until there is no memory, and returns their number. A compiler may leave out allocations that
/// no caller sees: these are written to.
template <class WatchEach>
std::size_t fill_memory(std::vector<std::unique_ptr<std::array<char, 1024>>>& pieces, const WatchEach& watch_each) {
  try {
    while (true) {
      pieces.push_back(std::make_unique<std::array<char, 1024>>());
      pieces.back()->fill(1);
      watch_each();
    }
  } catch (const std::bad_alloc&) {
    return pieces.size();
  }
}

/// Whether a destructor that runs because of an exception gets a block.
bool releases_while_unwinding(MemoryReserve& reserve) {
  struct Releases {
    MemoryReserve& reserve;
    bool& has_released;
    ~Releases() { has_released = reserve.release_block(); }
  };
  bool has_released = false;
  try {
    const Releases at_the_end{reserve, has_released};
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
  }
  return has_released;
}

TEST(MemoryReserve, is_given_back_block_by_block_and_taken_again) {
  MemoryReserve reserve(kMiB);
  reserve.restore();
  EXPECT_TRUE(reserve.is_held());
  EXPECT_TRUE(reserve.release_block());
  EXPECT_FALSE(reserve.is_held());
  reserve.restore();
  EXPECT_TRUE(reserve.is_held());
  std::size_t n_blocks = 0;
  while (reserve.release_block()) ++n_blocks;
  EXPECT_EQ(n_blocks, 12u);
  EXPECT_TRUE(releases_while_unwinding(reserve)) << "a quarter is for destructors";
  EXPECT_FALSE(reserve.is_held());
}

/// Exit codes: 0 if the thread with the reserve could allocate about as much more as the reserve holds.
[[noreturn]] void run_out_of_memory() {
  MemoryReserve reserve(kMiB);
  int code = 1;
  std::thread user([&] {
    const MemoryReserve::User use(reserve);
    std::vector<std::unique_ptr<std::array<char, 1024>>> pieces;
    pieces.reserve(1 << 20);
    std::latch is_forbidden(1);  // a thread needs memory to begin
    std::thread other([&] {
      is_forbidden.wait();
      fill_memory(pieces, [] {});
      if (reserve.is_held()) code = 2;
    });
    forbid_more_memory();
    is_forbidden.count_down();
    other.join();
    pieces.clear();
    if (code != 2) return;
    std::size_t n_before = 0;
    const std::size_t n_all = fill_memory(pieces, [&] { n_before += reserve.is_held() ? 1 : 0; });
    if (n_all < n_before + kMiB / 1024 / 2) return;
    code = 3;
    pieces.clear();
    reserve.restore();
    if (reserve.is_held()) code = 0;
  });
  user.join();
  std::_Exit(code);
}

TEST(MemoryReserveDeathTest, serves_the_thread_that_uses_it_and_no_other) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take address space of their own";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(run_out_of_memory(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace baton
