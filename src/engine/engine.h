/// The engine: it takes requests, runs steps and gives out events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/cache/cache_group.h"
#include "engine/cache/kv_events.h"
#include "engine/cache/prefix_layout.h"
#include "engine/request/metrics.h"
#include "engine/request/request.h"
#include "engine/schedule/mask_budget.h"
#include "engine/watchdog.h"
#include "kernels/backend.h"

namespace baton {

struct TreeView;

class Model;
class RankGroup;

/// Default bound of the block list entries of a step: 256 MB.
inline constexpr std::int32_t kMaxBlockEntries = 64 << 20;

struct EngineOptions {
  bool relay = true;  ///< `--attention relay|paged`
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  bool kv_events = false;                      ///< Engine::wait_kv_events has events, which somebody must take
  std::int32_t max_num_seqs = 128;             ///< sequences that run at once
  std::int32_t max_num_batched_tokens = 2048;  ///< rows of a step
  std::int32_t max_prefill_tokens = 0;         ///< prompt rows of a step that also decodes; 0: the backend's default
  std::int32_t max_model_len = 0;              ///< 0: the model's
  std::int32_t block_len = 16;
  std::int64_t kv_cache_bytes = 0;  ///< of each rank; 0: a share of free memory, see gpu_memory_utilization
  double memory_utilization = 0.9;
  std::int64_t host_tier_bytes = 0;  ///< host memory for blocks that the prefix cache evicts; 0: none
  DType kv_dtype = DType::bf16;
  bool enforce_eager = false;             ///< decode steps are not captured as graphs
  bool has_priorities = false;            ///< requests may have a priority; otherwise they are refused
  bool by_size = false;                   ///< see SchedulerOptions; not together with has_priorities
  std::int32_t max_num_queued_reqs = 0;   ///< sequences that may wait for their first step; 0: no limit
  std::int32_t max_pinned_blocks = 0;     ///< 0: as many as leave room for a sequence of max_model_len
  std::int32_t step_timeout_ms = 60'000;  ///< a longer step marks the engine as stuck; 0: never
  std::uint64_t seed = 0;                 ///< for requests without one
  SpeculationOptions speculation = {};    ///< of requests that do not set their own
  /// Block list entries of a step, one for each block that a sequence reads by itself. 0: what max_num_seqs sequences
  /// of max_model_len have, at most kMaxBlockEntries. Sequences that could exceed the bound wait.
  std::int32_t max_block_entries = 0;
  MaskBudget mask_budget = {};                      ///< of a step's token masks
  std::int32_t max_list_entries = kMaxListEntries;  ///< of a step's penalties, biases, bans and allowed ids
  std::vector<TokenId> eos_token_ids = {};          ///< end-of-sequence ids in addition to the model's own
  std::shared_ptr<RankGroup> ranks = {};            ///< the backend's group, if this is rank 0 of several; else null
};

/// A registered prefix: its full blocks are computed, and pinned until the prefix is removed.
struct PrefixInfo {
  std::string name;
  std::int32_t n_tokens = 0;         ///< of the prefix
  std::int32_t n_pinned_tokens = 0;  ///< tokens in its full blocks; each request computes the tail
  double prefill_ms = 0;
};

/// Properties of a running engine for the start line, /metrics and /v1/models.
struct EngineInfo {
  std::int32_t max_model_len = 0;
  std::int32_t n_blocks = 0;  ///< of the layer group that has the most
  std::vector<CacheGroup> cache_groups;
  std::int32_t block_len = 0;
  std::int64_t kv_cache_bytes = 0;    ///< of each rank
  std::int32_t n_tier_slots = 0;      ///< entries that the host tier can hold, one block of each layer group
  std::int64_t tier_entry_bytes = 0;  ///< of one of them
  DType kv_dtype = DType::bf16;
  DType weight_dtype = DType::bf16;
  std::string attention;  ///< "relay" or "paged"
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_prefill_tokens = 0;  ///< the value in use
  std::vector<TokenId> eos_token_ids;   ///< of the model and the options: those that end an answer
  BackendInfo backend;
};

/// Runs a model for many requests. Each step is planned and enqueued before the previous step is committed: plan(n+1)
/// ends before commit(n) begins.
///
/// Thread: `step`, `stop`, `check_invariants` and destruction belong to one thread. This thread may call `start`, and
/// then a thread of the engine runs the steps. All other functions may be called from any thread.
class Engine {
 public:
  /// Sizes the KV cache (choose_cache_groups) and allocates all memory. Errors: out_of_memory, invalid_request (an
  /// option out of range).
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, std::unique_ptr<Backend> backend,
                                                std::unique_ptr<Model> model);
  ~Engine();

