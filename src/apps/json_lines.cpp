/// Batches of lines: one read, one parallel loop, one write.
#include "apps/json_lines.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/progress.h"
#include "core/parallel.h"

namespace baton {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::int64_t kLinesAtATime = 16;
constexpr std::int64_t kBytesWithProgress = std::int64_t{16} << 20;

Result<std::string> convert_line(std::string_view text, const ConvertLine& convert) {
  BATON_TRY(const json::Value line, json::parse(text, "it"));
  return convert(line);
}

/// Converts and writes the whole lines of `text`.
Result<void> convert_batch(std::string_view text, std::size_t& n_lines, const Parallel& parallel, const ConvertLine& convert) {
  const std::vector<NumberedLine> lines = split_lines(text, n_lines);
  std::vector<Result<std::string>> converted(lines.size());
  parallel.for_ranges(static_cast<std::int64_t>(lines.size()), kLinesAtATime, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      converted[i] = convert_line(lines[i].text, convert);
  });
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!converted[i]) {
      flush_output();
      return fail(converted[i].error().code, fmt::format("line {}: {}", lines[i].number, converted[i].error().message));
    }
    *converted[i] += '\n';
    write_output(*converted[i]);
  }
  if (!flush_output()) return fail(ErrorCode::io, "not all lines could be written");
  return {};
}

/// A progress line for a large file; none for pipes and small files.
std::optional<Progress> progress_of(int input) {
  struct stat status = {};
  if (::fstat(input, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < kBytesWithProgress) return std::nullopt;
  return std::optional<Progress>(std::in_place, "converted", "MB", status.st_size / 1'000'000);
}

}  // namespace

std::vector<NumberedLine> split_lines(std::string_view text, std::size_t& n_lines) {
  std::vector<NumberedLine> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++n_lines;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.push_back({n_lines, line});
  }
  return lines;
}

Result<void> convert_json_lines(int input, int n_threads, const ConvertLine& convert) {
  const Parallel parallel(n_threads);
  std::optional<Progress> progress = progress_of(input);
  std::string text;  // what was read and not converted yet
  std::size_t n_lines = 0;
  std::int64_t n_bytes = 0;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kReadBytes);
    const ssize_t count = ::read(input, text.data() + before, kReadBytes);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(ErrorCode::io, fmt::format("cannot read the lines: {}", std::strerror(errno)));
    if (count == 0) return convert_batch(text, n_lines, parallel, convert);
    const std::size_t last = std::string_view(text).substr(before).rfind('\n');
    if (last != std::string_view::npos) {
      const std::size_t n_whole = before + last + 1;
      BATON_TRY_VOID(convert_batch(std::string_view(text).substr(0, n_whole), n_lines, parallel, convert));
      text.erase(0, n_whole);
    }
    if (text.size() > kMaxLineBytes)
      return fail(ErrorCode::too_large, fmt::format("line {}: it has more than {} bytes", n_lines + 1, kMaxLineBytes));
    n_bytes += count;
    if (progress) progress->update(n_bytes / 1'000'000);
  }
}

}  // namespace baton
