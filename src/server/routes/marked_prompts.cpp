/// Prompts that clients asked to keep in the cache: they are pinned, and unpinned when their time is over.
#include <chrono>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "core/limits/insist.h"
#include "core/log.h"
#include "server/routes/routes.h"

namespace baton {

namespace {

constexpr std::size_t kMaxWaitingPins = 64;
constexpr std::string_view kNoPins =
    "event=prefixes_out_of_memory effect=\"the program ends: there is no memory to end the pins of prompts\"";

}  // namespace

/// Pins prompts that are in the cache. While many wait, the next ones are not kept.
void Routes::keep_marked(const std::vector<CachePinRequest>& asked) {
  if (!context_.engine.info().enable_prefix_caching) return;
  {
    const MutexLock lock(mutex_);
    if (n_waiting_pins_ + asked.size() > kMaxWaitingPins) return;
    n_waiting_pins_ += asked.size();
  }
  const auto end_wait = [this](std::size_t n) {
    const MutexLock lock(mutex_);
    n_waiting_pins_ -= n;
  };
  try {
    prefix_thread_.post(
        [this, asked = std::vector<CachePinRequest>(asked), end_wait] {  // not const: moving it must not copy it
          try {
            for (const CachePinRequest& one : asked) cache_pins_.keep(context_.engine, one, CachePins::Clock::now());
          } catch (const std::bad_alloc&) {
            log::warning("event=out_of_memory effect=\"a marked prompt is not kept\"");
          }
          end_wait(asked.size());
          insist(kNoPins, [this] { expire_pins(); });
        });
  } catch (const std::bad_alloc&) {
    end_wait(asked.size());
    throw;
  }
}

/// Ends pins whose time is over, and runs again when the next one's is.
void Routes::expire_pins() {
  const auto now = CachePins::Clock::now();
  const auto next = cache_pins_.remove_expired(context_.engine, now);
  if (!next) return;
  next_unpin_.expires_after(std::chrono::ceil<std::chrono::milliseconds>(*next - now));
  next_unpin_.async_wait([this](const boost::system::error_code& error) {
    if (!error) insist(kNoPins, [this] { expire_pins(); });
  });
}

}  // namespace baton
