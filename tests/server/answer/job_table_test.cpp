/// Which thread has a job, and where it goes when its client leaves.
#include "server/answer/job_table.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr ExchangeId kFirst{1};
constexpr ExchangeId kSecond{2};

class JobTableTest : public ::testing::Test {
 protected:
  void open(ExchangeId exchange, decltype(Job::state) state = Job::Opened{}) {
    auto job = std::make_unique<Job>();
    job->exchange = exchange;
    job->state = std::move(state);
    table_.open(std::move(job));
  }
  std::vector<std::int64_t> left() {
    std::vector<std::int64_t> exchanges;
    for (JobQueue jobs = table_.take_left(); !jobs.empty();) exchanges.push_back(jobs.pop()->exchange.value);
    return exchanges;
  }

  int n_told_ = 0;  // that a job has left
  JobTable table_{[this] { ++n_told_; }, [](double) {}};
  Budget room_{1000, 1000};
};

TEST_F(JobTableTest, a_held_job_goes_back_or_ends) {
  open(kFirst);
  { const HeldJob held = table_.take(kFirst); }
  HeldJob held = table_.take(kFirst);
  ASSERT_TRUE(held);
  EXPECT_FALSE(table_.take(kSecond)) << "it was never opened";
  EXPECT_EQ(table_.n_open(), 1u);
  const JobPtr job = std::move(held).end();
  EXPECT_EQ(job->exchange, kFirst);
  EXPECT_EQ(table_.n_open(), 0u);
  EXPECT_TRUE(table_.wait_until_empty(std::chrono::milliseconds(0)));
}

TEST_F(JobTableTest, events_find_only_jobs_that_the_engine_works_on) {
  open(kFirst);
  open(kSecond, Job::Running{});
  const ExchangeId exchanges[] = {kFirst, kSecond, ExchangeId{3}};
  const std::vector<HeldJob> held = table_.take_running(exchanges);
  ASSERT_EQ(held.size(), 3u);
  EXPECT_FALSE(held[0]);
  EXPECT_TRUE(held[1]);
  EXPECT_FALSE(held[2]) << "it was never opened";
  EXPECT_FALSE(table_.take_running(exchanges)[1]) << "a thread holds it";
}

TEST_F(JobTableTest, jobs_go_where_their_states_say_after_their_events) {
  std::vector<ExchangeId> exchanges;
  for (std::int64_t i = 1; i <= 4; ++i) open(exchanges.emplace_back(i), Job::Running{});
  std::vector<HeldJob> held = table_.take_running(exchanges);
  held[1]->state = Job::Sending{};
  held[2]->state = Job::Reported{};
  table_.client_left(exchanges[3]);
  JobQueue ended = table_.give_back(held);
  EXPECT_EQ(ended.pop()->exchange, exchanges[2]);
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(table_.take(exchanges[0])) << "it rests";
  EXPECT_EQ(table_.take_queued(room_, 100)->exchange, exchanges[1]);
  EXPECT_EQ(left(), std::vector<std::int64_t>{4});
  EXPECT_EQ(table_.n_open(), 2u);
}

TEST_F(JobTableTest, a_client_that_leaves_takes_a_resting_job_with_it_at_once) {
  open(kFirst, Job::Running{});
  table_.client_left(kFirst);
  EXPECT_FALSE(table_.is_open(kFirst));
  EXPECT_EQ(table_.n_open(), 0u);
  EXPECT_EQ(n_told_, 1);
  EXPECT_EQ(left(), std::vector<std::int64_t>{1});
  EXPECT_EQ(left(), std::vector<std::int64_t>{});
}

TEST_F(JobTableTest, a_client_that_leaves_takes_a_held_job_when_it_comes_back) {
  open(kFirst, Job::Running{});
  {
    const HeldJob held = table_.take(kFirst);
    table_.client_left(kFirst);
    EXPECT_FALSE(table_.is_open(kFirst));
    EXPECT_EQ(table_.n_open(), 1u) << "a thread works on it";
    EXPECT_EQ(n_told_, 0);
  }
  EXPECT_EQ(n_told_, 1);
  EXPECT_EQ(left(), std::vector<std::int64_t>{1});
}

TEST_F(JobTableTest, large_answers_take_turns_as_their_clients_read) {
  open(kFirst, Job::Sending{});
  open(kSecond, Job::Sending{});
  for (const ExchangeId exchange : {kSecond, kFirst, kSecond}) table_.client_reads(exchange);  // the third is queued already
  for (const ExchangeId exchange : {kSecond, kFirst}) {
    HeldJob held = table_.take_queued(room_, 100);
    EXPECT_EQ(held->exchange, exchange);
    if (exchange == kFirst) std::move(held).queue();
  }
  EXPECT_EQ(table_.take_queued(room_, 100)->exchange, kFirst);
}

TEST_F(JobTableTest, a_queued_job_whose_client_left_needs_no_room) {
  open(kFirst, Job::Sending{});
  open(kSecond, Job::Sending{});
  table_.client_reads(kFirst);
  table_.client_left(kFirst);
  table_.client_reads(kSecond);
  EXPECT_EQ(table_.take_queued(room_, 500)->exchange, kSecond);
  EXPECT_EQ(left(), std::vector<std::int64_t>{1});
}

TEST_F(JobTableTest, the_end_wakes_a_thread_that_waits_for_a_turn) {
  open(kFirst, Job::Sending{});
  table_.client_reads(kFirst);
  std::thread stops([&] { table_.stop(); });
  EXPECT_FALSE(table_.take_queued(room_, 501)) << "there is no room for a piece";
  stops.join();
  EXPECT_TRUE(table_.is_stopping());
}

TEST(JobQueue, keeps_the_order_and_ends_ten_thousands_of_jobs_without_recursion) {
  JobQueue queue;
  for (std::int64_t i = 0; i < 100'000; ++i) {
    auto job = std::make_unique<Job>();
    job->exchange = ExchangeId{i};
    queue.push(std::move(job));
  }
  EXPECT_EQ(queue.pop()->exchange, ExchangeId{0});
  JobQueue moved = std::move(queue);
  EXPECT_EQ(moved.front().exchange, ExchangeId{1});
}

}  // namespace
}  // namespace baton
