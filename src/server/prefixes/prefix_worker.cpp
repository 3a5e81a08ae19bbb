/// The prefixes that are wanted and the thread that computes them; marked prompts, as pins in the order of use.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/attempt.h"
#include "core/limits/insist.h"
#include "core/limits/thread_body.h"
#include "core/log.h"
#include "core/one_line.h"
#include "server/prefixes/prefixes.h"

namespace baton {
namespace {

/// For what must not fail while memory is short: destructors of JSON values, refusals.
constexpr std::size_t kPrefixesReserveBytes = std::size_t{512} << 10;
constexpr std::size_t kMaxWaitingMarks = 64;
constexpr std::string_view kNoExpiry =
    "event=prefixes_out_of_memory effect=\"the program ends: there is no memory to register or end prefixes\"";

/// Marked prompts take at most one block of so many, and one snapshot of recurrent states.
constexpr std::int32_t kMarkedPart = 4;

/// How many marked prompts may have a snapshot of recurrent states each; nothing for a model without such states.
std::optional<std::size_t> max_marked_snapshots(const EngineInfo& info) {
  if (info.state_slot_bytes == 0) return std::nullopt;
  const std::int32_t n_snapshots = std::max(0, info.n_state_slots - info.max_num_seqs);
  return static_cast<std::size_t>((n_snapshots + kMarkedPart / 2) / kMarkedPart);
}

/// Whether the blocks of `shorter` are blocks of `longer` too.
bool covers(const PrefixDefinition& longer, const PrefixDefinition& shorter) {
  return longer.scope == shorter.scope && longer.tokens.size() >= shorter.tokens.size() &&
         std::equal(shorter.tokens.begin(), shorter.tokens.end(), longer.tokens.begin());
}

}  // namespace

/// Cancels the computation of an older version, or of older contents of a file.
void Prefixes::cancel_running(const PrefixDefinition& newer) {
  const bool is_file = newer.source == PrefixSource::folder;
  for (Desired& running : running_)
    if (running.asked.name == newer.name && (running.source == PrefixSource::folder) == is_file &&
        (is_file || running.version != newer.version))
      running.cancel.request("another version replaces it");
}

Result<void> Prefixes::want(ExchangeId exchange, PrefixRequest request) {
  Desires added;
  Desired& desired = added.emplace_back(std::move(request.definition));
  desired.asked = {exchange, desired.definition.name, std::move(request.content_field)};
  desired.n_bytes = content_bytes(desired.definition);
  const MutexLock lock(desired_mutex_);
  std::size_t n_waiting = 0, n_bytes = 0;
  for (const Desired& other : desired_) {
    if (other.source != PrefixSource::api) continue;
    ++n_waiting;
    n_bytes += other.n_bytes;
  }
  if (n_waiting >= kMaxQueuedPrefixes || (n_bytes + desired.n_bytes > limits_.max_bytes && n_waiting > 0))
    return fail(
        ErrorCode::unavailable,
        fmt::format("{} prefixes of {} bytes wait to be computed, and no more may; try again later", n_waiting, n_bytes));
  cancel_running(desired.definition);
  desired_.splice(desired_.end(), added);
  changed_.notify_one();
  return {};
}

void Prefixes::leave(ExchangeId exchange) noexcept {
  const auto has_left = [exchange](const Desired& one) {
    return one.source == PrefixSource::api && one.asked.exchange == exchange;
  };
  Desires left;  // freed outside the lock
  const MutexLock lock(desired_mutex_);
  if (const auto found = std::ranges::find_if(desired_, has_left); found != desired_.end())
    left.splice(left.end(), desired_, found);
  for (Desired& one : running_)
    if (has_left(one)) one.cancel.request("its client has left");
}

void Prefixes::want_file(PrefixDefinition definition) {
  Desires fresh;
  Desired& desired = fresh.emplace_back(std::move(definition));
  desired.asked.name = desired.definition.name;
  Desires old;
  const MutexLock lock(desired_mutex_);
  const auto is_older = [&](const Desired& one) {
    return one.source == PrefixSource::folder && one.asked.name == desired.asked.name;
  };
  if (const auto found = std::ranges::find_if(desired_, is_older); found != desired_.end())
    old.splice(old.end(), desired_, found);
  cancel_running(desired.definition);
  desired_.splice(desired_.end(), fresh);
  changed_.notify_one();
}

void Prefixes::retry_files() {
  const MutexLock lock(desired_mutex_);
  for (Desired& one : desired_)
    if (one.state == Desired::State::found_no_room && one.n_removed != n_removed_) one.state = Desired::State::waits;
  changed_.notify_one();
}

void Prefixes::want_marked(const std::vector<PrefixDefinition>& prompts) {
  if (!engine_.info().enable_prefix_caching) return;
  Desires added;
  for (const PrefixDefinition& prompt : prompts) added.emplace_back(prompt);
  const MutexLock lock(desired_mutex_);
  const auto n_waiting = static_cast<std::size_t>(std::ranges::count(desired_, PrefixSource::mark, &Desired::source));
  if (n_waiting + added.size() > kMaxWaitingMarks) return;
  desired_.splice(desired_.end(), added);
  changed_.notify_one();
}

/// The first one that waits and is of another source than the last; of the same source, if there is no other.
Prefixes::Desires::iterator Prefixes::next_desired() {
  auto next = desired_.end();
  for (auto at = desired_.begin(); at != desired_.end(); ++at) {
    if (at->state != Desired::State::waits) continue;
    if (at->source != last_source_) return at;
    if (next == desired_.end()) next = at;
  }
  return next;
}

Prefixes::Desired* Prefixes::begin_next() {
  const MutexLock lock(desired_mutex_);
  const auto next = next_desired();
  if (is_stopping_ || next == desired_.end()) return nullptr;
  last_source_ = next->source;
  next->n_removed = n_removed_;
  running_.splice(running_.end(), desired_, next);
  return &running_.front();
}

/// Takes out what runs, which cannot be cancelled any more.
Prefixes::Desires Prefixes::end_running() {
  const MutexLock lock(desired_mutex_);
  return std::exchange(running_, {});
}

bool Prefixes::run_next() {
  Desired* const desired = begin_next();
  if (desired == nullptr) return false;
  switch (desired->source) {
    case PrefixSource::folder: run_file(*desired); break;
    case PrefixSource::mark:
      if (!attempt([&] { keep_marked(std::move(desired->definition), Clock::now()); }))
        log::warning("event=out_of_memory effect=\"a marked prompt is not kept\"");
      break;
    default: run_asked(*desired);
  }
  end_running();
  return true;
}

/// Registers a prefix of the API.
void Prefixes::run_asked(Desired& desired) {
  Result<PinInfo> added = fail(ErrorCode::unavailable, {});
  attempt([&] {  // without memory the error stays empty
    added = engine_.is_draining() ? fail(ErrorCode::unavailable, "the server is shutting down and takes no new prefixes")
                                  : add(std::move(desired.definition), desired.cancel);
  });
  const Desires ended = end_running();
  answer_(ended.front().asked, added ? nullptr : &added.error());
}

/// Registers the contents of a file. If there is no memory, they wait for `retry_files`.
void Prefixes::run_file(Desired& desired) {
  bool is_over = false;
  const bool had_memory = attempt([&] {
    const auto added = add(PrefixDefinition(desired.definition), desired.cancel);
    is_over = added || desired.cancel.is_requested() || engine_.is_draining();
    if (!is_over) refuse_file(desired, added.error());
  });
  if (is_over) return;
  if (!had_memory) {
    log::warning("event=out_of_memory effect=\"a file of the folder of prefixes is registered later\"");
    desired.state = Desired::State::found_no_room;
    desired.n_removed = -1;
  }
  const MutexLock lock(desired_mutex_);
  if (!desired.cancel.is_requested()) desired_.splice(desired_.end(), running_);
}

/// Keeps contents that could not be registered: to try them again, or to count them.
void Prefixes::refuse_file(Desired& desired, const Error& error) {
  if (desired.refusal != error.message)
    log::warning("event=prefix_file_refused file={} reason={} serving={}", log_value(desired.definition.file),
                 log_value(error.message), served_file_version(desired.asked.name));
  const MutexLock lock(desired_mutex_);
  desired.refusal = error.message;
  const bool may_find_room = error.code == ErrorCode::out_of_memory || error.param == "id";
  desired.state = may_find_room ? Desired::State::found_no_room : Desired::State::is_refused;
  if (!may_find_room) desired.definition = {};
}

void Prefixes::start(ThreadWatch& watch) {
  place_ = &watch.add("prefixes");
  thread_ = std::thread(thread_body("prefixes", kPrefixesReserveBytes, [this](MemoryReserve& reserve) { run(reserve); }));
}

void Prefixes::run(MemoryReserve& reserve) {
  std::optional<Clock::time_point> expiry;
  while (true) {
    reserve.restore();
    insist(kNoExpiry, [&] {
      const ThreadWatch::Work work(*place_);
      expiry = remove_expired(Clock::now());
    });
    if (run_next()) continue;
    const MutexLock lock(desired_mutex_);
    while (!is_stopping_ && next_desired() == desired_.end()) {
      if (!expiry)
        changed_.wait(desired_mutex_);
      else if (!changed_.wait_until(desired_mutex_, *expiry))
        break;
    }
    if (is_stopping_) return;
  }
}

void Prefixes::stop() {
  {
    const MutexLock lock(desired_mutex_);
    is_stopping_ = true;
    for (Desired& running : running_) running.cancel.request("the server is shutting down");
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::int64_t Prefixes::n_marked_blocks(const Entry& entry) const {
  return static_cast<std::int64_t>(entry.definition.tokens.size()) / engine_.info().block_len;
}

/// Ends the pins that were not used for the longest time until `fresh` can be pinned too. False if it has no room of its own.
bool Prefixes::make_room_for(const Entry& fresh) {
  const PrefixDefinition& prompt = fresh.definition;
  const std::int64_t max_blocks =
      limits_.max_marked_blocks > 0 ? limits_.max_marked_blocks : engine_.info().n_blocks / kMarkedPart;
  const std::int64_t n_fresh = n_marked_blocks(fresh);
  if (n_fresh == 0 || n_fresh > std::min(max_blocks, prompt.max_pinned_blocks.value_or(max_blocks))) return false;
  const auto max_snapshots = max_marked_snapshots(engine_.info());
  if (max_snapshots == 0) return false;
  const auto shrink = [&](std::int64_t limit, bool is_of_owner) BATON_REQUIRES(mutex_) {
    std::int64_t n_blocks = n_fresh;
    for (auto at = marked_.begin(); at != marked_.end();) {
      const auto pin = at++;
      if (is_of_owner && (*pin)->definition.owner != prompt.owner) continue;
      n_blocks += n_marked_blocks(**pin);
      if (n_blocks > limit) retire(marked_, pin);
    }
  };
  if (prompt.max_pinned_blocks) shrink(*prompt.max_pinned_blocks, true);
  shrink(max_blocks, false);
  while (max_snapshots && marked_.size() >= *max_snapshots) retire(marked_, std::prev(marked_.end()));
  return true;
}

bool Prefixes::keep_marked(PrefixDefinition prompt, Clock::time_point now) {
  // A salt that begins after the prompt changes none of its blocks: all may share them.
  if (static_cast<std::size_t>(std::max(prompt.scope.salt_from, 0)) >= prompt.tokens.size())
    prompt.scope = {.adapter = std::move(prompt.scope.adapter), .salt = {}, .salt_from = 0};
  const auto added = std::make_shared<Entry>();  // all of it is there before the engine pins something
  Entries fresh{added};
  added->expires = now + prompt.ttl.value_or(std::chrono::seconds(0));
  added->definition = std::move(prompt);
  const PrefixDefinition& definition = added->definition;
  MutexLock lock(mutex_);
  const auto same = std::ranges::find_if(marked_, [&](const auto& pin) {
    return pin->definition.scope == definition.scope && pin->definition.tokens == definition.tokens;
  });
  if (same != marked_.end()) {
    (*same)->expires = std::max((*same)->expires, added->expires);
    marked_.splice(marked_.begin(), marked_, same);
    return true;
  }
  if (!make_room_for(*added)) return false;
  lock.unlock();
  const auto pinned = engine_.pin(definition.tokens, definition.scope);
  if (!pinned) {
    log::debug("event=cache_control_not_kept reason=\"{}\"", pinned.error().message);
    return false;
  }
  added->info = *pinned;
  lock.lock();
  // A longer pin has the blocks of a shorter one, and not the recurrent state at its end.
  const bool has_states = engine_.info().state_slot_bytes > 0;
  for (auto at = marked_.begin(); !has_states && at != marked_.end();) {
    const auto pin = at++;
    const bool is_longer_lived = (*pin)->expires > added->expires;
    if ((*pin)->definition.owner == definition.owner && !is_longer_lived && covers(definition, (*pin)->definition))
      retire(marked_, pin);
  }
  marked_.splice(marked_.begin(), fresh);
  return true;
}

}  // namespace baton
