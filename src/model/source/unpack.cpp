/// Unpacks values, scales, zeros and the order of columns.
#include "model/source/unpack.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::int64_t kBitsAWord = 32;
constexpr std::uint64_t kF8Nan = 0x7f;
constexpr std::uint64_t kEachByte = 0x0101010101010101;

std::uint32_t word_at(const std::byte* data, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, data + index * 4, sizeof(word));
  return word;
}

/// Unpacks one part.
class Unpacker {
 public:
  Unpacker(const Parallel& parallel, const StoredLayout& stored, const TensorPart& part, const StoredRows& out)
      : parallel_(parallel),
        stored_(stored),
        rows_(part.rows),
        columns_(part.columns),
        out_(out),
        bits_(out.scheme == WeightScheme::i4 || out.scheme == WeightScheme::f4 ? 4 : 8),
        row_bytes_(out.values.shape[1]) {}

  Result<void> run(std::string_view name) {
    if (bits_ == 4 && columns_.begin % 2 != 0)
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}': {} cannot be cut at column {}", name, to_string(out_.scheme), columns_.begin));
    if (stored_.form.is_permuted) {
      if (columns_.size() != stored_.k)
        return fail(ErrorCode::unsupported,
                    fmt::format("tensor '{}': its columns are in the order of activations (desc_act) and cannot be "
                                "split over ranks",
                                name));
      order_columns();
    }
    if (out_.scales.data != nullptr) {
      BATON_TRY_VOID(out_.scheme == WeightScheme::f4 ? copy_scales_of_8_bits(name) : copy_scales(name));
    }
    if (out_.zeros.data != nullptr) copy_zeros();
    if (out_.values.data != nullptr) copy_values();
    if (has_nan_) return fail(ErrorCode::invalid_data, fmt::format("tensor '{}' holds NaN", name));
    return {};
  }

 private:
  std::uint8_t* values_of(std::int64_t row) const {
    return reinterpret_cast<std::uint8_t*>(out_.values.data) + row * row_bytes_;
  }

  template <class Body>
  void for_rows(std::int64_t grain, const Body& body) const {
    parallel_.for_ranges(rows_.size(), grain, body);
  }

  /// Blocks of rows that are written side by side: their lines stay in the cache.
  template <class Body>
  void for_row_blocks(std::int64_t n_rows, const Body& body) const {
    for_rows(n_rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; r += n_rows) body(r, std::min(end, r + n_rows));
    });
  }

  /// Columns sorted by group, in the order of the tensor within a group.
  void order_columns() {
    order_.resize(static_cast<std::size_t>(stored_.k));
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, {}, [&](std::int32_t column) { return word_at(stored_.groups.data, column); });
    std::memcpy(out_.permutation.data, order_.data(), order_.size() * sizeof(std::int32_t));
  }

  float scale_at(std::int64_t index) const {
    if (stored_.scales.dtype == DType::u8) {  // a power of two
      const auto exponent = static_cast<int>(std::to_integer<std::uint8_t>(stored_.scales.data[index]));
      return exponent == 255 ? std::nanf("") : std::ldexp(1.0f, exponent - 127);
    }
    return visit_float(stored_.scales.dtype, [&]<class T>(T) {
      T value;
      std::memcpy(&value, stored_.scales.data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      return static_cast<float>(value);
    });
  }

  Result<void> copy_scales(std::string_view name) {
    const MatrixForm& form = stored_.form;
    const std::int64_t n_groups = out_.scales.shape[1];
    std::optional<float> bad_scale;
    visit_float(out_.scales.dtype, [&]<class T>(T) {
      const auto to = out_.scales.elements<T>();
      const auto copy = [&](std::int64_t r, std::int64_t g) {
        const std::int64_t row = (rows_.begin + r * out_.scale_rows) / form.scale_rows;
        const std::int64_t group = (columns_.begin + g * out_.scale_columns) / form.scale_columns;
        const std::int64_t index =
            stored_.has_scales_in_columns() ? group * stored_.scales.shape[1] + row : row * stored_.scales.shape[1] + group;
        const float scale = scale_at(index);
        to[static_cast<std::size_t>(r * n_groups + g)] = static_cast<T>(scale);
        return std::isfinite(scale);
      };
      std::atomic<bool> is_finite = true;
      parallel_.for_ranges(out_.scales.shape[0], 32, [&](std::int64_t begin, std::int64_t end) {
        bool all = true;
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t g = 0; g < n_groups; ++g) all &= copy(r, g);
        if (!all) is_finite = false;
      });
      if (is_finite) return;
      for (const T scale : to)
        if (!std::isfinite(static_cast<float>(scale))) bad_scale = static_cast<float>(scale);
    });
    if (!bad_scale) return {};
    return fail(ErrorCode::invalid_data, fmt::format("tensor '{}{}' holds {}; scales must be finite", stem_of_matrix(name),
                                                     stored_.scales_part, std::isnan(*bad_scale) ? "NaN" : "infinity"));
  }

  /// Scales that stay in 8 bits, and those of rows.
  Result<void> copy_scales_of_8_bits(std::string_view name) {
    const bool is_e4m3 = stored_.scales.dtype == DType::f8_e4m3;
    const auto is_nan = [&](std::uint8_t scale) { return is_e4m3 ? (scale & kF8Nan) == kF8Nan : scale == 255; };
    const std::int64_t n_groups = out_.scales.shape[1];
    auto* const to = reinterpret_cast<std::uint8_t*>(out_.scales.data);
    std::atomic<bool> has_nan = false;
    parallel_.for_ranges(out_.scales.shape[0], 32, [&](std::int64_t begin, std::int64_t end) {
      bool any = false;
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t g = 0; g < n_groups; ++g) {
          const std::int64_t row = rows_.begin + r * out_.scale_rows;
          const std::int64_t group = (columns_.begin + g * out_.scale_columns) / stored_.form.scale_columns;
          const auto scale = std::to_integer<std::uint8_t>(stored_.scales.data[row * stored_.scales.shape[1] + group]);
          to[r * n_groups + g] = scale;
          any = any || is_nan(scale);
        }
      if (any) has_nan = true;
    });
    if (has_nan)
      return fail(ErrorCode::invalid_data,
                  fmt::format("tensor '{}{}' holds NaN; scales must be finite", stem_of_matrix(name), stored_.scales_part));
    if (out_.row_scales.data != nullptr) std::ranges::fill(out_.row_scales.elements<float>(), stored_.row_scale);
    return {};
  }

  /// The place of an output in a word of AWQ.
  static std::int64_t awq_place(std::int64_t row) {
    constexpr std::array<std::int64_t, 8> kPlaces{0, 4, 1, 5, 2, 6, 3, 7};
    return kPlaces[static_cast<std::size_t>(row % 8)];
  }

  void copy_zeros() {
    const std::int64_t per_word = kBitsAWord / bits_;
    const std::uint32_t added = stored_.adds_one_to_zeros ? 1 : 0;
    const std::uint32_t middle = bits_ == 4 ? 8 : 128;
    const std::int64_t n_groups = out_.zeros.shape[1];
    auto* const to = reinterpret_cast<std::uint8_t*>(out_.zeros.data);
    for (std::int64_t r = 0; r < rows_.size(); ++r)
      for (std::int64_t g = 0; g < n_groups; ++g) {
        const std::int64_t row = rows_.begin + r;
        const std::int64_t group = (columns_.begin + g * out_.scale_columns) / stored_.form.scale_columns;
        std::uint32_t zero = middle;
        if (stored_.zeros.data != nullptr) {
          const std::int64_t word = stored_.has_scales_in_columns() ? group * stored_.zeros.shape[1] + row / per_word
                                                                    : row / per_word * stored_.zeros.shape[1] + group;
          const std::int64_t place = stored_.layout == ValueLayout::awq ? awq_place(row) : row % per_word;
          zero = ((word_at(stored_.zeros.data, word) >> (bits_ * place)) + added) & ((1u << bits_) - 1);
        }
        to[r * n_groups + g] = static_cast<std::uint8_t>(zero);
      }
  }

  std::int64_t packed_row_bytes() const { return (stored_.k * bits_ + kBitsAWord - 1) / kBitsAWord * 4; }

  void copy_values() {
    switch (stored_.layout) {
      case ValueLayout::bytes: return copy_bytes();
      case ValueLayout::half_bytes: return copy_rows(row_value_bytes(WeightScheme::f4, stored_.k));
      case ValueLayout::packed_rows: return stored_.form.is_permuted ? pick_values() : copy_rows(packed_row_bytes());
      case ValueLayout::packed_columns: return stored_.form.is_permuted ? pick_columns() : copy_packed_columns();
      case ValueLayout::awq: return copy_awq();
      case ValueLayout::dense: break;
    }
    check_failed("unpack: a dense matrix has nothing to unpack");
  }

  /// Signed bytes get their sign bit inverted: 128 is 0.
  void copy_bytes() {
    const bool is_f8 = out_.scheme == WeightScheme::f8;
    const std::uint64_t flip = is_f8 ? 0 : kEachByte * 0x80;
    for_rows(16, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t tops = 0;  // the highest bit of a byte is set by NaN
      for (std::int64_t r = begin; r < end; ++r) {
        const std::byte* const from = stored_.values + (rows_.begin + r) * stored_.k + columns_.begin;
        const auto copy = [&](std::int64_t c, std::size_t n_bytes) {
          std::uint64_t bytes = 0;
          std::memcpy(&bytes, from + c, n_bytes);
          tops |= (bytes & kEachByte * kF8Nan) + kEachByte;
          bytes ^= flip;
          std::memcpy(values_of(r) + c, &bytes, n_bytes);
        };
        std::int64_t c = 0;
        for (; c + 8 <= columns_.size(); c += 8) copy(c, 8);
        if (c < columns_.size()) copy(c, static_cast<std::size_t>(columns_.size() - c));
      }
      if (is_f8 && (tops & kEachByte * 0x80) != 0) has_nan_ = true;
    });
  }

  /// Rows of `stored_bytes` that are, byte by byte, what StoredMatrix wants.
  void copy_rows(std::int64_t stored_bytes) {
    for_rows(16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        std::memcpy(values_of(r), stored_.values + (rows_.begin + r) * stored_bytes + columns_.begin * bits_ / 8,
                    static_cast<std::size_t>(row_bytes_));
    });
  }

  /// A word [c, row] has the values of a row's next columns in the order of StoredMatrix: words change places.
  void copy_packed_columns() {
    for_row_blocks(16, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t per_word = kBitsAWord / bits_;
      for (std::int64_t c = columns_.begin; c < columns_.end;) {
        const std::int64_t n_values = std::min(columns_.end - c, per_word - c % per_word);
        const std::int64_t at = (c - columns_.begin) * bits_ / 8;
        const std::int64_t n_bytes = std::min((n_values * bits_ + 7) / 8, row_bytes_ - at);
        for (std::int64_t r = begin; r < end; ++r) {
          const std::uint32_t word =
              word_at(stored_.values, c / per_word * stored_.n + rows_.begin + r) >> (c % per_word * bits_);
          write_word(values_of(r) + at, word, n_bytes);
        }
        c += n_values;
      }
    });
  }

  /// The first bytes of a word.
  static void write_word(std::uint8_t* to, std::uint32_t word, std::int64_t n_bytes) {
    if (n_bytes == 4) {
      std::memcpy(to, &word, 4);
    } else {
      std::memcpy(to, &word, static_cast<std::size_t>(n_bytes));
    }
  }

  std::uint32_t value_at(std::int64_t row, std::int64_t c) const {
    const std::int64_t per_word = kBitsAWord / bits_;
    const std::int64_t words_a_row = (stored_.k + per_word - 1) / per_word;
    return (word_at(stored_.values, row * words_a_row + c / per_word) >> (c % per_word * bits_)) & ((1u << bits_) - 1);
  }

  /// One value after the other, in the order of groups: a row's words stay in the cache.
  void pick_values() {
    for_rows(16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        std::uint8_t* const to = values_of(r);
        std::memset(to, 0, static_cast<std::size_t>(row_bytes_));
        for (std::int64_t c = 0; c < columns_.size(); ++c) {
          const std::uint32_t value = value_at(rows_.begin + r, order_[static_cast<std::size_t>(c)]);
          to[c * bits_ / 8] = static_cast<std::uint8_t>(to[c * bits_ / 8] | value << (bits_ == 4 ? 4 * (c % 2) : 0));
        }
      }
    });
  }

  /// One column after the other, in the order of groups: 16 rows have adjacent words, a line of the cache.
  void pick_columns() {
    constexpr std::size_t kRows = 16;
    for_row_blocks(kRows, [&](std::int64_t begin, std::int64_t end) {
      const auto n_rows = static_cast<std::size_t>(end - begin);
      const std::int64_t per_word = kBitsAWord / bits_;
      const std::uint32_t mask = (1u << bits_) - 1;
      std::array<std::uint32_t, kRows> words{};
      std::array<std::uint32_t, kRows> bytes{};
      for (std::int64_t c = 0; c < columns_.size(); ++c) {
        const std::int64_t column = order_[static_cast<std::size_t>(c)];
        std::memcpy(words.data(), stored_.values + (column / per_word * stored_.n + rows_.begin + begin) * 4, n_rows * 4);
        const std::int64_t shift = column % per_word * bits_;
        const std::int64_t place = c * bits_ % 8;
        for (std::size_t r = 0; r < kRows; ++r) bytes[r] |= ((words[r] >> shift) & mask) << place;
        if (place + bits_ < 8 && c + 1 < columns_.size()) continue;
        for (std::size_t r = 0; r < n_rows; ++r)
          values_of(begin + static_cast<std::int64_t>(r))[c * bits_ / 8] = static_cast<std::uint8_t>(bytes[r]);
        bytes.fill(0);
      }
    });
  }

  /// words[i]'s value j becomes words[j]'s value i, for 8 values of 4 bits.
  static void transpose_values(std::array<std::uint32_t, 8>& words) {
    const auto exchange = [&](std::size_t distance, int shift, std::uint32_t mask) {
      for (std::size_t i = 0; i < 8; ++i) {
        if ((i & distance) != 0) continue;
        const std::uint32_t changed = ((words[i] >> shift) ^ words[i + distance]) & mask;
        words[i + distance] ^= changed;
        words[i] ^= changed << shift;
      }
    };
    exchange(4, 16, 0x0000ffff);
    exchange(2, 8, 0x00ff00ff);
    exchange(1, 4, 0x0f0f0f0f);
  }

  /// A word has eight outputs of one column: eight words become a word of eight columns for each output.
  void copy_awq() {
    constexpr std::int64_t kOutputs = 8;
    const std::int64_t words_a_row = stored_.n / kOutputs;
    for_row_blocks(32, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = 0; c < columns_.size(); c += kOutputs) {
        const std::int64_t n_columns = std::min(kOutputs, columns_.size() - c);
        const std::int64_t n_bytes = std::min<std::int64_t>(4, row_bytes_ - c / 2);
        for (std::int64_t r = begin; r < end;) {
          const std::int64_t first = (rows_.begin + r) / kOutputs;
          std::array<std::uint32_t, kOutputs> words{};
          for (std::int64_t i = 0; i < n_columns; ++i)
            words[static_cast<std::size_t>(i)] = word_at(stored_.values, (columns_.begin + c + i) * words_a_row + first);
          transpose_values(words);
          for (; r < end && (rows_.begin + r) / kOutputs == first; ++r)
            write_word(values_of(r) + c / 2, words[static_cast<std::size_t>(awq_place(rows_.begin + r))], n_bytes);
        }
      }
    });
  }

  const Parallel& parallel_;
  const StoredLayout& stored_;
  const IndexRange rows_, columns_;
  const StoredRows& out_;
  const std::int64_t bits_;
  const std::int64_t row_bytes_;
  std::vector<std::int32_t> order_;
  std::atomic<bool> has_nan_ = false;
};

}  // namespace

Result<void> unpack(const Parallel& parallel, const StoredLayout& stored, const TensorPart& part, const StoredRows& out) {
  return Unpacker(parallel, stored, part, out).run(part.tensor.name);
}

}  // namespace baton
