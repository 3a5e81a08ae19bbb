/// Names of threads (core/thread_name.h).
#include "core/thread_name.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string name_of_this_thread() {
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

TEST(ThreadName, is_cut_to_what_the_system_takes_and_inherited) {
  std::string own, inherited;
  std::jthread([&] {
    name_this_thread("fifteen letters and more");
    own = name_of_this_thread();
    std::jthread([&] { inherited = name_of_this_thread(); }).join();
  }).join();
  EXPECT_EQ(own, "fifteen letters");
  EXPECT_EQ(inherited, own);
}

}  // namespace
}  // namespace baton
