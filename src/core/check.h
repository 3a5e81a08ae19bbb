/// Checks of invariants. A failed check is a bug of Baton: it prints one line and aborts, in every build.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <string_view>

namespace baton {

/// Prints `message` with its place in the source and aborts.
[[noreturn]] inline void check_failed(std::string_view message, std::source_location where = std::source_location::current()) {
  std::fprintf(stderr, "baton: check failed: %.*s (%s:%u, %s)\n", static_cast<int>(message.size()), message.data(),
               where.file_name(), static_cast<unsigned>(where.line()), where.function_name());
  std::fflush(stderr);
  std::abort();
}

/// Aborts with `message` unless `holds`.
constexpr void check(bool holds, std::string_view message, std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    check_failed(message, where);
}

/// The same for a message that is expensive to make: `make_message()` runs only if the check fails.
template <class MakeMessage>
  requires requires(MakeMessage make) { std::string(make()); }
constexpr void check(bool holds, MakeMessage make_message, std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    check_failed(std::string(make_message()), where);
}

}  // namespace baton
