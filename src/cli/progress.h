/// Progress on standard error: a line that is redrawn on a terminal, a line every few seconds without one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "io/hub.h"

namespace baton {

/// Shows downloads: on a terminal a bar of the file with rate and remaining time, otherwise a line every few seconds.
HubProgress download_bar();

class Progress {
 public:
  /// `unit` names what is counted: "answers".
  Progress(std::string title, std::string unit, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done);
  /// Ends the line. Idempotent.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line() const;

  std::string title_;
  std::string unit_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool is_terminal_;
  bool is_open_ = true;
  Clock::time_point begin_;
  Clock::time_point shown_;
};

}  // namespace baton
