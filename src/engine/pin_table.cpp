/// Requests, keeps and gives up pins.
#include "engine/pin_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/check.h"

namespace baton {

std::unique_ptr<Sequence> make_prefix_prefill(const PinPrefill& prefill, std::int32_t block_len) {
  const Pinned& row = prefill.row.mapped();
  const std::span<const TokenId> tokens = row.tokens;
  const std::size_t n_tokens = tokens.size() - tokens.size() % static_cast<std::size_t>(block_len);
  const std::span<const TokenId> prompt = tokens.first(n_tokens);
  SequenceTask task;
  task.id = prefill.sequence;
  task.scope = row.scope;
  task.prompt_len = task.max_len = static_cast<std::int32_t>(n_tokens);
  return std::make_unique<Sequence>(std::move(task), std::vector<TokenId>(prompt.begin(), prompt.end()));
}

Pins::node_type PinTable::make_row(std::vector<TokenId> tokens, CacheScope scope) {
  const PinId id{n_made_++};
  const PinInfo info{.id = id, .n_tokens = static_cast<std::int32_t>(tokens.size())};
  Pins made;
  made.try_emplace(id, Pinned{info, std::move(tokens), std::move(scope)});
  return made.extract(id);
}

void PinTable::begin(PinPrefill& prefill, std::vector<TokenId> tokens, CacheScope scope) {
  prefill.row = make_row(std::move(tokens), std::move(scope));
  prefills_.push_back(&prefill);
  has_begun_ = true;
}

Result<PinInfo> PinTable::wait(Mutex& mutex, PinPrefill& prefill, Sequence::Clock::time_point begun) {
  while (!prefill.pin) ended_.wait(mutex);
  auto& [info, tokens, scope, pin] = prefill.row.mapped();
  if (*prefill.pin) pin = **prefill.pin;
  if (prefill.is_cancelled || prefill.stop.stop_requested()) {
    give_up(std::move(prefill.row));
    return fail(ErrorCode::unavailable, "it was cancelled while it was being computed", "prefix");
  }
  if (!*prefill.pin) return tl::unexpected<Error>(std::move(prefill.pin->error()));
  info.prefill_ms = std::chrono::duration<double, std::milli>(Sequence::Clock::now() - begun).count();
  info.n_pinned_tokens = pin.n_blocks * block_len_;
  return pins_.insert(std::move(prefill.row)).position->second.info;
}

void PinTable::unpin(PinId id) {
  Pins::node_type row = pins_.extract(id);
  check(!row.empty(), "PinTable: there is no such pin");
  give_up(std::move(row));
}

void PinTable::give_up(Pins::node_type row) {
  if (row.mapped().pin.node != nullptr) given_up_.insert(std::move(row));
}

PinTable::Changes PinTable::take_changes(SequenceId& next_sequence, bool cancels_all) {
  Changes changes;
  for (PinPrefill* prefill : prefills_) {
    if (!prefill->sequence.is_valid()) {
      prefill->sequence = std::exchange(next_sequence, SequenceId{next_sequence.value + 1});
      changes.begun.push_back(prefill);
    }
    if (prefill->is_cancelled || !(cancels_all || prefill->stop.stop_requested())) continue;
    prefill->is_cancelled = true;
    changes.cancelled.push_back(prefill->sequence);
  }
  has_begun_ = false;
  changes.unpins = std::exchange(given_up_, {});
  return changes;
}

PinPrefill& PinTable::prefill_of(SequenceId sequence) const {
  const auto found = std::ranges::find(prefills_, sequence, &PinPrefill::sequence);
  check(found != prefills_.end(), "PinTable: a prefill's sequence that no caller waits for");
  return **found;
}

void PinTable::end(PinPrefill& prefill, Result<KvCache::Pin> pin) {
  std::erase(prefills_, &prefill);
  prefill.pin = std::move(pin);
  ended_.notify_all();
}

}  // namespace baton
