/// States of recurrent layers: what a sequence continues from, and where it leaves snapshots.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/schedule/plan_sketch.h"
#include "engine/schedule/scheduler.h"

namespace baton {

namespace {

/// The snapshot of a prompt's end leaves out as many tokens as a header of the answer usually has, because the next turn of a
/// conversation may have another one there.
constexpr std::int32_t kHeaderRoom = 16;

}  // namespace

/// Gives a sequence that has its cached and loaded blocks the state that it continues from, and decides where its steps end to
/// leave snapshots: at the end of these blocks, from which others may continue as this one does, near the end of its prompt, and
/// at the multiples of state_snapshot_interval in the prompt. None of the first two is made where a sequence would compute fewer
/// tokens again than KvCache::state_interval: of the prompt's end a block less, because the answer may end in the block after it.
/// Returns false, and does nothing, if the state is to be loaded from the host tier and
/// the plan has loaded too much already.
bool Scheduler::find_state(PlanSketch& sketch, Sequence& sequence) {
  SequenceSchedule& schedule = sequence.schedule.write();
  const std::int32_t n_blocks = schedule.n_planned / cache_.block_len();
  if (cache_.loads_state(schedule.table, schedule.tokens, n_blocks)) {
    if (sketch.n_loads < std::min(options_.state_loads, max_loads())) return false;
    sketch.n_loads = std::max(0, sketch.n_loads - options_.state_loads);
    sketch.plan.has_loaded_state = true;
  }
  const KvCache::FoundState found = cache_.find_state(schedule.table, schedule.tokens, n_blocks, sketch.plan.step);
  schedule.n_planned = schedule.n_committed = found.n_tokens;
  schedule.n_loaded = found.n_tokens - found.n_on_device;
  schedule.stops.clear();
  if (!cache_.has_prefix_caching()) return true;
  const std::int32_t block_len = cache_.block_len();
  std::int32_t last = schedule.n_planned;
  const auto add_one = [&](std::int32_t position, std::int32_t least) {
    if (position - last < least) return;
    schedule.stops.push_back(position);
    last = position;
  };
  const std::int32_t interval = options_.state_snapshot_interval;
  const auto add = [&](std::int32_t position, std::int32_t least) {
    if (interval > 0)
      for (std::int32_t next = (last / interval + 1) * interval; next <= position; next += interval) add_one(next, 1);
    add_one(position, least);
  };
  add(schedule.table.n_cached_blocks * block_len, cache_.state_interval());
  if (!sequence.is_prefix_prefill())
    add((sequence.task->prompt_len - 1 - kHeaderRoom) / block_len * block_len,
        std::max(block_len, cache_.state_interval() - block_len));
  else if (interval > 0)
    add((sequence.task->prompt_len - 1) / interval * interval, 1);
  return true;
}

/// Decides which slots the sequence's run of step `step` reads and writes. A run from a stop on leaves a snapshot there; while it
/// decodes, it leaves one whenever its state is the interval or more after the last, and the new one replaces the one before.
void Scheduler::move_state(Sequence& sequence, PlannedSequence& planned, std::int64_t step) {
  SequenceSchedule& schedule = sequence.schedule.write();
  const std::int32_t first = schedule.table.state.n_tokens;  // accepted drafts may follow
  KeepState keep = KeepState::no;
  if (sequence.stops_at(first)) {
    keep = KeepState::yes;
  } else if (first >= sequence.task->prompt_len && first % cache_.block_len() == 0 &&
             first - schedule.table.state.n_to_snapshot >= cache_.state_interval()) {
    keep = KeepState::until_next;
  }
  std::erase_if(schedule.stops, [&](std::int32_t stop) { return stop <= first; });
  planned.state = cache_.move_state(schedule.table, schedule.tokens, keep, step);
}

/// The most drafts after a decode's row at `position`. The state that its run writes is that after this row, so drafts end so that
/// a later run has its row before the place of the next snapshot.
std::int32_t Scheduler::n_drafts_to_snapshot(const Sequence& sequence, std::int32_t position) const {
  if (!cache_.has_prefix_caching()) return kMaxDraftTokens;
  const std::int32_t block_len = cache_.block_len();
  const std::int32_t least = std::max(
      {sequence.task->prompt_len, position + 1, sequence.schedule->table.state.n_to_snapshot + cache_.state_interval()});
  const std::int32_t place = (least + block_len - 1) / block_len * block_len;
  return place == position + 1 ? kMaxDraftTokens : place - position - 2;
}

/// Whether a running sequence will leave a snapshot from which this one, whose look-up `found` is, would continue.
bool Scheduler::waits_for_snapshot(const Sequence& sequence, const PrefixTree::Found& found) const {
  if (cache_.states() == nullptr) return false;
  const std::int32_t block_len = cache_.block_len();
  if (found.n_to_snapshot * block_len + cache_.state_interval() > found.n_ready * block_len) return false;
  const std::int32_t least =
      cache_.n_to_snapshot(sequence.schedule->table, sequence.schedule->tokens, found) * block_len + cache_.state_interval();
  const std::vector<BlockHash>& hashes = sequence.schedule->table.hashes;
  return std::ranges::any_of(policy_.running(), [&](const auto& entry) {
    const SequenceSchedule& other = *entry.second->schedule;
    return std::ranges::any_of(other.stops, [&](std::int32_t stop) {
      const auto last = static_cast<std::size_t>(stop / block_len) - 1;
      return stop >= least && stop <= found.n_ready * block_len && last < other.table.hashes.size() &&
             other.table.hashes[last] == hashes[last];
    });
  });
}

}  // namespace baton
