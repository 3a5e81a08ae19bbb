/// One holder at a time (io/file_lock.h).
#include "io/file_lock.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(FileLock, the_second_waits_for_the_first) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "baton_file_lock_test";
  std::filesystem::remove_all(folder);
  auto first = FileLock::acquire(folder / "deep/lock");
  ASSERT_TRUE(first) << first.error().message;
  std::atomic<bool> is_second_in = false;
  std::thread other([&] {
    const auto second = FileLock::acquire(folder / "deep/lock");
    EXPECT_TRUE(second);
    is_second_in = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_second_in);
  { const std::optional<FileLock> moved(std::move(*first)); }
  other.join();
  EXPECT_TRUE(is_second_in);
  std::filesystem::remove_all(folder);
}

TEST(FileLock, a_thread_that_does_not_wait_learns_that_another_has_the_lock) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "baton_file_lock_test_try";
  auto first = FileLock::try_acquire(path);
  ASSERT_TRUE(first && *first);
  const auto second = FileLock::try_acquire(path);
  ASSERT_TRUE(second);
  EXPECT_FALSE(*second);
  first->reset();
  const auto third = FileLock::try_acquire(path);
  EXPECT_TRUE(third && *third);
  EXPECT_FALSE(FileLock::try_acquire("/proc/no/such/lock"));
  std::filesystem::remove(path);
}

TEST(FileLock, a_place_that_cannot_be_written_is_an_error) {
  const auto lock = FileLock::acquire("/proc/no/such/lock");
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, ErrorCode::io);
}

}  // namespace
}  // namespace baton
