/// Processor times of a process's threads by name, from /proc.
#pragma once

#include <map>
#include <string>

#include <sys/types.h>

#include "core/result.h"

namespace baton {

struct ThreadTime {
  int n_threads = 0;
  double seconds = 0;  ///< on a processor, in user and kernel mode, since the thread began
};

/// The times of the living threads. `process` 0: this process. Errors: not_found (no such process, or no permission).
Result<std::map<std::string, ThreadTime>> thread_times(pid_t process);

/// The increase from an earlier to a later call.
std::map<std::string, ThreadTime> time_between(const std::map<std::string, ThreadTime>& before,
                                               const std::map<std::string, ThreadTime>& after);

}  // namespace baton
