/// A program that is started and read to its end.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace baton {

/// Starts a program, `words` being its file and its arguments, and returns what it writes on standard output once it has
/// ended. It inherits standard error and the environment. Errors: io (it cannot be started), internal (its exit code is
/// not 0, or a signal ended it).
Result<std::string> output_of_process(const std::vector<std::string>& words);

}  // namespace baton
