/// Progress on standard error.
#include "apps/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace baton {

void show_download(std::string_view file, std::uint64_t received, std::uint64_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\033[K{}  {:.1f} of {:.1f} MB", file, static_cast<double>(received) / 1e6,
             static_cast<double>(total) / 1e6);
  if (received == total && total > 0) fmt::print(stderr, "\n");
  std::fflush(stderr);
}

Progress::Progress(std::string title, std::string unit, std::int64_t total)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      is_terminal_(isatty(STDERR_FILENO) != 0),
      begin_(Clock::now()),
      shown_(begin_) {}

Progress::~Progress() { finish(); }

std::string Progress::line() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  const std::string left = rate > 0 ? fmt::format(", {:.0f} s left", static_cast<double>(total_ - done_) / rate) : "";
  return fmt::format("{} {} of {} {}, {:.1f} a second{}", title_, done_, total_, unit_, rate,
                     done_ < total_ ? left : fmt::format(", {:.1f} s", seconds));
}

void Progress::update(std::int64_t done) {
  done_ = done;
  const auto now = Clock::now();
  const auto pause = is_terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (!is_open_ || now - shown_ < pause) return;
  shown_ = now;
  if (!is_terminal_) {
    fmt::print(stderr, "{}\n", line());
    return;
  }
  constexpr std::int64_t kWidth = 24;
  const std::int64_t filled = total_ > 0 ? std::min(kWidth, kWidth * done_ / total_) : kWidth;
  fmt::print(stderr, "\r\033[K[{}{}] {}", std::string(static_cast<std::size_t>(filled), '='),
             std::string(static_cast<std::size_t>(kWidth - filled), ' '), line());
  std::fflush(stderr);
}

void Progress::finish() {
  if (!is_open_) return;
  is_open_ = false;
  fmt::print(stderr, "{}{}\n", is_terminal_ ? "\r\033[K" : "", line());
}

}  // namespace baton
