/// The last line of a thread that finds no memory.
#include "core/limits/thread_body.h"

#include <array>

#include <fmt/format.h>

#include "core/log.h"

namespace baton {

void end_without_memory(std::string_view thread) {
  std::array<char, 128> line{};  // there is no memory for a string
  const auto end = fmt::format_to_n(line.begin(), line.size(),
                                    "event=thread_out_of_memory thread={} effect=\"the program ends\"", thread.substr(0, 32));
  log::fatal({line.data(), end.size});
}

}  // namespace baton
