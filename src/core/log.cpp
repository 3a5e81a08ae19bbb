/// The log, over spdlog: one synchronous logger on standard error, coloured on a terminal.
#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "core/one_line.h"

namespace baton::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// The only logger. spdlog owns it, so every part of the program finds the same one, modules included.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::get("baton");
    if (!made) made = spdlog::stderr_color_mt("baton");
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(spdlog_level(level)); }

Result<Level> level_from_name(std::string_view name) {
  if (name == "debug") return Level::debug;
  if (name == "info") return Level::info;
  if (name == "warning" || name == "warn") return Level::warning;
  if (name == "error") return Level::error;
  return fail(ErrorCode::invalid_request, fmt::format("unknown log level '{}'; known are debug, info, warning, error", name));
}

bool is_enabled(Level level) { return logger().should_log(spdlog_level(level)); }

void write(Level level, std::string_view line) { logger().log(spdlog_level(level), one_line(line, kMaxMessageBytes)); }

}  // namespace baton::log
