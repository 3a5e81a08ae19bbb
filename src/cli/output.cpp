/// Standard output, whose own error flag remembers that a write failed.
#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/log.h"
#include "core/one_line.h"

namespace baton {
namespace {

void report_failure() { print_note("baton: cannot write to standard output: {}\n", std::strerror(errno)); }

}  // namespace

void write_output(std::string_view text) {
  if (std::ferror(stdout) != 0) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) report_failure();
}

void write_note(std::string_view text) { log::print(text); }

void print_error(std::string_view program, const Error& error) {
  print_note("{}: {}\n", program, one_line(error.message, kMaxMessageBytes));
}

int exit_code(std::string_view program, const Result<void>& done) {
  if (!done) print_error(program, done.error());
  return done ? 0 : 1;
}

bool flush_output() {
  if (std::ferror(stdout) != 0) return false;
  if (std::fflush(stdout) == 0) return true;
  report_failure();
  return false;
}

}  // namespace baton
