/// Reads task/*/comm and task/*/schedstat. The first number of schedstat is nanoseconds on a processor.
#include "bench/stream/thread_times.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

namespace baton {

Result<std::map<std::string, ThreadTime>> thread_times(pid_t process) {
  const std::filesystem::path folder =
      process == 0 ? "/proc/self/task" : std::filesystem::path(fmt::format("/proc/{}/task", process));
  std::error_code error;
  std::map<std::string, ThreadTime> times;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name;
    double nanoseconds = 0;
    std::getline(std::ifstream(at->path() / "comm"), name);
    // A thread that has ended meanwhile has neither file.
    if (name.empty() || !(std::ifstream(at->path() / "schedstat") >> nanoseconds)) continue;
    ThreadTime& time = times[name];
    ++time.n_threads;
    time.seconds += nanoseconds / 1e9;
  }
  if (times.empty()) return fail(ErrorCode::not_found, fmt::format("there is no process {} to look at", process));
  return times;
}

std::map<std::string, ThreadTime> time_between(const std::map<std::string, ThreadTime>& before,
                                               const std::map<std::string, ThreadTime>& after) {
  std::map<std::string, ThreadTime> between = after;
  for (auto& [name, time] : between) {
    const auto earlier = before.find(name);
    if (earlier != before.end()) time.seconds -= earlier->second.seconds;
  }
  return between;
}

}  // namespace baton
