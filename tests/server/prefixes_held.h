/// Holds up threads of a server at a place where a test wants them.
#pragma once

#include <future>
#include <thread>
#include <utility>

#include "server/prefixes/prefixes.h"

namespace baton {

/// While it lives, each thread waits that asks for the registered prefixes, of which there must be one.
class PrefixesHeld {
 public:
  explicit PrefixesHeld(const Prefixes& prefixes) {
    std::promise<void> begun;
    holder_ = std::thread([&, may_go_on = goes_on_.get_future().share()] {
      bool is_first = true;
      prefixes.for_each([&](const Prefixes::Entry&) {
        if (std::exchange(is_first, false)) begun.set_value();
        may_go_on.wait();
      });
    });
    begun.get_future().wait();
  }
  ~PrefixesHeld() {
    goes_on_.set_value();
    holder_.join();
  }
  PrefixesHeld(const PrefixesHeld&) = delete;
  PrefixesHeld& operator=(const PrefixesHeld&) = delete;

 private:
  std::promise<void> goes_on_;
  std::thread holder_;
};

}  // namespace baton
