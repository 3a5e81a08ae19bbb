/// The size of the KV cache.
#include "engine/cache_size.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {

Result<std::int32_t> choose_n_blocks(const CacheSizeOptions& options) {
  check(options.block_bytes > 0 && options.block_len > 0 && options.max_model_len > 0 && options.max_num_seqs > 0,
        "choose_n_blocks: sizes must be positive");
  if (options.kv_cache_bytes < 0) {
    return fail(ErrorCode::invalid_request,
                fmt::format("kv_cache_bytes must be 0 (automatic) or more, got {}", options.kv_cache_bytes), "kv_cache_bytes");
  }
  if (!(options.memory_utilization > 0 && options.memory_utilization <= 1)) {
    return fail(ErrorCode::invalid_request,
                fmt::format("memory_utilization must be over 0 and at most 1, got {}", options.memory_utilization),
                "memory_utilization");
  }
  const std::int64_t per_sequence = (options.max_model_len + options.block_len - 1) / options.block_len;
  std::int64_t n_blocks = options.kv_cache_bytes / options.block_bytes;
  if (options.kv_cache_bytes == 0) {
    const double share =
        options.is_host_memory ? std::min(options.memory_utilization, kHostMemoryShare) : options.memory_utilization;
    const auto bytes =
        static_cast<std::int64_t>(share * static_cast<double>(std::max<std::int64_t>(options.free_memory_bytes, 0)));
    n_blocks = std::min(bytes / options.block_bytes, per_sequence * (options.max_num_seqs + kKeptContexts));
  }
  if (n_blocks < per_sequence) {
    return fail(ErrorCode::out_of_memory, fmt::format("the KV cache would hold {} tokens ({} bytes), but one sequence of the "
                                                      "maximum context length needs {} tokens ({} bytes): "
                                                      "give it more memory (--kv-cache-memory-bytes) or lower --max-model-len",
                                                      n_blocks * options.block_len, n_blocks * options.block_bytes,
                                                      per_sequence * options.block_len, per_sequence * options.block_bytes));
  }
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(n_blocks, std::numeric_limits<std::int32_t>::max() / options.block_len));
}

Result<KvCache::Pin> pin_beside(KvCache& cache, std::span<const TokenId> tokens, std::int32_t max_model_len,
                                std::int32_t max_pinned_blocks) {
  const KvCache::Pin pinned = cache.pin({}, tokens);
  const std::int32_t n_pinned = cache.n_pinned();
  const std::int32_t n_left = cache.n_blocks() - n_pinned;
  const bool is_over_cap = max_pinned_blocks > 0 && n_pinned > max_pinned_blocks;
  if (!is_over_cap && n_left >= cache.n_blocks_for(max_model_len)) return pinned;
  cache.unpin(pinned);
  if (is_over_cap) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("a prefix of {} tokens cannot be pinned: {} blocks of {} tokens would be, and --max-pinned-blocks "
                            "is {}; delete a prefix or raise the limit",
                            tokens.size(), n_pinned, cache.block_len(), max_pinned_blocks));
  }
  return fail(
      ErrorCode::out_of_memory,
      fmt::format("a prefix of {} tokens cannot be pinned: {} of the KV cache's {} tokens would be, and the {} left are "
                  "fewer than the {} of the maximum context length; give the cache more memory or lower --max-model-len",
                  tokens.size(), n_pinned * cache.block_len(), cache.n_blocks() * cache.block_len(), n_left * cache.block_len(),
                  max_model_len));
}

}  // namespace baton
