/// Counters of the engine, written by the engine thread and read by any thread: the values of /metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/mutex.h"
#include "engine/request/speculation.h"

namespace baton {

/// A counter or gauge that one thread writes and all threads may read.
class Count {
 public:
  void add(std::int64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  void set(std::int64_t n) { value_.store(n, std::memory_order_relaxed); }
  std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// A histogram with fixed upper bounds and a last bucket up to infinity. Thread: any.
class Histogram {
 public:
  struct Snapshot {
    std::vector<double> bounds;
    std::vector<std::int64_t> counts;  ///< not cumulative; one more than bounds
    double sum = 0;
  };

  explicit Histogram(std::vector<double> bounds) : snapshot_{std::move(bounds), {}, 0} {
    snapshot_.counts.resize(snapshot_.bounds.size() + 1);
  }
  void observe(double value) { observe(value, 1); }
  /// Observes the same value `n` times.
  void observe(double value, std::int64_t n) {
    const MutexLock lock(mutex_);
    std::size_t bucket = 0;
    while (bucket < snapshot_.bounds.size() && value > snapshot_.bounds[bucket]) ++bucket;
    snapshot_.counts[bucket] += n;
    snapshot_.sum += value * static_cast<double>(n);
  }
  Snapshot snapshot() const {
    const MutexLock lock(mutex_);
    return snapshot_;
  }

 private:
  mutable Mutex mutex_;
  Snapshot snapshot_ BATON_GUARDED_BY(mutex_);
};

/// Upper bounds of several histograms; vLLM uses the same, so its dashboards work.
inline const std::vector<double> kRequestSeconds = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                                    30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
inline const std::vector<double> kTokenSeconds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                                  0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
inline const std::vector<double> kTokenCounts = {1,   2,    5,    10,   20,    50,    100,   200,
                                                 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

/// All counters of the engine. Their names are those of /metrics (docs/api.md), without the prefix and `_total`.
struct EngineMetrics {
  Count num_requests_running;
  Count num_requests_waiting;
  Count num_requests_deferred;  ///< of the waiting: their shared prefix is being computed
  Count kv_blocks_total;
  Count kv_blocks_used;        ///< held by running sequences or pinned
  Count kv_blocks_pinned;      ///< by registered prefixes
  Count prefix_cache_queries;  ///< tokens; counted at each sequence's first admission
  Count prefix_cache_hits;
  // Of the host tier. Its queries are the tokens that the prefix cache lacks.
  Count external_prefix_cache_queries;
  Count external_prefix_cache_hits;
  Count host_tier_blocks;         ///< entries that it has
  Count host_tier_blocks_total;   ///< entries that it can have
  Count host_tier_states;         ///< snapshots of states that it has
  Count host_tier_states_total;   ///< snapshots that it can have
  Count kv_offload_saved_bytes;   ///< copied to it, of blocks and of states
  Count kv_offload_loaded_bytes;  ///< copied from it
  // Of a model with recurrent layers.
  Count state_slots_total;        ///< states that there is memory for; running sequences have one each
  Count state_snapshots;          ///< states at places of the prefix cache
  Count state_snapshots_pinned;   ///< of these, by registered prefixes
  Count state_snapshots_evicted;  ///< to make room for other states
  Count prompt_tokens_replayed;   ///< their keys were found but not the state after them
  Count num_preemptions;
  Count prompt_tokens;
  Count prompt_tokens_cached;
  Count prompt_tokens_recomputed;  ///< after preemptions
  Count generation_tokens;
  Count spec_decode_num_drafts;                                           ///< times that a sequence had drafts in a step
  Count spec_decode_num_draft_tokens;                                     ///< drafts that were verified
  Count spec_decode_num_accepted_tokens;                                  ///< of these, the accepted ones
  std::array<Count, kDraftSourceNames.size()> draft_tokens_by_source;     ///< verified
  std::array<Count, kDraftSourceNames.size()> accepted_tokens_by_source;  ///< of these
  Count draft_passes;                                                     ///< runs of the model's layer for drafts
  /// Accepted drafts at each place among the drafts of their step.
  std::array<Count, kMaxDraftTokens> spec_decode_num_accepted_tokens_per_pos;
  Count finished_stop;
  Count finished_length;
  Count finished_abort;
  Count finished_error;
  Count finished_deadline;
  Count rejected_queue_full;
  Count rejected_draining;
  Count rejected_no_memory;
  Count steps;
  Count grammar_sequences;  ///< sequences with a grammar, counted at their first admission
  Count grammar_masks;      ///< distinct token masks of all steps
  Count mask_deferrals;     ///< samples dropped because their masks were not ready; of a sequence in a step, one
  Histogram grammar_mask_seconds{{1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1}};  ///< of a step
  Count kv_bytes_requested;  ///< KV bytes that the executed plans read, all layers
  Count kv_bytes_saved;      ///< what leaves without sharing would have read more
  Count relay_groups;        ///< shared nodes of the last step
  Histogram relay_group_size{{1, 2, 4, 8, 16, 32, 64, 128, 256}};
  Histogram relay_prefix_tokens{{16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}};
  Histogram time_to_first_token_seconds{
      {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}};
  Histogram inter_token_latency_seconds{kTokenSeconds};
  Histogram e2e_request_latency_seconds{kRequestSeconds};
  Histogram request_inference_time_seconds{kRequestSeconds};
  Histogram request_prefill_time_seconds{kRequestSeconds};
  Histogram request_decode_time_seconds{kRequestSeconds};
  Histogram request_time_per_output_token_seconds{kTokenSeconds};
  Histogram request_queue_time_seconds{kRequestSeconds};
  Histogram request_prompt_tokens{kTokenCounts};
  Histogram request_generation_tokens{kTokenCounts};
  Histogram request_max_num_generation_tokens{kTokenCounts};
  Histogram request_params_n{{1, 2, 5, 10, 20, 50, 100, 200}};
  Histogram request_params_max_tokens{kTokenCounts};
  Histogram request_prefill_kv_computed_tokens{kTokenCounts};
  Histogram iteration_tokens_total{{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
};

}  // namespace baton
