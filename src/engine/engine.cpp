/// The engine as its callers see it: requests and prefixes come in, its thread starts and stops.
#include "engine/engine.h"

#include <list>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/mutex.h"
#include "core/thread_name.h"
#include "engine/engine_parts.h"

namespace baton {
namespace {

/// For the events of 16,384 sequences that end in one step, and for the steps of running ones.
constexpr std::size_t kReserveBytes = std::size_t{16} << 20;

}  // namespace

Engine::Engine(const EngineOptions& options, EngineParts parts)
    : options_(options),
      info_(parts.info),
      limits_{info_.max_model_len,
              parts.executor->model().spec().n_vocab,
              info_.eos_token_ids,
              options.speculation,
              parts.bounds.max_list_entries,
              options.has_priorities,
              info_.has_mtp,
              info_.state_slot_bytes > 0},
      mail_(options, info_.block_len),
      loop_(options, info_, std::move(parts), mail_) {}

Result<RequestId> Engine::submit(Request request) {
  BATON_TRY_VOID(check_request(request, limits_));
  if (const auto sentence = fault()) return fail(ErrorCode::unavailable, *sentence);
  const auto arrived = request.arrived.value_or(Sequence::Clock::now());
  const MutexLock lock(mail_.mutex);
  if (mail_.reserve && !mail_.reserve->is_held()) {
    loop_.metrics_recorder().rejected_no_memory();
    return fail(ErrorCode::unavailable, "this server has no memory left for new requests: try again later");
  }
  if (mail_.is_draining || mail_.is_stopping) {
    loop_.metrics_recorder().rejected_draining();
    return fail(ErrorCode::unavailable, "the server is shutting down and takes no new requests");
  }
  const auto prompt_len = static_cast<std::int32_t>(request.prompt.size());
  const QueueLimit::Line line = mail_.line_of(request.tenant, prompt_len, max_len_of(request, limits_), request.n_sequences);
  if (!mail_.queue.has_room(line, request.n_sequences)) {
    loop_.metrics_recorder().rejected_queue_full();
    return fail(ErrorCode::unavailable,
                fmt::format("{} sequences are waiting, and the queue holds {}: try again later (n = {})", mail_.queue.size(),
                            mail_.queue.limit(), request.n_sequences));
  }
  // Under the lock, because the scheduler takes ids in ascending order. Nothing is counted before all is allocated.
  const RequestId id{mail_.next_request};
  std::list<SubmitCommand> command;
  command.push_back({id, make_sequences(request, {id, mail_.next_sequence, arrived}, limits_, options_.seed)});
  mail_.queue.add(line, request.n_sequences);
  mail_.inbox.submits.splice(mail_.inbox.submits.end(), command);
  ++mail_.next_request;
  mail_.next_sequence = SequenceId{mail_.next_sequence.value + request.n_sequences};
  mail_.n_unfinished += request.n_sequences;
  mail_.filled.notify_one();
  return id;
}

void Engine::post(FinishCommand command) {
  const MutexLock lock(mail_.mutex);
  if (mail_.is_stopping) return;  // all sequences have ended or are about to
  mail_.inbox.finishes.push_back(command);
  mail_.filled.notify_one();
}

Result<void> Engine::check_new_pin(std::span<const TokenId> tokens) const {
  if (!options_.enable_prefix_caching)
    return fail(ErrorCode::invalid_request, "it cannot be pinned: prefix caching is off", "prefix");
  BATON_TRY_VOID(check_prefix(tokens, limits_));
  if (const auto sentence = fault()) return fail(ErrorCode::unavailable, *sentence);
  return {};
}

Result<PinInfo> Engine::pin(std::vector<TokenId> tokens, CacheScope scope, std::stop_token stop) {
  const auto begin = Sequence::Clock::now();
  BATON_TRY_VOID(check_new_pin(tokens));
  PinPrefill prefill{.stop = std::move(stop)};
  bool has_thread = false;
  {
    const MutexLock lock(mail_.mutex);
    if (mail_.is_draining || mail_.is_stopping)
      return fail(ErrorCode::unavailable, "the server is shutting down and takes no new prefixes");
    mail_.pins.begin(prefill, std::move(tokens), std::move(scope));
    has_thread = mail_.has_thread;
    ++mail_.n_unfinished;
    mail_.filled.notify_one();
  }
  if (!has_thread) {
    while (loop_.step()) {
    }
  }
  const MutexLock lock(mail_.mutex);
  auto info = mail_.pins.wait(mail_.mutex, prefill, begin);
  mail_.filled.notify_one();
  return info;
}

void Engine::unpin(PinId id) {
  const MutexLock lock(mail_.mutex);
  mail_.pins.unpin(id);
  mail_.filled.notify_one();
}

std::vector<PinInfo> Engine::pins() const {
  const MutexLock lock(mail_.mutex);
  std::vector<PinInfo> infos;
  for (const auto& [id, pinned] : mail_.pins.pins()) infos.push_back(pinned.info);
  return infos;
}

std::shared_ptr<const TreeView> Engine::tree() {
  const MutexLock lock(mail_.mutex);
  mail_.inbox.wants_tree = !mail_.is_stopping;
  mail_.filled.notify_one();
  return mail_.tree;
}

void Engine::begin_drain() {
  const MutexLock lock(mail_.mutex);
  mail_.is_draining = true;
  mail_.filled.notify_one();
}

bool Engine::is_draining() const {
  const MutexLock lock(mail_.mutex);
  return mail_.is_draining;
}
bool Engine::is_idle() const {
  const MutexLock lock(mail_.mutex);
  return mail_.n_unfinished == 0;
}

void Engine::start() {
  const MutexLock lock(mail_.mutex);
  check(!mail_.has_thread && !mail_.is_stopping, "Engine::start: it was started or stopped before");
  mail_.has_thread = true;
  mail_.reserve.emplace(kReserveBytes);
  loop_.watchdog().start();
  thread_ = std::thread([this, &reserve = *mail_.reserve] {
    name_this_thread("engine");
    loop_.run(reserve);
  });
}

void Engine::stop() {
  {
    const MutexLock lock(mail_.mutex);
    mail_.is_draining = mail_.is_stopping = true;
    mail_.filled.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  loop_.watchdog().stop();
  loop_.end_all();
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, std::unique_ptr<Backend> backend,
                                               std::unique_ptr<Model> model) {
  const EngineOptions possible = options_for(model->spec(), options);
  BATON_TRY(EngineParts parts, make_parts(possible, std::move(backend), std::move(model)));
  return std::unique_ptr<Engine>(new Engine(possible, std::move(parts)));
}

std::vector<BlockId> Engine::free_blocks(int group) const {
  const std::span<const BlockId> blocks = loop_.cache().free_blocks(group);
  return {blocks.begin(), blocks.end()};
}

/// A copy of the full blocks of `tokens`.
BlockTransfer Engine::transfer_of(BlockTransfer::Direction direction, std::span<const TokenId> tokens,
                                  const CacheScope& scope) const {
  const std::span<const TokenId> full = tokens.first(tokens.size() - tokens.size() % static_cast<std::size_t>(info_.block_len));
  return {direction, {full.begin(), full.end()}, scope};
}

/// A rank has a part of every block, and only rank 0's could be copied here.
Result<void> Engine::check_transfer() const {
  if (options_.ranks == nullptr) return {};
  return fail(ErrorCode::unsupported, "keys and values cannot be stored where several ranks share a model");
}

/// Waits for the engine's thread, or runs its steps where it has none.
void Engine::wait_transfer(const std::function<bool()>& is_reached) {
  mail_.filled.notify_one();
  while (!is_reached()) {
    if (mail_.has_thread) {
      mail_.transfers.wait(mail_.mutex);
    } else {
      const MutexUnlock meanwhile(mail_.mutex);
      loop_.step();
    }
  }
}

Result<void> Engine::export_pin(PinId id, const PieceWriter& write) {
  BATON_TRY_VOID(check_transfer());
  MutexLock lock(mail_.mutex);
  if (mail_.is_stopping) return fail(ErrorCode::unavailable, "the engine has stopped");
  const auto pinned = mail_.pins.pins().find(id);
  if (pinned == mail_.pins.pins().end()) return fail(ErrorCode::not_found, "the prompt is no longer pinned");
  BlockTransfer transfer = transfer_of(BlockTransfer::Direction::out_of_cache, pinned->second.tokens, pinned->second.scope);
  if (transfer.tokens.empty()) return {};
  mail_.transfers.add(transfer);
  std::vector<std::byte> piece;
  Result<void> written;
  while (true) {
    wait_transfer([&transfer] { return transfer.has_piece || transfer.ended; });
    if (!transfer.has_piece) break;
    std::swap(piece, transfer.piece);
    transfer.has_piece = false;
    mail_.filled.notify_one();
    lock.unlock();
    written = write(piece);
    lock.lock();
    if (written) continue;
    transfer.is_abandoned = true;
    wait_transfer([&transfer] { return transfer.ended.has_value(); });
    return written;
  }
  if (!*transfer.ended) return tl::unexpected<Error>(std::move(transfer.ended->error()));
  return {};
}

/// Copies what `read` gives. The pin on the blocks, in a row that is not in the table, is the caller's.
Result<Pins::node_type> Engine::import_blocks(BlockTransfer& transfer, const PieceReader& read) {
  const std::vector<std::uint32_t> sizes =
      prefix_layout().piece_bytes(static_cast<std::int32_t>(transfer.tokens.size()) / info_.block_len);
  MutexLock lock(mail_.mutex);
  if (mail_.is_stopping) return fail(ErrorCode::unavailable, "the engine has stopped");
  Pins::node_type row = mail_.pins.make_row({}, {});
  mail_.transfers.add(transfer);
  mail_.filled.notify_one();
  std::vector<std::byte> piece;
  for (auto size = sizes.begin(); size != sizes.end() && !transfer.ended; ++size) {
    lock.unlock();
    auto filled = read(piece);
    if (filled && piece.size() != *size) filled = fail(ErrorCode::invalid_data, "a piece of stored keys has the wrong size");
    lock.lock();
    if (!filled) {
      transfer.is_abandoned = true;
      wait_transfer([&transfer] { return transfer.ended.has_value(); });
      if (*transfer.ended) {
        row.mapped().pin = **transfer.ended;
        mail_.pins.give_up(std::move(row));
      }
      mail_.filled.notify_one();
      return tl::unexpected<Error>(std::move(filled.error()));
    }
    wait_transfer([&transfer] { return !transfer.has_piece || transfer.ended; });
    if (transfer.ended) break;
    std::swap(piece, transfer.piece);
    transfer.has_piece = true;
    mail_.filled.notify_one();
  }
  wait_transfer([&transfer] { return transfer.ended.has_value(); });
  BATON_TRY(row.mapped().pin, std::move(*transfer.ended));
  return row;
}

Result<PinInfo> Engine::pin_from(std::vector<TokenId> tokens, CacheScope scope, const PieceReader& read, std::stop_token stop) {
  const auto begun = Sequence::Clock::now();
  BATON_TRY_VOID(check_new_pin(tokens));
  BATON_TRY_VOID(check_transfer());
  BlockTransfer transfer = transfer_of(BlockTransfer::Direction::into_cache, tokens, scope);
  if (transfer.tokens.empty()) return pin(std::move(tokens), std::move(scope), std::move(stop));
  BATON_TRY(Pins::node_type imported, import_blocks(transfer, read));
  // The prefill of this pin finds all blocks, which the imported one keeps until then.
  auto info = pin(std::move(tokens), std::move(scope), std::move(stop));
  if (info) info->prefill_ms = std::chrono::duration<double, std::milli>(Sequence::Clock::now() - begun).count();
  const MutexLock lock(mail_.mutex);
  mail_.pins.give_up(std::move(imported));
  mail_.filled.notify_one();
  return info;
}

}  // namespace baton
