/// Shares and order of tenants' jobs (server/limits/text_queue.h).
#include "server/limits/text_queue.h"

#include <map>
#include <utility>

#include <gtest/gtest.h>

namespace baton {
namespace {

TenantLines::Job job_of(std::int32_t tenant, std::int64_t cost, std::int32_t weight = 1) {
  TenantLines::Job job;
  job.tenant = {.id = tenant, .weight = weight};
  job.cost = cost;
  return job;
}

/// What each tenant has had after `n` jobs.
std::map<std::int32_t, std::int64_t> serve(TenantLines& lines, int n) {
  std::map<std::int32_t, std::int64_t> served;
  for (int i = 0; i < n; ++i) {
    const TenantLines::Job job = lines.pop();
    served[job.tenant.id] += job.cost;
  }
  return served;
}

TEST(TenantLines, keeps_the_order_of_a_tenant) {
  TenantLines lines;
  EXPECT_TRUE(lines.is_empty());
  for (int cost = 1; cost <= 5; ++cost) lines.push(job_of(1, cost));
  EXPECT_EQ(lines.size(), 5u);
  for (int cost = 1; cost <= 5; ++cost) EXPECT_EQ(lines.pop().cost, cost);
  EXPECT_TRUE(lines.is_empty());
}

TEST(TenantLines, shares_by_cost_and_weight) {
  TenantLines lines;
  for (int i = 0; i < 1000; ++i) {
    lines.push(job_of(1, /*cost=*/1));
    lines.push(job_of(2, /*cost=*/10));
    lines.push(job_of(3, /*cost=*/10, /*weight=*/3));
  }
  const auto served = serve(lines, 700);
  EXPECT_NEAR(static_cast<double>(served.at(1)), 500, 20);
  EXPECT_NEAR(static_cast<double>(served.at(2)), 500, 20);
  EXPECT_NEAR(static_cast<double>(served.at(3)), 1500, 40);
}

TEST(TenantLines, a_late_tenant_has_neither_credit_nor_debt_of_others) {
  TenantLines lines;
  for (int i = 0; i < 100; ++i) lines.push(job_of(1, 10));
  serve(lines, 50);
  for (int i = 0; i < 100; ++i) lines.push(job_of(2, 10));
  const auto served = serve(lines, 20);
  EXPECT_EQ(served.at(1), 100);
  EXPECT_EQ(served.at(2), 100);
}

TEST(TenantLines, counts_what_jobs_cost_beyond_their_estimate) {
  TenantLines lines;
  for (int i = 0; i < 100; ++i) {
    lines.push(job_of(1, 1));
    lines.push(job_of(2, 1));
  }
  // The first one's jobs look cheap and take ten times as long.
  std::map<std::int32_t, int> n_served;
  for (int i = 0; i < 66; ++i) {
    const TenantLines::Job job = lines.pop();
    ++n_served[job.tenant.id];
    if (job.tenant.id == 1) lines.correct(job.tenant, 9);
  }
  EXPECT_EQ(n_served.at(1), 6);
  EXPECT_EQ(n_served.at(2), 60);
}

TEST(TenantLines, counts_the_cost_of_a_tenant_that_waits_no_longer) {
  TenantLines lines;
  lines.push(job_of(1, 1));
  const TenantLines::Job expensive = lines.pop();
  lines.push(job_of(2, 1));
  lines.correct(expensive.tenant, 1000);
  for (int i = 0; i < 10; ++i) lines.push(job_of(1, 1));
  for (int i = 0; i < 10; ++i) lines.push(job_of(2, 1));
  EXPECT_EQ(serve(lines, 11), (std::map<std::int32_t, std::int64_t>{{2, 11}}));
}

TEST(TenantLines, a_small_job_of_a_newcomer_does_not_wait_for_large_ones) {
  TenantLines lines;
  for (int tenant = 1; tenant <= 8; ++tenant)
    for (int i = 0; i < 4; ++i) lines.push(job_of(tenant, 100));
  // The seven others have had nothing either, and their jobs come first by number.
  EXPECT_EQ(lines.pop().tenant.id, 1);
  lines.push(job_of(9, 5));
  EXPECT_EQ(lines.pop().tenant.id, 9);
  // It has no more than its share of these either.
  lines.push(job_of(9, 96));
  std::map<std::int32_t, std::int64_t> served = serve(lines, 7);
  EXPECT_EQ(served.size(), 7u);
  EXPECT_FALSE(served.contains(9));
  EXPECT_EQ(lines.pop().tenant.id, 9);
}

TEST(TenantLines, gives_all_jobs_away) {
  TenantLines lines;
  for (int i = 0; i < 3; ++i) lines.push(job_of(i, 1));
  EXPECT_EQ(lines.take_all().size(), 3u);
  EXPECT_TRUE(lines.is_empty());
  lines.push(job_of(1, 7));
  EXPECT_EQ(lines.pop().cost, 7);
}

}  // namespace
}  // namespace baton
