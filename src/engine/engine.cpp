/// The engine as its callers see it: requests and prefixes come in, its thread starts and stops.
#include "engine/engine.h"

#include <chrono>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/thread_name.h"
#include "engine/engine_parts.h"

namespace baton {
namespace {

/// For the events of 16,384 sequences that end in one step, and for the steps of those that run.
constexpr std::size_t kReserveBytes = std::size_t{16} << 20;
/// How often an idle engine asks for memory that it has used up.
constexpr std::chrono::milliseconds kRetry{50};

PrefixLayout layout_of(const Executor& executor, const EngineInfo& info) {
  PrefixLayout layout{.block_len = info.block_len};
  for (const KvStorage* storage : executor.storages())
    layout.groups.push_back({storage->shape(), info.cache_groups[layout.groups.size()].window});
  return layout;
}

}  // namespace

Engine::Engine(const EngineOptions& options, EngineParts parts)
    : options_(options),
      info_(std::move(parts.info)),
      eos_token_ids_(std::move(parts.eos_token_ids)),
      n_vocab_(parts.executor->model().spec().n_vocab),
      bounds_(parts.bounds),
      cache_({.block_len = info_.block_len,
              .groups = info_.cache_groups,
              .max_rows_in_flight = max_rows_in_flight(options),
              .enable_prefix_caching = options.enable_prefix_caching,
              .records_events = options.kv_events,
              .n_tier_slots = info_.n_tier_slots}),
      scheduler_({.by_size = options.by_size,
                  .max_num_seqs = options.max_num_seqs,
                  .max_num_batched_tokens = options.max_num_batched_tokens,
                  .max_prefill_tokens = info_.max_prefill_tokens,
                  .max_scores = parts.max_scores,
                  .max_list_entries = parts.bounds.max_list_entries,
                  .max_block_entries = parts.bounds.max_block_entries,
                  .max_drafts = parts.max_drafts,
                  .drafters_wait_alone = parts.executor->backend().capabilities().is_asynchronous,
                  .weighs_drafts = options.weighs_drafts},
                 cache_),
      builder_(std::move(parts.builder)),
      executor_(std::move(parts.executor)),
      transfers_(cache_, layout_of(*executor_, info_), *executor_, {info_.max_model_len, options.max_pinned_blocks}, mutex_,
                 transfer_queue_),
      masks_(options.mask_budget),
      queue_(options.max_num_queued_reqs),
      pins_(info_.block_len),
      watchdog_(std::chrono::milliseconds(options.step_timeout_ms)) {
  metrics_recorder_.set_cache_size(cache_);
  metrics_recorder_.set_tier_size(info_.n_tier_slots, info_.tier_entry_bytes);
}

Result<RequestId> Engine::submit(Request request) {
  BATON_TRY_VOID(check_request(request, limits()));
  if (const auto sentence = fault()) return fail(ErrorCode::unavailable, *sentence);
  const auto arrived = request.arrived.value_or(Sequence::Clock::now());
  const MutexLock lock(mutex_);
  if (reserve_ && !reserve_->is_held()) {
    metrics_recorder_.rejected_no_memory();
    return fail(ErrorCode::unavailable, "this server has no memory left for new requests: try again later");
  }
  if (is_draining_ || is_stopping_) {
    metrics_recorder_.rejected_draining();
    return fail(ErrorCode::unavailable, "the server is shutting down and takes no new requests");
  }
  const auto prompt_len = static_cast<std::int32_t>(request.prompt.size());
  const QueueLimit::Line line = line_of(request.tenant, prompt_len, max_len_of(request, limits()), request.n_sequences);
  if (!queue_.has_room(line, request.n_sequences)) {
    metrics_recorder_.rejected_queue_full();
    return fail(ErrorCode::unavailable,
                fmt::format("{} sequences are waiting, and the queue holds {}: try again later (n = {})", queue_.size(),
                            queue_.limit(), request.n_sequences));
  }
  // Under the lock, because the scheduler takes ids in ascending order. Nothing is counted before all is allocated.
  const RequestId id{next_request_};
  auto sequences = make_sequences(request, {id, next_sequence_, arrived}, limits(), options_.seed);
  queue_.add(line, request.n_sequences);
  try {
    inbox_.submits.push_back({id, std::move(sequences)});
  } catch (const std::bad_alloc&) {
    queue_.remove(line, request.n_sequences);
    throw;
  }
  ++next_request_;
  next_sequence_ = SequenceId{next_sequence_.value + request.n_sequences};
  n_unfinished_ += request.n_sequences;
  inbox_filled_.notify_one();
  return id;
}

void Engine::post(FinishCommand command) {
  const MutexLock lock(mutex_);
  if (is_stopping_) return;  // all sequences have ended or are about to
  inbox_.finishes.push_back(command);
  inbox_filled_.notify_one();
}

Result<void> Engine::check_new_pin(std::span<const TokenId> tokens) const {
  if (!options_.enable_prefix_caching)
    return fail(ErrorCode::invalid_request, "it cannot be pinned: prefix caching is off", "prefix");
  BATON_TRY_VOID(check_prefix(tokens, limits()));
  if (const auto sentence = fault()) return fail(ErrorCode::unavailable, *sentence);
  return {};
}

Result<PinInfo> Engine::pin(std::vector<TokenId> tokens, CacheScope scope, std::stop_token stop) {
  const auto begin = Sequence::Clock::now();
  BATON_TRY_VOID(check_new_pin(tokens));
  PinPrefill prefill{.tokens = std::move(tokens), .scope = std::move(scope), .stop = std::move(stop)};
  bool has_thread = false;
  {
    const MutexLock lock(mutex_);
    if (is_draining_ || is_stopping_)
      return fail(ErrorCode::unavailable, "the server is shutting down and takes no new prefixes");
    pins_.begin(prefill);
    has_thread = has_thread_;
    ++n_unfinished_;
    inbox_filled_.notify_one();
  }
  if (!has_thread) {
    while (step()) {
    }
  }
  const MutexLock lock(mutex_);
  auto info = pins_.wait(mutex_, prefill, begin);
  inbox_filled_.notify_one();
  return info;
}

void Engine::unpin(PinId id) {
  const MutexLock lock(mutex_);
  pins_.unpin(id);
  inbox_filled_.notify_one();
}

std::vector<PinInfo> Engine::pins() const {
  const MutexLock lock(mutex_);
  std::vector<PinInfo> infos;
  for (const auto& [id, pinned] : pins_.pins()) infos.push_back(pinned.info);
  return infos;
}

std::shared_ptr<const TreeView> Engine::tree() {
  const MutexLock lock(mutex_);
  inbox_.wants_tree = !is_stopping_;
  inbox_filled_.notify_one();
  return tree_;
}

void Engine::begin_drain() {
  const MutexLock lock(mutex_);
  is_draining_ = true;
  inbox_filled_.notify_one();
}

bool Engine::is_draining() const {
  const MutexLock lock(mutex_);
  return is_draining_;
}
bool Engine::is_idle() const {
  const MutexLock lock(mutex_);
  return n_unfinished_ == 0;
}

void Engine::start() {
  const MutexLock lock(mutex_);
  check(!has_thread_ && !is_stopping_, "Engine::start: it was started or stopped before");
  has_thread_ = true;
  reserve_.emplace(kReserveBytes);
  watchdog_.start();
  thread_ = std::thread([this, &reserve = *reserve_] {
    name_this_thread("engine");
    run(reserve);
  });
}

/// A step that finds no memory, the reserve included, cannot be taken back: the scheduler's state would be half changed.
void Engine::run(MemoryReserve& reserve) {
  const MemoryReserve::User user(reserve);
  try {
    run_steps(reserve);
  } catch (const std::bad_alloc&) {
    log::fatal("event=engine_out_of_memory effect=\"the program ends: a step of the engine found no memory\"");
  }
}

/// Whether callers have asked for something.
bool Engine::has_work() const {
  return is_stopping_ || !inbox_.is_empty() || pins_.has_changes() || transfer_queue_.has_work();
}

void Engine::run_steps(MemoryReserve& reserve) {
  bool was_short = false;
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (is_stopping_) return;
    }
    const bool has_run = step();
    if (!reserve.is_held()) {
      if (!std::exchange(was_short, true))
        log::warning("event=memory_reserve_used effect=\"new requests are refused until there is memory\"");
      reserve.restore();
    } else if (std::exchange(was_short, false)) {
      log::info("event=memory_reserve_restored");
    }
    if (has_run) continue;
    const auto end = Sequence::Clock::now() + kRetry;
    const MutexLock lock(mutex_);
    while (!has_work()) {
      if (!was_short)
        inbox_filled_.wait(mutex_);
      else if (!inbox_filled_.wait_until(mutex_, end))
        break;  // nothing is submitted before the reserve is there
    }
  }
}

void Engine::stop() {
  {
    const MutexLock lock(mutex_);
    is_draining_ = is_stopping_ = true;
    inbox_filled_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  watchdog_.stop();
  drain();
  for (const SequenceId id : scheduler_.unfinished()) end(id, FinishReason::abort);
  transfers_.end_all(scheduler_.next_step());
  retire();
  publish();
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, std::unique_ptr<Backend> backend,
                                               std::unique_ptr<Model> model) {
  BATON_TRY(EngineParts parts, make_parts(options, std::move(backend), std::move(model)));
  return std::unique_ptr<Engine>(new Engine(options, std::move(parts)));
}

std::vector<BlockId> Engine::free_blocks(int group) const {
  const std::span<const BlockId> blocks = cache_.free_blocks(group);
  return {blocks.begin(), blocks.end()};
}

}  // namespace baton
