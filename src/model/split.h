/// How tensor parallelism splits a model over ranks: which heads, widths and rows of its tensors each rank holds.
///
/// Query heads are shared out evenly, with the KV heads that they read. Where there are fewer KV heads than ranks,
/// neighbouring ranks hold copies of one KV head. The width of feed-forward blocks is shared out evenly, also inside
/// every expert: whichever experts the rows of a step choose, all ranks then have the same work, which whole experts
/// on different ranks do not promise. Routers and the output layer are split by their outputs, which all ranks gather,
/// so all ranks choose from the same bits. The embedding table is split by its columns: a rank looks up its columns of
/// every token and the ranks gather them, half the bytes of a sum over tables of different tokens. Norms are whole.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "model/source/source.h"
#include "model/spec.h"

namespace baton {

/// The spec of what one rank computes: its heads and widths. Errors (unsupported) name what cannot be split.
Result<ModelSpec> split_spec(const ModelSpec& whole, ModelRank rank);

/// The indices in [0, n) that a rank holds; n is a multiple of the world size.
IndexRange even_share(std::int64_t n, ModelRank rank);

/// Width of every rank's part of `n` outputs that the ranks gather: the same for all of them.
std::int64_t gathered_width(std::int64_t n, ModelRank rank);
/// The outputs in [0, n) that a rank computes: at most gathered_width. The last ranks may have fewer, or none.
IndexRange gathered_share(std::int64_t n, ModelRank rank);

/// Heads of a rank, as numbers of the whole model's heads.
IndexRange query_heads_of(const AttentionSpec& whole, ModelRank rank);
IndexRange kv_heads_of(const AttentionSpec& whole, ModelRank rank);

}  // namespace baton
