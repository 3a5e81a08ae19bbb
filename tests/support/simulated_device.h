/// A simulated device for tests of the scheduler: it detects every read of a block with unexpected contents, and makes
/// tokens from all tokens before them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/schedule/scheduler.h"

namespace baton::testing {

constexpr std::int32_t kBlockLen = 4;
constexpr TokenId kStop = 0;

inline std::unique_ptr<Sequence> make_sequence(std::int64_t id, std::vector<TokenId> prompt, std::int32_t max_tokens,
                                               const CacheScope& scope = {}) {
  SequenceTask task;
  task.id = SequenceId{id};
  if (max_tokens > 0) task.request = RequestId{id};  // otherwise a prefix prefill of the engine
  task.prompt_len = static_cast<std::int32_t>(prompt.size());
  task.max_len = task.prompt_len + max_tokens;
  task.scope = scope;
  return std::make_unique<Sequence>(std::move(task), std::move(prompt));
}

inline std::vector<TokenId> prompt_of(std::size_t n, TokenId first) {
  std::vector<TokenId> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

/// Outcomes that give `token` to every sequence of the plan that expects one.
inline std::vector<StepOutcome> give(const StepPlan& plan, TokenId token) {
  std::vector<StepOutcome> outcomes;
  for (const PlannedSequence& planned : plan.sequences) {
    StepOutcome outcome{planned.id, {}, {}, {}};
    for (std::int32_t i = 0; i < planned.max_tokens; ++i) outcome.tokens.push_back({token, {}, {}});
    outcomes.push_back(outcome);
  }
  return outcomes;
}

/// Stores for each position a hash of all tokens up to it, and makes the next token from it. A state of recurrent layers is such a
/// hash too.
class SimulatedDevice {
 public:
  struct Row {
    std::int32_t slot, position;
    TokenId token;  ///< -1: the slot's last
    bool samples;
    std::int32_t sample_slot;     ///< slot that counts samples from the row; a draft's row has its own
    std::vector<TokenId> drafts;  ///< drafts of its sequence up to the row
    std::int32_t max_tokens;
    std::vector<GroupTable> tables;  ///< of each layer group, as of the plan
    std::vector<TokenId> known;      ///< the sequence's tokens as of the plan, to check reads
    bool stores_keys;                ///< false: it is replayed, for its state
    std::size_t planned;             ///< place of its sequence in the plan
  };
  struct Step {
    StepPlan plan;
    std::vector<Row> rows;
    std::vector<TierCopy> copies = {};  ///< before its rows
  };
  struct Slot {
    TokenId last = 0;
    int n_generated = 0;
    bool finished = false;
  };

  SimulatedDevice(std::int32_t n_blocks, std::int32_t n_slots) : SimulatedDevice({{.n_blocks = n_blocks}}, n_slots) {}
  SimulatedDevice(const std::vector<CacheGroup>& groups, std::int32_t n_slots, std::int32_t n_state_slots = 0,
                  std::int32_t n_kept_rows = 0)
      : groups_(groups),
        slots_(static_cast<std::size_t>(n_slots)),
        states_(static_cast<std::size_t>(n_state_slots)),
        kept_(static_cast<std::size_t>(n_kept_rows), kNoDraft) {
    for (const CacheGroup& group : groups) content_.emplace_back(static_cast<std::size_t>(group.n_blocks * kBlockLen), 0);
  }

  static std::uint64_t chain(std::uint64_t hash, TokenId token) {
    hash = (hash ^ static_cast<std::uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 29);
  }
  static std::uint64_t chain(std::span<const TokenId> tokens) {
    std::uint64_t hash = 1;
    for (const TokenId token : tokens) hash = chain(hash, token);
    return hash;
  }
  static TokenId next_token(std::uint64_t hash) { return static_cast<TokenId>((hash >> 40) % 17); }

  /// Copies of the host tier.
  void carry_out(std::span<const TierCopy> copies) {
    for (const TierCopy& copy : copies) {
      if (copy.group == TierCopy::kStates) {
        std::uint64_t& state = states_.at(static_cast<std::size_t>(copy.block.value));
        std::uint64_t& saved = tier_states_[copy.slot];
        (copy.kind == TierCopy::Kind::save ? saved : state) = copy.kind == TierCopy::Kind::save ? state : saved;
        continue;
      }
      std::vector<std::uint64_t>& blocks = content_[static_cast<std::size_t>(copy.group)];
      const auto block = std::span(blocks).subspan(static_cast<std::size_t>(copy.block.value * kBlockLen), kBlockLen);
      std::vector<std::uint64_t>& slot = tier_[{copy.group, copy.slot}];
      slot.resize(kBlockLen);
      if (copy.kind == TierCopy::Kind::save)
        std::ranges::copy(block, slot.begin());
      else
        std::ranges::copy(slot, block.begin());
    }
  }
  /// A layer for drafts stores keys at a position, which no step has computed yet.
  void write_draft(const std::vector<GroupTable>& tables, std::int32_t position) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const BlockId block = tables[g].blocks[static_cast<std::size_t>(position / kBlockLen)];
      content_[g][static_cast<std::size_t>(block.value * kBlockLen + position % kBlockLen)] = 0xdeadULL;
    }
  }
  std::vector<StepOutcome> run(const Step& step) {
    carry_out(step.copies);
    for (const SlotId slot : step.plan.reset_slots) slots_[static_cast<std::size_t>(slot.value)] = {};
    std::map<std::int32_t, StepOutcome> outcome_of_slot;
    std::vector<std::uint64_t> states = read_states(step);
    for (const Row& row : step.rows) {
      if (!states.empty()) write_state(step, row, states[row.planned]);
      Slot& slot = slots_[static_cast<std::size_t>(row.slot)];
      const TokenId token = row.token >= 0 ? row.token : slot.last;
      if (slot.finished) {  // a dead row may write anything
        write(row, 0xdeadULL);
        if (!states.empty()) states[row.planned] = 0xdeadULL;
        continue;
      }
      check_keys(row);
      const std::uint64_t hash = chain(hash_before(row), token);
      if (!states.empty()) {
        states[row.planned] = chain(states[row.planned], token);
        EXPECT_EQ(states[row.planned], hash) << "another state before position " << row.position;
      }
      write(row, hash);
      if (!row.samples) continue;
      StepOutcome& outcome = outcome_of_slot[row.slot];
      Slot& counted = slots_[static_cast<std::size_t>(row.sample_slot)];
      counted.last = next_token(hash);
      ++counted.n_generated;
      if (!row.drafts.empty()) {
        ++outcome.n_drafts;
        if (outcome.finished || outcome.tokens.size() != row.drafts.size() || outcome.tokens.back().token != row.drafts.back())
          continue;
        ++outcome.n_accepted;
      }
      if (counted.last == kStop) {
        outcome.finished = FinishReason::stop;
        outcome.stop_token = TokenOutput{kStop, {}, {}};
      } else {
        outcome.tokens.push_back({counted.last, {}, {}});
        if (counted.n_generated == row.max_tokens) outcome.finished = FinishReason::length;
      }
      if (row.drafts.empty()) slot.finished = outcome.finished.has_value();
    }
    for (std::size_t i = 0; i < states.size(); ++i)
      if (step.plan.sequences[i].drafts.empty())
        states_.at(static_cast<std::size_t>(step.plan.sequences[i].state.write)) = states[i];
    std::vector<StepOutcome> outcomes;
    for (const PlannedSequence& planned : step.plan.sequences) {
      if (planned.max_tokens > 0 && !outcome_of_slot.contains(planned.slot.value)) continue;  // had ended
      StepOutcome outcome = outcome_of_slot[planned.slot.value];
      outcome.id = planned.id;
      outcomes.push_back(outcome);
    }
    return outcomes;
  }

