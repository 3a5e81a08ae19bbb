/// Limits of memory from files as control groups have them (core/limits/memory_limit.h).
#include "core/limits/memory_limit.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

class MemoryLimit : public ::testing::Test {
 protected:
  MemoryLimit() : root_(std::filesystem::temp_directory_path() / ("baton_memory_limit_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(root_);
  }
  ~MemoryLimit() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  std::filesystem::path root_;
};

TEST_F(MemoryLimit, is_the_machines_memory_where_nothing_lowers_it) {
  const std::int64_t all = memory_limit(root_);
  EXPECT_GT(all, 64 << 20);
  write("sys/fs/cgroup/memory.max", "max");
  EXPECT_EQ(memory_limit(root_), all);
}

TEST_F(MemoryLimit, is_the_lowest_of_the_groups_above_the_process) {
  write("proc/self/cgroup", "0::/pod/container");
  write("sys/fs/cgroup/pod/memory.max", "50000000");
  write("sys/fs/cgroup/pod/container/memory.max", "60000000");
  EXPECT_EQ(memory_limit(root_), 50'000'000);
  write("sys/fs/cgroup/pod/container/memory.max", "40000000");
  EXPECT_EQ(memory_limit(root_), 40'000'000);
  write("sys/fs/cgroup/memory.max", "30000000");
  EXPECT_EQ(memory_limit(root_), 30'000'000);
}

TEST_F(MemoryLimit, reads_control_groups_of_version_1) {
  write("proc/self/cgroup", "7:cpu,cpuacct:/other\n5:memory:/pod");
  write("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "45000000");
  write("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1000");
  EXPECT_EQ(memory_limit(root_), 45'000'000);
}

TEST_F(MemoryLimit, free_memory_is_the_machines_or_what_the_group_has_left) {
  write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 7000 kB");
  EXPECT_EQ(free_host_memory(root_), 7000 * 1024);
  write("sys/fs/cgroup/memory.max", "max");
  write("sys/fs/cgroup/memory.current", "1000000");
  EXPECT_EQ(free_host_memory(root_), 7000 * 1024);
  write("sys/fs/cgroup/memory.max", "5000000");
  EXPECT_EQ(free_host_memory(root_), 4'000'000);
  write("sys/fs/cgroup/memory.current", "6000000");
  EXPECT_EQ(free_host_memory(root_), 0);
}

/// Bytes of address space that `n_threads` take that allocate a little: their stacks apart.
std::int64_t space_of_threads(int n_threads) {
  constexpr std::int64_t kStackBytes = 8 << 20;
  const auto pages = [] {
    std::int64_t n = 0;
    std::ifstream("/proc/self/statm") >> n;
    return n;
  };
  const std::int64_t before = pages();
  std::int64_t after = 0;
  std::barrier all(n_threads + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < n_threads; ++i) {
    threads.emplace_back([&all] {
      const auto kept = std::make_unique<std::string>(100, 'x');
      all.arrive_and_wait();
      all.arrive_and_wait();
    });
  }
  all.arrive_and_wait();
  after = pages();
  all.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  return (after - before) * ::sysconf(_SC_PAGESIZE) - n_threads * kStackBytes;
}

TEST(LimitArenas, threads_reserve_no_memory_where_address_space_is_limited) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit space{};
    ::getrlimit(RLIMIT_AS, &space);
    space.rlim_cur = rlim_t{1} << 46;  // a limit that is never met, by the sanitizers neither
    if (::setrlimit(RLIMIT_AS, &space) != 0) ::_exit(2);
    limit_arenas();
    ::_exit(space_of_threads(8) < 3 * (std::int64_t{64} << 20) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: they reserve more, 2: no limit can be set";
}

}  // namespace
}  // namespace baton
