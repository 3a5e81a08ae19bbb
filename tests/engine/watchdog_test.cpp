/// Watchdog: the engine is stuck only while a step takes too long, and the log says what it does.
#include "engine/watchdog.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Waits until the condition holds. If it never does, the test's time limit ends the test.
template <class Claim>
void wait_until(const Claim& claim) {
  while (!claim()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Watchdog, sees_a_step_that_does_not_end_and_forgives_it_when_it_does) {
  Watchdog watchdog(std::chrono::milliseconds(5));
  watchdog.start();
  EXPECT_FALSE(watchdog.is_stuck());
  watchdog.begin_step();
  wait_until([&] { return watchdog.is_stuck(); });
  watchdog.end_step();
  EXPECT_FALSE(watchdog.is_stuck());
  watchdog.begin_step();
  wait_until([&] { return watchdog.is_stuck(); });
}

TEST(Watchdog, lets_an_idle_engine_be) {
  Watchdog watchdog(std::chrono::milliseconds(1));
  watchdog.start();
  watchdog.begin_step();
  watchdog.end_step();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(watchdog.is_stuck());
}

TEST(Watchdog, without_a_timeout_never_barks) {
  Watchdog watchdog(std::chrono::milliseconds(0));
  watchdog.start();
  watchdog.begin_step();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(watchdog.is_stuck());
}

TEST(Watchdog, tells_what_the_engine_was_doing_and_for_whom) {
  Watchdog watchdog(std::chrono::milliseconds(0));
  watchdog.begin_step();
  watchdog.record(StepRecord::What::plan_begin, 7);
  watchdog.planned({.step = 6, .rows = {{RequestId{2}, SequenceId{2}, 0, 100}}});
  watchdog.planned({.step = 7,
                    .rows = {{RequestId{3}, SequenceId{4}, 100, 28}},
                    .n_running = 1,
                    .n_waiting = 2,
                    .n_blocks_used = 8,
                    .n_blocks = 10});
  watchdog.record(StepRecord::What::run_begin, 6);
  const std::vector<std::string> lines = watchdog.describe();
  ASSERT_EQ(lines.size(), 4u);
  for (const char* part : {"phase=running", "phase_step=6", "running=1", "waiting=2", "kv_blocks_used=8", "kv_blocks=10"})
    EXPECT_NE(lines[0].find(part), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("step=6 request=2 sequence=2 first_position=0 rows=100"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("step=7 request=3 sequence=4 first_position=100 rows=28"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("planning:7,running:6"), std::string::npos) << lines[3];
}

TEST(Watchdog, keeps_the_last_records_and_describes_no_more_sequences_than_one_can_read) {
  Watchdog watchdog(std::chrono::milliseconds(0));
  for (std::int64_t step = 0; step < 1000; ++step) watchdog.record(StepRecord::What::plan_end, step);
  EXPECT_EQ(watchdog.recent_steps().size(), 64u);
  EXPECT_EQ(watchdog.recent_steps().back().step, 999);
  EngineState state;
  state.rows.resize(500);
  watchdog.planned(std::move(state));
  const std::vector<std::string> lines = watchdog.describe();
  EXPECT_EQ(lines.size(), 1u + 64u + 1u + 1u);
  EXPECT_NE(lines[65].find("not_shown=436"), std::string::npos);
}

/// Standard error is a pipe that is full, and read only when this ends.
class StalledLog {
 public:
  StalledLog() : stderr_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(pipe_.data()), 0);
    EXPECT_EQ(::fcntl(pipe_[1], F_SETFL, O_NONBLOCK), 0);
    const std::array<char, 4096> filling{};
    while (::write(pipe_[1], filling.data(), filling.size()) > 0) {
    }
    EXPECT_EQ(::fcntl(pipe_[1], F_SETFL, 0), 0);
    ::dup2(pipe_[1], STDERR_FILENO);
    ::close(pipe_[1]);
  }
  ~StalledLog() {
    ::dup2(stderr_, STDERR_FILENO);
    ::close(stderr_);
    reader_ = std::jthread([from = pipe_[0]] {
      std::array<char, 4096> bytes;
      while (::read(from, bytes.data(), bytes.size()) > 0) {
      }
      ::close(from);
    });
  }

 private:
  int stderr_;
  std::array<int, 2> pipe_{};
  std::jthread reader_;
};

TEST(Watchdog, a_slow_reader_of_the_log_does_not_hold_up_the_engine) {
  Watchdog watchdog(std::chrono::milliseconds(1));
  watchdog.start();
  {
    const StalledLog log;
    watchdog.begin_step();
    wait_until([&] { return watchdog.is_stuck(); });
    watchdog.end_step();  // it would not return if it wrote to the log
    EXPECT_FALSE(watchdog.is_stuck());
    watchdog.begin_step();
    watchdog.end_step();
  }
  watchdog.stop();
}

}  // namespace
}  // namespace baton