 private:
  std::uint64_t& at(const Row& row, std::size_t group, std::int32_t position) {
    const GroupTable& table = row.tables[group];
    EXPECT_GE(position / kBlockLen, table.first_block) << "position " << position << " was given back";
    const BlockId block = table.blocks[static_cast<std::size_t>(position / kBlockLen)];
    return content_[group][static_cast<std::size_t>(block.value * kBlockLen + position % kBlockLen)];
  }
  /// The states that the plan's sequences begin with; none if the device has no states. Each slot is written by one run, and
  /// read by no other.
  std::vector<std::uint64_t> read_states(const Step& step) {
    std::vector<std::uint64_t> states;
    if (states_.empty()) return states;
    for (const PlannedSequence& planned : step.plan.sequences) {
      for (const PlannedSequence& other : step.plan.sequences) {
        const bool is_same = planned.id == other.id;
        EXPECT_TRUE(is_same || (planned.state.write != other.state.write && planned.state.write != other.state.read))
            << "slot " << planned.state.write << " has two writers, or a reader";
      }
      EXPECT_EQ(planned.state.read == StateSlots::kNone, planned.first_position == 0);
      EXPECT_EQ(static_cast<std::size_t>(planned.state.kept.n), planned.drafts.size());
      std::uint64_t state =
          planned.state.read == StateSlots::kNone ? 1 : states_.at(static_cast<std::size_t>(planned.state.read));
      for (std::int32_t i = 0; i < planned.state.replayed.n; ++i)
        state = chain(state, std::exchange(kept_.at(static_cast<std::size_t>(planned.state.replayed.first + i)), kNoDraft));
      states.push_back(state);
    }
    return states;
  }
  /// Before the first draft of a sequence its state is written. Drafts are kept, where this step reads and keeps no others.
  void write_state(const Step& step, const Row& row, std::uint64_t state) {
    if (row.drafts.empty()) return;
    const StateMove& move = step.plan.sequences[row.planned].state;
    if (row.drafts.size() == 1) states_.at(static_cast<std::size_t>(move.write)) = state;
    const std::int32_t at = move.kept.first + static_cast<std::int32_t>(row.drafts.size()) - 1;
    for (const PlannedSequence& other : step.plan.sequences) {
      const auto has = [&](const KeptRows::Range& range) { return at >= range.first && at < range.first + range.n; };
      EXPECT_FALSE(has(other.state.replayed) || (has(other.state.kept) && &other.state != &move)) << "kept row " << at;
    }
    kept_.at(static_cast<std::size_t>(at)) = row.drafts.back();
  }
  void write(const Row& row, std::uint64_t hash) {
    if (!row.stores_keys) return;
    for (std::size_t g = 0; g < groups_.size(); ++g) at(row, g, row.position) = hash;
  }
  /// Hash of all tokens before the row, from any group in which the row sees the previous position.
  std::uint64_t hash_before(const Row& row) {
    const auto group = std::ranges::find_if(groups_, [](const CacheGroup& of) { return of.window != 1; });
    return row.position == 0 ? 1 : at(row, static_cast<std::size_t>(group - groups_.begin()), row.position - 1);
  }
  /// Checks that every group holds the keys that the row sees.
  void check_keys(const Row& row) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const std::int32_t first = groups_[g].has_window() ? std::max(0, row.position + 1 - groups_[g].window) : 0;
      const std::int32_t end = std::min(row.position, static_cast<std::int32_t>(row.known.size()));
      for (std::int32_t i = first; i < end; ++i)
        EXPECT_EQ(at(row, g, i), chain(std::span(row.known).first(static_cast<std::size_t>(i) + 1)))
            << "position " << i << " was overwritten in group " << g;
    }
  }

  std::vector<CacheGroup> groups_;
  std::vector<std::vector<std::uint64_t>> content_;                                   ///< of each group
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::uint64_t>> tier_;  ///< of each group and slot
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> states_;  ///< by state slot
  static constexpr TokenId kNoDraft = -2;
  std::vector<TokenId> kept_;
  std::map<std::int32_t, std::uint64_t> tier_states_;
};

