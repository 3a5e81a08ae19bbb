/// Chooses the size of the KV cache.
#include "engine/cache/cache_size.h"

#include <algorithm>
#include <limits>
#include <ranges>

#include <fmt/format.h>

#include "core/check.h"
#include "core/one_line.h"

namespace baton {

namespace {

/// The bytes that the cache may take, before it is limited to what sequences could fill.
std::int64_t bytes_of(const CacheSizeOptions& options) {
  if (options.kv_cache_bytes > 0) return options.kv_cache_bytes;
  const double share =
      options.is_host_memory ? std::min(options.memory_utilization, kHostMemoryShare) : options.memory_utilization;
  return static_cast<std::int64_t>(share * static_cast<double>(std::max<std::int64_t>(options.free_memory_bytes, 0)));
}

/// The sizes of all groups and the memory that they need.
class GroupSizes {
 public:
  explicit GroupSizes(const CacheSizeOptions& options) : options_(options) {
    for (const CacheSizeOptions::Group& group : options.groups) {
      const CacheGroup of{.window = group.window};
      n_alone_.push_back(of.n_needed_alone(options.max_model_len, options.max_rows_in_flight, options.block_len));
      const std::int64_t window_blocks = CacheGroup::n_blocks_for(group.window, options.block_len) + 1;
      most_each_.push_back(of.has_window() ? std::min(window_blocks, per_sequence()) : per_sequence());
    }
  }

  std::int64_t per_sequence() const { return CacheGroup::n_blocks_for(options_.max_model_len, options_.block_len); }
  std::int64_t n_contexts() const { return std::int64_t{options_.max_num_seqs} + kKeptContexts; }

  /// Blocks of each group that hold n_contexts() sequences of `n_entries` blocks, and at least any one sequence that
  /// the model allows.
  std::vector<std::int64_t> for_contexts(std::int64_t n_entries) const {
    std::vector<std::int64_t> sizes;
    for (std::size_t g = 0; g < n_alone_.size(); ++g) {
      std::int64_t n = n_contexts() * std::min(n_entries, most_each_[g]);
      if (options_.groups[g].window > 0)  // a sequence's rows in flight need blocks outside its window
        n = std::min(n + CacheGroup::n_blocks_for(options_.max_rows_in_flight, options_.block_len), n_contexts() * n_entries);
      sizes.push_back(std::max<std::int64_t>(n, n_alone_[g]));
    }
    return sizes;
  }
  /// The most blocks of a group that can be used: no bound if a size is requested.
  std::int64_t most() const {
    return options_.kv_cache_bytes > 0 ? std::numeric_limits<std::int64_t>::max() : n_contexts() * per_sequence();
  }
  /// Bytes of one block in each group with a window, or in each without.
  std::int64_t block_bytes(bool has_window) const {
    std::int64_t bytes = 0;
    for (const CacheSizeOptions::Group& group : options_.groups)
      bytes += (group.window > 0) == has_window ? group.block_bytes : 0;
    return bytes;
  }
  /// Blocks of each group that keep the windows of `n_ends` ends of text and the tokens before them: of `bytes` the fair share at
  /// most in a group with a window, and no less than `needed` there.
  std::vector<std::int64_t> for_ends(std::int64_t n_ends, std::int64_t bytes, std::span<const std::int64_t> needed) const {
    const std::int64_t full_bytes = block_bytes(false);
    const std::int64_t fair = full_bytes > 0 ? bytes / (2 * block_bytes(true) + full_bytes) : most();
    std::vector<std::int64_t> sizes(needed.begin(), needed.end());
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      if (options_.groups[g].window > 0)
        sizes[g] = std::max(sizes[g], std::min({n_ends * most_each_[g], fair, most()}));
      else
        sizes[g] = std::max(n_alone_[g], std::min(n_ends * kTokensPerEnd / options_.block_len, most()));
    }
    return sizes;
  }
  std::int64_t bytes_of(std::span<const std::int64_t> sizes) const {
    std::int64_t bytes = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) bytes += sizes[g] * options_.groups[g].block_bytes;
    return bytes;
  }

 private:
  const CacheSizeOptions& options_;
  std::vector<std::int64_t> n_alone_;    ///< of each group: blocks that one sequence of max_model_len needs
  std::vector<std::int64_t> most_each_;  ///< the most one of many sequences holds, without rows in flight
};

/// The largest number up to `most` that `fits`; if a number fits, so do all smaller ones.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t n = 0;
  for (std::int64_t step = std::int64_t{1} << 40; step > 0; step /= 2)
    if (n + step <= most && fits(n + step)) n += step;
  return n;
}

