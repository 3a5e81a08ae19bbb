/// What the threads of the program have in common: a name, memory kept for them, and an end that the log explains.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/attempt.h"
#include "core/limits/memory_reserve.h"
#include "core/thread_name.h"

namespace baton {

/// Ends the program because a thread found no memory for what must not be lost.
[[noreturn]] void end_without_memory(std::string_view thread);

/// What a thread runs: `body(reserve, arguments...)` under the name, with a reserve of memory of its own. The caller allocates all
/// of it, so that a thread that begins while memory is short needs none before its `body`. The body calls `reserve.restore()`
/// from time to time. If it throws std::bad_alloc, the program ends with a line in the log, which std::terminate does not write.
template <class Body>
auto thread_body(std::string_view name, std::size_t reserve_bytes, Body body) {
  return [name = std::string(name), reserve = std::make_unique<MemoryReserve>(reserve_bytes),
          body = std::move(body)](auto&&... arguments) mutable {
    name_this_thread(name);
    const MemoryReserve::User user(*reserve);
    if (!attempt([&] { body(*reserve, std::forward<decltype(arguments)>(arguments)...); })) end_without_memory(name);
  };
}

}  // namespace baton
