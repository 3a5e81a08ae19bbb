/// A flag that the handler of SIGINT sets.
#include "cli/interrupt.h"

#include <csignal>

namespace baton {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

void watch_interrupts() {
  std::signal(SIGINT, [](int) { interrupted = 1; });
}

bool was_interrupted() { return interrupted != 0; }

void clear_interrupt() { interrupted = 0; }

}  // namespace baton
