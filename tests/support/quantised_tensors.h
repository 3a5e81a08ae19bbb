/// Tensors of quantised matrices in each vendor's format, with values that a test knows: all scales are 2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/checkpoint_writer.h"

namespace baton::test {

constexpr std::int64_t ceil_of(std::int64_t n, std::int64_t step) { return (n + step - 1) / step; }

inline std::size_t element_bytes(std::string_view dtype) {
  if (dtype.ends_with("64")) return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  return dtype == "BF16" || dtype == "F16" || dtype == "I16" ? 2 : 1;
}

/// A tensor whose bytes repeat `pattern`.
inline TensorToWrite filled(std::string name, std::string_view dtype, const std::vector<std::int64_t>& shape,
                            std::string_view pattern) {
  TensorToWrite tensor{std::move(name), std::string(dtype), shape, ""};
  std::size_t n = element_bytes(dtype);
  for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
  tensor.bytes.resize(n);
  for (std::size_t i = 0; i < n; ++i) tensor.bytes[i] = pattern[i % pattern.size()];
  return tensor;
}

/// How a matrix is stored.
struct QuantisedForm {
  enum class Kind : std::uint8_t { dense, f8, i8, packed, gptq, awq, nvfp4, modelopt_nvfp4, mxfp4 };
  enum class Scales : std::uint8_t { tensor, row, group };  ///< group: of f8 and i8, a block
  Kind kind = Kind::f8;
  Scales scales = Scales::tensor;
  std::int64_t bits = 4, group = 16, block_rows = 16;
  bool has_zeros = false, has_shape = false, has_groups = false, is_permuted = false;
  std::string_view scale_dtype = "F32", scale_name = "weight_scale";
};

/// Appends the tensors of the matrix "STEM.weight" [n, k]. Values repeat 7 bytes.
inline void add_matrix(const std::string& stem, std::int64_t n, std::int64_t k, const QuantisedForm& form,
                       std::vector<TensorToWrite>& out) {
  using Kind = QuantisedForm::Kind;
  using Scales = QuantisedForm::Scales;
  using Sizes = std::vector<std::int64_t>;
  constexpr std::string_view kValues("\x12\x34\x56\x70\xab\x3d\x7c", 7), kZeros("\x76\x65\x54\x43", 4);
  const auto add = [&](std::string_view end, std::string_view dtype, const Sizes& shape, std::string_view pattern) {
    out.push_back(filled(stem + "." + std::string(end), dtype, shape, pattern));
  };
  const auto add_numbers = [&]<class T>(std::string_view end, std::string_view dtype, std::span<const T> numbers) {
    out.push_back({stem + "." + std::string(end),
                   std::string(dtype),
                   {static_cast<std::int64_t>(numbers.size())},
                   std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes())});
  };
  const std::string_view two = form.scale_dtype == "F32"    ? std::string_view("\0\0\0\x40", 4)
                               : form.scale_dtype == "BF16" ? std::string_view("\0\x40", 2)
                               : form.scale_dtype == "F16"  ? std::string_view("\0\x40", 2)
                                                            : std::string_view("\x80", 1);
  const std::int64_t n_groups = form.scales == Scales::group ? ceil_of(k, form.group) : 1;
  std::vector<std::int32_t> groups(static_cast<std::size_t>(k));
  for (std::int64_t c = 0; c < k; ++c) {
    const std::int64_t column = form.is_permuted ? (c * 5 + 3) % k : c;  // k has no factor 5
    groups[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(n_groups > 1 ? column / form.group : 0);
  }
  switch (form.kind) {
    case Kind::dense: return add("weight", "BF16", {n, k}, "\x12\x3c");
    case Kind::f8:
    case Kind::i8:
      add("weight", form.kind == Kind::f8 ? "F8_E4M3" : "I8", {n, k}, kValues);
      return add(form.scale_name, form.scale_dtype,
                 form.scales == Scales::tensor ? Sizes{}
                 : form.scales == Scales::row  ? Sizes{n, 1}
                                               : Sizes{ceil_of(n, form.block_rows), n_groups},
                 two);
    case Kind::packed:
      add("weight_packed", "I32", {n, ceil_of(k * form.bits, 32)}, kValues);
      add("weight_scale", form.scale_dtype, {n, n_groups}, two);
      if (form.has_shape) add_numbers("weight_shape", "I64", std::span<const std::int64_t>(std::array{n, k}));
      if (form.has_zeros) add("weight_zero_point", "I32", {ceil_of(n * form.bits, 32), n_groups}, kZeros);
      if (form.has_groups) add_numbers("weight_g_idx", "I32", std::span<const std::int32_t>(groups));
      return;
    case Kind::gptq:
      add("qweight", "I32", {ceil_of(k * form.bits, 32), n}, kValues);
      add("scales", form.scale_dtype, {n_groups, n}, two);
      add("qzeros", "I32", {n_groups, ceil_of(n * form.bits, 32)}, form.has_zeros ? kZeros : form.bits == 4 ? "\x77" : "\x7f");
      if (form.has_groups) add_numbers("g_idx", "I32", std::span<const std::int32_t>(groups));
      return;
    case Kind::nvfp4:  // the scale of the tensor is 1/2, or its inverse 2
      add("weight_packed", "U8", {n, ceil_of(k, 2)}, kValues);
      add("weight_scale", "F8_E4M3", {n, ceil_of(k, 16)}, "\x48");
      return add("weight_global_scale", "F32", {1}, std::string_view("\0\0\0\x40", 4));
    case Kind::modelopt_nvfp4:
      add("weight", "U8", {n, ceil_of(k, 2)}, kValues);
      add("weight_scale", "F8_E4M3", {n, ceil_of(k, 16)}, "\x48");
      return add("weight_scale_2", "F32", {}, std::string_view("\0\0\0\x3f", 4));
    case Kind::mxfp4:
      add("weight_packed", "U8", {n, ceil_of(k, 2)}, kValues);
      return add("weight_scale", form.scale_dtype == "F8_E8M0" ? "F8_E8M0" : "U8", {n, ceil_of(k, 32)}, "\x80");
    case Kind::awq:
      add("qweight", "I32", {k, n / 8}, kValues);
      add("scales", form.scale_dtype, {n_groups, n}, two);
      if (form.has_zeros) add("qzeros", "I32", {n_groups, n / 8}, kZeros);
      return;
  }
}

}  // namespace baton::test
