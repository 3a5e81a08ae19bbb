/// The log, over spdlog: one logger on standard error, coloured on a terminal, whose lines go through a LineQueue.
#include "core/log.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include "core/attempt.h"
#include "core/line_queue.h"
#include "core/mutex.h"
#include "core/one_line.h"

namespace baton::log {
namespace {

/// How long the end of a BackgroundWriter waits for the reader of the log.
constexpr std::chrono::milliseconds kPatience{1000};

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string_view color_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return "\033[31m\033[1m";
  if (level == spdlog::level::warn) return "\033[33m\033[1m";
  return level == spdlog::level::info ? "\033[32m" : "\033[36m";
}

/// spdlog's view of standard error: time, level and text of a message become a line of the queue.
class QueueSink final : public spdlog::sinks::sink {
 public:
  LineQueue& queue() { return *queue_; }

  void log(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    {
      const MutexLock lock(mutex_);
      formatter_->format(message, text);
    }
    const std::string_view line(text.data(), text.size());
    const std::size_t begin = message.color_range_start;
    const std::size_t end = message.color_range_end;
    if (!has_colors_ || end <= begin) return queue_->write(line);
    std::string colored(line.substr(0, begin));
    colored.append(color_of(message.level)).append(line.substr(begin, end - begin)).append("\033[m").append(line.substr(end));
    queue_->write(colored);
  }
  void flush() override {}
  void set_pattern(const std::string& pattern) override { set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern)); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    const MutexLock lock(mutex_);
    formatter_ = std::move(formatter);
  }

 private:
  const std::shared_ptr<LineQueue> queue_ = std::make_shared<LineQueue>(STDERR_FILENO);  // also its thread's
  const bool has_colors_ = ::isatty(STDERR_FILENO) == 1;
  Mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ BATON_GUARDED_BY(mutex_) = std::make_unique<spdlog::pattern_formatter>();
};

LineQueue& queue();

/// The only logger. spdlog owns it, so every part of the program finds the same one, modules included.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::get("baton");
    if (!made) {
      made = std::make_shared<spdlog::logger>("baton", std::make_shared<QueueSink>());
      made->set_error_handler([](const std::string&) { queue().count_dropped(); });
      spdlog::register_logger(made);
    }
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *instance;
}

LineQueue& queue() { return static_cast<QueueSink&>(*logger().sinks().front()).queue(); }

/// Calls `write`, which writes a line. Without memory for it the line is dropped.
template <class Write>
void write_or_drop(Write write) {
  if (!attempt(write)) queue().count_dropped();
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

void write(Level level, fmt::string_view format, fmt::format_args arguments) {
  write_or_drop([&] { logger().log(spdlog_level(level), one_line(fmt::vformat(format, arguments), kMaxMessageBytes)); });
}

void print(std::string_view text) {
  write_or_drop([&] { queue().write(text); });
}

void fatal(std::string_view sentence) {
  error("{}", sentence);
  queue().flush(kPatience);
  std::_Exit(1);
}

std::int64_t n_dropped() { return queue().n_dropped(); }

BackgroundWriter::BackgroundWriter() {
  queue().begin([](std::int64_t n_lines) { warning("event=log_lines_dropped lines={}", n_lines); });
}

BackgroundWriter::~BackgroundWriter() { queue().end(kPatience); }

}  // namespace baton::log
