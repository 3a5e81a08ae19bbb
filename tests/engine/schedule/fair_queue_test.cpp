/// FairQueue: which tenant is next, and what a tenant that comes late is owed.
#include "engine/schedule/fair_queue.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton {
namespace {

/// Sequences in a queue; each is served whole, one after another.
class QueueOfTenants {
 public:
  explicit QueueOfTenants(bool by_size = false) : queue(by_size) {}

  void add(std::int64_t id, Tenant tenant, std::int32_t priority = 0) {
    add(id, tenant, priority, /*prompt_len=*/4, /*n_new=*/4);
  }
  void add(std::int64_t id, Tenant tenant, std::int32_t priority, std::size_t prompt_len, std::int32_t n_new,
           std::int32_t n_siblings = 1) {
    auto sequence = testing::make_sequence(id, testing::prompt_of(prompt_len, 1), n_new);
    SequenceEditor::task(*sequence).tenant = tenant;
    SequenceEditor::task(*sequence).priority = priority;
    SequenceEditor::task(*sequence).n_siblings = n_siblings;
    SequenceEditor::schedule(*sequence).tag = queue.tag_of(*sequence);
    queue.add(*sequence);
    sequences_.push_back(std::move(sequence));
  }
  /// Serves the next sequence with `n_rows` rows; returns it.
  const Sequence& serve(std::int32_t n_rows) {
    std::vector<FairQueue::Turn> turns = queue.turns();
    const auto next =
        std::ranges::min_element(turns, [&](const auto& a, const auto& b) { return queue.is_before(a.tenant, b.tenant); });
    const Sequence& sequence = *next->head->second;
    queue.started(sequence);
    queue.charge(sequence, n_rows, /*n_tokens=*/0);
    queue.stopped(sequence);
    return sequence;
  }

