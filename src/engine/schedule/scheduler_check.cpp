/// Whether the scheduler's lists, slots and counts agree with its sequences.
#include <cstddef>
#include <set>
#include <vector>

#include "core/check.h"
#include "engine/schedule/scheduler.h"

namespace baton {

void Scheduler::check_invariants() const { check_invariants({}); }

void Scheduler::check_invariants(std::vector<const BlockTable*> tables) const {
  std::int32_t n_speculating = 0;
  std::int32_t n_loading = 0;
  std::int64_t n_list_entries = 0;
  std::int64_t n_block_entries = 0;
  std::set<SlotId> slots(free_slots_.begin(), free_slots_.end());
  check(slots.size() == free_slots_.size(), "Scheduler: a slot is free twice");
  for (const auto& [id, sequence] : sequences_) {
    const SequenceSchedule& schedule = *sequence->schedule;
    check(policy_.running().contains(AdmissionPolicy::rank_of(*sequence)) == (schedule.state == SequenceState::running) &&
              policy_.waiting().contains(*sequence) == (schedule.state == SequenceState::waiting),
          "Scheduler: a sequence stands in another list than its state says");
    check(schedule.n_preemptions <= kMaxPreemptions, "Scheduler: a sequence was preempted too often");
    check(sequence->n_tokens() >= sequence->task->prompt_len && sequence->n_tokens_bound() <= sequence->task->max_len,
          "Scheduler: a sequence is too long");
    if (schedule.state != SequenceState::running) {
      check(schedule.table.is_empty() && schedule.table.node == nullptr && !schedule.slot.is_valid(),
            "Scheduler: a sequence that does not run holds a slot or blocks");
      continue;
    }
    check(slots.insert(schedule.slot).second, "Scheduler: a slot is held twice, or held and free");
    check(of_slot_[static_cast<std::size_t>(schedule.slot.value)] == sequence.get(),
          "Scheduler: a slot is known as another sequence's");
    check(schedule.n_held_back <= options_.max_num_seqs, "Scheduler: a decode was held back too often");
    check(schedule.n_committed <= schedule.n_planned && schedule.n_planned <= sequence->max_positions(),
          "Scheduler: a sequence's positions are out of order");
    check(cache_.covers(schedule.table, schedule.n_planned), "Scheduler: a block table does not cover what is planned");
    check(cache_.states() == nullptr || schedule.is_loading ||
              schedule.table.state.n_tokens + schedule.table.state.drafts.n == schedule.n_planned,
          "Scheduler: a state is that of other tokens than are planned");
    check(running_blocks_.n_counted(schedule.slot) == schedule.table.hashes.size(),
          "Scheduler: a running sequence is counted for other blocks than it has");
    tables.push_back(&schedule.table);
    check(!schedule.is_loading || (schedule.n_planned == schedule.n_committed && schedule.n_planned % cache_.block_len() == 0),
          "Scheduler: a sequence that loads has rows of its own");
    n_loading += schedule.is_loading ? 1 : 0;
    n_speculating += may_draft(*sequence) ? 1 : 0;
    n_list_entries += sequence->n_list_entries();
    n_block_entries += cache_.n_blocks_for(sequence->max_positions());
  }
  check(n_speculating == n_speculating_, "Scheduler: the running sequences that may draft are counted wrong");
  check(n_loading == n_loading_, "Scheduler: the running sequences that load are counted wrong");
  check(n_list_entries == n_list_entries_ && n_block_entries == n_block_entries_ &&
            n_list_entries <= options_.max_list_entries && n_block_entries <= options_.max_block_entries,
        "Scheduler: the running sequences need more of a step than it holds, or are counted wrong");
  check(static_cast<std::int32_t>(slots.size()) == options_.max_num_seqs, "Scheduler: a slot is lost");
  for (const SlotId slot : free_slots_)
    check(of_slot_[static_cast<std::size_t>(slot.value)] == nullptr, "Scheduler: a free slot is known as a sequence's");
  check(!policy_.running().empty() || running_blocks_.is_empty(), "Scheduler: blocks of sequences that do not run are counted");
  policy_.check_invariants();
  cache_.check_invariants(tables);
}

}  // namespace baton
