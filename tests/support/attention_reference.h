/// Attention in double precision by its definition: plain softmax over a row's positions, without tiles or a work
/// list.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/batch.h"
#include "support/kv_contents.h"

namespace baton::reference {

/// Keys, [head_dim], and values, [v_dim], in double; tokens are converted when first used.
class Keys {
 public:
  explicit Keys(const KvContents& contents) : contents_(contents) {}

  const KvShape& shape() const { return contents_.shape(); }
  /// Key (or value) of a token.
  std::span<const double> at(bool is_value, int kv_head, std::int32_t block, int offset) {
    const std::int64_t key =
        ((static_cast<std::int64_t>(block) * 2 + is_value) * shape().n_kv_heads + kv_head) * shape().block_len + offset;
    std::vector<double>& numbers = tokens_[key];
    if (numbers.empty())
      for (int i = 0; i < (is_value ? shape().v_dim() : shape().head_dim); ++i)
        numbers.push_back(contents_.get(is_value, kv_head, block, offset, i));
    return numbers;
  }

 private:
  const KvContents& contents_;
  std::unordered_map<std::int64_t, std::vector<double>> tokens_;
};

/// The result for one row and head.
struct HeadOutput {
  std::vector<double> out;  ///< [v_dim]; zeros if the row sees nothing
  double score_size = 0;    ///< largest sum of |q_i k_i| * scale over its positions, for the error of scores
  double value_size = 0;    ///< root of the sum of |weight value|^2, for the error of weights
};

/// q is one head, rounded as the kernel rounds it. Reads positions [row.kv_lo, row.kv_hi) through the block table.
/// `softcap` bounds the scores unless it is 0. `sink` is the score of a key without a value; -infinity: there is none.
inline HeadOutput attention(Keys& keys, std::span<const double> q, int kv_head, const TokenRow& row,
                            std::span<const std::int32_t> blocks, double scale, double softcap, double sink) {
  const KvShape& shape = keys.shape();
  HeadOutput result{std::vector<double>(static_cast<std::size_t>(shape.v_dim()), 0.0), 0, 0};
  std::vector<double> scores;
  for (std::int32_t t = row.kv_lo; t < row.kv_hi; ++t) {
    const auto key = keys.at(false, kv_head, blocks[static_cast<std::size_t>(t / shape.block_len)], t % shape.block_len);
    double score = 0;
    double size = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      score += q[i] * key[i];
      size += std::abs(q[i] * key[i]);
    }
    scores.push_back(softcap > 0 ? softcap * std::tanh(score * scale / softcap) : score * scale);
    result.score_size = std::max(result.score_size, size * scale);
  }
  if (scores.empty()) return result;
  const double largest = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double sum = std::exp(sink - largest);
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (std::int32_t t = row.kv_lo; t < row.kv_hi; ++t) {
    const auto value = keys.at(true, kv_head, blocks[static_cast<std::size_t>(t / shape.block_len)], t % shape.block_len);
    const double weight = scores[static_cast<std::size_t>(t - row.kv_lo)] / sum;
    for (std::size_t i = 0; i < result.out.size(); ++i) {
      result.out[i] += weight * value[i];
      result.value_size += weight * value[i] * weight * value[i];
    }
  }
  result.value_size = std::sqrt(result.value_size);
  return result;
}

}  // namespace baton::reference