/// Gives groups with a window room for ends of text that later prompts continue.
void keep_ends(const CacheSizeOptions& options, const GroupSizes& by_need, std::int64_t bytes,
               std::vector<std::int64_t>& sizes) {
  if (!options.keeps_prefixes || by_need.block_bytes(true) == 0) return;
  const std::int64_t full_bytes = by_need.block_bytes(false);
  if (full_bytes == 0 && options.kv_cache_bytes > 0) return;  // share_rest gives them all there is
  std::int64_t most_ends = by_need.n_contexts() * by_need.per_sequence() * options.block_len / kTokensPerEnd;
  if (options.kv_cache_bytes > 0) most_ends = bytes / full_bytes * options.block_len / kTokensPerEnd;
  const std::vector<std::int64_t> needed = sizes;
  const std::int64_t n_ends =
      largest(most_ends, [&](std::int64_t n) { return by_need.bytes_of(by_need.for_ends(n, bytes, needed)) <= bytes; });
  const std::vector<std::int64_t> of_ends = by_need.for_ends(n_ends, bytes, needed);
  for (std::size_t g = 0; g < sizes.size(); ++g)
    if (options.groups[g].window > 0) sizes[g] = of_ends[g];
}

/// Gives the remaining bytes to the groups without a window. If every group has a window, scales all groups to the
/// requested size.
void share_rest(const CacheSizeOptions& options, const GroupSizes& by_need, std::int64_t bytes,
                std::vector<std::int64_t>& sizes) {
  std::int64_t rest = bytes;
  const std::int64_t full_bytes = by_need.block_bytes(false);
  for (std::size_t g = 0; g < sizes.size(); ++g)
    if (options.groups[g].window > 0) rest -= sizes[g] * options.groups[g].block_bytes;
  const double growth = static_cast<double>(bytes) / static_cast<double>(by_need.bytes_of(sizes));
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    if (full_bytes > 0 && options.groups[g].window == 0) sizes[g] = std::min(rest / full_bytes, by_need.most());
    if (full_bytes == 0 && options.kv_cache_bytes > 0)
      sizes[g] = std::max(sizes[g], static_cast<std::int64_t>(growth * static_cast<double>(sizes[g])));
  }
}

}  // namespace

Result<std::vector<CacheGroup>> choose_cache_groups(const CacheSizeOptions& options) {
  check(!options.groups.empty() && options.block_len > 0 && options.max_model_len > 0 && options.max_num_seqs > 0,
        "choose_cache_groups: sizes must be positive");
  if (options.kv_cache_bytes < 0) {
    return fail(ErrorCode::invalid_request,
                fmt::format("kv_cache_bytes must be 0 (automatic) or more, got {}", options.kv_cache_bytes), "kv_cache_bytes");
  }
  if (!(options.memory_utilization > 0 && options.memory_utilization <= 1)) {
    return fail(ErrorCode::invalid_request,
                fmt::format("memory_utilization must be over 0 and at most 1, got {}", options.memory_utilization),
                "memory_utilization");
  }
  const std::int64_t bytes = bytes_of(options);
  const GroupSizes by_need(options);
  const std::int64_t n_entries =
      largest(by_need.per_sequence(), [&](std::int64_t n) { return by_need.bytes_of(by_need.for_contexts(n)) <= bytes; });
  std::vector<std::int64_t> sizes = by_need.for_contexts(n_entries);
  const std::int64_t needed_bytes = by_need.bytes_of(by_need.for_contexts(0));
  if (needed_bytes > bytes) {
    std::int64_t block_bytes = 0;
    for (const CacheSizeOptions::Group& group : options.groups) block_bytes += group.block_bytes;
    const std::int64_t n_blocks = bytes / block_bytes;
    return fail(ErrorCode::out_of_memory, fmt::format("the KV cache would hold {} tokens ({} bytes), but one sequence of the "
                                                      "maximum context length needs {} tokens ({} bytes): "
                                                      "give it more memory (--kv-cache-memory-bytes) or lower --max-model-len",
                                                      n_blocks * options.block_len, n_blocks * block_bytes,
                                                      by_need.per_sequence() * options.block_len, needed_bytes));
  }
  keep_ends(options, by_need, bytes, sizes);
  share_rest(options, by_need, bytes, sizes);
  std::vector<CacheGroup> groups;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const std::int64_t most = std::numeric_limits<std::int32_t>::max() / options.block_len;
    groups.push_back({static_cast<std::int32_t>(std::min(sizes[g], most)), options.groups[g].window});
  }
  return groups;
}

