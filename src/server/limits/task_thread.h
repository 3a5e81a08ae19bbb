/// A thread of the server for tasks that other threads post, and for timers and signals.
#pragma once

#include <cstddef>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "core/attempt.h"
#include "core/limits/insist.h"
#include "core/limits/thread_body.h"

namespace baton {

/// Runs tasks one after another, with a reserve of memory. A task or handler that throws std::bad_alloc ends the program, unless it
/// has something that runs then. Thread: any for `post`; `stop` and `join` belong to the owner.
class TaskThread {
 public:
  explicit TaskThread(std::string_view name)
      : thread_(thread_body(name, kTaskReserveBytes, [this](MemoryReserve& reserve) {
          while (io_.run_one() > 0) reserve.restore();
        })) {}
  ~TaskThread() {
    stop();
    join();
  }

  /// Throws std::bad_alloc if there is no memory for it; then nothing was posted.
  template <class Task>
  void post(Task task) {
    boost::asio::post(io_, std::move(task));
  }
  /// The same. If the task throws std::bad_alloc, `fail` runs, until it finds memory.
  template <class Task, class Fail>
  void post(Task task, Fail fail) {
    post([task = std::move(task), fail = std::move(fail)]() mutable {
      if (!attempt(task)) insist(kNoRefusal, fail);
    });
  }
  /// For timers and signals whose handlers run on this thread.
  boost::asio::io_context& io() { return io_; }
  /// What has not begun does not run any more. Idempotent.
  void stop() { io_.stop(); }
  /// Waits for the task that is running. After `stop`; idempotent.
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  /// For what must not fail when memory is short: destructors of JSON values, refusals.
  static constexpr std::size_t kTaskReserveBytes = std::size_t{512} << 10;
  static constexpr std::string_view kNoRefusal =
      "event=tasks_out_of_memory effect=\"the program ends: there is no memory to give up a task\"";

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> goes_on_{io_.get_executor()};
  std::thread thread_;
};

}  // namespace baton
