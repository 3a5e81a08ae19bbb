/// Choices drawn from the bytes of a fuzz target.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace baton::test {

/// What is drawn when the bytes have run out: zeros, so that the case ends soon, or pseudo-random bytes that all the bytes
/// determine, so that short inputs draw large cases too.
enum class BehindBytes { zeros, pseudo_random };

/// Bytes as a source of choices.
class Drawn {
 public:
  Drawn(const std::uint8_t* data, std::size_t size, BehindBytes behind) : bytes_(data, size), behind_(behind) {
    for (const std::uint8_t one : bytes_) state_ = (state_ ^ one) * 1099511628211u;
  }

  bool is_at_end() const { return bytes_.empty(); }
  std::size_t byte() {
    if (bytes_.empty()) {
      if (behind_ == BehindBytes::zeros) return 0;
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::size_t>(state_ >> 56);
    }
    const std::size_t first = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return first;
  }
  /// 0 to n - 1; n is at least 1.
  std::size_t below(std::size_t n) { return n > 256 ? (byte() * 256 + byte()) % n : byte() % n; }
  bool is() { return byte() % 2 == 1; }
  /// Never when the bytes have run out.
  bool one_in(std::size_t n) { return !is_at_end() && below(n) == 0; }
  /// Mostly a few, 0 to 3, and twice in a case, at most, up to `most`.
  std::size_t count(std::size_t most) {
    const std::size_t first = byte();
    if (first < 248 || n_large_ == 2) return std::min(most, first % 4);
    ++n_large_;
    return std::min(most, std::size_t{1} << byte() % 18);
  }
  template <class Value>
  const Value& of(std::span<const Value> values) {
    return values[below(values.size())];
  }
  template <class Value, std::size_t n>
  const Value& of(const std::array<Value, n>& values) {
    return values[below(n)];
  }
  /// Up to `most` bytes as they are.
  std::string raw(std::size_t most) {
    std::string text;
    for (std::size_t i = below(most + 1); i > 0; --i) text += static_cast<char>(byte());
    return text;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  const BehindBytes behind_;
  std::uint64_t state_ = 14695981039346656037u;
  int n_large_ = 0;
};

}  // namespace baton::test
