/// Allocations that fail on purpose, in a test program that replaces operator new:
///
///     void* operator new(std::size_t size) { return baton::test::allocate(size); }
///     void operator delete(void* bytes) noexcept { std::free(bytes); }
///     void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }
#pragma once

#include <execinfo.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

extern "C" const char __executable_start;

namespace baton::test {

/// Where the function of the JSON library is that no program survives if it finds no memory: the destructor allocates. What it
/// allocates is left to the threads' reserves.
class JsonLibrary {
 public:
  JsonLibrary() {
    std::FILE* const symbols = ::popen("nm -S /proc/$PPID/exe", "r");
    if (symbols == nullptr) return;
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), static_cast<int>(line.size()), symbols) != nullptr) {
      if (!is_one(line.data())) continue;
      char* end = nullptr;
      const auto begin = std::strtoull(line.data(), &end, 16);
      ranges_.emplace_back(begin, begin + std::strtoull(end, nullptr, 16));
    }
    ::pclose(symbols);
    EXPECT_FALSE(ranges_.empty()) << "nm does not show the functions of the JSON library";
  }

  /// Whether the calling thread is in it.
  bool is_running() const {
    std::array<void*, 24> frames{};
    const int n = ::backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 0; i < n; ++i) {
      const auto place =
          static_cast<std::uint64_t>(static_cast<const char*>(frames[static_cast<std::size_t>(i)]) - &__executable_start);
      for (const auto& [begin, end] : ranges_)
        if (place > begin && place <= end) return true;
    }
    return false;
  }

 private:
  /// Whether a line of nm has its name.
  static bool is_one(std::string_view line) {
    const std::size_t name = line.find("10basic_jsonI");
    if (name == std::string_view::npos || line.find(" _ZN8nlohmann") == std::string_view::npos) return false;
    return line.find("10json_value7destroy", name) != std::string_view::npos;
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

/// Which allocations fail: on the threads whose names begin with `thread` together, `n_failing` after `n_passing` others. They
/// throw std::bad_alloc as if three quarters of the thread's reserve were used: the last one is for destructors that run
/// while an exception is thrown (core/limits/memory_reserve.h), and for the JSON library.
class FailingAllocations {
 public:
  static FailingAllocations& instance() {
    static constinit FailingAllocations instance;  // before the first allocation
    return instance;
  }

  void fail(const char* thread, std::int64_t n_passing, std::int64_t n_failing) {
    n_left_ = n_passing + n_failing;
    n_failing_ = n_failing;
    n_reached_ = 0;
    static const JsonLibrary library;
    library.is_running();  // what it allocates once
    json_ = &library;
    thread_ = thread;
  }
  /// Ends it. Returns how many there were that should fail.
  std::int64_t stop() {
    thread_ = nullptr;
    return n_reached_.load();
  }

  /// Whether the next allocation fails.
  bool fails() {
    const char* const thread = thread_.load(std::memory_order_acquire);
    if (thread == nullptr || n_left_.load(std::memory_order_relaxed) <= 0 || !is_on(thread)) return false;
    if (std::uncaught_exceptions() > 0) return false;
    const std::int64_t n_left = n_left_.fetch_sub(1);
    if (n_left <= 0 || n_left > n_failing_.load(std::memory_order_relaxed)) return false;
    ++n_reached_;
    if (json_.load()->is_running()) return false;
    return true;
  }

 private:
  static bool is_on(const char* thread) {
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof(name));
    return std::string_view(name).starts_with(thread);
  }

  std::atomic<const JsonLibrary*> json_ = nullptr;
  std::atomic<const char*> thread_ = nullptr;  // a literal; null: none fails
  std::atomic<std::int64_t> n_left_ = 0;
  std::atomic<std::int64_t> n_failing_ = 0;
  std::atomic<std::int64_t> n_reached_ = 0;
};

inline void* allocate(std::size_t size) {
  if (FailingAllocations::instance().fails()) throw std::bad_alloc();
  if (void* const bytes = std::malloc(size)) return bytes;
  throw std::bad_alloc();
}

}  // namespace baton::test
