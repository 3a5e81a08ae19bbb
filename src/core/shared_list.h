/// A list that does not change and that all its copies share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace baton {

/// Elements stand in a row, as in std::vector. A copy costs a reference, whatever the length. Copies may be read by
/// several threads at once.
template <class T>
class SharedList {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;

  SharedList() = default;
  SharedList(std::vector<T> elements) {  // NOLINT(google-explicit-constructor): it stands wherever a vector did
    if (!elements.empty()) elements_ = std::make_shared<const std::vector<T>>(std::move(elements));
  }
  SharedList(std::initializer_list<T> elements) : SharedList(std::vector<T>(elements)) {}

  std::size_t size() const { return elements_ ? elements_->size() : 0; }
  bool empty() const { return elements_ == nullptr; }
  const T* data() const { return elements_ ? elements_->data() : nullptr; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  /// `index` < size().
  const T& operator[](std::size_t index) const { return data()[index]; }
  const T& front() const { return data()[0]; }
  const T& back() const { return data()[size() - 1]; }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.elements_ == b.elements_ || std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<const std::vector<T>> elements_;  ///< null: empty
};

}  // namespace baton
