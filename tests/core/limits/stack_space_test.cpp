/// Tests of what is known of a thread's stack.
#include "core/limits/stack_space.h"

#include <pthread.h>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// How many frames of at least `kFrameBytes` a recursion makes before there is no room.
constexpr std::size_t kFrameBytes = 1024;
[[gnu::noinline]] int n_frames(const StackSpace& stack) {
  volatile char frame[kFrameBytes];
  frame[0] = 0;
  const int deeper = stack.has_room() ? n_frames(stack) + 1 : 0;
  return deeper + frame[0];
}

/// The thread sanitizer keeps what it knows of a thread on that thread's stack, and makes small stacks larger for it.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kSanitizerBytes = std::size_t{1} << 20;
#else
constexpr std::size_t kSanitizerBytes = 0;
#endif

struct Found {
  std::size_t n_bytes = 0;
  std::size_t left = 0;
  int n_frames = 0;
};

Found on_stack(std::size_t n_bytes) {
  Found found;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, n_bytes), 0);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    const StackSpace stack;
    *static_cast<Found*>(given) = {stack.n_bytes(), stack.left(), n_frames(stack)};
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, run, &found), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return found;
}

TEST(StackSpace, measures_the_stack_of_its_thread) {
  for (const std::size_t n_kib : {192, 1024, 16384}) {
    const std::size_t n_bytes = n_kib << 10;
    const Found found = on_stack(n_bytes);
    EXPECT_GE(found.n_bytes, n_bytes);
    EXPECT_LE(found.n_bytes, n_bytes + kSanitizerBytes);
    EXPECT_LT(found.left, found.n_bytes);
    EXPECT_GT(found.left + kSanitizerBytes, n_bytes - (std::size_t{64} << 10));
    EXPECT_GT(found.n_frames, 0);
    EXPECT_LE(static_cast<std::size_t>(found.n_frames) * kFrameBytes, found.n_bytes - StackSpace::kReservedBytes);
  }
}

TEST(StackSpace, knows_when_more_is_asked_for_than_is_left) {
  const StackSpace stack;
  EXPECT_TRUE(stack.has_room());
  EXPECT_FALSE(stack.has_room(stack.left()));
}

}  // namespace
}  // namespace baton
