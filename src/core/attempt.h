/// Work that memory may not suffice for.
#pragma once

#include <new>

namespace baton {

/// Calls `act`. False: it threw std::bad_alloc, and the caller fails the job at hand. Whatever `act` changes must be whole when
/// it throws: it allocates first, and changes then.
template <class Act>
bool attempt(Act&& act) {
  try {
    act();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace baton
