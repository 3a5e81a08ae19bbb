/// The loop over the slots of a load.
#include "bench/http/load.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "cli/interrupt.h"

namespace baton {
namespace {

using Clock = HttpStreams::Clock;

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, LoadSource& source, HttpStreams streams)
      : options_(options), source_(source), streams_(std::move(streams)), slots_(options.n_slots) {
    for (std::size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  double run(const std::function<void(double)>& on_second) {
    begin_ = Clock::now();
    auto next_second = begin_ + std::chrono::seconds(1);
    while (n_running() > 0 || !source_.is_over(now_s())) {
      send_due();
      source_.prepare();
      streams_.wait(std::min(next_second, next_send()), [this](const HttpStreams::News& news) { take(news); });
      if (Clock::now() < next_second) continue;
      next_second += std::chrono::seconds(1);
      on_second(now_s());
      end_late_requests();
    }
    return now_s();
  }

 private:
  struct Slot {
    bool is_running = false;
    double sent_s = 0;
    double last_s = 0;  // when the request or its last bytes came
  };

  double seconds_at(Clock::time_point at) const { return std::chrono::duration<double>(at - begin_).count(); }
  double now_s() const { return seconds_at(Clock::now()); }
  std::size_t n_running() const { return slots_.size() - free_.size(); }

  Clock::time_point next_send() const {
    if (free_.empty() || source_.is_over(now_s())) return Clock::time_point::max();
    const double due_s = source_.next_due_s();
    if (std::isinf(due_s)) return Clock::time_point::max();
    return begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due_s));
  }

  void send_due() {
    for (double now = now_s(); !free_.empty() && !source_.is_over(now) && source_.next_due_s() <= now; now = now_s()) {
      const std::size_t slot = free_.back();
      free_.pop_back();
      slots_[slot] = {true, now, now};
      streams_.send(slot, options_.url, source_.begin(slot, now));
    }
  }

  void take(const HttpStreams::News& news) {
    const double at = seconds_at(news.at);
    if (news.is_end) return end(news.slot, news.head, news.error);
    slots_[news.slot].last_s = at;
    if (std::string fault = source_.take(news.slot, news.head, news.bytes, at); !fault.empty()) {
      streams_.cancel(news.slot);
      end(news.slot, news.head, std::move(fault));
    }
  }

  void end(std::size_t slot, const HttpHead& head, std::string error) {
    slots_[slot].is_running = false;
    free_.push_back(slot);
    source_.end(slot, head, std::move(error), now_s());
  }

  void end_late_requests() {
    const double now = now_s();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].is_running) continue;
      std::string error;
      if (was_interrupted())
        error = "interrupted";
      else if (now - slots_[i].sent_s >= options_.timeout_s)
        error = fmt::format("no whole answer within {:g} s", options_.timeout_s);
      else if (now - slots_[i].last_s >= options_.silence_s)
        error = fmt::format("nothing came for {:.0f} s", options_.silence_s);
      if (error.empty()) continue;
      streams_.cancel(i);
      end(i, {}, std::move(error));
    }
  }

  const LoadOptions& options_;
  LoadSource& source_;
  HttpStreams streams_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;  // slots; the one used last is at the end
  Clock::time_point begin_;
};

}  // namespace

Result<double> run_load(const LoadOptions& options, LoadSource& source, const std::function<void(double)>& on_second) {
  BATON_TRY(HttpStreams streams, HttpStreams::create(options.n_slots, options.headers));
  return LoadRun(options, source, std::move(streams)).run(on_second);
}

}  // namespace baton
