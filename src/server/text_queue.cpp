/// The two threads of text work.
#include "server/text_queue.h"

#include <utility>

#include "core/memory_reserve.h"
#include "core/thread_name.h"

namespace baton {
namespace {

// Places that long work takes; with more than a short one's it cannot take those that are kept for short work.
constexpr std::int64_t kLongPlaces = 16;
/// For what must not fail when memory is short: destructors of JSON values, refusals.
constexpr std::size_t kTextReserveBytes = std::size_t{1} << 20;

}  // namespace

TextQueue::TextQueue(Budget& places)
    : places_(places),
      short_thread_([this] {
        name_this_thread("text-short");
        run(/*does_long_work=*/false);
      }),
      long_thread_([this] {
        name_this_thread("text-long");
        run(/*does_long_work=*/true);
      }) {}

bool TextQueue::push(std::size_t n_bytes, std::function<void()> work, std::function<void()> dropped) {
  const bool is_long = n_bytes > kLongBytes;
  Job job{std::move(work), std::move(dropped), places_.share()};
  if (!job.place.grow(is_long ? kLongPlaces : 1)) return false;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_stopping_) {
      (is_long ? long_ : short_).push_back(std::move(job));
      job = {};
    }
  }
  if (job.dropped) job.dropped();
  changed_.notify_all();
  return true;
}

void TextQueue::stop() {
  std::deque<Job> dropped_short, dropped_long;
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
    dropped_short.swap(short_);
    dropped_long.swap(long_);
  }
  changed_.notify_all();
  for (std::deque<Job>* jobs : {&dropped_short, &dropped_long}) {
    for (Job& job : *jobs)
      if (job.dropped) job.dropped();
    jobs->clear();
  }
  if (short_thread_.joinable()) short_thread_.join();
  if (long_thread_.joinable()) long_thread_.join();
}

bool TextQueue::is_stopping() const {
  const std::scoped_lock lock(mutex_);
  return is_stopping_;
}

void TextQueue::run(bool does_long_work) {
  MemoryReserve reserve(kTextReserveBytes);
  const MemoryReserve::User user(reserve);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_stopping_ || !short_.empty() || (does_long_work && !long_.empty()); });
    if (is_stopping_) return;
    std::deque<Job>& queue = does_long_work && !long_.empty() ? long_ : short_;
    {
      Job job = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      job.place.release();
      reserve.restore();
      job.work();
    }
    lock.lock();
  }
}

}  // namespace baton
