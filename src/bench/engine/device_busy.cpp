/// Adds up the times of steps.
#include "bench/engine/device_busy.h"

#include <algorithm>
#include <utility>

namespace baton {

void DeviceBusyTime::take(std::span<const StepRecord> records) {
  for (const StepRecord& record : records)
    if (record.at > last_) take(record);
  if (!records.empty()) last_ = std::max(last_, records.back().at);
}

void DeviceBusyTime::take(const StepRecord& record) {
  switch (record.what) {
    case StepRecord::What::plan_end: planned_before_ = std::exchange(planned_, {record.step, record.at}); break;
    case StepRecord::What::run_begin: run_begin_ = record.at; break;
    case StepRecord::What::run_end: {
      const Clock::time_point before = std::exchange(run_end_, record.at);
      if (run_begin_ == Clock::time_point{}) break;  // its begin was not among the records
      Clock::time_point begin = run_begin_;
      if (is_asynchronous_) {
        if (record.at - run_begin_ < kNoWait) break;
        if (planned_.number == record.step) begin = planned_.at;
        if (planned_before_.number == record.step) begin = planned_before_.at;
        begin = std::max(begin, before);
      }
      seconds_ += std::chrono::duration<double>(record.at - begin).count();
      break;
    }
    default: break;
  }
}

}  // namespace baton
