/// The program `baton-bench`, which is installed beside this one: `baton bench` and `baton demo` become it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace baton {

/// The file of `baton-bench`: in the folder of this program's file, links resolved. No other folder is searched,
/// because a program of that name elsewhere may be of another version or another project. Errors: not_found, which
/// names the file, and io.
Result<std::string> find_bench_program();

/// The words for `baton-bench` if the first word of `words` that is not a flag is "bench", which is left out, or
/// "demo".
std::optional<std::vector<std::string>> words_for_bench_program(const std::vector<std::string>& words);

/// Runs `baton-bench` in place of this program: process id, standard streams, environment and signals stay. Returns
/// only if that fails: the exit code, once the error is printed.
int become_bench_program(const std::vector<std::string>& words);

}  // namespace baton
