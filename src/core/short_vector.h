/// A vector that holds its first element in place, for lists that mostly have one.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"

namespace baton {

/// Elements stand in a row, as in std::vector: the only one in this object, several on the heap. Appending moves the
/// elements. T is default-constructible and movable; a list that was moved from holds unspecified elements until it is
/// cleared or assigned.
template <class T>
class ShortVector {
 public:
  using value_type = T;

  ShortVector() = default;
  ShortVector(std::initializer_list<T> elements) {
    for (const T& element : elements) push_back(element);
  }

  std::size_t size() const { return several_.empty() ? n_in_place_ : several_.size(); }
  bool empty() const { return size() == 0; }
  T* data() { return several_.empty() ? &first_ : several_.data(); }
  const T* data() const { return several_.empty() ? &first_ : several_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](std::size_t index) const { return data()[index]; }
  T& operator[](std::size_t index) { return data()[index]; }
  const T& at(std::size_t index) const {
    check(index < size(), "ShortVector: no such element");
    return data()[index];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size() - 1); }

  void push_back(T element) {
    if (empty()) {
      first_ = std::move(element);
      n_in_place_ = 1;
      return;
    }
    if (several_.empty()) several_.push_back(std::move(first_));
    several_.push_back(std::move(element));
  }
  void clear() {
    first_ = T();
    n_in_place_ = 0;
    several_.clear();
  }

 private:
  T first_{};
  std::size_t n_in_place_ = 0;  ///< 0 or 1, while several_ is empty
  std::vector<T> several_;      ///< none, or all elements
};

}  // namespace baton
