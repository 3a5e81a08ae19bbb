/// Pauses between trials, and the end of the program.
#include "core/limits/insist.h"

#include <chrono>
#include <thread>

#include "core/log.h"

namespace baton {

void wait_for_memory(int trial, std::string_view effect) {
  constexpr int kTrials = 500;
  constexpr std::chrono::milliseconds kPause{20};
  if (trial >= kTrials) log::fatal(effect);
  if (trial > 0) std::this_thread::sleep_for(kPause);  // the first one has perhaps used up the reserve of the thread only
}

}  // namespace baton
