/// Attention in double precision by its definition: plain softmax over a row's positions, without tiles or a work
/// list.
#pragma once

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
  std::span<const double> at(bool is_value, int kv_head, std::int32_t block, int offset);

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
HeadOutput attention(Keys& keys, std::span<const double> q, int kv_head, const TokenRow& row,
                     std::span<const std::int32_t> blocks, double scale, double softcap, double sink);

}  // namespace baton::reference
