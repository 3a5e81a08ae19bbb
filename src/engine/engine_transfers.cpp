/// Copies of a prefix's keys and values as the engine's callers see them.
#include <chrono>
#include <utility>

#include "core/mutex.h"
#include "engine/engine.h"

namespace baton {

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
