/// Computes random numbers from seed, tensor and element.
#include "model/source/random.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/split_mix.h"

namespace baton {

RandomSource::RandomSource(std::uint64_t seed, std::span<const ExpectedTensor> tensors, const Parallel& parallel)
    : seed_(seed), parallel_(parallel) {
  for (const ExpectedTensor& tensor : tensors) place_of_.emplace(std::pair(tensor.name, tensor.expert), place_of_.size());
}

Result<void> RandomSource::read(const TensorPart& part, TensorView out) {
  const ExpectedTensor& tensor = part.tensor;
  const auto place = place_of_.find({tensor.name, tensor.expert});
  check(place != place_of_.end(), [&] { return "RandomSource: the model has no tensor " + tensor.name; });
  const std::uint64_t key = split_mix(seed_, place->second);
  visit_float(out.dtype, [&]<class To>(To) {
    const auto elements = out.elements<To>();
    if (tensor.kind != ExpectedTensor::Kind::matrix)
      return std::fill(elements.begin(), elements.end(),
                       static_cast<To>(tensor.kind == ExpectedTensor::Kind::norm ? 1.0f : 0.0f));
    const std::int64_t k = tensor.shape[1];
    const std::int64_t n_columns = part.columns.size();
    const float half_width = std::sqrt(3.0f / static_cast<float>(k));
    // The number of the element in the whole tensor, from its number in the part.
    const std::int64_t first = part.rows.begin * k + part.columns.begin;
    const std::int64_t n_skipped = k - n_columns;
    parallel_.for_ranges(out.shape.n_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end;) {
        const std::int64_t row = i / n_columns;
        const std::int64_t in_whole = first + row * n_skipped;
        for (const std::int64_t row_end = std::min(end, (row + 1) * n_columns); i < row_end; ++i) {
          const auto bits = static_cast<std::int32_t>(split_mix(key, static_cast<std::uint64_t>(in_whole + i)) >>
                                                      40);  // 24 bits: exact in f32
          elements[static_cast<std::size_t>(i)] = static_cast<To>(half_width * (static_cast<float>(bits) * 0x1p-23f - 1.0f));
        }
      }
    });
  });
  return {};
}

}  // namespace baton
