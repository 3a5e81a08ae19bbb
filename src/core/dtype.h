/// Element types of tensors, the two 16-bit float formats and the 8-bit one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/check.h"

namespace baton {

enum class DType : std::int32_t { f32, bf16, f16, f8_e4m3, i32, i64, u8 };

constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::f8_e4m3: return "float8_e4m3";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
  }
  return "unknown";
}

/// The type named as in config.json and on the command line ("bfloat16", "bf16", ...); nothing for an unknown name.
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  if (name == "float32" || name == "f32" || name == "float") return DType::f32;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  if (name == "float16" || name == "f16" || name == "fp16" || name == "half") return DType::f16;
  if (name == "float8_e4m3" || name == "fp8" || name == "fp8_e4m3") return DType::f8_e4m3;
  return std::nullopt;
}

constexpr std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::f16: return 2;
    case DType::f8_e4m3: return 1;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

/// bfloat16: the upper half of an IEEE float. Conversion from float rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(round(value)) {}
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

 private:
  static constexpr std::uint16_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x0040u);
    return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

/// IEEE binary16. Conversion from float rounds to nearest even; overflow gives infinity.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

/// OCP FP8 E4M3: 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no infinity, one NaN a sign. Conversion from float
/// rounds to nearest even and saturates at +-448, also for infinity; NaN gives 0x7f. These are the bits of CUDA's
/// cvt.rn.satfinite. Conversion to float is exact.
struct Float8E4M3 {
  std::uint8_t bits = 0;

  static constexpr float kLargest = 448;

  Float8E4M3() = default;
  constexpr explicit Float8E4M3(float value) : bits(round(value)) {}
  constexpr explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 7) << 31;
    const std::uint32_t code = bits & 0x7fu;
    if (code == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (code < 8) return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(code) * 0x1p-9f));
    return std::bit_cast<float>(sign | ((code + (120u << 3)) << 20));
  }

 private:
  static constexpr std::uint8_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = word >> 31 << 7;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7f;
    if (magnitude >= std::bit_cast<std::uint32_t>(kLargest)) return static_cast<std::uint8_t>(sign | 0x7e);
    std::uint32_t code;
    if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6f)) {
      // Subnormal: steps of 2^-9. Floats from 2^14 on have the same step, so the addition rounds correctly.
      code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - std::bit_cast<std::uint32_t>(0x1p14f);
    } else {
      code = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
    }
    return static_cast<std::uint8_t>(sign | code);
  }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2 && sizeof(Float8E4M3) == 1);

/// The dtype of a C++ type, as `value`.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<Float8E4M3> : std::integral_constant<DType, DType::f8_e4m3> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::i64> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::u8> {};

/// Calls `body(T{})` with the C++ type of a float dtype (f32, bf16, f16); aborts for any other.
template <class Body>
decltype(auto) visit_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body(float{});
    case DType::bf16: return body(BFloat16{});
    case DType::f16: return body(Float16{});
    default: check_failed("visit_float: the dtype is not f32, bf16 or f16");
  }
}

/// As visit_float, and f8_e4m3: every type that keys and values may be stored as.
template <class Body>
decltype(auto) visit_stored_float(DType dtype, Body&& body) {
  if (dtype == DType::f8_e4m3) return body(Float8E4M3{});
  return visit_float(dtype, std::forward<Body>(body));
}

}  // namespace baton
