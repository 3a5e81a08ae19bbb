/// AdmissionPolicy: which sequence is next, which is preempted, and what a step grants.
#include "engine/schedule/admission_policy.h"

#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton {
namespace {

/// Sequences of a policy with steps of at most 100 prompt rows.
class Served {
 public:
  Sequence& add(std::int64_t id, Tenant tenant, std::int32_t priority = 0) {
    sequences_.push_back(testing::make_sequence(id, testing::prompt_of(/*length=*/40, 1), /*n_new=*/4));
    Sequence& sequence = *sequences_.back();
    SequenceEditor::task(sequence).tenant = tenant;
    SequenceEditor::task(sequence).priority = priority;
    SequenceEditor::schedule(sequence).tag = policy.waiting().tag_of(sequence);
    policy.waiting().add(sequence);
    return sequence;
  }
  Sequence& run(std::int64_t id, Tenant tenant, std::int32_t priority = 0) {
    Sequence& sequence = add(id, tenant, priority);
    SequenceEditor::schedule(sequence).state = SequenceState::running;
    policy.started(sequence);
    return sequence;
  }
  /// Admits all that wait; returns their ids.
  std::vector<std::int64_t> admit_all() {
    std::vector<std::int64_t> ids;
    while (true) {
      std::vector<FairQueue::Turn> turns = policy.waiting().turns();
      const FairQueue::Turn* const turn = policy.next(turns, limits, /*budget=*/100);
      if (turn == nullptr) return ids;
      ids.push_back(turn->head->second->task->id.value);
      policy.started(*turn->head->second);
      policy.check_invariants();
    }
  }

  AdmissionPolicy policy{/*by_size=*/false, /*max_prefill_tokens=*/100};
  AdmissionPolicy::Limits limits;

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST(AdmissionPolicy, serves_one_tenant_by_priority_and_arrival) {
  Served served;
  for (std::int64_t id = 0; id < 4; ++id) served.add(id, {0, 1}, id == 2 ? 0 : 1);
  EXPECT_EQ(served.admit_all(), (std::vector<std::int64_t>{2, 0, 1, 3}));
  EXPECT_EQ(served.policy.victim()->task->id, SequenceId{3}) << "the last one";
  served.policy.begin_plan();
  EXPECT_EQ(served.policy.order().front()->task->id, SequenceId{2});
  EXPECT_FALSE(served.policy.was_shared());
  EXPECT_EQ(served.policy.prefill_limit(500, /*has_decodes=*/false), 500);
  EXPECT_EQ(served.policy.prefill_limit(500, /*has_decodes=*/true), 100);
}

TEST(AdmissionPolicy, preempts_no_sequence_that_was_preempted_too_often) {
  Served served;
  const Sequence& first = served.run(0, {0, 1});
  SequenceEditor::schedule(served.run(1, {0, 1})).n_preemptions = kMaxPreemptions;
  EXPECT_EQ(served.policy.victim(), &first);
}

TEST(AdmissionPolicy, preempts_the_tenant_that_holds_most_for_its_weight) {
  Served served;
  served.run(0, {0, 1});
  const Sequence& last = served.run(1, {0, 1});
  served.run(2, {1, 4});
  EXPECT_EQ(served.policy.victim(), &last);
  const Sequence& waiting = served.add(3, {1, 4});
  EXPECT_EQ(served.policy.victim_for(waiting, AdmissionPolicy::Resource::slots), &last);
  served.policy.begin_plan();
  EXPECT_TRUE(served.policy.was_shared());
}

TEST(AdmissionPolicy, gives_each_tenant_with_prompts_a_share) {
  Served served;
  served.add(0, {0, 1});
  served.add(1, {1, 1});
  served.limits.shares = served.policy.shares({}, /*budget=*/50, /*n_free_slots=*/8);
  EXPECT_EQ(served.limits.shares, (std::map<std::int32_t, std::int32_t>{{0, 40}, {1, 10}}));
  served.limits.take(0, 40);
  EXPECT_EQ(served.limits.n_open_to(0, 50), 0);
  EXPECT_EQ(served.admit_all(), (std::vector<std::int64_t>{1, 0})) << "a tenant that had its share comes last";
  EXPECT_TRUE(served.limits.shares.empty()) << "only it was left";
}

}  // namespace
}  // namespace baton
