/// Vector loops over one row of f32, compiled once for each instruction set by Highway.
#include "kernels/cpu/rows/row_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/formulas.h"

// The order of includes is Highway's: foreach_target includes this file once for each instruction set.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/row_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;

float SumOf(const float* x, std::int64_t n) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::LoadU(d, x + i));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += x[i];
  return total;
}

void Subtract(const float* x, float number, std::int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, number)), d, out + i);
  for (; i < n; ++i) out[i] = x[i] - number;
}

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

void AddProduct(float* sum, const float* a, const float* b, std::int64_t n) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, sum + i)), d, sum + i);
  for (; i < n; ++i) sum[i] += a[i] * b[i];
}

/// 1 + exp(x). Larger arguments would overflow exp in f32; quotients by the result are 0 for them anyway.
template <class D, class V>
V OnePlusExp(D d, V x) {
  return hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(x, hn::Set(d, 89.0f))));
}

void SiluTimes(const float* gate, const float* up, std::int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Div(g, OnePlusExp(d, hn::Neg(g))), hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void SigmoidTimes(const float* gate, const float* x, std::int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Div(hn::LoadU(d, x + i), OnePlusExp(d, hn::Neg(hn::LoadU(d, gate + i)))), d, out + i);
  for (; i < n; ++i) out[i] = x[i] / (1.0f + std::exp(-gate[i]));
}

void ClampedSiluTimes(const float* gate, const float* up, float alpha, float limit, std::int64_t n, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto multiply = [&](const float* from_gate, const float* from_up) {
    const auto most = hn::Set(d, limit);
    const auto least = hn::Set(d, -limit);
    const auto given = hn::LoadU(d, from_gate);
    const auto g = hn::IfThenElse(hn::Gt(given, most), most, given);  // a comparison with NaN is false, so a NaN stays
    const auto other = hn::LoadU(d, from_up);
    const auto u = hn::IfThenElse(hn::Gt(other, most), most, hn::IfThenElse(hn::Lt(other, least), least, other));
    return hn::Mul(hn::Div(g, OnePlusExp(d, hn::Mul(g, hn::Set(d, -alpha)))), hn::Add(u, hn::Set(d, 1.0f)));
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(multiply(gate + i, up + i), d, out + i);
  if (i == n) return;
  constexpr std::size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);
  alignas(HWY_MAX_BYTES) float rest[2][kMostLanes] = {};
  std::copy(gate + i, gate + n, rest[0]);
  std::copy(up + i, up + n, rest[1]);
  hn::Store(multiply(rest[0], rest[1]), d, rest[0]);
  std::copy(rest[0], rest[0] + (n - i), out + i);
}

/// x (1 - e) for x >= 0 and x e below, with e = erfc(|x| / sqrt(2)) / 2 = exp(-x^2 / 2) t P(t) / 2 and t = 1 / (1 +
/// 0.3 |x| / sqrt(2)). P is our own fit for |x| / sqrt(2) in [0, 9.5], beyond which erfc underflows in f32. Its
/// relative error is 2e-8.
template <class D, class V>
V Gelu(D d, V x) {
  constexpr float kFit[] = {0.16918962f, 0.17069201f, 0.14848192f, 0.21443817f, -0.0936355f,
                            0.54640096f, -0.5112314f, 0.4850988f,  -0.12943454f};
  const auto z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f));
  const auto t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(z, hn::Set(d, 0.3f), hn::Set(d, 1.0f)));
  auto fit = hn::Set(d, kFit[8]);
  for (int i = 8; i-- > 0;) fit = hn::MulAdd(fit, t, hn::Set(d, kFit[i]));
  const auto scale = hn::Exp(d, hn::Neg(hn::Mul(z, z)));
  const auto tail = hn::Mul(hn::Mul(hn::Mul(fit, t), scale), hn::Set(d, 0.5f));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail)));
}

/// (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y)).
template <class D, class V>
V GeluTanh(D d, V x) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691f;
  const auto cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715f), x);
  return hn::Div(x, OnePlusExp(d, hn::Mul(cubic, hn::Set(d, -kTwiceRootOfTwoOverPi))));
}

