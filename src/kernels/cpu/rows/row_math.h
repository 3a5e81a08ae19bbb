/// Vector loops over one row of f32, compiled by Highway for each instruction set and chosen at run time.
#pragma once

#include <cstdint>

namespace baton::cpu {

/// Sum of x[0..n).
float sum_of(const float* x, std::int64_t n);
/// Sum of squares of x[0..n).
float sum_of_squares(const float* x, std::int64_t n);
/// out[i] = x[i] - number.
void subtract(const float* x, float number, std::int64_t n, float* out);
/// out[i] = x[i] * factor * weight[i]; out may be x.
void scale_by_weight(const float* x, float factor, const float* weight, std::int64_t n, float* out);
/// sum[i] += a[i] * b[i].
void add_product(float* sum, const float* a, const float* b, std::int64_t n);
/// x[i] += delta[i].
void add_to(float* x, const float* delta, std::int64_t n);
/// out[i] = x[i] / (1 + exp(-gate[i])); out may be x.
void sigmoid_times(const float* gate, const float* x, std::int64_t n, float* out);
/// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]; out may be gate or up.
void silu_times(const float* gate, const float* up, std::int64_t n, float* out);
/// out[i] = g / (1 + exp(-alpha g)) * (u + 1), with g = min(gate[i], limit) and u = max(-limit, min(up[i], limit)).
void clamped_silu_times(const float* gate, const float* up, float alpha, float limit, std::int64_t n, float* out);
/// x[i] = gelu(x[i]), exact to a few units in the last place, and by the tanh approximation (ActivationKind in ops.h).
void gelu_of(float* x, std::int64_t n);
void gelu_tanh_of(float* x, std::int64_t n);

/// x[i] = scale * x[i], and then cap * tanh(x[i] / cap) if cap > 0.
void scale_and_cap(float* x, float scale, float cap, std::int64_t n);

struct MaxAndNan {
  float max;  ///< of the numbers that are not NaN; -infinity if there are none
  bool has_nan;
};
MaxAndNan max_and_nan(const float* x, std::int64_t n);
/// x[i] = -infinity where bit i % 32 of words[i / 32] is 0. Returns the largest x[i]. No x[i] may be NaN.
float keep_allowed(float* x, std::int64_t n, const std::uint32_t* words);
/// Sum of exp((x[i] - shift) * scale).
double sum_of_exp(const float* x, std::int64_t n, float shift, float scale);

/// out[b] = the maximum of x[b * kMaxBlock .. (b + 1) * kMaxBlock); the last block may be shorter.
inline constexpr std::int64_t kMaxBlock = 64;
void max_of_blocks(const float* x, std::int64_t n, float* out);

/// Writes the logits of at least `least`, and their ids, in the order of ids. Returns their number. `kept` and `ids`
/// need room for n + kCollectRoom elements.
inline constexpr std::int64_t kCollectRoom = 64;
std::int64_t collect(const float* logits, std::int64_t n, float least, float* kept, std::int32_t* ids);

/// The id with the largest (logits[id] - max) * scale + gumbel_noise(seed, n_generated, id), the smaller one on a tie;
/// -1 if all logits are -infinity. Scores have the same bits as in scalar code. `max` is the largest logit.
std::int32_t gumbel_argmax(const float* logits, std::int32_t n, float max, float scale, std::uint64_t seed,
                           std::int32_t n_generated);

}  // namespace baton::cpu
