/// StateSlots: uses of slots, what a step may write, and which snapshot is worth least.
#include "engine/cache/state_slots.h"

#include <set>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(StateSlots, hands_out_each_free_slot_once) {
  StateSlots slots(3);
  std::set<std::int32_t> owned;
  for (int i = 0; i < 3; ++i) owned.insert(slots.allocate(0));
  EXPECT_EQ(owned, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(slots.allocate(0), StateSlots::kNone);
  slots.free(1);
  slots.check_invariants();
  EXPECT_EQ(slots.allocate(0), 1);
}

TEST(StateSlots, a_step_does_not_write_what_it_reads) {
  StateSlots slots(2);
  const std::int32_t read = slots.allocate(4), frozen = slots.allocate(4);
  slots.read_by(read, 5);
  slots.free(read);
  slots.freeze(frozen);
  slots.read_by(frozen, 5);
  EXPECT_FALSE(slots.has_free(5));
  EXPECT_EQ(slots.allocate(5), StateSlots::kNone);
  EXPECT_FALSE(slots.may_go(frozen, 5));
  EXPECT_TRUE(slots.may_go(frozen, 6));
  EXPECT_TRUE(slots.has_free(6));
  EXPECT_EQ(slots.allocate(6), read);
}

TEST(StateSlots, a_pinned_snapshot_may_not_go) {
  StateSlots slots(2);
  const std::int32_t slot = slots.allocate(0);
  slots.freeze(slot);
  slots.pin(slot);
  slots.pin(slot);
  EXPECT_EQ(slots.n_pinned(), 1);
  slots.unpin(slot);
  EXPECT_FALSE(slots.may_go(slot, 1));
  slots.unpin(slot);
  EXPECT_TRUE(slots.may_go(slot, 1));
  EXPECT_EQ(slots.n_pinned(), 0);
  slots.thaw(slot);
  EXPECT_EQ(slots.n_snapshots(), 0);
  slots.check_invariants();
}

TEST(StateSlots, worth_grows_with_reuse_and_with_what_was_evicted_before) {
  StateSlots slots(3);
  const std::int32_t first = slots.allocate(0);
  slots.freeze(first);
  EXPECT_EQ(slots.worth(first, 100), 100);
  slots.count_reuse(first);
  EXPECT_EQ(slots.worth(first, 100), 200);
  slots.evicts(70);
  slots.evicts(50);  // worth never falls
  EXPECT_EQ(slots.n_evicted(), 2);
  const std::int32_t second = slots.allocate(0);
  slots.freeze(second);
  EXPECT_EQ(slots.worth(second, 100), 170);
  EXPECT_EQ(slots.worth(first, 100), 200) << "it ages until it is found again";
  slots.count_reuse(first);
  slots.count_reuse(first);
  EXPECT_EQ(slots.worth(first, 100), 370);
}

}  // namespace
}  // namespace baton