std::optional<std::int32_t> n_kept_ends(std::span<const CacheGroup> groups, std::int32_t block_len) {
  std::optional<std::int32_t> fewest;
  for (const CacheGroup& group : groups) {
    if (!group.has_window()) continue;
    const std::int32_t n = group.n_blocks / (CacheGroup::n_blocks_for(group.window, block_len) + 1);
    fewest = std::min(fewest.value_or(n), n);
  }
  return fewest;
}

std::int32_t longest_fitting(const CacheSizeOptions& options) {
  const std::int64_t bytes = bytes_of(options);
  const auto fits = [&](std::int32_t max_model_len) {
    CacheSizeOptions of_length = options;
    of_length.max_model_len = max_model_len;
    const GroupSizes sizes(of_length);
    return sizes.bytes_of(sizes.for_contexts(0)) <= bytes;
  };
  if (fits(options.max_model_len)) return options.max_model_len;
  const auto lengths = std::views::iota(1, options.max_model_len / options.block_len + 1);
  const auto n_fitting = std::ranges::partition_point(lengths, [&](std::int32_t n) { return fits(n * options.block_len); });
  return options.block_len * std::max<std::int32_t>(1, static_cast<std::int32_t>(n_fitting - lengths.begin()));
}

Result<std::int32_t> choose_snapshots(const CacheSizeOptions& options, std::int64_t slot_bytes,
                                      std::optional<std::int64_t> requested_bytes) {
  const std::int64_t free_bytes = std::max<std::int64_t>(0, options.free_memory_bytes);
  if (requested_bytes && *requested_bytes > free_bytes)
    return fail(ErrorCode::out_of_memory,
                fmt::format("--state-cache-memory-bytes {}: {} bytes are free beside the states of {}", *requested_bytes,
                            free_bytes, counted(options.max_num_seqs, "sequence")),
                "state_cache_memory_bytes");
  const std::int64_t n_most = std::int64_t{kSnapshotsEach} * (options.max_num_seqs + kKeptContexts);
  if (requested_bytes) return static_cast<std::int32_t>(std::min<std::int64_t>(*requested_bytes / slot_bytes, 1 << 20));
  const auto share = static_cast<std::int64_t>(kSnapshotShare * static_cast<double>(bytes_of(options)));
  return static_cast<std::int32_t>(std::min(std::min(share, free_bytes) / slot_bytes, n_most));
}

Result<KvCache::Pin> pin_beside(KvCache& cache, const CacheScope& scope, std::span<const TokenId> tokens,
                                std::int32_t max_model_len, std::int32_t max_pinned_blocks) {
  const KvCache::Pin pinned = cache.pin(scope, tokens);
  for (int g = 0; g < cache.n_groups(); ++g) {
    const std::int32_t n_pinned = cache.n_pinned(g);
    const std::int32_t n_left = cache.n_blocks(g) - n_pinned;
    const std::int32_t n_needed = cache.n_needed_alone(g, max_model_len);
    const bool is_over_cap = max_pinned_blocks > 0 && n_pinned > max_pinned_blocks;
    if (!is_over_cap && n_left >= n_needed) continue;
    cache.unpin(pinned);
    if (is_over_cap) {
      return fail(
          ErrorCode::out_of_memory,
          fmt::format("a prefix of {} tokens cannot be pinned: {} blocks of {} tokens would be, and --max-pinned-blocks "
                      "is {}; delete a prefix or raise the limit",
                      tokens.size(), n_pinned, cache.block_len(), max_pinned_blocks));
    }
    return fail(
        ErrorCode::out_of_memory,
        fmt::format("a prefix of {} tokens cannot be pinned: {} of the KV cache's {} tokens would be, and the {} left are "
                    "fewer than the {} of the maximum context length; give the cache more memory or lower --max-model-len",
                    tokens.size(), n_pinned * cache.block_len(), cache.n_blocks(g) * cache.block_len(),
                    n_left * cache.block_len(), std::min(max_model_len, n_needed * cache.block_len())));
  }
  if (cache.states() != nullptr && cache.states()->n_pinned() > cache.n_snapshot_slots()) {
    cache.unpin(pinned);
    if (cache.n_snapshot_slots() == 0)
      return fail(
          ErrorCode::out_of_memory,
          fmt::format("a prefix of {} tokens cannot be pinned: there is no memory for a snapshot of recurrent states beside "
                      "those of running sequences; raise --state-cache-memory-bytes",
                      tokens.size()));
    return fail(
        ErrorCode::out_of_memory,
        fmt::format("a prefix of {} tokens cannot be pinned: there is memory for {} of recurrent states, and no "
                    "more can be pinned (a new version of a prefix needs one of its own until it is there); delete a prefix or "
                    "raise --state-cache-memory-bytes",
                    tokens.size(), counted(cache.n_snapshot_slots(), "snapshot")));
  }
  return pinned;
}

}  // namespace baton