inline SimulatedDevice::Step build(const Scheduler& scheduler, StepPlan plan) {
  SimulatedDevice::Step step{std::move(plan), {}};
  for (std::size_t place_in_plan = 0; place_in_plan < step.plan.sequences.size(); ++place_in_plan) {
    const PlannedSequence& planned = step.plan.sequences[place_in_plan];
    const Sequence& sequence = *scheduler.find(planned.id);
    for (std::int32_t i = 0; i < planned.n_rows; ++i) {
      const std::int32_t position = planned.first_position + i;
      TokenId token = position < sequence.n_tokens() ? sequence.schedule->tokens[static_cast<std::size_t>(position)] : -1;
      const auto n_drafts = static_cast<std::int32_t>(planned.drafts.size());
      const std::int32_t place = i + 1 - (planned.n_rows - n_drafts);  // index among the drafts, from 1
      std::vector<TokenId> drafts;
      if (place > 0) drafts.assign(planned.drafts.begin(), planned.drafts.begin() + place);
      if (place > 0) token = drafts.back();
      const std::int32_t n_before = place > 0 ? sequence.n_generated() + place : sequence.schedule->n_before_slot;
      step.rows.push_back({planned.slot.value,
                           position,
                           token,
                           planned.max_tokens > 0 && place >= 0,
                           place > 0 ? planned.first_draft_slot.value + place - 1 : planned.slot.value,
                           drafts,
                           sequence.task->max_len - sequence.task->prompt_len - n_before,
                           sequence.schedule->table.groups,
                           {sequence.schedule->tokens.begin(), sequence.schedule->tokens.end()},
                           position >= sequence.schedule->table.n_found_blocks * kBlockLen,
                           place_in_plan});
    }
  }
  return step;
}

inline std::vector<TokenId> expected_tokens(std::vector<TokenId> tokens, std::int32_t max_tokens) {
  for (std::int32_t i = 0; i < max_tokens; ++i) {
    const TokenId next = SimulatedDevice::next_token(SimulatedDevice::chain(tokens));
    if (next == kStop) break;
    tokens.push_back(next);
  }
  return tokens;
}

}  // namespace baton::testing
