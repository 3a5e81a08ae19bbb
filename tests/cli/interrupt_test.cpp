#include "cli/interrupt.h"

#include <csignal>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Interrupt, IsNotedUntilItIsCleared) {
  watch_interrupts();
  clear_interrupt();
  EXPECT_FALSE(was_interrupted());
  ASSERT_EQ(std::raise(SIGINT), 0);
  EXPECT_TRUE(was_interrupted());
  clear_interrupt();
  EXPECT_FALSE(was_interrupted());
  ASSERT_EQ(std::raise(SIGINT), 0) << "a second signal must not end the program";
  EXPECT_TRUE(was_interrupted());
}

TEST(Interrupt, TerminationsAreNotedWhereAProgramWatchesThem) {
  watch_terminations();
  for (const int signal : {SIGTERM, SIGHUP}) {
    clear_interrupt();
    ASSERT_EQ(std::raise(signal), 0);
    EXPECT_TRUE(was_interrupted()) << signal;
  }
  clear_interrupt();
}

}  // namespace
}  // namespace baton
