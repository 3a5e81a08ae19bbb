/// Turns among tenants and requests whose masks are to be made.
#include "engine/step/step_masks.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Jobs of some steps of work; all have one matcher, so that they run in one order.
class Work {
 public:
  void add(Tenant tenant, std::int64_t request, std::int64_t n_steps, const void* matcher = nullptr) {
    const std::size_t index = left_.size();
    left_.push_back(n_steps);
    const auto go_on = [this, index](grammar::MatcherWork& work) {
      const std::int64_t n = std::min(left_[index], work.n_left);
      left_[index] -= n;
      work.n_left -= n;
      return left_[index] == 0;
    };
    jobs.push_back({tenant, RequestId{request}, matcher, go_on});
  }
  std::int64_t left(std::size_t job) const { return left_[job]; }
  void forget_the_done() {
    std::erase_if(jobs, [](const MaskJob& job) { return job.is_done; });
  }

  std::vector<MaskJob> jobs;

 private:
  std::vector<std::int64_t> left_;
};

MaskBudget budget_of(std::int64_t n_steps) { return {.time = std::chrono::hours(1), .steps = n_steps, .steps_of_turn = 10}; }

TEST(MaskJobs, tenants_have_shares_by_their_weights) {
  MaskJobs masks(budget_of(400));
  Work work;
  for (int i = 0; i < 50; ++i) work.add({.id = 1, .weight = 1}, 1, 1000);
  work.add({.id = 2, .weight = 3}, 2, 1000);
  masks.begin_step();
  masks.run(work.jobs, MaskJobs::Part::all);
  EXPECT_NEAR(static_cast<double>(work.left(50)), 700, 10) << "three quarters of 400";
  EXPECT_NEAR(static_cast<double>(work.left(0)), 900, 10) << "the first of its request first";
  EXPECT_EQ(work.left(1), 1000);
}

TEST(MaskJobs, a_small_job_is_done_in_its_first_step_beside_many_large_ones) {
  MaskJobs masks(budget_of(100));
  Work work;
  for (int i = 0; i < 128; ++i) work.add({.id = 1}, 1, 1'000'000);
  for (int step = 0; step < 50; ++step) {
    masks.begin_step();
    masks.run(work.jobs, MaskJobs::Part::all);
  }
  work.add({.id = 2}, 9, 15);
  work.add({.id = 1}, 8, 15);  // another request of the same tenant
  for (int step = 0; step < 2; ++step) {
    masks.begin_step();
    masks.run(work.jobs, MaskJobs::Part::all);
  }
  EXPECT_TRUE(work.jobs[128].is_done);
  EXPECT_TRUE(work.jobs[129].is_done);
}

TEST(MaskJobs, a_job_not_served_in_a_step_is_first_in_the_next) {
  MaskJobs masks(budget_of(10));  // one turn
  Work work;
  for (int tenant = 0; tenant < 20; ++tenant) work.add({.id = tenant}, tenant, 1000);
  for (int step = 0; step < 20; ++step) {
    masks.begin_step();
    masks.run(work.jobs, MaskJobs::Part::all);
  }
  for (std::size_t job = 0; job < 20; ++job) EXPECT_EQ(work.left(job), 990) << job;
}

TEST(MaskJobs, half_of_a_budget_is_left_for_the_second_run) {
  MaskJobs masks(budget_of(100));
  Work first;
  first.add({.id = 1}, 1, 1000);
  Work second;
  second.add({.id = 2}, 2, 1000);
  masks.begin_step();
  masks.run(first.jobs, MaskJobs::Part::half);
  masks.run(second.jobs, MaskJobs::Part::all);
  EXPECT_EQ(first.left(0), 950);
  EXPECT_EQ(second.left(0), 950);
}

TEST(MaskJobs, without_time_one_job_has_its_turn_all_the_same) {
  MaskJobs masks({.time = std::chrono::microseconds(0), .steps_of_turn = 10});
  Work work;
  for (int i = 0; i < 3; ++i) work.add({.id = i}, i, 20);
  int n_steps = 0;
  for (; !work.jobs.empty(); ++n_steps) {
    ASSERT_LT(n_steps, 7);
    masks.begin_step();
    masks.run(work.jobs, MaskJobs::Part::all);
    work.forget_the_done();
  }
  EXPECT_EQ(n_steps, 6);
}

TEST(MaskJobs, jobs_of_one_matcher_never_run_at_the_same_time) {
  MaskJobs masks({.time = std::chrono::hours(1), .steps_of_turn = 1});
  std::vector<int> in_use(5, 0);
  std::vector<int> n_turns(5, 0);
  std::vector<MaskJob> jobs;
  for (int i = 0; i < 40; ++i) {
    const auto matcher = static_cast<std::size_t>(i % 5);
    jobs.push_back({{.id = i % 3}, RequestId{i}, &in_use[matcher], [&, matcher, n = 50](grammar::MatcherWork& work) mutable {
                      EXPECT_EQ(in_use[matcher]++, 0);
                      ++n_turns[matcher];
                      std::this_thread::yield();
                      --in_use[matcher];
                      --work.n_left;
                      return --n == 0;
                    }});
  }
  masks.begin_step();
  masks.run(jobs, MaskJobs::Part::all);
  for (const MaskJob& job : jobs) EXPECT_TRUE(job.is_done);
  for (const int n : n_turns) EXPECT_EQ(n, 8 * 50);
}

}  // namespace
}  // namespace baton
