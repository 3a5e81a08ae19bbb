/// Operations on partial attention states (m, l, o): folding two states, and converting a state to an output.
///
/// The executor folds chunks and attention_merge folds partial states with these functions, so a row's bits do not
/// depend on which of the two folded which part. For the same reason files that include this are compiled without
/// contraction to fused multiply-adds.
#pragma once

#include <cstdint>

namespace baton::cpu {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

/// 2^x for x <= 0 with a relative error under 1e-7; 1 at 0, 0 below -126.5, NaN for NaN.
inline float exp2_of_nonpositive(float x) {
  if (x < -126.5f) return 0.0f;
  if (x != x) return x;
  const float rounded = static_cast<float>(static_cast<std::int32_t>(x - 0.5f));
  const float f = x - rounded;
  float p = 1.5453162e-4f;
  p = p * f + 1.3390863e-3f;
  p = p * f + 9.6180825e-3f;
  p = p * f + 5.5503571e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314719e-1f;
  p = p * f + 1.0f;
  return p * __builtin_bit_cast(float, (static_cast<std::uint32_t>(static_cast<std::int32_t>(rounded) + 127)) << 23);
}

/// A state's o is f32 [value_dim]. An empty state has m = -inf and l = 0; its o is never read.
struct StateView {
  float* o;
  float* m;
  float* l;
};

/// a = merge(a, b): m = max(a.m, b.m), l = a.l 2^(a.m - m) + b.l 2^(b.m - m), o in the same way. Folding in an empty
/// state changes nothing; folding into an empty state copies.
inline void fold_state(const StateView& a, const float* b_o, float b_m, float b_l, int value_dim) {
  if (b_m == kMinusInfinity) return;
  if (*a.m == kMinusInfinity) {
    *a.m = b_m;
    *a.l = b_l;
    for (int i = 0; i < value_dim; ++i) a.o[i] = b_o[i];
    return;
  }
  const float m = *a.m > b_m ? *a.m : b_m;
  const float weight_a = exp2_of_nonpositive(*a.m - m);
  const float weight_b = exp2_of_nonpositive(b_m - m);
  *a.m = m;
  *a.l = *a.l * weight_a + b_l * weight_b;
  float* __restrict__ to = a.o;
  for (int i = 0; i < value_dim; ++i) to[i] = to[i] * weight_a + b_o[i] * weight_b;
}

}  // namespace
}  // namespace baton::cpu
