/// Finds the scales of a row and divides by them.
#include "model/source/rounding.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include <fmt/format.h>

#include "core/check.h"
#include "model/source/head_matrices.h"

namespace baton {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;

/// Weights that are read before they are rounded: they stay in a cache meanwhile.
constexpr std::int64_t kWeightsAtOnce = 1 << 20;

/// The code that the largest weight of a scale becomes, before it is rounded.
float range_of(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::f8: return Float8E4M3::kLargest;
    case WeightScheme::i8: return 127.5f;
    case WeightScheme::i4: return 7.5f;
    case WeightScheme::f4:
    case WeightScheme::dense: break;
  }
  check_failed("rounding: dense weights are not rounded");
}

/// The bits of the largest magnitude: those of an infinity or more if a weight is not finite.
std::uint32_t largest_bits(std::span<const float> weights) {
  std::uint32_t largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::bit_cast<std::uint32_t>(weight) & 0x7fffffffu);
  return largest;
}

/// As it is stored. Never 0: weights that are all 0, or too small for any scale, become 0.
float scale_of(float largest, WeightScheme scheme, DType dtype) {
  const float scale = largest / range_of(scheme);
  const float stored = visit_float(dtype, [&]<class T>(T) { return static_cast<float>(static_cast<T>(scale)); });
  return stored == 0 ? 1 : stored;
}

/// x / scale as an integer of [low, high], to nearest even, in the low bits. Numbers near 1.5 * 2^23 are integers.
std::uint32_t rounded(float x, float scale, float low, float high) {
  return std::bit_cast<std::uint32_t>(std::clamp(x / scale, low, high) + 0x1.8p23f);
}

/// The codes of weights that share a scale, one a byte.
void round_codes(std::span<const float> weights, WeightScheme scheme, float scale, std::uint8_t* codes) {
  if (scheme == WeightScheme::f8) {
    for (std::size_t c = 0; c < weights.size(); ++c) codes[c] = Float8E4M3(weights[c] / scale).bits;
  } else if (scheme == WeightScheme::i8) {
    for (std::size_t c = 0; c < weights.size(); ++c)
      codes[c] = static_cast<std::uint8_t>(rounded(weights[c], scale, -128, 127) + 128);
  } else {
    for (std::size_t c = 0; c < weights.size(); ++c)
      codes[c] = static_cast<std::uint8_t>((rounded(weights[c], scale, -8, 7) + 8) & 15);
  }
}

}  // namespace

MatrixForm rounded_form(const WeightRounding& rounding, std::int64_t k) {
  check(rounding.is_on(), "rounded_form: dense weights are not rounded");
  MatrixForm form{.scheme = rounding.scheme, .scale_columns = k};
  if (rounding.scheme != WeightScheme::i4) return form;
  form.scale_dtype = DType::bf16;
  std::int64_t group = rounding.group;
  while (group >= kScaleStep && (k % group != 0 || group % kScaleStep != 0)) group /= 2;
  if (group >= kScaleStep) form.scale_columns = group;
  return form;
}

bool round_row(std::span<const float> weights, const MatrixForm& form, std::byte* values, std::span<float> scales) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(values);
  const bool is_i4 = form.scheme == WeightScheme::i4;
  std::vector<std::uint8_t> codes(is_i4 ? weights.size() + 1 : 0, 0);
  const auto group_len = static_cast<std::size_t>(form.scale_columns);
  for (std::size_t begin = 0, group = 0; begin < weights.size(); begin += group_len, ++group) {
    const std::span<const float> part = weights.subspan(begin, std::min(group_len, weights.size() - begin));
    const std::uint32_t largest = largest_bits(part);
    if (largest >= kInfinity) return false;
    scales[group] = scale_of(std::bit_cast<float>(largest), form.scheme, form.scale_dtype);
    round_codes(part, form.scheme, scales[group], (is_i4 ? codes.data() : bytes) + begin);
  }
  for (std::size_t i = 0; is_i4 && 2 * i < weights.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  return true;
}

Result<void> RowRounder::round(const ExpectedTensor& matrix, IndexRange rows, const MatrixForm& form,
                               const std::function<void(const RoundedRow&)>& take) {
  const std::int64_t k = matrix.shape[1];
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kWeightsAtOnce / k);
  weights_.resize(static_cast<std::size_t>(std::min(rows_at_once, rows.size()) * k));
  std::atomic<bool> is_finite = true;
  for (std::int64_t first = rows.begin; first < rows.end && is_finite; first += rows_at_once) {
    const IndexRange read{first, std::min(rows.end, first + rows_at_once)};
    const std::span<float> weights = std::span(weights_).first(static_cast<std::size_t>(read.size() * k));
    BATON_TRY_VOID(dense_.read({matrix, read, {0, k}, 0}, view_of(weights, {read.size(), k})));
    const auto round_some = [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::byte> values(static_cast<std::size_t>(rounded_row_bytes(form.scheme, k)));
      std::vector<float> scales(static_cast<std::size_t>((k - 1) / form.scale_columns + 1));
      for (std::int64_t row = begin; row < end; ++row) {
        const auto of_row = weights.subspan(static_cast<std::size_t>(row * k), static_cast<std::size_t>(k));
        if (round_row(of_row, form, values.data(), scales))
          take({first + row, of_row, values, scales});
        else
          is_finite = false;
      }
    };
    parallel_.for_ranges(read.size(), std::max<std::int64_t>(1, kElementsPerTask / k), round_some);
  }
  if (is_finite) return {};
  return fail(ErrorCode::invalid_data,
              fmt::format("tensor '{}' holds a number that is not finite and cannot be quantised", matrix.name));
}

void widen_row(const MatrixForm& form, const std::byte* values, std::span<const float> scales, std::span<float> weights) {
  const auto k = static_cast<std::int64_t>(weights.size());
  StoredMatrix row;
  row.scheme = form.scheme;
  row.shape = {1, k};
  row.values = {values, form.scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8, {1, row_value_bytes(form.scheme, k)}};
  row.scales = view_of(scales, {1, static_cast<std::int64_t>(scales.size())});
  row.scale_columns = form.scale_columns;
  widen_row(row, 0, weights);
}

}  // namespace baton