  /// Accepts a request. Errors: invalid_request (prompt empty or too long, a parameter out of range: the message names
  /// the field), unavailable (the queue is full, memory is short, or the engine is shutting down). If it throws
  /// std::bad_alloc, nothing was submitted.
  Result<RequestId> submit(Request request);
  /// Ends a sequence whose text contains a stop string, or all sequences of a request that was cancelled. Their tokens
  /// in flight are dropped. Does nothing for a sequence that has ended.
  void finish(RequestId request, std::int32_t index, FinishReason reason);
  void cancel(RequestId request);

  /// Waits at most `timeout` for events; empty if there are none. One thread only may call it.
  std::vector<Event> wait_events(std::chrono::milliseconds timeout);

  /// Waits at most `timeout` for changes of what the prefix cache holds; empty if there are none, or without
  /// EngineOptions::kv_events. They wait in memory until they are taken. One thread only may call it.
  std::vector<KvEvent> wait_kv_events(std::chrono::milliseconds timeout);

  /// Computes and pins the full blocks of a prompt, so that requests that begin with it find them in the cache.
  /// Returns when they are computed; before `start` it runs steps on the caller's thread. Errors: invalid_request
  /// (name taken, prompt too long, no prefix caching), out_of_memory (more than max_pinned_blocks would be pinned, or
  /// a sequence of max_model_len would no longer fit), unavailable (shutting down, or the prefix was removed
  /// meanwhile). `scope`: of the requests that are to find them; by default those without a salt.
  Result<PrefixInfo> register_prefix(std::string name, std::vector<TokenId> tokens, CacheScope scope = {});
  /// Frees the name at once and, from the next step on, unpins the blocks that no other prefix pins. Sequences that
  /// use them keep them. If the prefix is still being computed, its prefill ends with the steps in flight and
  /// register_prefix returns. Errors: not_found.
  Result<void> remove_prefix(const std::string& name);
  std::vector<PrefixInfo> prefixes() const;

  /// How export_prefix and load_prefix cut keys and values into pieces.
  const PrefixLayout& prefix_layout() const;
  using PieceWriter = std::function<Result<void>(std::span<const std::byte> piece)>;
  using PieceReader = std::function<Result<void>(std::vector<std::byte>& piece)>;
  /// Copies the keys and values of the full blocks of a registered prefix out of the cache: `write` gets the pieces of
  /// prefix_layout in their order, on the caller's thread. The engine copies one piece between two steps, so requests go on.
  /// Errors: those of `write`; not_found (the cache does not have all blocks), unsupported (several ranks),
  /// unavailable (stopped).
  Result<void> export_prefix(std::span<const TokenId> tokens, const CacheScope& scope, const PieceWriter& write);
  /// The same as register_prefix, but the keys and values of full blocks come from `read`, which fills its argument with the
  /// pieces of prefix_layout in their order, on the caller's thread: as many as there are, unless the cache has the blocks
  /// already. The caller vouches for them: they must have been computed from these tokens by this model. Errors: those
  /// of register_prefix and of `read`, and then nothing is registered; unsupported (several ranks).
  Result<PrefixInfo> load_prefix(std::string name, std::vector<TokenId> tokens, CacheScope scope, const PieceReader& read);

  /// Starts the engine thread / ends it (running requests get `abort`).
  void start();
  void stop();
  /// Runs one step on the caller's thread, for programs without `start`. Returns false if there was nothing to do.
  bool step();

  /// Turns relayed attention on or off for the steps planned from now on, so that both kinds can be measured over one
  /// model and cache. info() keeps the value that the engine started with. Thread: the one that runs the steps.
  void set_relay(bool relay);
  /// Empties the prefix cache, so that a benchmark can begin every run with a cold one: frees all cached blocks that no
  /// sequence uses and no registered prefix pins, and forgets which blocks were evicted before. Thread: the one that runs
  /// the steps.
  void drop_cached_blocks();

  /// Refuses new requests and cancels prefix prefills from now on. Accepted requests continue.
  void begin_drain();
  bool is_draining() const;
  /// True while no request waits or runs.
  bool is_idle() const;
  /// True while a step of the engine's own thread takes longer than step_timeout_ms.
  bool is_stuck() const;
  /// Why the engine can run no more steps: a sentence that names the rank that was lost. From then on `submit` refuses
  /// requests with it (unavailable), and those that were accepted end with it as their error.
  std::optional<std::string> fault() const;

  const EngineMetrics& metrics() const;
  EngineInfo info() const;
  /// The prefix tree as of the last call but one: each call asks the engine's thread for a new picture, and waits for none.
  std::shared_ptr<const TreeView> tree();
  /// The last few dozen records, oldest first.
  std::vector<StepRecord> recent_steps() const;
  /// Aborts if an invariant of scheduler or cache does not hold. Must not be called while the engine's own thread
  /// runs.
  void check_invariants() const;
  /// Free blocks of a layer group's KV storage; a test may overwrite them. Thread: the one that runs the steps.
  std::vector<BlockId> free_blocks(int group) const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
