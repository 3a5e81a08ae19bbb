/// How much of a thread's stack is left.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

/// Measures the stack of the thread that made it, so that recursion over what others wrote ends before the stack does. Used
/// by that thread alone.
class StackSpace {
 public:
  /// Left for what recursion calls at its end, which does not ask again: formatting, regular expressions, the C library.
  static constexpr std::size_t kReservedBytes = std::size_t{96} << 10;

  StackSpace();

  /// Bytes between the caller's frame and the end of the stack.
  std::size_t left() const { return frame() > end_ ? frame() - end_ : 0; }
  /// Whether `n_bytes` more can be used, besides the reserve.
  bool has_room(std::size_t n_bytes = 0) const { return left() > kReservedBytes + n_bytes; }
  /// The size of the whole stack.
  std::size_t n_bytes() const { return n_bytes_; }

 private:
  /// Not the address of a variable: the address sanitizer puts those elsewhere.
  [[gnu::always_inline]] static std::uintptr_t frame() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

  std::uintptr_t end_ = 0;  // the lowest address: stacks grow downwards
  std::size_t n_bytes_ = 0;
};

}  // namespace baton
