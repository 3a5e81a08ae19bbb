#include "support/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton::reference {
namespace {

/// A sum in parts, because one sum waits for each of its additions.
struct PartialSums {
  static constexpr std::size_t kParts = 8;

  template <class Term>
  void add(std::size_t n, const Term& term) {
    std::size_t i = 0;
    for (; i + kParts <= n; i += kParts)
      for (std::size_t part = 0; part < kParts; ++part) parts[part] += term(i + part);
    for (; i < n; ++i) parts[0] += term(i);
  }
  double sum() const { return std::accumulate(std::begin(parts), std::end(parts), 0.0); }

  double parts[kParts] = {};
};

}  // namespace

std::span<const double> Keys::at(bool is_value, int kv_head, std::int32_t block, int offset) {
  const std::int64_t key =
      ((static_cast<std::int64_t>(block) * 2 + is_value) * shape().n_kv_heads + kv_head) * shape().block_len + offset;
  std::vector<double>& numbers = tokens_[key];
  if (numbers.empty())
    for (int i = 0; i < (is_value ? shape().v_dim() : shape().head_dim); ++i)
      numbers.push_back(contents_.get(is_value, kv_head, block, offset, i));
  return numbers;
}

HeadOutput attention(Keys& keys, std::span<const double> q, int kv_head, const TokenRow& row,
                     std::span<const std::int32_t> blocks, double scale, double softcap, double sink) {
  const KvShape& shape = keys.shape();
  HeadOutput result{std::vector<double>(static_cast<std::size_t>(shape.v_dim()), 0.0), 0, 0};
  std::vector<double> scores;
  for (std::int32_t t = row.kv_lo; t < row.kv_hi; ++t) {
    const auto key = keys.at(false, kv_head, blocks[static_cast<std::size_t>(t / shape.block_len)], t % shape.block_len);
    PartialSums terms;
    PartialSums sizes;
    terms.add(q.size(), [&](std::size_t i) { return q[i] * key[i]; });
    sizes.add(q.size(), [&](std::size_t i) { return std::abs(q[i] * key[i]); });
    const double score = terms.sum() * scale;
    scores.push_back(softcap > 0 ? softcap * std::tanh(score / softcap) : score);
    result.score_size = std::max(result.score_size, sizes.sum() * scale);
  }
  if (scores.empty()) return result;
  const double largest = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double sum = std::exp(sink - largest);
  for (double& score : scores) sum += score = std::exp(score - largest);
  PartialSums squares;
  for (std::int32_t t = row.kv_lo; t < row.kv_hi; ++t) {
    const auto value = keys.at(true, kv_head, blocks[static_cast<std::size_t>(t / shape.block_len)], t % shape.block_len);
    const double weight = scores[static_cast<std::size_t>(t - row.kv_lo)] / sum;
    for (std::size_t i = 0; i < result.out.size(); ++i) result.out[i] += weight * value[i];
    squares.add(result.out.size(), [&](std::size_t i) { return weight * value[i] * weight * value[i]; });
  }
  result.value_size = std::sqrt(squares.sum());
  return result;
}

}  // namespace baton::reference
