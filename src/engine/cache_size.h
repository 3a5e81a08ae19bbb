/// How many blocks the KV cache has, and how many of them may be pinned.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "engine/kv_cache.h"

namespace baton {

struct CacheSizeOptions {
  std::int64_t block_bytes = 0;    ///< of one block over all layer groups
  std::int32_t block_len = 16;     ///< tokens
  std::int32_t max_model_len = 0;  ///< tokens
  std::int32_t max_num_seqs = 0;
  std::int64_t kv_cache_bytes = 0;     ///< asked for; 0: chosen here
  std::int64_t free_memory_bytes = 0;  ///< with weights and workspace in place
  double memory_utilization = 0.9;     ///< share of free memory to take when the size is chosen here
  bool is_host_memory = false;         ///< it is the memory that everything else on the machine needs too
};

/// Of a host's free memory at most this share is taken unasked.
inline constexpr double kHostMemoryShare = 0.25;

/// Contexts of max_model_len that a cache whose size is chosen here has room for besides those that run: pinned prompts, and
/// what earlier requests left to be found again.
inline constexpr std::int32_t kKeptContexts = 8;

/// What was asked for, or memory_utilization of the free memory (of a host's at most kHostMemoryShare), but then no more than
/// max_num_seqs + kKeptContexts sequences of max_model_len could fill. Errors: out_of_memory if one sequence of max_model_len
/// does not fit (both numbers), invalid_request.
Result<std::int32_t> choose_n_blocks(const CacheSizeOptions& options);

/// Pins the cached whole blocks of a prefix. Errors, and then nothing is pinned: out_of_memory if more than `max_pinned_blocks`
/// would be (0: no such limit), or if a sequence of max_model_len would have no room beside them.
Result<KvCache::Pin> pin_beside(KvCache& cache, std::span<const TokenId> tokens, std::int32_t max_model_len,
                                std::int32_t max_pinned_blocks);

}  // namespace baton
