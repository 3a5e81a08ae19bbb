/// The engine: requests in, events out, one step after another.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/cache_group.h"
#include "engine/metrics.h"
#include "engine/request.h"
#include "engine/watchdog.h"
#include "kernels/backend.h"

namespace baton {

class Model;

/// Block list entries of a step unless an option says otherwise: 256 MB.
inline constexpr std::int32_t kMaxBlockEntries = 64 << 20;

struct EngineOptions {
  bool relay = true;  ///< `--attention relay|paged`
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  std::int32_t max_num_seqs = 128;             ///< sequences that run at once
  std::int32_t max_num_batched_tokens = 2048;  ///< rows of a step
  std::int32_t max_prefill_tokens = 0;         ///< rows of prompts in a step in which others decode; 0: the device's default
  std::int32_t max_model_len = 0;              ///< 0: the model's
  std::int32_t block_len = 16;
  std::int64_t kv_cache_bytes = 0;  ///< 0: a share of free memory, see gpu_memory_utilization
  double memory_utilization = 0.9;
  DType kv_dtype = DType::bf16;
  bool enforce_eager = false;             ///< no graphs of decode steps
  std::int32_t max_num_queued_reqs = 0;   ///< 0: no limit
  std::int32_t max_pinned_blocks = 0;     ///< 0: what leaves room for a sequence of max_model_len
  std::int32_t step_timeout_ms = 60'000;  ///< a step that lasts longer makes the engine stuck; 0: never
  std::uint64_t seed = 0;                 ///< for requests without one
  SpeculationOptions speculation = {};    ///< of requests that do not say
  /// Block list entries of a step (one for each block that a sequence reads by itself), 0: what max_num_seqs sequences
  /// of max_model_len have, at most kMaxBlockEntries. Sequences that could come to more wait.
  std::int32_t max_block_entries = 0;
  std::int32_t max_list_entries = kMaxListEntries;  ///< of a step's penalties, biases, bans and allowed ids
  std::vector<TokenId> eos_token_ids = {};          ///< end-of-sequence ids besides the model's (generation_config.json)
};

/// A registered prefix: its full blocks are computed, and pinned until it is removed.
struct PrefixInfo {
  std::string name;
  std::int32_t n_tokens = 0;         ///< of the prefix
  std::int32_t n_pinned_tokens = 0;  ///< whole blocks of it; the tail is computed by each request
  double prefill_ms = 0;
};

/// What a running engine is, for the start line, /metrics and /v1/models.
struct EngineInfo {
  std::int32_t max_model_len = 0;
  std::int32_t n_blocks = 0;  ///< of the layer group that has most
  std::vector<CacheGroup> cache_groups;
  std::int32_t block_len = 0;
  std::int64_t kv_cache_bytes = 0;
  DType kv_dtype = DType::bf16;
  DType weight_dtype = DType::bf16;
  std::string attention;  ///< "relay" or "paged"
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_prefill_tokens = 0;  ///< as it holds
  BackendInfo backend;
};

/// Runs a model for many requests. The order of one step is plan, enqueue, commit of the step before: plan(n+1) ends
/// before commit(n) begins.
///
/// Thread: `step`, `stop`, `check_invariants` and destruction belong to one thread, which may hand the steps to one of
/// the engine's own by `start`; everything else may be called from any thread.
class Engine {
 public:
  /// Sizes the KV cache (see choose_cache_groups) and allocates everything. Errors: out_of_memory, invalid_request (an
  /// option out of range).
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, std::unique_ptr<Backend> backend,
                                                std::unique_ptr<Model> model);
  ~Engine();

  /// Takes a request in. Errors: invalid_request (prompt empty or too long, a parameter out of range: the field is
  /// named), unavailable (queue full, or shutting down).
  Result<RequestId> submit(Request request);
  /// Ends a sequence whose text met a stop string, or all sequences of a request that nobody waits for. Tokens that
  /// were in flight are dropped. No-op for what has ended.
  void finish(RequestId request, std::int32_t index, FinishReason reason);
  void cancel(RequestId request);

  /// Waits for news, at most `timeout`; empty if there is none. One consumer.
  std::vector<Event> wait_events(std::chrono::milliseconds timeout);

  /// Computes and pins the whole blocks of a prompt, so that requests that begin with it find it. Waits until that is
  /// done; before `start` it steps on the caller's thread. Errors: invalid_request (name taken, prompt too long, no
  /// prefix caching), out_of_memory (more than max_pinned_blocks would be pinned, or a sequence of max_model_len would
  /// no longer fit), unavailable (shutting down, or removed meanwhile).
  Result<PrefixInfo> register_prefix(std::string name, std::vector<TokenId> tokens);
  /// Frees the name at once, and from the next step on lets what only this prefix pinned be evicted; sequences that
  /// use it keep it. The prefill of one that is being computed ends with the steps in flight, and with it the wait for
  /// it. Errors: not_found.
  Result<void> remove_prefix(const std::string& name);
  std::vector<PrefixInfo> prefixes() const;

  /// Starts the engine thread / ends it (running requests get `abort`).
  void start();
  void stop();
  /// One step on the caller's thread, for programs without `start`: false if there was nothing to do.
  bool step();

  /// Lets the steps planned from now on relay, or not: both kinds of attention measured over one model and cache.
  /// info() says what the engine started with. Thread: the steps' own.
  void set_relay(bool relay);

  /// Refuses new requests and cancels the prefills of prefixes from now on. Requests that were taken in go on.
  void begin_drain();
  bool is_draining() const;
  /// True while nothing waits or runs.
  bool is_idle() const;
  /// True while a step of the engine's own thread lasts longer than step_timeout_ms.
  bool is_stuck() const;

  const EngineMetrics& metrics() const;
  EngineInfo info() const;
  /// The last few dozen records, oldest first.
  std::vector<StepRecord> recent_steps() const;
  /// Aborts if an invariant of scheduler or cache does not hold. Not while the engine's own thread runs.
  void check_invariants() const;
  /// Blocks of a layer group's KV storage that hold nothing: a test may overwrite them. Thread: the steps' own.
  std::vector<BlockId> free_blocks(int group) const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
