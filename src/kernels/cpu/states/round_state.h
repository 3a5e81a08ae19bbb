/// Rounding of vectors to bfloat16, for the kernels of recurrent states. Included once for each instruction set, after Highway.
// clang-format off
#if defined(BATON_ROUND_STATE_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_ROUND_STATE_H
#undef BATON_ROUND_STATE_H
#else
#define BATON_ROUND_STATE_H
#endif
// clang-format on

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {

/// To nearest even if `rounds`, otherwise unchanged. A number of 16 bits stays what it is.
template <bool rounds, class D, class V>
V RoundState(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (!rounds) return x;
  const hn::RebindToUnsigned<D> u;
  const auto bits = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff)));
  return hn::BitCast(d, hn::And(rounded, hn::Set(u, 0xffff0000)));
}

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
