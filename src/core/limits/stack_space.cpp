/// The stack of the calling thread, as the C library knows it.
#include "core/limits/stack_space.h"

#include <pthread.h>

namespace baton {
namespace {

struct Bounds {
  std::uintptr_t end = 0;
  std::size_t n_bytes = 0;
};

Bounds bounds_of_this_thread() {
  Bounds bounds;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return bounds;  // nothing is known: no limit
  void* lowest = nullptr;
  std::size_t n_guard = 0;
  pthread_attr_getstack(&attributes, &lowest, &bounds.n_bytes);
  pthread_attr_getguardsize(&attributes, &n_guard);
  pthread_attr_destroy(&attributes);
  // Whether the guard lies inside what is given as the stack differs between versions of the C library.
  bounds.end = reinterpret_cast<std::uintptr_t>(lowest) + n_guard;
  return bounds;
}

}  // namespace

StackSpace::StackSpace() {
  // For the main thread the C library reads a file, so each thread asks once.
  static thread_local const Bounds bounds = bounds_of_this_thread();
  end_ = bounds.end;
  n_bytes_ = bounds.n_bytes;
}

}  // namespace baton
