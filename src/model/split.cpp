/// Computes the shares of the ranks.
#include "model/split.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {
namespace {

/// Parts of gathered outputs are a multiple of this: matrix units take rows of weights in eights.
constexpr std::int64_t kGatheredGranule = 8;

/// What cannot be split; empty if everything can.
std::string obstacle(const ModelSpec& spec, ModelRank rank) {
  const std::int32_t n_ranks = rank.world_size;
  if (spec.has_recurrent_layers()) return "its recurrent layers have states, which ranks do not share yet";
  if (spec.uses_mtp) return "its layer for drafts (--speculative-config) is on one rank only";
  if (spec.d_model % n_ranks != 0) return fmt::format("its hidden size {} is not a multiple of it", spec.d_model);
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    if (attention.n_heads % n_ranks != 0)
      return fmt::format("its {} query heads cannot be shared out evenly", attention.n_heads);
    if (attention.n_kv_heads % n_ranks != 0 && n_ranks % attention.n_kv_heads != 0)
      return fmt::format("its {} KV heads can neither be shared out evenly nor be copied to as many ranks each",
                         attention.n_kv_heads);
    if (attention.qk_norm == QkNorm::width)
      return "its norms of queries and keys are over all heads, and a rank has only some of them";
    if (layer.feed_forward.d_ff % n_ranks != 0)
      return fmt::format("the width {} of its feed-forward blocks cannot be shared out evenly", layer.feed_forward.d_ff);
    if (layer.feed_forward.d_ff_shared % n_ranks != 0)
      return fmt::format("the width {} of its shared expert cannot be shared out evenly", layer.feed_forward.d_ff_shared);
  }
  return {};
}

}  // namespace

Result<ModelSpec> split_spec(const ModelSpec& whole, ModelRank rank) {
  check(rank.world_size >= 1 && rank.rank >= 0 && rank.rank < rank.world_size, "split_spec: the rank does not exist");
  check(whole.rank.world_size == 1, "split_spec: the spec is one of a rank already");
  if (rank.world_size == 1) return whole;
  if (const std::string reason = obstacle(whole, rank); !reason.empty())
    return fail(ErrorCode::unsupported,
                fmt::format("{} cannot be split over {} ranks: {}", whole.family, rank.world_size, reason),
                "tensor_parallel_size");
  ModelSpec made = whole;
  made.rank = rank;
  for (LayerSpec& layer : made.layers) {
    const AttentionSpec attention = layer.attention;
    layer.attention.n_heads = static_cast<std::int32_t>(query_heads_of(attention, rank).size());
    layer.attention.n_kv_heads = static_cast<std::int32_t>(kv_heads_of(attention, rank).size());
    for (std::int32_t* width : {&layer.feed_forward.d_ff, &layer.feed_forward.d_ff_shared})
      *width = static_cast<std::int32_t>(even_share(*width, rank).size());
  }
  return made;
}

IndexRange even_share(std::int64_t n, ModelRank rank) {
  check(n % rank.world_size == 0, "even_share: the ranks cannot have equal shares");
  const std::int64_t share = n / rank.world_size;
  return {rank.rank * share, (rank.rank + 1) * share};
}

std::int64_t gathered_width(std::int64_t n, ModelRank rank) {
  if (rank.world_size == 1) return n;
  const std::int64_t share = (n + rank.world_size - 1) / rank.world_size;
  return (share + kGatheredGranule - 1) / kGatheredGranule * kGatheredGranule;
}

IndexRange gathered_share(std::int64_t n, ModelRank rank) {
  const std::int64_t width = gathered_width(n, rank);
  return {std::min(n, rank.rank * width), std::min(n, (rank.rank + 1) * width)};
}

IndexRange query_heads_of(const AttentionSpec& whole, ModelRank rank) { return even_share(whole.n_heads, rank); }

IndexRange kv_heads_of(const AttentionSpec& whole, ModelRank rank) {
  if (whole.n_kv_heads % rank.world_size == 0) return even_share(whole.n_kv_heads, rank);
  check(rank.world_size % whole.n_kv_heads == 0, "kv_heads_of: the ranks cannot have copies evenly");
  const std::int64_t head = rank.rank / (rank.world_size / whole.n_kv_heads);
  return {head, head + 1};
}

}  // namespace baton
