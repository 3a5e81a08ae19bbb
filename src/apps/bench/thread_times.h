/// Processor time of a process's threads, by name, from /proc.
#pragma once

#include <map>
#include <string>

#include <sys/types.h>

#include "core/result.h"

namespace baton {

struct ThreadTime {
  int n_threads = 0;
  double seconds = 0;  ///< on a processor, in user and kernel mode, since they began
};

/// Of the threads that live. `process` 0: this one. Errors: not_found (no such process, or none that may be looked
/// at).
Result<std::map<std::string, ThreadTime>> thread_times(pid_t process);

/// What was added from one look to a later one.
std::map<std::string, ThreadTime> time_between(const std::map<std::string, ThreadTime>& before,
                                               const std::map<std::string, ThreadTime>& after);

}  // namespace baton
