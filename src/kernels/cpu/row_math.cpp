/// Vector loops over one row of f32, compiled once for each instruction set by Highway.
#include "kernels/cpu/row_math.h"

#include <cmath>
#include <limits>

// Highway's order, which is not the alphabet's: foreach_target includes this file once for each instruction set.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;

float SumOfSquares(const float* x, std::int64_t n) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += x[i] * x[i];
  return total;
}

void ScaleByWeight(const float* x, float factor, const float* weight, std::int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), f), hn::LoadU(d, weight + i)), d, out + i);
  for (; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void AddTo(float* x, const float* delta, std::int64_t n) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, delta + i)), d, x + i);
  for (; i < n; ++i) x[i] += delta[i];
}

void SiluTimes(const float* gate, const float* up, std::int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = hn::LoadU(d, gate + i);
    const auto silu = hn::Div(g, hn::Add(one, hn::Exp(d, hn::Neg(g))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

MaxAndNan FindMaxAndNan(const float* x, std::int64_t n) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  const auto one = hn::Set(d, 1.0f);
  auto nans = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto is_nan = hn::IsNaN(v);
    nans = hn::Max(nans, hn::IfThenElseZero(is_nan, one));
    largest = hn::Max(largest, hn::IfThenElse(is_nan, lowest, v));
  }
  MaxAndNan found{hn::GetLane(hn::MaxOfLanes(d, largest)), hn::GetLane(hn::MaxOfLanes(d, nans)) != 0};
  for (; i < n; ++i) {
    if (std::isnan(x[i]))
      found.has_nan = true;
    else if (x[i] > found.max)
      found.max = x[i];
  }
  return found;
}

double SumOfExp(const float* x, std::int64_t n, float shift, float scale) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Blocks of f32 sums joined in double keep the error flat over vocabularies of 100,000 and more.
  constexpr std::int64_t kBlock = 4096;
  double total = 0;
  std::int64_t i = 0;
  while (i + lanes <= n) {
    const std::int64_t end = n - i < kBlock ? n : i + kBlock;
    auto sum = hn::Zero(d);
    for (; i + lanes <= end; i += lanes)
      sum = hn::Add(sum, hn::Exp(d, hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, shift)), hn::Set(d, scale))));
    total += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  for (; i < n; ++i) total += std::exp((x[i] - shift) * scale);
  return total;
}

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(ScaleByWeight);
HWY_EXPORT(AddTo);
HWY_EXPORT(SiluTimes);
HWY_EXPORT(FindMaxAndNan);
HWY_EXPORT(SumOfExp);

float sum_of_squares(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n); }
void scale_by_weight(const float* x, float factor, const float* weight, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleByWeight)(x, factor, weight, n, out);
}
void add_to(float* x, const float* delta, std::int64_t n) { HWY_DYNAMIC_DISPATCH(AddTo)(x, delta, n); }
void silu_times(const float* gate, const float* up, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluTimes)(gate, up, n, out);
}
MaxAndNan max_and_nan(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(FindMaxAndNan)(x, n); }
double sum_of_exp(const float* x, std::int64_t n, float shift, float scale) {
  return HWY_DYNAMIC_DISPATCH(SumOfExp)(x, n, shift, scale);
}

}  // namespace baton::cpu
#endif
