/// What an engine is made with, and what it says of itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "engine/cache/cache_group.h"
#include "engine/request/speculation.h"
#include "engine/schedule/mask_budget.h"
#include "kernels/backend.h"

namespace baton {

class RankGroup;

/// Default bound of the block list entries of a step: 256 MB.
inline constexpr std::int32_t kMaxBlockEntries = 64 << 20;

inline constexpr std::int32_t kFittingLength = -1;  ///< of EngineOptions::max_model_len

struct EngineOptions {
  bool relay = true;  ///< `--attention relay|paged`
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  bool kv_events = false;                      ///< Engine::wait_kv_events has events, which a caller must take
  std::int32_t max_num_seqs = 128;             ///< sequences that run at once
  std::int32_t max_num_batched_tokens = 2048;  ///< rows of a step
  /// Prompt rows of a step that also decodes; 0: the backend's default, and where it has none PrefillPace decides.
  std::int32_t max_prefill_tokens = 0;
  std::int32_t max_model_len = 0;  ///< 0: the model's; kFittingLength: the longest that the cache has room for
  std::int32_t block_len = 16;
  std::int64_t kv_cache_bytes = 0;  ///< of each rank; 0: a share of free memory, see gpu_memory_utilization
  double memory_utilization = 0.9;
  /// Of snapshots of recurrent states, beside the states of running sequences; absent: a share of memory, see cache_size.h.
  std::optional<std::int64_t> snapshot_bytes = {};
  /// Tokens of a prompt from one snapshot to the next, see Scheduler::find_state; 0: no such ones.
  std::int32_t state_snapshot_interval = 0;
  std::int64_t host_tier_bytes = 0;  ///< host memory for blocks that the prefix cache evicts; 0: none
  DType kv_dtype = DType::bf16;
  DType state_dtype = DType::f32;         ///< of the matrices of recurrent states: f32 or bf16
  bool enforce_eager = false;             ///< decode steps are not captured as graphs
  bool has_priorities = false;            ///< requests may have a priority; otherwise they are refused
  bool by_size = false;                   ///< see SchedulerOptions; not together with has_priorities
  std::int32_t max_num_queued_reqs = 0;   ///< sequences that may wait for their first step; 0: no limit
  std::int32_t max_pinned_blocks = 0;     ///< 0: as many as leave room for a sequence of max_model_len
  std::int32_t step_timeout_ms = 60'000;  ///< a longer step marks the engine as stuck; 0: never
  std::uint64_t seed = 0;                 ///< for requests without one
  SpeculationOptions speculation = {};    ///< of requests that do not set their own
  bool uses_step_times = true;            ///< they bound drafts and the prompt rows of a step with decodes; tests turn it off
  /// Benchmarks with random weights: verification accepts a draft with this probability, whatever the model computed, and all drafts
  /// are made.
  std::optional<double> simulated_acceptance = {};
  /// Block list entries of a step, one for each block that a sequence reads by itself. 0: what max_num_seqs sequences
  /// of max_model_len have, at most kMaxBlockEntries. Sequences that could exceed the bound wait.
  std::int32_t max_block_entries = 0;
  MaskBudget mask_budget = {};                      ///< of a step's token masks
  std::int32_t max_list_entries = kMaxListEntries;  ///< of a step's penalties, biases, bans and allowed ids
  std::vector<TokenId> eos_token_ids = {};          ///< end-of-sequence ids in addition to the model's own
  std::shared_ptr<RankGroup> ranks = {};            ///< the backend's group, if this is rank 0 of several; else null
};

/// Properties of a running engine for the start line, /metrics and /v1/models.
struct EngineInfo {
  std::int32_t max_model_len = 0;
  std::int32_t n_vocab = 0;
  bool has_mtp = false;       ///< the model has loaded its layer for drafts
  std::int32_t n_blocks = 0;  ///< of the layer group that has the most
  std::vector<CacheGroup> cache_groups;
  std::int32_t block_len = 0;
  std::int64_t kv_cache_bytes = 0;           ///< of each rank
  DType state_dtype = DType::f32;            ///< see EngineOptions
  std::int64_t state_slot_bytes = 0;         ///< of one sequence's state in recurrent layers; 0: there are none
  std::int32_t n_state_slots = 0;            ///< max_num_seqs, and one for each snapshot
  std::int32_t state_snapshot_interval = 0;  ///< see EngineOptions
  /// Snapshots of states that there is memory for, beside the states of running sequences.
  std::int32_t n_snapshots() const { return std::max(0, n_state_slots - max_num_seqs); }
  std::int64_t kept_row_bytes = 0;    ///< of one draft beside these states
  std::int32_t n_kept_rows = 0;       ///< drafts that can be kept
  std::int32_t n_tier_slots = 0;      ///< entries that the host tier can hold, one block of each layer group
  std::int64_t tier_entry_bytes = 0;  ///< of one of them
  std::int32_t n_tier_states = 0;     ///< snapshots that the host tier can hold, of state_slot_bytes
  std::int64_t tier_bytes() const { return n_tier_slots * tier_entry_bytes + n_tier_states * state_slot_bytes; }
  DType kv_dtype = DType::bf16;
  DType weight_dtype = DType::bf16;  ///< of embeddings, and of what matrices multiply
  std::string weight_scheme;         ///< of the layers' matrices: "int4", or "bfloat16" where they are dense
  /// Of what the layers' matrices multiply: weight_dtype, or "float8_e4m3" or "int8" where some of them round it to that.
  std::string activation_scheme;
  std::string attention;  ///< "relay" or "paged"
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_prefill_tokens = 0;  ///< the value in use
  bool paces_prefill = false;           ///< steps have fewer where that is cheaper, see PrefillPace
  std::vector<TokenId> eos_token_ids;   ///< of the model and the options: the ids that end an answer
  BackendInfo backend;
};

}  // namespace baton