/// x[i] = function(x[i]). The end of the row is processed in a vector of its own.
template <class Function>
void Transform(float* x, std::int64_t n, Function function) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(function(d, hn::LoadU(d, x + i)), d, x + i);
  if (i == n) return;
  alignas(HWY_MAX_BYTES) float rest[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::int64_t j = i; j < n; ++j) rest[j - i] = x[j];
  hn::Store(function(d, hn::Load(d, rest)), d, rest);
  for (std::int64_t j = i; j < n; ++j) x[j] = rest[j - i];
}

void GeluOf(float* x, std::int64_t n) {
  Transform(x, n, [](auto d, auto v) { return Gelu(d, v); });
}

void GeluTanhOf(float* x, std::int64_t n) {
  Transform(x, n, [](auto d, auto v) { return GeluTanh(d, v); });
}

void ScaleAndCap(float* x, float scale, float cap, std::int64_t n) {
  Transform(x, n, [scale, cap](auto d, auto v) {
    const auto scaled = hn::Mul(v, hn::Set(d, scale));
    return cap > 0 ? hn::Mul(hn::Tanh(d, hn::Div(scaled, hn::Set(d, cap))), hn::Set(d, cap)) : scaled;
  });
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

float KeepAllowed(float* x, std::int64_t n, const std::uint32_t* words) {
  const hn::CappedTag<float, 32> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const std::uint32_t word = words[i / 32];
    for (std::int64_t j = 0; j < 32; j += lanes) {
      std::uint8_t bits[8];  // LoadMaskBits may read as many
      const std::uint64_t part = word >> j;
      std::memcpy(bits, &part, sizeof(bits));
      const auto kept = hn::IfThenElse(hn::LoadMaskBits(d, bits), hn::LoadU(d, x + i + j), lowest);
      hn::StoreU(kept, d, x + i + j);
      largest = hn::Max(largest, kept);
    }
  }
  float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < n; ++i) {
    if ((words[i / 32] >> (i % 32) & 1) == 0) x[i] = -std::numeric_limits<float>::infinity();
    max = x[i] > max ? x[i] : max;
  }
  return max;
}

double SumOfExp(const float* x, std::int64_t n, float shift, float scale) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Blocks are summed in f32 and joined in double, so that the error does not grow with vocabularies of 100,000 and
  // more.
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

void MaxOfBlocks(const float* x, std::int64_t n, float* out) {
  const hn::CappedTag<float, kMaxBlock> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t begin = 0; begin < n; begin += kMaxBlock) {
    if (begin + kMaxBlock > n) {
      float largest = x[begin];
      for (std::int64_t i = begin + 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
      *out = largest;
      return;
    }
    auto largest = hn::LoadU(d, x + begin);
    for (std::int64_t i = lanes; i < kMaxBlock; i += lanes) largest = hn::Max(largest, hn::LoadU(d, x + begin + i));
    *out++ = hn::GetLane(hn::MaxOfLanes(d, largest));
  }
}

std::int64_t Collect(const float* logits, std::int64_t n, float least, float* kept, std::int32_t* ids) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t n_kept = 0;
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto logit = hn::LoadU(d, logits + i);
    const auto is_kept = hn::Ge(logit, hn::Set(d, least));
    if (hn::AllFalse(d, is_kept)) continue;
    hn::StoreU(hn::Compress(logit, is_kept), d, kept + n_kept);
    hn::StoreU(hn::Compress(hn::Iota(di, static_cast<std::int32_t>(i)), hn::RebindMask(di, is_kept)), di, ids + n_kept);
    n_kept += static_cast<std::int64_t>(hn::CountTrue(d, is_kept));
  }
  for (; i < n; ++i) {
    if (logits[i] < least) continue;
    kept[n_kept] = logits[i];
    ids[n_kept++] = static_cast<std::int32_t>(i);
  }
  return n_kept;
}

