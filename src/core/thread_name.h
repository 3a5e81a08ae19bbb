/// Names of threads in top, perf and /proc, so that their processor times can be told apart.
#pragma once

#include <pthread.h>

#include <array>
#include <string_view>

namespace baton {

/// Names the calling thread (at most 15 bytes). Threads that it starts later inherit the name until they set their
/// own.
inline void name_this_thread(std::string_view name) {
  std::array<char, 16> text{};
  name.copy(text.data(), text.size() - 1);
  pthread_setname_np(pthread_self(), text.data());
}

}  // namespace baton