  FairQueue queue;

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST(FairQueue, keeps_priority_and_arrival_within_a_tenant) {
  QueueOfTenants served;
  for (std::int64_t id = 0; id < 6; ++id) served.add(id, {3, 2}, id % 2 == 0 ? 1 : 0);
  EXPECT_EQ(served.queue.size(), 6u);
  EXPECT_FALSE(served.queue.has_several_tenants());
  std::vector<std::int64_t> order;
  while (!served.queue.is_empty()) order.push_back(served.serve(10).task->id.value);
  EXPECT_EQ(order, (std::vector<std::int64_t>{1, 3, 5, 0, 2, 4}));
}

TEST(FairQueue, serves_tenants_in_proportion_to_their_weights_whatever_their_requests_cost) {
  QueueOfTenants served;
  const std::map<std::int32_t, std::int32_t> weights{{0, 1}, {1, 1}, {2, 3}};
  const std::map<std::int32_t, std::int32_t> costs{{0, 40}, {1, 7}, {2, 25}};
  std::int64_t id = 0;
  for (int i = 0; i < 3000; ++i)
    for (const auto& [tenant, weight] : weights) served.add(id++, {tenant, weight});
  std::map<std::int32_t, std::int32_t> n_rows;
  for (int i = 0; i < 1500; ++i) {
    const std::int32_t tenant = served.serve(0).task->tenant.id;
    n_rows[tenant] += costs.at(tenant);
    served.add(id++, {tenant, weights.at(tenant)});
    // The charge comes after the sequence, as steps charge rows.
    const auto paid = testing::make_sequence(id, testing::prompt_of(1, 1), 1);
    SequenceEditor::task(*paid).tenant = {tenant, weights.at(tenant)};
    served.queue.charge(*paid, costs.at(tenant), /*n_tokens=*/0);
  }
  for (const auto& [tenant, weight] : weights)
    EXPECT_NEAR(static_cast<double>(n_rows[tenant]) / weight, n_rows[0], 80) << "tenant " << tenant;
}

TEST(FairQueue, gives_no_credit_for_time_in_which_a_tenant_asked_for_nothing) {
  QueueOfTenants served;
  for (std::int64_t id = 0; id < 200; ++id) served.add(id, {0, 1});
  for (int i = 0; i < 100; ++i) served.serve(50);
  for (std::int64_t id = 200; id < 300; ++id) served.add(id, {1, 1});
  std::map<std::int32_t, int> n_served;
  for (int i = 0; i < 100; ++i) ++n_served[served.serve(50).task->tenant.id];
  EXPECT_NEAR(n_served[1], 50, 1);
}

TEST(FairQueue, serves_a_tenant_that_comes_while_another_floods_next) {
  QueueOfTenants served;
  for (std::int64_t id = 0; id < 1000; ++id) served.add(id, {0, 1});
  for (int i = 0; i < 20; ++i) served.serve(50);
  served.add(1000, {1, 1});
  EXPECT_TRUE(served.queue.has_several_tenants());
  EXPECT_EQ(served.serve(50).task->tenant.id, 1);
  EXPECT_EQ(served.serve(50).task->tenant.id, 0);
}

TEST(FairQueue, forgets_a_sequence_that_leaves) {
  QueueOfTenants served;
  served.add(0, {0, 1});
  served.add(1, {1, 1});
  const Sequence& first = *served.queue.turns()[0].head->second;
  EXPECT_TRUE(served.queue.contains(first));
  served.queue.remove(first);
  served.queue.remove(first);
  EXPECT_FALSE(served.queue.contains(first));
  EXPECT_EQ(served.queue.size(), 1u);
  EXPECT_FALSE(served.queue.has_several_tenants());
}

TEST(FairQueue, serves_a_small_request_before_the_large_ones_that_came_before_it) {
  QueueOfTenants served(/*by_size=*/true);
  std::int64_t id = 0;
  for (; id < 100; ++id) served.add(id, {}, 0, /*prompt_len=*/10, /*n_new=*/1000);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(served.serve(1).task->id.value, i) << "those of one size in the order of arrival";
  served.add(id, {}, 0, /*prompt_len=*/10, /*n_new=*/5);
  EXPECT_EQ(served.serve(1).task->id.value, id);
  for (int i = 20; i < 100; ++i) EXPECT_EQ(served.serve(1).task->id.value, i);
}

TEST(FairQueue, counts_the_sequences_of_a_request_together) {
  QueueOfTenants served(/*by_size=*/true);
  for (std::int64_t id = 0; id < 64; ++id) served.add(id, {}, 0, /*prompt_len=*/10, /*n_new=*/5, /*n_siblings=*/64);
  served.add(64, {}, 0, /*prompt_len=*/10, /*n_new=*/1000);
  served.add(65, {}, 0, /*prompt_len=*/10, /*n_new=*/5);
  // They are as large as the request after them; the last one is small.
  std::vector<std::int64_t> order;
  while (!served.queue.is_empty()) order.push_back(served.serve(1).task->id.value);
  const auto place_of = [&](std::int64_t id) { return std::ranges::find(order, id) - order.begin(); };
  EXPECT_LE(place_of(65), 1);
  EXPECT_EQ(place_of(64), 65);
}

TEST(FairQueue, gives_each_size_that_waits_an_equal_share_of_the_cost) {
  QueueOfTenants served(/*by_size=*/true);
  // Cost of one: 24, 410 and 4010. Small ones never stop coming.
  const std::vector<std::int32_t> n_new{5, 100, 1000};
  std::map<std::int32_t, std::int64_t> cost;
  std::int64_t id = 0;
  const auto add = [&](std::int32_t n) { served.add(id++, {}, 0, /*prompt_len=*/10, n); };
  for (int i = 0; i < 100; ++i)
    for (const std::int32_t n : n_new) add(n);
  for (int i = 0; i < 20000; ++i) {
    const Sequence& sequence = served.serve(1);
    const std::int32_t n = sequence.task->max_len - sequence.task->prompt_len;
    cost[n] += FairQueue::cost_of(sequence);
    add(n);
  }
  const std::int64_t most = std::max({cost[5], cost[100], cost[1000]});
  for (const std::int32_t n : n_new) EXPECT_NEAR(static_cast<double>(cost[n]) / static_cast<double>(most), 1.0, 0.02) << n;
}

TEST(FairQueue, a_size_that_comes_late_has_no_credit) {
  QueueOfTenants served(/*by_size=*/true);
  std::int64_t id = 0;
  for (; id < 2000; ++id) served.add(id, {}, 0, /*prompt_len=*/10, /*n_new=*/1000);
  for (int i = 0; i < 1000; ++i) served.serve(1);
  for (int i = 0; i < 1000; ++i) served.add(id++, {}, 0, /*prompt_len=*/10, /*n_new=*/100);
  // A large one costs as much as ten of these, which began late: at most so many go before it.
  int n_before = 0;
  while (served.serve(1).task->id.value >= 2000) ++n_before;
  EXPECT_NEAR(n_before, 10, 2);
}

TEST(FairQueue, counts_no_more_of_an_answer_than_clients_usually_mean) {
  const auto unlimited = testing::make_sequence(0, testing::prompt_of(10, 1), 30000);
  const auto long_prompt = testing::make_sequence(1, testing::prompt_of(20000, 1), 10010);
  EXPECT_EQ(FairQueue::cost_of(*unlimited), 10 + 4 * 1024);
  EXPECT_LT(FairQueue::cost_of(*unlimited), FairQueue::cost_of(*long_prompt)) << "although it may generate more";
}

TEST(FairQueue, a_cohort_has_newcomers_of_one_priority_and_size_and_only_they_exchange_places) {
  QueueOfTenants served(/*by_size=*/true);
  // Small and large ones take turns; then some of another tenant.
  for (std::int64_t id = 0; id < 20; ++id) served.add(id, {}, 0, /*prompt_len=*/10, id % 2 == 0 ? 5 : 6 * 64);
  served.add(20, {1, 1}, 0, /*prompt_len=*/10, 5);
  FairQueue::Places cohort = served.queue.take_cohort(0, 8);
  ASSERT_EQ(cohort.size(), 8u);
  std::vector<Sequence*> members;
  for (const auto& place : cohort) members.push_back(place.mapped());
  for (std::size_t i = 0; i < members.size(); ++i) EXPECT_EQ(members[i]->task->id.value, static_cast<std::int64_t>(2 * i));
  std::ranges::reverse(members);
  for (std::size_t i = 0; i < members.size(); ++i) {
    SequenceEditor::schedule(*members[i]).tag = cohort[i].key().tag;
    cohort[i].key().id = members[i]->task->id;
    cohort[i].mapped() = members[i];
  }
  served.queue.put_back(0, std::move(cohort));
  served.queue.check_invariants();
  EXPECT_TRUE(served.queue.take_cohort(0, 8).empty()) << "the first sequence is in a cohort";
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  for (int i = 0; i < 20; ++i) {
    const std::int64_t id = served.queue.turns()[0].head->second->task->id.value;
    served.queue.remove(*served.queue.turns()[0].head->second);
    (id % 2 == 0 ? small : large).push_back(id);
  }
  EXPECT_EQ(small, (std::vector<std::int64_t>{14, 12, 10, 8, 6, 4, 2, 0, 16, 18}));
  EXPECT_TRUE(std::ranges::is_sorted(large));
  EXPECT_EQ(served.queue.size(), 1u);
}

}  // namespace
}  // namespace baton
