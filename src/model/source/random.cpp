/// Computes random numbers from seed, tensor and element.
#include "model/source/random.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include "core/check.h"
#include "core/split_mix.h"

namespace baton {

namespace {

constexpr std::int64_t kDrawnGroup = 32;

/// The scale with which numbers of any four bits have a variance near 1/k: their mean square is 137/16.
std::uint8_t mxfp4_scale(std::int64_t k) {
  return static_cast<std::uint8_t>(127 + std::lround(-0.5 * std::log2(137.0 / 16 * static_cast<double>(k))));
}

}  // namespace

RandomSource::RandomSource(std::uint64_t seed, std::span<const ExpectedTensor> tensors, const Parallel& parallel,
                           const QuantizationSpec& quantization)
    : seed_(seed), parallel_(parallel), has_mxfp4_(quantization.method == "mxfp4") {
  for (const ExpectedTensor& tensor : tensors) place_of_.emplace(std::pair(tensor.name, tensor.expert), place_of_.size());
}

std::uint64_t RandomSource::key_of(const ExpectedTensor& tensor) const {
  const auto place = place_of_.find({tensor.name, tensor.expert});
  check(place != place_of_.end(), [&] { return "RandomSource: the model has no tensor " + tensor.name; });
  return split_mix(seed_, place->second);
}

Result<MatrixForm> RandomSource::form_of(const ExpectedTensor& matrix) const {
  if (!has_mxfp4_ || matrix.n_experts == 0 || matrix.shape[1] % kDrawnGroup != 0) return MatrixForm{};
  return MatrixForm{.scheme = WeightScheme::f4, .scale_columns = kDrawnGroup, .scale_dtype = DType::u8};
}

Result<void> RandomSource::read_stored(const TensorPart& part, const StoredRows& out) {
  const std::int64_t k = part.tensor.shape[1];
  if (part.columns.begin % 2 != 0)
    return fail(ErrorCode::unsupported, fmt::format("tensor '{}': {} cannot be cut at column {}", part.tensor.name,
                                                    to_string(out.scheme), part.columns.begin));
  const std::uint64_t key = key_of(part.tensor);
  const std::int64_t row_bytes = out.values.shape[1];
  std::memset(out.scales.data, mxfp4_scale(k), out.scales.size_bytes());
  parallel_.for_ranges(out.values.shape[0], std::max<std::int64_t>(1, kElementsPerTask / row_bytes),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t row = begin; row < end; ++row) {
                           const std::int64_t first = ((part.rows.begin + row) * k + part.columns.begin) / 2;
                           std::byte* const to = out.values.data + row * row_bytes;
                           for (std::int64_t i = 0; i < row_bytes; ++i)
                             to[i] = static_cast<std::byte>(split_mix(key, static_cast<std::uint64_t>(first + i)) >> 56);
                         }
                       });
  return {};
}

Result<void> RandomSource::read(const TensorPart& part, TensorView out) {
  const ExpectedTensor& tensor = part.tensor;
  const std::uint64_t key = key_of(tensor);
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
