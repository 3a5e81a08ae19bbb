/// Computes random numbers from seed, tensor and element.
#include "model/source/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/split_mix.h"

namespace baton {
namespace {

/// Root mean square of the numbers that random codes stand for, of f8 those below 2.
float rms_of_codes(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::f8: return 0.6f;
    case WeightScheme::i8: return 74;
    case WeightScheme::i4: return 4.6f;
    case WeightScheme::f4: return 2.9f;
    case WeightScheme::dense: break;
  }
  check_failed("RandomSource: dense weights have no codes");
}

/// Fills `out` with a number near `scale`, which u8 (MXFP4) has as an exponent.
void fill_scales(const TensorView& out, float scale) {
  if (out.dtype == DType::u8) {
    const int exponent = std::clamp(127 + static_cast<int>(std::lround(std::log2(scale))), 0, 254);
    std::ranges::fill(out.elements<std::uint8_t>(), static_cast<std::uint8_t>(exponent));
  } else if (out.dtype == DType::f8_e4m3) {
    std::ranges::fill(out.elements<Float8E4M3>(), Float8E4M3(scale));
  } else {
    visit_float(out.dtype, [&]<class To>(To) { std::ranges::fill(out.elements<To>(), static_cast<To>(scale)); });
  }
}

/// Writes the bytes [first, first + n) of the random bytes of `key`, each with `mask`.
void fill_bytes(std::uint64_t key, std::int64_t first, std::int64_t n, std::uint64_t mask, std::byte* to) {
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::uint64_t>(first + i);
    if (i == 0 || at % 8 == 0) bits = split_mix(key, at / 8);
    to[i] = static_cast<std::byte>(bits >> (at % 8 * 8) & mask);
  }
}

/// Numbers of variance 1 / k are uniform between -half_width and half_width.
float half_width_of(std::int64_t k) { return std::sqrt(3.0f / static_cast<float>(k)); }

/// Writes the numbers at places from `first` on. Drawn and rounded in loops of their own, of a known length, they take two thirds
/// of the time that they take one by one.
template <class To>
void draw_elements(std::uint64_t key, std::int64_t first, float half_width, std::span<To> out) {
  constexpr std::size_t kAtOnce = 64;
  std::array<float, kAtOnce> drawn;
  for (std::size_t begin = 0; begin < out.size(); begin += kAtOnce) {
    const auto place = static_cast<std::uint64_t>(first) + begin;
    To* const to = out.data() + begin;
    const auto draw = [&](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) drawn[i] = random_element(key, place + i, half_width);
      for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<To>(drawn[i]);
    };
    if (out.size() - begin >= kAtOnce)
      draw(kAtOnce);
    else
      draw(out.size() - begin);
  }
}

}  // namespace

RandomSource::RandomSource(std::uint64_t seed, std::span<const ExpectedTensor> tensors, const Parallel& parallel,
                           QuantizationSpec stated, std::set<std::string> kept)
    : seed_(seed), stated_(std::move(stated)), kept_(std::move(kept)), parallel_(parallel) {
  for (const ExpectedTensor& tensor : tensors) place_of_.emplace(std::pair(tensor.name, tensor.expert), place_of_.size());
}

std::uint64_t RandomSource::key_of(const ExpectedTensor& tensor) const {
  const auto place = place_of_.find({tensor.name, tensor.expert});
  check(place != place_of_.end(), [&] { return "RandomSource: the model has no tensor " + tensor.name; });
  return split_mix(seed_, place->second);
}

Result<MatrixForm> RandomSource::form_of(const ExpectedTensor& matrix) const {
  // gpt-oss' method is that of its experts, each layer's in one tensor.
  const bool is_kept = kept_.contains(matrix.name) || (stated_.method == "mxfp4" && matrix.n_experts == 0);
  if (stated_.statements.empty() || is_kept) return MatrixForm{};
  if (stated_.statements.size() > 1)
    return fail(ErrorCode::unsupported,
                fmt::format("random weights have one scheme, and the configuration ('{}') states {} and {}", stated_.method,
                            to_string(stated_.statements[0]), to_string(stated_.statements[1])));
  const SchemeStatement& stated = stated_.statements.front();
  MatrixForm form{.scheme = stated.scheme, .scale_columns = matrix.shape[1]};
  if (stated.scales == ScaleKind::tensor) form.scale_rows = matrix.shape[0];
  if (stated.scales == ScaleKind::block) form.scale_rows = stated.rows;
  if (stated.scales == ScaleKind::block || stated.scales == ScaleKind::group) form.scale_columns = stated.columns;
  if (stated.scheme == WeightScheme::f4) {
    const bool is_mxfp4 = stated.columns == 32;
    form.scale_dtype = is_mxfp4 ? DType::u8 : DType::f8_e4m3;
    form.has_row_scales = !is_mxfp4;
  } else if (stated.scheme == WeightScheme::i4) {
    form.scale_dtype = DType::bf16;
  }
  form.has_zeros = !stated.is_symmetric;
  return form;
}

