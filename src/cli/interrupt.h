/// Ctrl-C in a program that first ends what it is doing.
#pragma once

namespace baton {

/// From now on SIGINT is noted and does not end the program.
void watch_interrupts();

/// Whether SIGINT came since watch_interrupts or the last clear_interrupt.
bool was_interrupted();

void clear_interrupt();

}  // namespace baton
