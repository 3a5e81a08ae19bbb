/// Registers, prefills, pins and removes prefixes.
#include "engine/prefix_service.h"

#include <chrono>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace baton {

std::unique_ptr<Sequence> make_prefix_prefill(const PrefixPrefill& prefill, std::int32_t block_len, SequenceId id) {
  const std::span<const TokenId> tokens = prefill.tokens;
  const std::size_t n_tokens = tokens.size() - tokens.size() % static_cast<std::size_t>(block_len);
  const std::span<const TokenId> prompt = tokens.first(n_tokens);
  SequenceTask task;
  task.id = id;
  task.scope = prefill.scope;
  task.prompt_len = task.max_len = static_cast<std::int32_t>(n_tokens);
  return std::make_unique<Sequence>(std::move(task), std::vector<TokenId>(prompt.begin(), prompt.end()));
}

Result<void> PrefixService::begin(const std::string& name, PrefixPrefill& prefill) {
  changes_.begun.reserve(changes_.begun.size() + 1);  // a name that is taken has its request
  if (registered_.contains(name) || !waited_for_.emplace(name, &prefill).second)
    return fail(ErrorCode::invalid_request, fmt::format("there is a prefix '{}' already", name), "prefix");
  changes_.begun.push_back(&prefill);
  return {};
}

Result<PrefixInfo> PrefixService::wait(Mutex& mutex, PrefixInfo info, PrefixPrefill& prefill,
                                       Sequence::Clock::time_point begun) {
  while (!prefill.pin) ended_.wait(mutex);
  waited_for_.erase(info.name);
  const auto unpin = [&] {
    if (!*prefill.pin || (*prefill.pin)->node == nullptr) return;
    prefill.unpinned.front() = **prefill.pin;
    changes_.unpins.splice(changes_.unpins.end(), prefill.unpinned);
  };
  if (prefill.is_cancelled) {
    unpin();
    return fail(ErrorCode::unavailable, fmt::format("prefix '{}' was cancelled while it was being computed", info.name),
                "prefix");
  }
  if (!*prefill.pin) return tl::unexpected<Error>(prefill.pin->error());
  info.prefill_ms = std::chrono::duration<double, std::milli>(Sequence::Clock::now() - begun).count();
  info.n_pinned_tokens = (*prefill.pin)->n_blocks * block_len_;
  try {
    registered_.insert_or_assign(info.name, Registered{info, **prefill.pin});
  } catch (const std::bad_alloc&) {
    unpin();
    throw;
  }
  return info;
}

Result<void> PrefixService::remove(const std::string& name) {
  if (const auto at = waited_for_.find(name); at != waited_for_.end()) {
    at->second->is_cancelled = true;
    changes_.has_cancelled = true;
    return {};
  }
  const auto at = registered_.find(name);
  if (at == registered_.end()) return fail(ErrorCode::not_found, fmt::format("there is no prefix '{}'", name), "prefix");
  give_up(at->second.pin);
  registered_.erase(at);
  return {};
}

void PrefixService::cancel_prefills() {
  for (const auto& [name, prefill] : waited_for_) prefill->is_cancelled = true;
  changes_.has_cancelled |= !waited_for_.empty();
}

std::vector<PrefixInfo> PrefixService::list() const {
  std::vector<PrefixInfo> infos;
  for (const auto& [name, registered] : registered_) infos.push_back(registered.info);
  return infos;
}

std::vector<KvCache::Pin> PrefixService::pins() const {
  std::vector<KvCache::Pin> pins;
  for (const auto& [name, registered] : registered_) pins.push_back(registered.pin);
  return pins;
}

void PrefixService::end(PrefixPrefill& prefill, Result<KvCache::Pin> pin) {
  prefill.pin = std::move(pin);
  ended_.notify_all();
}

void PrefixService::give_up(const KvCache::Pin& pin) {
  if (pin.node != nullptr) changes_.unpins.push_back(pin);
}

PrefixPrefill* RunningPrefills::take_ended(SequenceId sequence) {
  const auto at = by_sequence_.find(sequence);
  if (at == by_sequence_.end()) return nullptr;
  PrefixPrefill* prefill = at->second;
  by_sequence_.erase(at);
  return prefill;
}

std::vector<SequenceId> RunningPrefills::cancelled() const {
  std::vector<SequenceId> sequences;
  for (const auto& [sequence, prefill] : by_sequence_)
    if (prefill->is_cancelled) sequences.push_back(sequence);
  return sequences;
}

}  // namespace baton
