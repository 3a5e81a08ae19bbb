/// Views of contiguous row-major memory with a dtype and a shape. A view owns nothing; its memory must outlive it. The
/// memory may belong to a device: only the backend that allocated it reads through the pointer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "core/check.h"
#include "core/dtype.h"

namespace baton {

/// Sizes of up to four dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes) {
    check(sizes.size() <= kMaxRank, "Shape: more than four dimensions");
    for (const std::int64_t size : sizes) sizes_[static_cast<std::size_t>(rank_++)] = size;
  }

  constexpr int rank() const { return rank_; }
  constexpr std::int64_t operator[](int axis) const {
    check(axis >= 0 && axis < rank_, "Shape: axis out of range");
    return sizes_[static_cast<std::size_t>(axis)];
  }
  constexpr std::int64_t n_elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= sizes_[static_cast<std::size_t>(axis)];
    return product;
  }
  constexpr bool operator==(const Shape&) const = default;

  void append(std::int64_t size) {
    check(rank_ < kMaxRank, "Shape: more than four dimensions");
    sizes_[static_cast<std::size_t>(rank_++)] = size;
  }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

/// "[2, 3]".
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

template <class Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  std::size_t size_bytes() const { return static_cast<std::size_t>(shape.n_elements()) * ::baton::size_bytes(dtype); }
  /// The elements as host memory of type T, which must be the view's dtype.
  template <class T>
  auto elements() const {
    check(DTypeOf<T>::value == dtype, "TensorView::elements: the type asked for is not the tensor's dtype");
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(data), static_cast<std::size_t>(shape.n_elements()));
  }
  /// Rows [begin, end) of the outermost dimension.
  BasicTensorView rows(std::int64_t begin, std::int64_t end) const {
    check(shape.rank() >= 1 && 0 <= begin && begin <= end && end <= shape[0], "TensorView::rows: range outside the tensor");
    Shape part;
    part.append(end - begin);
    for (int axis = 1; axis < shape.rank(); ++axis) part.append(shape[axis]);
    const std::size_t row_bytes = shape[0] == 0 ? 0 : size_bytes() / static_cast<std::size_t>(shape[0]);
    return {data + static_cast<std::size_t>(begin) * row_bytes, dtype, part};
  }
  operator BasicTensorView<const std::byte>() const
    requires(!std::is_const_v<Byte>)
  {
    return {data, dtype, shape};
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

/// A view of host memory of element type T.
template <class T>
TensorView view_of(std::span<T> elements, Shape shape)
  requires(!std::is_const_v<T>)
{
  check(static_cast<std::int64_t>(elements.size()) == shape.n_elements(), "view_of: the shape does not fit the memory");
  return {reinterpret_cast<std::byte*>(elements.data()), DTypeOf<T>::value, shape};
}
template <class T>
ConstTensorView view_of(std::span<const T> elements, Shape shape) {
  check(static_cast<std::int64_t>(elements.size()) == shape.n_elements(), "view_of: the shape does not fit the memory");
  return {reinterpret_cast<const std::byte*>(elements.data()), DTypeOf<T>::value, shape};
}

}  // namespace baton
