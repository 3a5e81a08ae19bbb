/// What threads of the program have in common (core/limits/thread_body.h).
#include "core/limits/thread_body.h"

#include <array>
#include <new>
#include <stop_token>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Whether the handler of operator new finds memory for the calling thread.
bool finds_memory() {
  try {
    std::get_new_handler()();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST(ThreadBody, has_a_name_and_a_reserve_and_takes_the_threads_arguments) {
  std::string name;
  bool has_reserve = false, was_held = false, is_stopping = true;
  std::jthread(thread_body("one", std::size_t{1} << 20, [&](MemoryReserve& reserve, const std::stop_token& stop) {
    std::array<char, 16> text{};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    name = text.data();
    was_held = reserve.is_held();
    has_reserve = finds_memory();
    is_stopping = stop.stop_requested();
  })).join();
  EXPECT_EQ(name, "one");
  EXPECT_TRUE(was_held);
  EXPECT_TRUE(has_reserve);
  EXPECT_FALSE(is_stopping);
  EXPECT_FALSE(finds_memory()) << "this thread has none";
}

TEST(ThreadBodyDeathTest, says_what_ended_the_program) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::thread(thread_body("one", 1, [](MemoryReserve&) { throw std::bad_alloc(); })).join(),
              testing::ExitedWithCode(1), "event=thread_out_of_memory thread=one");
}

}  // namespace
}  // namespace baton
