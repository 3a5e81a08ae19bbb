/// Queues lines, and writes them without waiting longer than it may.
#include "core/line_queue.h"

#include <poll.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/thread_name.h"

namespace baton::log {
namespace {

/// How long the thread waits for its reader before it looks whether it must end.
constexpr std::chrono::milliseconds kPoll{50};

/// Whether the file takes a few bytes, or refuses them, without a wait.
bool is_ready(int file, std::chrono::milliseconds patience) {
  pollfd asked{file, POLLOUT, 0};
  return ::poll(&asked, 1, static_cast<int>(patience.count())) > 0;
}

std::int64_t count_lines(std::string_view bytes) { return std::ranges::count(bytes, '\n'); }

}  // namespace

void LineQueue::add_dropped(std::int64_t n_lines) {
  const MutexLock lock(mutex_);
  n_dropped_ += n_lines;
}

std::int64_t LineQueue::n_dropped() const {
  const MutexLock lock(mutex_);
  return n_dropped_;
}

/// Writes the beginning of `bytes` and removes it. A pipe that poll calls ready takes PIPE_BUF bytes without a wait.
/// False if the file takes nothing any more.
bool LineQueue::write_some(std::string_view& bytes) {
  const ssize_t n = ::write(file_, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  bytes.remove_prefix(static_cast<std::size_t>(n));
  return true;
}

void LineQueue::write(std::string_view lines) {
  const MutexLock lock(mutex_);
  if (has_thread_) {
    if (queued_.size() + lines.size() > kMaxQueuedBytes) {
      n_dropped_ += count_lines(lines);
      return;
    }
    queued_ += lines;
    changed_.notify_all();
    return;
  }
  while (!lines.empty()) {
    const bool may_wait = !has_stalled_reader_;
    if ((may_wait || is_ready(file_, std::chrono::milliseconds(0))) && write_some(lines)) continue;
    n_dropped_ += count_lines(lines);
    return;
  }
}

void LineQueue::begin(void (*on_dropped)(std::int64_t n_lines)) {
  check(!thread_.joinable(), "LineQueue: it has a thread already");
  const MutexLock lock(mutex_);
  has_thread_ = true;
  is_ended_ = false;
  deadline_ = Clock::time_point::max();
  thread_ = std::thread([self = shared_from_this(), on_dropped, n_told = n_dropped_] {
    name_this_thread("log");
    self->run(on_dropped, n_told);
  });
}

/// `n_told`: dropped lines that need not be told of any more.
void LineQueue::run(void (*on_dropped)(std::int64_t n_lines), std::int64_t n_told) {
  // A reader that is gone is an error of `write` here, not the end of the program.
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);

  MutexLock lock(mutex_);
  std::string batch;
  while (true) {
    is_writing_ = false;
    changed_.notify_all();
    while (queued_.empty() && deadline_ == Clock::time_point::max()) changed_.wait(mutex_);
    if (queued_.empty()) break;
    is_writing_ = true;
    batch.clear();
    batch.swap(queued_);
    std::string_view rest = batch;
    while (!rest.empty() && Clock::now() < deadline_) {
      lock.unlock();
      const bool is_broken = is_ready(file_, kPoll) && !write_some(rest);
      lock.lock();
      if (is_broken) break;
    }
    n_dropped_ += count_lines(rest);
    if (!rest.empty() && Clock::now() >= deadline_) {
      n_dropped_ += count_lines(std::exchange(queued_, {}));
      has_stalled_reader_ = true;
      break;
    }
    if (!rest.empty() || n_dropped_ == n_told) continue;
    const std::int64_t n_new = n_dropped_ - std::exchange(n_told, n_dropped_);
    lock.unlock();
    on_dropped(n_new);
    lock.lock();
  }
  has_thread_ = is_writing_ = false;
  is_ended_ = true;
  changed_.notify_all();
}

void LineQueue::flush(std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  const MutexLock lock(mutex_);
  while ((!queued_.empty() || is_writing_) && changed_.wait_until(mutex_, end)) {
  }
}

void LineQueue::end(std::chrono::milliseconds patience) {
  {
    const MutexLock lock(mutex_);
    deadline_ = Clock::now() + patience;
    changed_.notify_all();
    // The thread keeps to the deadline unless another writer filled the pipe between poll and write.
    while (!is_ended_ && changed_.wait_until(mutex_, deadline_ + 4 * kPoll)) {
    }
    if (!is_ended_) {
      has_thread_ = false;
      has_stalled_reader_ = true;
      thread_.detach();
      return;
    }
  }
  thread_.join();
}

}  // namespace baton::log