Result<void> RandomSource::read_stored(const TensorPart& part, const StoredRows& out) {
  const std::int64_t k = part.tensor.shape[1];
  const bool has_half_bytes = out.scheme == WeightScheme::i4 || out.scheme == WeightScheme::f4;
  if (has_half_bytes && part.columns.begin % 2 != 0)
    return fail(ErrorCode::unsupported, fmt::format("tensor '{}': {} cannot be cut at column {}", part.tensor.name,
                                                    to_string(out.scheme), part.columns.begin));
  const std::uint64_t key = key_of(part.tensor);
  const std::uint64_t mask = out.scheme == WeightScheme::f8 ? 0xbf : 0xff;  // no exponent of f8 that makes 2 or more
  const std::int64_t row_bytes = out.values.shape[1];
  parallel_.for_ranges(
      part.rows.size(), std::max<std::int64_t>(1, kElementsPerTask / row_bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t first =
              (part.rows.begin + row) * row_value_bytes(out.scheme, k) + row_value_bytes(out.scheme, part.columns.begin);
          fill_bytes(key, first, row_bytes, mask, out.values.data + row * row_bytes);
        }
      });
  const float scale = 1 / (rms_of_codes(out.scheme) * std::sqrt(static_cast<float>(k)));
  // Scales of NVFP4 are 1 beside those of rows.
  const bool has_row_scales = out.row_scales.data != nullptr;
  fill_scales(out.scales, has_row_scales ? 1 : scale);
  if (has_row_scales) fill_scales(out.row_scales, scale);
  if (out.zeros.data != nullptr)
    std::ranges::fill(out.zeros.elements<std::uint8_t>(), static_cast<std::uint8_t>(out.scheme == WeightScheme::i4 ? 8 : 128));
  return {};
}

std::optional<RandomRows> RandomSource::rows_of(const TensorPart& part) const {
  if (part.tensor.kind != ExpectedTensor::Kind::matrix || part.tensor.interleaved_dim > 0) return std::nullopt;
  const std::int64_t k = part.tensor.shape[1];
  return RandomRows{.key = key_of(part.tensor),
                    .half_width = half_width_of(k),
                    .first = part.rows.begin * k + part.columns.begin,
                    .row_stride = k,
                    .n_rows = part.rows.size(),
                    .n_zero_rows = part.n_zero_rows};
}

Result<void> RandomSource::read(const TensorPart& part, TensorView out) {
  const ExpectedTensor& tensor = part.tensor;
  const std::uint64_t key = key_of(tensor);
  visit_float(out.dtype, [&]<class To>(To) {
    const auto elements = out.elements<To>();
    if (tensor.kind != ExpectedTensor::Kind::matrix && tensor.n_taps == 0)
      return std::fill(elements.begin(), elements.end(),
                       static_cast<To>(tensor.kind == ExpectedTensor::Kind::norm ? 1.0f : 0.0f));
    const bool is_matrix = tensor.kind == ExpectedTensor::Kind::matrix;
    const std::int64_t k = is_matrix ? tensor.shape[1] : tensor.n_taps;
    const std::int64_t n_columns = is_matrix ? part.columns.size() : part.rows.size();
    const float half_width = half_width_of(k);
    // The number of the element in the whole tensor, from its number in the part.
    const std::int64_t first = part.rows.begin * k + part.columns.begin;
    const std::int64_t n_skipped = k - n_columns;
    parallel_.for_ranges(out.shape.n_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end;) {
        const std::int64_t row = i / n_columns;
        const std::int64_t in_whole = first + row * n_skipped;
        const std::int64_t row_end = std::min(end, (row + 1) * n_columns);
        draw_elements(key, in_whole + i, half_width,
                      elements.subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(row_end - i)));
        i = row_end;
      }
    });
  });
  return {};
}

}  // namespace baton
