/// Containers of plain values in blocks: they grow without a copy, and end in one step for each block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace baton {

/// The size of a block. A container with one value allocates as much.
inline constexpr std::size_t kBlockBytes = std::size_t{16} << 10;

/// A list whose elements stay where they are. T needs no destructor, so that millions of elements end in microseconds.
template <class T>
  requires std::is_trivially_destructible_v<T>
class BlockList {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](std::size_t i) const { return blocks_[i / kPerBlock][i % kPerBlock]; }
  void push_back(const T& element) {
    if (size_ % kPerBlock == 0) blocks_.push_back(std::make_unique_for_overwrite<T[]>(kPerBlock));
    blocks_.back()[size_ % kPerBlock] = element;
    ++size_;
  }

 private:
  static constexpr std::size_t kPerBlock = std::bit_floor(kBlockBytes / sizeof(T));
  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t size_ = 0;
};

/// Copies of lists, which live as long as this does.
template <class T>
  requires std::is_trivially_copyable_v<T>
class ListArena {
 public:
  std::span<const T> copy(std::span<const T> list) {
    if (list.empty()) return {};
    const bool is_long = list.size() > kPerBlock / 16;  // at the end of a block less than that is left free
    if (is_long || list.size() > n_free_) {
      const std::size_t n = is_long ? list.size() : kPerBlock;
      blocks_.push_back(std::make_unique_for_overwrite<T[]>(n));
      if (is_long) return copied(list, blocks_.back().get());
      free_ = blocks_.back().get();
      n_free_ = n;
    }
    T* const place = free_;
    free_ += list.size();
    n_free_ -= list.size();
    return copied(list, place);
  }

 private:
  static constexpr std::size_t kPerBlock = kBlockBytes / sizeof(T);
  static std::span<const T> copied(std::span<const T> list, T* place) {
    std::copy(list.begin(), list.end(), place);
    return {place, list.size()};
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  T* free_ = nullptr;  // of the last block that is not a long list's own
  std::size_t n_free_ = 0;
};

}  // namespace baton
