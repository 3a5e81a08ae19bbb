/// Ctrl-C in a program that first ends what it is doing.
#pragma once

namespace baton {

/// From now on SIGINT is noted and does not end the program.
void watch_interrupts();

/// The same for SIGTERM and SIGHUP, in a program that must remove what it began.
void watch_terminations();

/// Whether such a signal came since the last clear_interrupt.
bool was_interrupted();

void clear_interrupt();

}  // namespace baton
