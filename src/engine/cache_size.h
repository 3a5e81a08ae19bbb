/// How many blocks the KV cache has in each layer group, and how many of them may be pinned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/kv_cache.h"

namespace baton {

struct CacheSizeOptions {
  struct Group {
    std::int64_t block_bytes = 0;  ///< of one block over the layers of the group
    std::int32_t window = 0;       ///< see CacheGroup
  };
  std::vector<Group> groups = {};
  std::int32_t block_len = 16;     ///< tokens
  std::int32_t max_model_len = 0;  ///< tokens
  std::int32_t max_num_seqs = 0;
  std::int32_t max_rows_in_flight = 0;  ///< see KvCacheOptions
  std::int64_t kv_cache_bytes = 0;      ///< asked for; 0: chosen here
  std::int64_t free_memory_bytes = 0;   ///< with weights and workspace in place
  double memory_utilization = 0.9;      ///< share of free memory to take when the size is chosen here
  bool is_host_memory = false;          ///< it is the memory that everything else on the machine needs too
};

/// Of a host's free memory at most this share is taken unasked.
inline constexpr double kHostMemoryShare = 0.25;

/// Contexts of max_model_len that a cache whose size is chosen here has room for besides those that run: pinned
/// prompts, and what earlier requests left to be found again.
inline constexpr std::int32_t kKeptContexts = 8;

/// Shares what was asked for among the layer groups, or memory_utilization of the free memory (of a host's at most
/// kHostMemoryShare), but then no more than max_num_seqs + kKeptContexts sequences of max_model_len could fill.
///
/// A group with a window gets what so many sequences of one length fill, for the longest length at which they fit in
/// all groups: no more than their windows and the rows in flight, and no less than a sequence of max_model_len alone
/// needs. Groups without a window share the rest alike. Errors: out_of_memory if one sequence of max_model_len does
/// not fit (both numbers), invalid_request.
Result<std::vector<CacheGroup>> choose_cache_groups(const CacheSizeOptions& options);

/// Pins the cached whole blocks of a prefix. Errors, and then nothing is pinned: out_of_memory if more than
/// `max_pinned_blocks` of any group would be (0: no such limit), or if a sequence of max_model_len would have no room
/// beside them.
Result<KvCache::Pin> pin_beside(KvCache& cache, std::span<const TokenId> tokens, std::int32_t max_model_len,
                                std::int32_t max_pinned_blocks);

}  // namespace baton
