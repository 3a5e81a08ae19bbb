/// Computes random numbers from seed, tensor and element.
#include "model/source/random.h"

#include <algorithm>
#include <cmath>

#include "core/split_mix.h"

namespace baton {

Result<void> RandomSource::read(const ExpectedTensor& tensor, TensorView out) {
  const std::uint64_t key = split_mix(seed_, n_read_++);
  visit_float(out.dtype, [&]<class To>(To) {
    const auto elements = out.elements<To>();
    if (tensor.kind != ExpectedTensor::Kind::matrix)
      return std::fill(elements.begin(), elements.end(),
                       static_cast<To>(tensor.kind == ExpectedTensor::Kind::norm ? 1.0f : 0.0f));
    const float half_width = std::sqrt(3.0f / static_cast<float>(out.shape[1]));
    parallel_.for_ranges(out.shape.n_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto bits =
            static_cast<std::int32_t>(split_mix(key, static_cast<std::uint64_t>(i)) >> 40);  // 24 bits: exact in f32
        elements[static_cast<std::size_t>(i)] = static_cast<To>(half_width * (static_cast<float>(bits) * 0x1p-23f - 1.0f));
      }
    });
  });
  return {};
}

}  // namespace baton
