/// Chooses the number of KV blocks of each layer group and limits how many of them may be pinned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/cache/kv_cache.h"

namespace baton {

struct CacheSizeOptions {
  struct Group {
    std::int64_t block_bytes = 0;  ///< Backend::kv_block_bytes of the group
    std::int32_t window = 0;       ///< see CacheGroup
  };
  std::vector<Group> groups = {};
  std::int32_t block_len = 16;     ///< tokens
  std::int32_t max_model_len = 0;  ///< tokens
  std::int32_t max_num_seqs = 0;
  std::int32_t max_rows_in_flight = 0;  ///< see KvCacheOptions
  std::int64_t kv_cache_bytes = 0;      ///< requested size; 0: chosen here
  std::int64_t free_memory_bytes = 0;   ///< measured with weights and workspace allocated
  double memory_utilization = 0.9;      ///< share of free memory to take when the size is chosen here
  bool is_host_memory = false;          ///< the cache shares its memory with everything else on the machine
  bool keeps_prefixes = true;           ///< prefix caching is on
};

/// The largest share of a host's free memory that is taken unless a size is requested.
inline constexpr double kHostMemoryShare = 0.25;

/// A cache whose size is chosen here has room for this many contexts of max_model_len beside the running ones: pinned
/// prompts, and contexts of earlier requests that later ones may reuse.
inline constexpr std::int32_t kKeptContexts = 8;

/// A group with a window keeps an end of text, where a later prompt can continue, for so many tokens that groups without a
/// window hold: requests with about twice as many new tokens leave two, of the prompt and of the answer.
inline constexpr std::int32_t kTokensPerEnd = 512;

/// Divides a memory size among the layer groups: the requested size or, if none is requested, memory_utilization of
/// the free memory (on a host at most kHostMemoryShare of it), but no more than max_num_seqs + kKeptContexts sequences
/// of max_model_len could fill.
///
/// A group with a window needs the blocks that this many sequences of equal length fill, for the largest length at
/// which they fit in all groups: at most their windows and rows in flight, and at least what one sequence of
/// max_model_len needs. If prefixes are kept it gets more, where there is more: a window for each kTokensPerEnd tokens of
/// the groups without a window, but at most its fair share, bytes / (2 w + f) blocks, where a block takes w bytes in all
/// groups with a window and f in all others. Groups without a window get equal numbers of blocks from the rest.
///
/// The fair share bounds what a mean distance of ends other than kTokensPerEnd costs. Ends far apart need no memory for
/// windows, and groups without one keep at least (w + f) / (2 w + f) of it; ends closer than a window need both kinds for
/// all their tokens, and with its fair share a group with a window holds that part of the tokens which would fit then. So
/// each case keeps more than half of what the best division for it would: two thirds where w = f.
///
/// Errors: out_of_memory if one sequence of max_model_len does not fit (the message has both numbers), invalid_request.
Result<std::vector<CacheGroup>> choose_cache_groups(const CacheSizeOptions& options);

/// The ends of text whose windows all groups with a window can keep at once, while no sequence runs; nothing without such a group.
std::optional<std::int32_t> n_kept_ends(std::span<const CacheGroup> groups, std::int32_t block_len);

/// The share of the memory of keys and values, requested or chosen here, that snapshots of recurrent states take beside it
/// unless a size is requested, and how many of them there are at most for each sequence that may run or is kept.
inline constexpr double kSnapshotShare = 0.25;
inline constexpr std::int32_t kSnapshotsEach = 4;

/// How many snapshots of `slot_bytes` fit the requested size, or that share. `options.free_memory_bytes` is what the states of
/// running sequences leave. Error out_of_memory: more is requested than is free.
Result<std::int32_t> choose_snapshots(const CacheSizeOptions& options, std::int64_t slot_bytes,
                                      std::optional<std::int64_t> requested_bytes);

/// The most tokens, at most options.max_model_len, of which one sequence fits: that number or a multiple of block_len, at least one
/// block.
std::int32_t longest_fitting(const CacheSizeOptions& options);

/// Pins the cached full blocks of a prefix under a scope. Error out_of_memory, and then nothing is pinned: more than
/// `max_pinned_blocks` of some group would be pinned (0: no such limit), or the remaining blocks could not hold a
/// sequence of max_model_len, or there is no slot left for its snapshot.
Result<KvCache::Pin> pin_beside(KvCache& cache, const CacheScope& scope, std::span<const TokenId> tokens,
                                std::int32_t max_model_len, std::int32_t max_pinned_blocks);

}  // namespace baton