/// The largest score so far. Ids come in ascending order, so the smaller id stays on a tie.
struct GumbelMaximum {
  std::int32_t id = -1;
  float score = -std::numeric_limits<float>::infinity();
  void consider(std::int32_t other, float scaled, std::uint32_t random) {
    if (scaled == -std::numeric_limits<float>::infinity()) return;
    const float other_score = scaled + gumbel_of_bits(random);
    if (id >= 0 && other_score <= score) return;
    id = other;
    score = other_score;
  }
};

#if HWY_TARGET == HWY_SCALAR
std::int32_t GumbelArgmax(const float* logits, std::int32_t n, float max, float scale, std::uint64_t seed,
                          std::int32_t n_generated) {
  GumbelMaximum best;
  for (std::int32_t id = 0; id < n; ++id) {
    const auto bits = bits_of_four_tokens(seed, n_generated, id / 4);
    best.consider(id, (logits[id] - max) * scale, bits[static_cast<std::uint32_t>(id) % 4]);
  }
  return best.id;
}
#else
/// bits_of_four_tokens for as many consecutive counters as there are lanes, from `first` on: writes the random numbers
/// of each, in the order of ids. Lanes are 64 bits wide for the multiplications; bits above the lower 32 are ignored.
void BitsOfTokens(std::uint64_t seed, std::int32_t n_generated, std::int32_t first, std::uint32_t* bits) {
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  const auto product = [&](auto a, auto b) { return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b)); };
  const auto a = hn::Set(d, std::uint64_t{0xD2511F53u});
  const auto b = hn::Set(d, std::uint64_t{0xCD9E8D57u});
  auto key_low = static_cast<std::uint32_t>(seed);
  auto key_high = static_cast<std::uint32_t>(seed >> 32);
  auto c0 = hn::Set(d, static_cast<std::uint64_t>(static_cast<std::uint32_t>(n_generated)));
  auto c1 = hn::Iota(d, static_cast<std::uint64_t>(first));
  auto c2 = hn::Zero(d);
  auto c3 = hn::Zero(d);
  for (int round = 0; round < 10; ++round) {
    const auto product_a = product(a, c0);
    const auto product_b = product(b, c2);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product_b), c1), hn::Set(d, std::uint64_t{key_low}));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product_a), c3), hn::Set(d, std::uint64_t{key_high}));
    c1 = product_b;
    c3 = product_a;
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  const auto low = hn::Set(d, std::uint64_t{0xffffffffu});
  const auto pair = [&](auto even, auto odd) { return hn::Or(hn::And(even, low), hn::ShiftLeft<32>(odd)); };
  hn::StoreInterleaved2(pair(c0, c1), pair(c2, c3), d, reinterpret_cast<std::uint64_t*>(bits));
}

