/// Results on standard output, where a write that fails (a full disk) must not look like success, and notes on standard
/// error.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/result.h"

namespace baton {

/// Writes `text` to standard output. The first write that fails is reported on standard error; later ones do nothing.
/// Thread: one at a time.
void write_output(std::string_view text);

/// Writes what is buffered. False if that or any write before it failed: the program must then end with exit code 1.
bool flush_output();

template <class... Args>
void print_output(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

/// Writes `text` to standard error, after the lines of the log. A failure changes nothing: a user who closed standard
/// error or filled its disk still gets the results and the exit code.
void write_note(std::string_view text);

template <class... Args>
void print_note(fmt::format_string<Args...> format, Args&&... args) {
  write_note(fmt::format(format, std::forward<Args>(args)...));
}

/// Prints "PROGRAM: MESSAGE" on standard error, as one line: messages quote names and texts from files of strangers.
void print_error(std::string_view program, const Error& error);
/// The exit code of a program that has ended like this: 0, or 1 once the error is printed.
int exit_code(std::string_view program, const Result<void>& done);

}  // namespace baton
