/// JSON lines in, JSON lines out: reads, converts in several threads, and writes in the order of the lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// Makes the output line of one input line, without a line feed. Called by several threads at once.
using ConvertLine = std::function<Result<std::string>(const json::Value& line)>;

/// The longest line that is read.
inline constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;

struct NumberedLine {
  std::size_t number = 0;
  std::string_view text;
};
/// The lines of `text` that are not blank. `n_lines` counts all lines, from where it was.
std::vector<NumberedLine> split_lines(std::string_view text, std::size_t& n_lines);

/// Reads JSON lines from the file descriptor `input` until its end, and writes the converted lines to standard output.
/// Blank lines are skipped. Lines that arrive together are converted in parallel and written at once, so a program at
/// the other end of a pipe can wait for the answer to its last line. `n_threads` 0: as many as are available. Progress
/// of a large file is shown on standard error. Stops at the first line that is not JSON or that `convert` refuses: the
/// lines before it are written, and the error begins with "line N: ". Other errors: too_large (a line), io.
Result<void> convert_json_lines(int input, int n_threads, const ConvertLine& convert);

}  // namespace baton
