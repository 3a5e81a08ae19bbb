/// An engine on its own thread whose device runs only what a test lets it: what runs stays unfinished as long as the test wants.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>

#include "support/engine_device.h"
#include "support/wait_until.h"

namespace baton::testing {

/// Lets a held device run one operation after another until the condition holds.
template <std::predicate Condition>
void run_until(AsyncBackend& device, const Condition& holds) {
  wait_until([&] {
    if (holds()) return true;
    if (device.is_waited_for()) device.let_run(1);
    return false;
  });
}

/// An engine on its own thread, and its device, which is held.
struct HeldEngine {
  explicit HeldEngine(const EngineOptions& options = {}, std::int32_t n_blocks = 130) {
    engine = make_async_engine(options, n_blocks, Pace::late, tiny_spec(), &device);
    device->hold();
    engine->start();
  }
  ~HeldEngine() { device->release(); }  // the engine's destructor waits for its device
  /// Waits until the engine waits for the device.
  void wait() const {
    wait_until([this] { return device->is_waited_for(); });
  }
  /// Lets the device run until nothing is left.
  std::map<SequenceKey, Generated> finish() {
    device->release();
    std::map<SequenceKey, Generated> generated;
    wait_until([&] {
      collect(engine->wait_events(std::chrono::milliseconds(1)), generated);
      return engine->is_idle();
    });
    collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
    return generated;
  }

  std::unique_ptr<Engine> engine;
  AsyncBackend* device = nullptr;
};

}  // namespace baton::testing
