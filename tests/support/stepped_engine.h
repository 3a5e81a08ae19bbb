/// The steps of an engine, and all that callers ask of it between them, on the test's thread. (Engine::pin and the copies of stored
/// prefixes return when they have ended, so on one thread no request could begin or end meanwhile.)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine_loop.h"
#include "engine/engine_parts.h"
#include "engine/schedule/request_check.h"
#include "support/async_backend.h"
#include "support/tiny_engine.h"

namespace baton::testing {

/// What Engine is, without its waiting. Thread: the test's.
class SteppedEngine {
 public:
  /// A prefix that is being registered, until take_registered returns it.
  struct Registration {
    std::vector<TokenId> tokens = {};
    CacheScope scope = {};
    std::stop_source stop = {};
    PinPrefill prefill = {};
    Pins::node_type stored = {};  ///< the pin on what was copied in, until the prefix has its own
    Sequence::Clock::time_point begun = {};
  };
  /// A copy of a prefix out of the cache or into it.
  struct Copy {
    BlockTransfer transfer;
    std::vector<std::vector<std::byte>> pieces = {};
    std::size_t n_given = 0;  ///< pieces, into the cache
    bool is_import() const { return transfer.direction == BlockTransfer::Direction::into_cache; }
  };

  /// On an asynchronous test device, which overwrites the blocks and the slots of states that the engine frees; without a pace, on the
  /// CPU. `spec` has recurrent layers. `n_blocks`: see tiny_options.
  SteppedEngine(EngineOptions options, std::int32_t n_blocks, std::optional<Pace> pace, std::uint32_t seed,
                const ModelSpec& spec) {
    options.kv_dtype = DType::f32;
    std::unique_ptr<Backend> backend = make_device({.n_threads = 1, .batch_invariant = options.batch_invariant}, pace, seed);
    auto model = random_model(spec)(*backend);
    EXPECT_TRUE(model) << model.error().message;
    options_ = options_for(spec, tiny_options(options, n_blocks, *backend, **model));
    auto parts = make_parts(options_, std::move(backend), std::move(*model));
    EXPECT_TRUE(parts) << parts.error().message;
    info_ = parts->info;
    limits_ = {.max_model_len = info_.max_model_len,
               .n_vocab = spec.n_vocab,
               .eos_token_ids = info_.eos_token_ids,
               .speculation = options_.speculation,
               .max_list_entries = parts->bounds.max_list_entries,
               .has_priorities = options_.has_priorities,
               .has_mtp = info_.has_mtp,
               .has_states = info_.state_slot_bytes > 0};
    mail_.emplace(options_, info_.block_len);
    loop_.emplace(options_, info_, std::move(*parts), *mail_);
    if (device_ != nullptr) watch();
  }
  ~SteppedEngine() { loop_->end_all(); }
  SteppedEngine(const SteppedEngine&) = delete;
  SteppedEngine& operator=(const SteppedEngine&) = delete;

  const EngineInfo& info() const { return info_; }
  const EngineMetrics& metrics() const { return loop_->metrics_recorder().metrics(); }
  EngineLoop& loop() { return *loop_; }
  KvCache& cache() { return loop_->cache(); }
  const AsyncBackend* device() const { return device_; }  ///< null: the CPU

  RequestId submit(const Request& request) {
    const auto checked = check_request(request, limits_);
    EXPECT_TRUE(checked) << checked.error().message;
    const MutexLock lock(mail_->mutex);
    const RequestId id{mail_->next_request++};
    const auto prompt_len = static_cast<std::int32_t>(request.prompt.size());
    mail_->queue.add(mail_->line_of(request.tenant, prompt_len, max_len_of(request, limits_), request.n_sequences),
                     request.n_sequences);
    mail_->inbox.submits.push_back(
        {id, make_sequences(request, {id, mail_->next_sequence, Sequence::Clock::now()}, limits_, options_.seed)});
    mail_->next_sequence = SequenceId{mail_->next_sequence.value + request.n_sequences};
    mail_->n_unfinished += request.n_sequences;
    return id;
  }
  void finish(RequestId request, std::optional<std::int32_t> index, FinishReason reason) {
    const MutexLock lock(mail_->mutex);
    mail_->inbox.finishes.push_back({request, index, reason});
  }

  /// Begins to register a prefix. `stored`: see Registration.
  Registration& register_prefix(std::vector<TokenId> tokens, CacheScope scope, Pins::node_type stored = {}) {
    Registration& made = registrations_.emplace_back();
    made.tokens = std::move(tokens);
    made.scope = std::move(scope);
    made.stored = std::move(stored);
    made.begun = Sequence::Clock::now();
    made.prefill.stop = made.stop.get_token();
    const MutexLock lock(mail_->mutex);
    mail_->pins.begin(made.prefill, made.tokens, made.scope);
    ++mail_->n_unfinished;
    return made;
  }
  std::list<Registration>& registrations() { return registrations_; }
  /// A registration that has ended.
  struct Registered {
    std::vector<TokenId> tokens;
    CacheScope scope;
    Result<PinInfo> info;
    KvCache::Pin pin = {};
    bool was_stopped = false;
  };
  /// The registrations that have ended since the last call.
  std::vector<Registered> take_registered() {
    std::vector<Registered> all;
    const MutexLock lock(mail_->mutex);
    for (auto at = registrations_.begin(); at != registrations_.end();) {
      if (!at->prefill.pin) {
        ++at;
        continue;
      }
      const bool was_stopped = at->stop.stop_requested();
      auto info = mail_->pins.wait(mail_->mutex, at->prefill, at->begun);
      if (!at->stored.empty()) mail_->pins.give_up(std::move(at->stored));
      const KvCache::Pin pin = info ? mail_->pins.pins().at(info->id).pin : KvCache::Pin{};
      all.push_back({std::move(at->tokens), std::move(at->scope), std::move(info), pin, was_stopped});
      at = registrations_.erase(at);
    }
    return all;
  }
  void unpin(PinId id) {
    const MutexLock lock(mail_->mutex);
    mail_->pins.unpin(id);
  }

