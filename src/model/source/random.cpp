/// Random numbers as a function of seed, tensor and element.
#include "model/source/random.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr std::int64_t kGrain = 1 << 16;  // elements a thread fills at least

/// A well-mixed number for each (key, index). Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Result<void> RandomSource::read(const ExpectedTensor& tensor, TensorView out) {
  const std::uint64_t key = mixed(seed_, n_read_++);
  visit_float(out.dtype, [&]<class To>(To) {
    const auto elements = out.elements<To>();
    if (tensor.kind != ExpectedTensor::Kind::matrix)
      return std::fill(elements.begin(), elements.end(),
                       static_cast<To>(tensor.kind == ExpectedTensor::Kind::norm ? 1.0f : 0.0f));
    const float half_width = std::sqrt(3.0f / static_cast<float>(out.shape[1]));
    parallel_.for_ranges(out.shape.n_elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto bits = static_cast<std::int32_t>(mixed(key, static_cast<std::uint64_t>(i)) >> 40);  // 24 bits: exact in f32
        elements[static_cast<std::size_t>(i)] = static_cast<To>(half_width * (static_cast<float>(bits) * 0x1p-23f - 1.0f));
      }
    });
  });
  return {};
}

}  // namespace baton
