/// Trees of shared prefixes for `baton bench attention`, in PAT's notation, and the trees of PAT's benchmark.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton {

/// One level of a tree: nodes with the same number of tokens.
struct AttentionLevel {
  std::int32_t n_nodes = 0;
  std::int32_t len = 0;
};

/// The levels of a tree from its roots to the requests. "1,8,512_32,512,256" has one root of 32 tokens, below it 8 nodes
/// of 512, and after these 512 requests with 256 tokens of their own. The nodes of a level are divided equally among
/// those of the level above. Errors (invalid_request): numbers that do not fit; a number of nodes that is not a multiple
/// of the level above's; a shared level that is not whole blocks of `block_len` tokens, for a block has one owner.
Result<std::vector<AttentionLevel>> parse_attention_tree(std::string_view text, std::int32_t block_len);

/// The twenty trees of PAT's kernel benchmark (benchmark/run_kernel_bench.sh). All lengths are multiples of 16.
std::span<const std::string_view> pat_trees();

}  // namespace baton