  /// Begins to copy a prefix out of the cache, or pieces of one into it. The prefix has a full block.
  Copy& copy(BlockTransfer::Direction direction, std::vector<TokenId> tokens, CacheScope scope,
             std::vector<std::vector<std::byte>> pieces = {}) {
    tokens.resize(tokens.size() - tokens.size() % static_cast<std::size_t>(info_.block_len));
    Copy& made = copies_.emplace_back(Copy{{direction, std::move(tokens), std::move(scope)}, std::move(pieces)});
    const MutexLock lock(mail_->mutex);
    mail_->transfers.add(made.transfer);
    return made;
  }
  std::list<Copy>& copies() { return copies_; }
  /// Hands over the next piece, where one is due.
  void advance(Copy& copy) {
    const MutexLock lock(mail_->mutex);
    BlockTransfer& transfer = copy.transfer;
    if (transfer.has_piece == copy.is_import()) return;
    if (copy.is_import() && (transfer.ended || copy.n_given == copy.pieces.size())) return;
    if (copy.is_import())
      transfer.piece = copy.pieces[copy.n_given++];
    else
      copy.pieces.push_back(std::move(transfer.piece));
    transfer.has_piece = copy.is_import();
  }
  void abandon(Copy& copy) {
    const MutexLock lock(mail_->mutex);
    copy.transfer.is_abandoned = !copy.transfer.ended;
  }
  /// A copy that has ended, with all its pieces; a pin on what was copied in.
  struct Copied {
    Copy copy;
    Result<void> result;
    Pins::node_type stored = {};
  };
  std::vector<Copied> take_copied() {
    std::vector<Copied> all;
    const MutexLock lock(mail_->mutex);
    for (auto at = copies_.begin(); at != copies_.end();) {
      if (!at->transfer.ended || (at->transfer.has_piece && !at->is_import())) {
        ++at;
        continue;
      }
      Result<KvCache::Pin> ended = std::move(*at->transfer.ended);
      Copied copied{.copy = std::move(*at), .result = {}};
      if (!ended) copied.result = tl::unexpected<Error>(std::move(ended.error()));
      if (ended && ended->node != nullptr) {
        copied.stored = mail_->pins.make_row({}, {});
        copied.stored.mapped().pin = *ended;
      }
      all.push_back(std::move(copied));
      at = copies_.erase(at);
    }
    return all;
  }
  /// Gives up the pin on what was copied in.
  void give_up(Pins::node_type stored) {
    const MutexLock lock(mail_->mutex);
    mail_->pins.give_up(std::move(stored));
  }

  /// Runs a step, after which all invariants hold. Returns whether there was something to do.
  bool step() {
    const bool has_worked = loop_->step();
    loop_->check_invariants();
    return has_worked;
  }
  std::vector<Event> take_events() { return mail_->events.wait(std::chrono::milliseconds(0)); }
  std::vector<KvEvent> take_kv_events() { return mail_->kv_events.wait(std::chrono::milliseconds(0)); }
  /// Whether no request, registration or copy is under way.
  bool is_idle() const {
    const MutexLock lock(mail_->mutex);
    return mail_->n_unfinished == 0 && registrations_.empty() && copies_.empty();
  }

 private:
  std::unique_ptr<Backend> make_device(const BackendOptions& options, std::optional<Pace> pace, std::uint32_t seed) {
    if (!pace) return make_backend("cpu", options).value();
    auto made = AsyncBackend::make(options, *pace, seed);
    EXPECT_TRUE(made) << made.error().message;
    device_ = made->get();
    return std::move(*made);
  }
  /// The device overwrites what is free.
  void watch() {
    device_->watch_free_blocks([this](int group) {
      const std::span<const BlockId> blocks = loop_->cache().free_blocks(group);
      return std::vector<BlockId>(blocks.begin(), blocks.end());
    });
    device_->watch_free_states([this] {
      const StateSlots& slots = *loop_->cache().states();
      std::vector<std::int32_t> free;
      for (std::int32_t slot = 0; slot < slots.n_slots(); ++slot)
        if (slots.use(slot) == StateSlots::Use::free) free.push_back(slot);
      return free;
    });
  }

  EngineOptions options_;
  EngineInfo info_;
  RequestLimits limits_;
  std::list<Registration> registrations_;
  std::list<Copy> copies_;
  std::optional<Mailbox> mail_;
  std::optional<EngineLoop> loop_;
  AsyncBackend* device_ = nullptr;  ///< the loop's; null: the CPU
};

}  // namespace baton::testing
