/// The loop of a thread of tasks.
#include "server/limits/task_thread.h"

#include <cstddef>

#include "core/limits/thread_body.h"

namespace baton {
namespace {

/// For what must not fail when memory is short: destructors of JSON values, refusals.
constexpr std::size_t kTaskReserveBytes = std::size_t{512} << 10;

}  // namespace

TaskThread::TaskThread(std::string_view name)
    : thread_(thread_body(name, kTaskReserveBytes, [this](MemoryReserve& reserve) {
        while (io_.run_one() > 0) reserve.restore();
      })) {}

TaskThread::~TaskThread() {
  stop();
  join();
}

void TaskThread::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace baton
