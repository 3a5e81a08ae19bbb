/// Tests that draw more cases in `make test-long` than in `make test`.
#pragma once

#include <cstdlib>

namespace baton::testing {

/// Whether BATON_TEST_LONG is set. ctest runs each file that asks twice: the second time, labelled `long`, with the variable
/// (tests/CMakeLists.txt).
inline bool is_long_run() {
  static const bool is_long = std::getenv("BATON_TEST_LONG") != nullptr;
  return is_long;
}

}  // namespace baton::testing
