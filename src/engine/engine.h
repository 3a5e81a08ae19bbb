/// The engine: it takes requests, runs steps and gives out events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "engine/cache/kv_events.h"
#include "engine/cache/prefix_layout.h"
#include "engine/engine_loop.h"
#include "engine/engine_options.h"
#include "engine/mailbox.h"
#include "engine/pin_table.h"
#include "engine/request/metrics.h"
#include "engine/request/request.h"
#include "engine/schedule/request_check.h"
#include "engine/step/block_transfer.h"
#include "engine/tree_view.h"
#include "engine/watchdog.h"
#include "kernels/backend.h"

namespace baton {

struct EngineParts;

/// Runs a model for many requests: the side of the engine that callers see. EngineLoop runs the steps.
///
/// Thread: `step`, `stop`, `check_invariants` and destruction belong to one thread. This thread may call `start`, and
/// then a thread of the engine runs the steps. All other functions may be called from any thread.
class Engine {
 public:
  /// Sizes the KV cache (choose_cache_groups) and allocates all memory. Errors: out_of_memory, invalid_request (an
  /// option out of range).
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, std::unique_ptr<Backend> backend,
                                                std::unique_ptr<Model> model);
  ~Engine() { stop(); }

  /// Accepts a request. Errors: invalid_request (prompt empty or too long, a parameter out of range: the message names
  /// the field), unavailable (the queue is full, memory is short, or the engine is shutting down). If it throws
  /// std::bad_alloc, nothing was submitted.
  Result<RequestId> submit(Request request);
  /// Ends a sequence whose text contains a stop string, or all sequences of a request that was cancelled. Their tokens
  /// in flight are dropped. Does nothing for a sequence that has ended.
  void finish(RequestId request, std::int32_t index, FinishReason reason) { post(FinishCommand{request, index, reason}); }
  void cancel(RequestId request) { post(FinishCommand{request, {}, FinishReason::abort}); }

  /// Waits at most `timeout` for events; empty if there are none. One thread only may call it.
  std::vector<Event> wait_events(std::chrono::milliseconds timeout) { return mail_.events.wait(timeout); }
  /// Ends the call of wait_events that waits, or the next one. Needs no memory.
  void wake_waiter() { mail_.events.wake(); }

  /// Waits at most `timeout` for changes of what the prefix cache holds; empty if there are none, or without
  /// EngineOptions::kv_events. They wait in memory until they are taken. One thread only may call it.
  std::vector<KvEvent> wait_kv_events(std::chrono::milliseconds timeout) { return mail_.kv_events.wait(timeout); }

  /// Computes and pins the full blocks of a prompt, so that requests that begin with it find them in the cache.
  /// Returns when they are computed; before `start` it runs steps on the caller's thread. Errors: invalid_request
  /// (prompt too long, no prefix caching), out_of_memory (more than max_pinned_blocks would be pinned, or a sequence of
  /// max_model_len would no longer fit), unavailable (shutting down, or `stop` was requested meanwhile; the prefill
  /// then ends with the steps in flight). `scope`: of the requests that are to find them; by default those without a
  /// salt.
  Result<PinInfo> pin(std::vector<TokenId> tokens, CacheScope scope = {}, std::stop_token stop = {});
  /// Unpins, from the next step on, the blocks that no other pin keeps. Sequences that use them keep them. Aborts if
  /// there is no such pin. Needs no memory.
  void unpin(PinId id);
  /// In the order in which they were requested.
  std::vector<PinInfo> pins() const;

  /// How export_pin and pin_from cut keys and values into pieces.
  const PrefixLayout& prefix_layout() const { return loop_.prefix_layout(); }
  using PieceWriter = std::function<Result<void>(std::span<const std::byte> piece)>;
  using PieceReader = std::function<Result<void>(std::vector<std::byte>& piece)>;
  /// Copies the keys and values of the full blocks of a pinned prompt out of the cache: `write` gets the pieces of
  /// prefix_layout in their order, on the caller's thread. The engine copies one piece between two steps, so requests
  /// continue, and it may be unpinned meanwhile. Errors: those of `write`; not_found (it was unpinned before), unsupported
  /// (several ranks), unavailable (stopped).
  Result<void> export_pin(PinId id, const PieceWriter& write);
  /// The same as `pin`, but the keys and values of full blocks come from `read`, which fills its argument with the
  /// pieces of prefix_layout in their order, on the caller's thread: as many as there are, unless the cache has the
  /// blocks already. The caller vouches for them: they must have been computed from these tokens by this model. Errors:
  /// those of `pin` and of `read`, and then nothing is pinned; unsupported (several ranks).
  Result<PinInfo> pin_from(std::vector<TokenId> tokens, CacheScope scope, const PieceReader& read, std::stop_token stop = {});

  /// Starts the engine thread / ends it (running requests get `abort`).
  void start();
  void stop();
  /// Runs one step on the caller's thread, for programs without `start`. Returns false if there was nothing to do.
  bool step() { return loop_.step(); }

  /// Turns relayed attention on or off for the steps planned from now on, so that both kinds can be measured over one
  /// model and cache. info() keeps the value that the engine started with. Thread: the one that runs the steps.
  void set_relay(bool relay) { loop_.set_relay(relay); }
  /// Empties the prefix cache, so that a benchmark can begin every run with a cold one: frees all cached blocks that no
  /// sequence uses and no pin keeps, and forgets which blocks were evicted before. Thread: the one that runs
  /// the steps.
  void drop_cached_blocks() { loop_.cache().drop_cached(); }

  /// Refuses new requests and cancels prefix prefills from now on. Accepted requests continue.
  void begin_drain();
  bool is_draining() const;
  /// True while no request waits or runs.
  bool is_idle() const;
  /// True while a step of the engine's own thread takes longer than step_timeout_ms.
  bool is_stuck() const { return loop_.watchdog().is_stuck(); }
  /// Why the engine can run no more steps: a sentence that names the rank that was lost. From then on `submit` refuses
  /// requests with it (unavailable), and accepted requests end with it as their error.
  std::optional<std::string> fault() const { return loop_.fault(); }

  const EngineMetrics& metrics() const { return loop_.metrics_recorder().metrics(); }
  const EngineInfo& info() const { return info_; }
  /// The prefix tree as of the last call but one: each call asks the engine's thread for a new picture, and waits for
  /// none.
  std::shared_ptr<const TreeView> tree();
  /// The last few dozen records, oldest first.
  std::vector<StepRecord> recent_steps() const { return loop_.watchdog().recent_steps(); }
  /// Aborts if an invariant of scheduler or cache does not hold. Must not be called while the engine's own thread
  /// runs.
  void check_invariants() const { loop_.check_invariants(); }
  /// Free blocks of a layer group's KV storage; a test may overwrite them. Thread: the one that runs the steps.
  std::vector<BlockId> free_blocks(int group) const;

 private:
  Engine(const EngineOptions& options, EngineParts parts);
  void post(FinishCommand command);
  Result<void> check_new_pin(std::span<const TokenId> tokens) const;
  Result<void> check_transfer() const;
  BlockTransfer transfer_of(BlockTransfer::Direction direction, std::span<const TokenId> tokens, const CacheScope& scope) const;
  void wait_transfer(const std::function<bool()>& is_reached) BATON_REQUIRES(mail_.mutex);
  Result<Pins::node_type> import_blocks(BlockTransfer& transfer, const PieceReader& read);

  const EngineOptions options_;
  const EngineInfo info_;
  const RequestLimits limits_;
  Mailbox mail_;
  EngineLoop loop_;
  std::thread thread_;  ///< runs loop_; the owner's
};

}  // namespace baton
