/// The program's log: one line per event, `key=value`, on standard error. Library code never prints elsewhere.
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "core/result.h"

namespace baton::log {

enum class Level { debug, info, warning, error };

/// The level below which lines are dropped; info at start. Thread: any.
void set_level(Level level);
/// "debug", "info", "warning" (or "warn") and "error".
Result<Level> level_from_name(std::string_view name);
/// Writes one line. A line for which there is no memory is dropped.
void write(Level level, fmt::string_view format, fmt::format_args arguments);
bool is_enabled(Level level);

/// Writes text that ends with a line feed as it is, after all earlier lines.
void print(std::string_view text);

/// Logs an error, waits at most a second for the reader, and ends the program with exit code 1, without destructors:
/// for a program that cannot continue.
[[noreturn]] void fatal(std::string_view sentence);

/// How many lines could not be written: their reader was too slow for the queue, or is gone, or memory was short.
std::int64_t n_dropped();

/// While it lives, a thread writes the lines. A thread that logs waits for no reader: beyond 1 MB of lines that wait,
/// new ones are dropped. When lines come through again, one of them says how many were dropped. A reader that is gone
/// does not end the program. The destructor waits at most a second for the reader of what is left. One at a time.
class BackgroundWriter {
 public:
  BackgroundWriter();
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;
};

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::debug)) write(Level::debug, format, fmt::make_format_args(args...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::info)) write(Level::info, format, fmt::make_format_args(args...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::warning)) write(Level::warning, format, fmt::make_format_args(args...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::error)) write(Level::error, format, fmt::make_format_args(args...));
}

}  // namespace baton::log
