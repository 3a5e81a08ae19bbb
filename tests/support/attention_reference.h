/// Attention in double precision, by the definition: plain softmax over a row's positions, no tiles, no work list.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "kernels/batch.h"
#include "kernels/kv_storage.h"

namespace baton::reference {

/// One layer of a storage in its canonical form, as doubles; blocks are exported when first asked for.
class Keys {
 public:
  Keys(const KvStorage& kv, int layer) : kv_(kv), layer_(layer) {}

  /// Key (or value) of a token, [head_dim].
  std::span<const double> at(bool is_value, int kv_head, std::int32_t block, int offset) {
    const KvShape& shape = kv_.shape();
    auto found = blocks_.find(block);
    if (found == blocks_.end()) found = blocks_.emplace(block, load(block)).first;
    const auto index =
        ((static_cast<std::size_t>(is_value) * static_cast<std::size_t>(shape.n_kv_heads) + static_cast<std::size_t>(kv_head)) *
             static_cast<std::size_t>(shape.block_len) +
         static_cast<std::size_t>(offset)) *
        static_cast<std::size_t>(shape.head_dim);
    return std::span(found->second).subspan(index, static_cast<std::size_t>(shape.head_dim));
  }

 private:
  std::vector<double> load(std::int32_t block) const {
    const KvShape& shape = kv_.shape();
    std::vector<std::byte> bytes(static_cast<std::size_t>(shape.block_bytes()));
    kv_.export_block(BlockId{block}, {bytes.data(), DType::u8, {shape.block_bytes()}});
    return visit_float(shape.dtype, [&]<class T>(T) {
      const auto n = static_cast<std::size_t>(shape.block_len * shape.token_bytes()) / sizeof(T);
      const T* from = reinterpret_cast<const T*>(bytes.data()) + static_cast<std::size_t>(layer_) * n;
      std::vector<double> out(n);
      for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<double>(static_cast<float>(from[i]));
      return out;
    });
  }

  const KvStorage& kv_;
  int layer_;
  std::map<std::int32_t, std::vector<double>> blocks_;
};

/// One row and head.
struct HeadOutput {
  std::vector<double> out;  ///< [head_dim]; zeros if the row sees nothing
  double score_size = 0;    ///< largest sum of |q_i k_i| * scale over its positions: what rounding of scores grows with
  double value_size = 0;    ///< root of the sum of |weight value|^2: what rounding of weights grows with, were values to cancel
};

/// q of one head, already rounded as the kernel rounds it. Positions [row.kv_lo, row.kv_hi) through the block table.
inline HeadOutput attention(Keys& keys, const KvShape& shape, std::span<const double> q, int kv_head, const TokenRow& row,
                            std::span<const std::int32_t> blocks, double scale) {
  HeadOutput result{std::vector<double>(q.size(), 0.0), 0, 0};
  std::vector<double> scores;
  for (std::int32_t t = row.kv_lo; t < row.kv_hi; ++t) {
    const auto key = keys.at(false, kv_head, blocks[static_cast<std::size_t>(t / shape.block_len)], t % shape.block_len);
    double score = 0;
    double size = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      score += q[i] * key[i];
      size += std::abs(q[i] * key[i]);
    }
    scores.push_back(score * scale);
    result.score_size = std::max(result.score_size, size * scale);
  }
  if (scores.empty()) return result;
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (std::int32_t t = row.kv_lo; t < row.kv_hi; ++t) {
    const auto value = keys.at(true, kv_head, blocks[static_cast<std::size_t>(t / shape.block_len)], t % shape.block_len);
    const double weight = scores[static_cast<std::size_t>(t - row.kv_lo)] / sum;
    for (std::size_t i = 0; i < q.size(); ++i) {
      result.out[i] += weight * value[i];
      result.value_size += weight * value[i] * weight * value[i];
    }
  }
  result.value_size = std::sqrt(result.value_size);
  return result;
}

}  // namespace baton::reference
