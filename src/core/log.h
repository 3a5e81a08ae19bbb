/// The program's log: one line per event, `key=value`, on standard error. Library code never prints elsewhere.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include "core/result.h"

namespace baton::log {

enum class Level { debug, info, warning, error };

/// The level below which lines are dropped; info at start. Thread: any.
void set_level(Level level);
/// "debug", "info", "warning" (or "warn") and "error".
Result<Level> level_from_name(std::string_view name);
void write(Level level, std::string_view line);
bool is_enabled(Level level);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::warning)) write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace baton::log
