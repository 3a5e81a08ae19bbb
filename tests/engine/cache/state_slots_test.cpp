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

TEST(KeptRows, takes_rows_that_follow_one_another) {
  KeptRows rows(10);
  EXPECT_EQ(rows.n_rows(), 10);
  const KeptRows::Range a = rows.take(4, 0), b = rows.take(3, 0), c = rows.take(16, 0);
  EXPECT_EQ(a.first, 0);
  EXPECT_EQ(a.n, 4);
  EXPECT_EQ(b.first, 4);
  EXPECT_EQ(b.n, 3);
  EXPECT_EQ(c.n, 3) << "no more are left";
  EXPECT_EQ(rows.take(1, 0).n, 0);
  EXPECT_EQ(rows.n_taken(), 10);
  rows.give_back({a.first + 1, 3});  // the first of the four was accepted
  rows.give_back(c);
  const KeptRows::Range longest = rows.take(5, 0);
  EXPECT_EQ(longest.first, 1);
  EXPECT_EQ(longest.n, 3) << "the longest of two gaps";
  EXPECT_EQ(rows.n_taken(), 7);
}

TEST(KeptRows, a_step_keeps_nothing_where_it_reads) {
  KeptRows rows(4);
  const KeptRows::Range all = rows.take(4, 6);
  rows.give_back(all, 7);
  EXPECT_EQ(rows.n_taken(), 0);
  EXPECT_EQ(rows.take(4, 7).n, 0);
  EXPECT_EQ(rows.take(2, 8).n, 2);
}

TEST(KeptRows, without_rows_there_are_no_drafts) {
  KeptRows rows(0);
  EXPECT_EQ(rows.take(3, 0).n, 0);
  rows.give_back({});
}

TEST(KeptRowsDeathTest, a_row_is_not_given_back_twice) {
  KeptRows rows(2);
  const KeptRows::Range range = rows.take(2, 0);
  rows.give_back(range);
  EXPECT_DEATH(rows.give_back(range), "given back twice");
}

}  // namespace
}  // namespace baton
