/// What a thread is called in top, perf and /proc, so that its processor time can be told from others'.
#pragma once

#include <pthread.h>

#include <array>
#include <string_view>

namespace baton {

/// Names the calling thread, in 15 bytes at most; threads that it starts later inherit the name until they have their own.
inline void name_this_thread(std::string_view name) {
  std::array<char, 16> text{};
  name.copy(text.data(), text.size() - 1);
  pthread_setname_np(pthread_self(), text.data());
}

}  // namespace baton
