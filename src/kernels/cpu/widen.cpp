/// Widens 8 and 4 bits to f32 and bf16 by arithmetic in registers, compiled once for each instruction set by Highway.
#include "kernels/cpu/widen.h"

// The order of includes is Highway's: foreach_target includes this file once for each instruction set.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/widen.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using U8 = hn::Rebind<std::uint8_t, F32>;

const std::uint8_t* BytesAt(const std::byte* at) { return reinterpret_cast<const std::uint8_t*>(at); }

/// As many values of f8 as there are lanes, divided by 2^8: its bits are those of a float16 without 7 bits of the
/// mantissa.
hn::VFromD<F32> FromF8(const std::byte* at) {
  const U16 d16;
  const auto code = hn::PromoteTo(d16, hn::LoadU(U8(), BytesAt(at)));
  const auto magnitude = hn::ShiftLeft<7>(hn::And(code, hn::Set(d16, std::uint16_t{0x7f})));
  const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d16, std::uint16_t{0x80})));
  return hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), hn::Or(magnitude, sign)));
}

hn::VFromD<I32> Integers(const std::uint8_t* at) { return hn::PromoteTo(I32(), hn::LoadU(U8(), at)); }

struct StoreF32 {
  static constexpr std::int64_t kValues = kPanelColumns;  // of a step
  static void Store(hn::VFromD<F32> values, std::byte* step, std::int64_t at) {
    hn::StoreU(values, F32(), reinterpret_cast<float*>(step) + at);
  }
};

/// Of values that bf16 holds exactly.
struct StoreBf16 {
  static constexpr std::int64_t kValues = 2 * kPanelColumns;
  static void Store(hn::VFromD<F32> values, std::byte* step, std::int64_t at) {
    const auto upper = hn::ShiftRight<16>(hn::BitCast(U32(), values));
    hn::StoreU(hn::TruncateTo(U16(), upper), U16(), reinterpret_cast<std::uint16_t*>(step) + at);
  }
};

template <class To>
void WidenF8(const PackedSteps& steps, std::byte* words) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const std::byte* values = steps.values;
  for (std::int64_t step = 0; step < steps.n_steps; ++step, values += To::kValues, words += kStepBytes)
    for (std::int64_t i = 0; i < To::kValues; i += lanes) To::Store(FromF8(values + i), words, i);
}

template <class To>
void WidenI8(const PackedSteps& steps, std::byte* words) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const std::byte* values = steps.values;
  for (std::int64_t step = 0; step < steps.n_steps; ++step, values += To::kValues, words += kStepBytes)
    for (std::int64_t i = 0; i < To::kValues; i += lanes)
      To::Store(hn::ConvertTo(F32(), hn::Sub(Integers(BytesAt(values + i)), Integers(steps.zeros + i))), words, i);
}

template <class To>
void WidenI4(const PackedSteps& steps, std::byte* words) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const auto low_bits = hn::Set(I32(), 15);
  const std::byte* values = steps.values;
  for (std::int64_t step = 0; step < steps.n_steps; step += 2, values += To::kValues, words += 2 * kStepBytes)
    for (std::int64_t i = 0; i < To::kValues; i += lanes) {
      const auto both = Integers(BytesAt(values + i));
      const auto zeros = Integers(steps.zeros + i);
      To::Store(hn::ConvertTo(F32(), hn::Sub(hn::And(both, low_bits), zeros)), words, i);
      To::Store(hn::ConvertTo(F32(), hn::Sub(hn::ShiftRight<4>(both), zeros)), words + kStepBytes, i);
    }
}

template <class To>
void WidenTo(const PackedSteps& steps, std::byte* words) {
  switch (steps.scheme) {
    case WeightScheme::f8: return WidenF8<To>(steps, words);
    case WeightScheme::i8: return WidenI8<To>(steps, words);
    case WeightScheme::i4: return WidenI4<To>(steps, words);
    case WeightScheme::dense: break;
  }
  check_failed("widen: dense weights are not packed in steps");
}

void Widen(const PackedSteps& steps, std::byte* words) {
  if (steps.dtype == DType::bf16) return WidenTo<StoreBf16>(steps, words);
  WidenTo<StoreF32>(steps, words);
}

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {

HWY_EXPORT(Widen);

void widen(const PackedSteps& steps, std::byte* words) { HWY_DYNAMIC_DISPATCH(Widen)(steps, words); }

}  // namespace baton::cpu
#endif
