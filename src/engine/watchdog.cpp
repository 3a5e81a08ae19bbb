/// Records of steps, and the thread that checks the time.
#include "engine/watchdog.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/attempt.h"
#include "core/check.h"
#include "core/log.h"
#include "core/thread_name.h"

namespace baton {
namespace {

constexpr std::size_t kMaxRecords = 64;
constexpr std::size_t kMaxRowsDescribed = 64;

std::string_view name_of(StepRecord::What what) {
  switch (what) {
    case StepRecord::What::plan_begin: return "planning";
    case StepRecord::What::plan_end: return "planned";
    case StepRecord::What::run_begin: return "running";
    case StepRecord::What::run_end: return "ran";
    case StepRecord::What::commit_begin: return "committing";
    case StepRecord::What::commit_end: return "committed";
  }
  return "unknown";
}

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds timeout) : timeout_(timeout) {
  check(timeout.count() >= 0, "Watchdog: a negative timeout");
}
Watchdog::~Watchdog() { stop(); }

void Watchdog::start() {
  if (timeout_.count() > 0)
    thread_ = std::thread([this] {
      name_this_thread("watchdog");
      while (!attempt([this] { run(); })) {
        // The log lacks what there was no memory for. /health needs none.
      }
    });
}

void Watchdog::stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::begin_step() {
  const MutexLock lock(mutex_);
  step_begun_ = Clock::now();
}

void Watchdog::end_step() {
  const MutexLock lock(mutex_);
  if (std::exchange(is_stuck_, false)) late_ = LateStep{state_.step, Clock::now() - *step_begun_};
  step_begun_.reset();
}

void Watchdog::record(StepRecord::What what, std::int64_t step) {
  const MutexLock lock(mutex_);
  if (records_.size() == kMaxRecords) records_.pop_front();
  records_.push_back({what, step, Clock::now()});
}

void Watchdog::planned(EngineState state) {
  const MutexLock lock(mutex_);
  std::swap(state_, state);
  std::swap(previous_, state);
  std::swap(spare_, state);
}

EngineState Watchdog::take_spare() {
  const MutexLock lock(mutex_);
  return std::exchange(spare_, {});
}

bool Watchdog::is_stuck() const {
  const MutexLock lock(mutex_);
  return is_stuck_;
}

std::vector<StepRecord> Watchdog::recent_steps() const {
  const MutexLock lock(mutex_);
  return {records_.begin(), records_.end()};
}

std::vector<std::string> Watchdog::describe() const {
  const MutexLock lock(mutex_);
  return describe_locked();
}

std::vector<std::string> Watchdog::describe_locked() const {
  const std::chrono::duration<double> lasts = step_begun_ ? Clock::now() - *step_begun_ : Clock::duration::zero();
  const StepRecord last = records_.empty() ? StepRecord{} : records_.back();
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "event=engine_stuck step_seconds={:.1f} phase={} phase_step={} running={} waiting={} kv_blocks_used={} kv_blocks={}",
      lasts.count(), name_of(last.what), last.step, state_.n_running, state_.n_waiting, state_.n_blocks_used, state_.n_blocks));
  for (const EngineState* state : {&previous_, &state_}) {
    const std::size_t n_rows = std::min(state->rows.size(), kMaxRowsDescribed);
    for (std::size_t i = 0; i < n_rows; ++i) {
      const EngineState::Row& row = state->rows[i];
      lines.push_back(fmt::format("event=engine_stuck_sequence step={} request={} sequence={} first_position={} rows={}",
                                  state->step, row.request.value, row.sequence.value, row.first_position, row.n_rows));
    }
    if (n_rows < state->rows.size())
      lines.push_back(
          fmt::format("event=engine_stuck_sequences step={} not_shown={}", state->step, state->rows.size() - n_rows));
  }
  std::string records;
  for (const StepRecord& record : records_)
    records += fmt::format("{}{}:{}", records.empty() ? "" : ",", name_of(record.what), record.step);
  lines.push_back(fmt::format("event=engine_stuck_records last={}", records));
  return lines;
}

/// Waits for `stop`, at most so long. Whether it was called.
bool Watchdog::wait_stop(std::chrono::milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (!is_stopping_ && stopped_.wait_until(mutex_, end)) {
  }
  return is_stopping_;
}

void Watchdog::run() {
  MutexLock lock(mutex_);
  const auto interval = std::clamp(timeout_ / 4, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
  while (!wait_stop(interval)) {
    if (const auto late = std::exchange(late_, std::nullopt)) {
      lock.unlock();
      log::warning("event=engine_goes_on step={} step_seconds={:.1f}", late->step, late->took.count());
      lock.lock();
    }
    if (is_stuck_ || !step_begun_ || Clock::now() - *step_begun_ < timeout_) continue;
    is_stuck_ = true;
    const std::vector<std::string> lines = describe_locked();
    lock.unlock();
    for (const std::string& line : lines) log::error("{}", line);
    lock.lock();
  }
}

}  // namespace baton