std::int32_t GumbelArgmax(const float* logits, std::int32_t n, float max, float scale, std::uint64_t seed,
                          std::int32_t n_generated) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  constexpr std::int32_t kMaxLanes = HWY_MAX_BYTES / 4;
  const auto lanes = static_cast<std::int32_t>(hn::Lanes(d));
  alignas(HWY_MAX_BYTES) std::uint32_t bits[2 * kMaxLanes];  // four ids for each 64-bit lane
  GumbelMaximum best;
  for (std::int32_t first = 0; first < n; first += 2 * lanes) {
    BitsOfTokens(seed, n_generated, first / 4, bits);
    for (std::int32_t i = 0; i < 2 * lanes && first + i < n; i += lanes) {
      const std::int32_t id = first + i;
      const std::int32_t n_here = n - id < lanes ? n - id : lanes;
      if (n_here == lanes) {
        // noise = -log(-log(u)) < -log(1 - u): for most tokens this bound shows that they cannot win, without two
        // logarithms.
        const auto number = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<9>(hn::Load(du, bits + i))));
        const auto rest = hn::Mul(hn::Sub(hn::Set(d, 8388607.5f), number), hn::Set(d, 0x1p-23f));
        const auto most = hn::Sub(hn::Set(d, 0.01f), hn::Log(d, rest));
        const auto scaled = hn::Mul(hn::Sub(hn::LoadU(d, logits + id), hn::Set(d, max)), hn::Set(d, scale));
        if (hn::AllFalse(d, hn::Ge(hn::Add(scaled, most), hn::Set(d, best.score)))) continue;
      }
      for (std::int32_t j = 0; j < n_here; ++j) best.consider(id + j, (logits[id + j] - max) * scale, bits[i + j]);
    }
  }
  return best.id;
}
#endif

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {

HWY_EXPORT(SumOf);
HWY_EXPORT(Subtract);
HWY_EXPORT(SumOfSquares);
HWY_EXPORT(ScaleByWeight);
HWY_EXPORT(AddTo);
HWY_EXPORT(AddProduct);
HWY_EXPORT(SiluTimes);
HWY_EXPORT(SigmoidTimes);
HWY_EXPORT(ClampedSiluTimes);
HWY_EXPORT(GeluOf);
HWY_EXPORT(GeluTanhOf);
HWY_EXPORT(ScaleAndCap);
HWY_EXPORT(FindMaxAndNan);
HWY_EXPORT(KeepAllowed);
HWY_EXPORT(SumOfExp);
HWY_EXPORT(MaxOfBlocks);
HWY_EXPORT(Collect);
HWY_EXPORT(GumbelArgmax);

float sum_of(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOf)(x, n); }
void subtract(const float* x, float number, std::int64_t n, float* out) { HWY_DYNAMIC_DISPATCH(Subtract)(x, number, n, out); }
float sum_of_squares(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n); }
void scale_by_weight(const float* x, float factor, const float* weight, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleByWeight)(x, factor, weight, n, out);
}
void add_to(float* x, const float* delta, std::int64_t n) { HWY_DYNAMIC_DISPATCH(AddTo)(x, delta, n); }
void add_product(float* sum, const float* a, const float* b, std::int64_t n) { HWY_DYNAMIC_DISPATCH(AddProduct)(sum, a, b, n); }
void silu_times(const float* gate, const float* up, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluTimes)(gate, up, n, out);
}
void sigmoid_times(const float* gate, const float* x, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SigmoidTimes)(gate, x, n, out);
}
void clamped_silu_times(const float* gate, const float* up, float alpha, float limit, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ClampedSiluTimes)(gate, up, alpha, limit, n, out);
}
void gelu_of(float* x, std::int64_t n) { HWY_DYNAMIC_DISPATCH(GeluOf)(x, n); }
void gelu_tanh_of(float* x, std::int64_t n) { HWY_DYNAMIC_DISPATCH(GeluTanhOf)(x, n); }
void scale_and_cap(float* x, float scale, float cap, std::int64_t n) { HWY_DYNAMIC_DISPATCH(ScaleAndCap)(x, scale, cap, n); }
MaxAndNan max_and_nan(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(FindMaxAndNan)(x, n); }
float keep_allowed(float* x, std::int64_t n, const std::uint32_t* words) {
  return HWY_DYNAMIC_DISPATCH(KeepAllowed)(x, n, words);
}
double sum_of_exp(const float* x, std::int64_t n, float shift, float scale) {
  return HWY_DYNAMIC_DISPATCH(SumOfExp)(x, n, shift, scale);
}
void max_of_blocks(const float* x, std::int64_t n, float* out) { HWY_DYNAMIC_DISPATCH(MaxOfBlocks)(x, n, out); }
std::int64_t collect(const float* logits, std::int64_t n, float least, float* kept, std::int32_t* ids) {
  return HWY_DYNAMIC_DISPATCH(Collect)(logits, n, least, kept, ids);
}
std::int32_t gumbel_argmax(const float* logits, std::int32_t n, float max, float scale, std::uint64_t seed,
                           std::int32_t n_generated) {
  return HWY_DYNAMIC_DISPATCH(GumbelArgmax)(logits, n, max, scale, seed, n_generated);
}

}  // namespace baton::cpu
#endif
