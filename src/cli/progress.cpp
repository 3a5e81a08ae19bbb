/// Progress on standard error.
#include "cli/progress.h"
#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace baton {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kBarWidth = 24;

/// "[======          ]", filled to done / total.
std::string bar_text(double done, double total) {
  const auto filled =
      total > 0 ? std::clamp<std::int64_t>(static_cast<std::int64_t>(kBarWidth * done / total), 0, kBarWidth) : kBarWidth;
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(filled), '='),
                     std::string(static_cast<std::size_t>(kBarWidth - filled), ' '));
}

/// What is known of the download under way.
struct Downloads {
  bool is_terminal = false;
  Clock::time_point begin = {};
  Clock::time_point shown = {};
  std::uint64_t bytes_at_begin = 0;  ///< that an earlier run had left
  int number = 0;                    ///< of the file

  void update(const HubTransfer& transfer) {
    const auto now = Clock::now();
    const std::uint64_t received = transfer.done_bytes + transfer.file_received;
    if (number == 0) {
      begin = shown = now;
      bytes_at_begin = received;
    }
    const bool is_new = std::exchange(number, transfer.number) != transfer.number;
    const bool is_last = transfer.number == transfer.n_files && transfer.file_received == transfer.file_bytes;
    const auto pause = is_terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
    if (now - shown < pause && !(is_terminal && (is_new || is_last))) return;
    shown = now;
    const double seconds = std::chrono::duration<double>(now - begin).count();
    const double rate = seconds > 0 ? static_cast<double>(received - std::min(received, bytes_at_begin)) / seconds : 0;
    const double left = static_cast<double>(transfer.total_bytes - std::min(transfer.total_bytes, received));
    const std::string line =
        fmt::format("{} of {} {}  {:.1f} of {:.1f} MB, {:.1f} MB/s{}", transfer.number, transfer.n_files, transfer.file,
                    static_cast<double>(received) / 1e6, static_cast<double>(transfer.total_bytes) / 1e6, rate / 1e6,
                    rate > 0 && left > 0 ? fmt::format(", {:.0f} s left", left / rate) : "");
    if (is_terminal) {
      print_note("\r\033[K{} {}{}", bar_text(static_cast<double>(received), static_cast<double>(transfer.total_bytes)), line,
                 is_last ? "\n" : "");
    } else {
      print_note("{}\n", line);
    }
  }
};

}  // namespace

HubProgress download_bar() {
  return [downloads = Downloads{.is_terminal = isatty(STDERR_FILENO) != 0}](const HubTransfer& transfer) mutable {
    downloads.update(transfer);
  };
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
    print_note("{}\n", line());
    return;
  }
  print_note("\r\033[K{} {}", bar_text(static_cast<double>(done_), static_cast<double>(total_)), line());
}

void Progress::finish() {
  if (!is_open_) return;
  is_open_ = false;
  print_note("{}{}\n", is_terminal_ ? "\r\033[K" : "", line());
}

}  // namespace baton
