/// Memory for the parts of JSON values.
#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <type_traits>

#include "core/attempt.h"

namespace baton::json {

/// Blocks for the heads of values: the object of the C++ library that stands for one list, object or text, without what is in it.
/// The JSON library gives a value its type before it has the head, and follows a null pointer at the value's end where the
/// head found no memory. So a head that finds none takes one of these blocks, as the C++ library does for exceptions; what it
/// is to hold then finds none either, and that ends well. There are enough for some hundred threads at a time.
class HeadReserve {
 public:
  static constexpr std::size_t kHeadBytes = 48;
  static constexpr std::size_t kHeads = 1024;
  static constexpr std::size_t kHeadsOfTexts = kHeads / 2;  ///< short texts need no more than a head, so there may be many

  /// A block that is free among the first `n_heads`; throws std::bad_alloc if there is none. Thread: any.
  static void* take(std::size_t n_heads);
  /// False: the memory is not from here. Thread: any.
  static bool give_back(const void* block) noexcept;
};

/// The allocator of the library's values: operator new, and for one head of a value HeadReserve too.
template <class T>
struct Memory {
  using value_type = T;
  static constexpr bool kIsHead = sizeof(T) <= HeadReserve::kHeadBytes && alignof(T) <= alignof(std::max_align_t);

  Memory() = default;
  template <class Other>
  Memory(const Memory<Other>&) noexcept {}

  T* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    if (!kIsHead || n != 1) return static_cast<T*>(::operator new(n * sizeof(T)));
    void* head = nullptr;
    if (!attempt([&] { head = ::operator new(sizeof(T)); }))
      head = HeadReserve::take(std::is_same_v<T, std::string> ? HeadReserve::kHeadsOfTexts : HeadReserve::kHeads);
    return static_cast<T*>(head);
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    if (kIsHead && n == 1 && HeadReserve::give_back(memory)) return;
    ::operator delete(memory);
  }

  template <class Other>
  bool operator==(const Memory<Other>&) const noexcept {
    return true;
  }
};

}  // namespace baton::json
