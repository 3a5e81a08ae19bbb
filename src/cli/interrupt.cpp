/// A flag that the handler of signals sets.
#include "cli/interrupt.h"

#include <csignal>

namespace baton {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note_signal(int) { interrupted = 1; }

}  // namespace

void watch_interrupts() { std::signal(SIGINT, note_signal); }

void watch_terminations() {
  std::signal(SIGTERM, note_signal);
  std::signal(SIGHUP, note_signal);
}

bool was_interrupted() { return interrupted != 0; }

void clear_interrupt() { interrupted = 0; }

}  // namespace baton
