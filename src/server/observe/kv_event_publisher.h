/// Publishes changes of the prefix cache over ZeroMQ, so that routers know which server holds which prefix.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/observe/kv_event_batch.h"
#include "server/observe/kv_events_config.h"

namespace baton {

/// Sends [topic, number, payload] for each step that changed the cache. The number is 8 bytes, big-endian, and counts
/// from 0; the payload is encode_kv_events. The first message says that the cache is empty, because a server's blocks
/// end with it. A subscriber that reads too slowly misses messages and sees it by the numbers.
///
/// Replay: a client sends [empty, number] to the replay endpoint and gets [empty, number, payload] for every message
/// from that number on, then [empty, -1, empty]. If messages from there on are no longer kept, or a former server sent
/// them, the first answer instead tells of everything that the cache holds; it has the number of the message after
/// which that is true.
///
/// Thread: the owner's. Two threads of its own send and replay, and wait for no client.
class KvEventPublisher {
 public:
  /// Binds the endpoints. Errors: unavailable or invalid_request, of the field kv_events_config: the endpoint's name
  /// and ZeroMQ's reason.
  static Result<std::unique_ptr<KvEventPublisher>> bind(const KvEventsConfig& config);
  /// Stops.
  ~KvEventPublisher();

  /// Begins to take and publish the engine's KV events. The engine must live until stop.
  void start(Engine& engine);
  /// Publishes what the engine has done so far, and closes the endpoints. Idempotent.
  void stop();

 private:
  struct Sockets;
  struct Message {
    std::int64_t number = 0;
    std::vector<std::uint8_t> payload;
  };
  explicit KvEventPublisher(const KvEventsConfig& config);
  Result<void> open();
  void publish(std::span<const KvEvent> events);
  void run(Engine& engine, MemoryReserve& reserve, const std::stop_token& stop);
  void replay(MemoryReserve& reserve, const std::stop_token& stop);
  std::vector<Message> messages_from(std::int64_t number) const;

  const KvEventsConfig config_;
  std::unique_ptr<Sockets> sockets_;
  std::optional<KvEventFormat> format_;  ///< from start on

  mutable Mutex mutex_;
  std::optional<KvEventMirror> mirror_ BATON_GUARDED_BY(mutex_);
  std::deque<Message> kept_ BATON_GUARDED_BY(mutex_);
  std::int64_t n_published_ BATON_GUARDED_BY(mutex_) = 0;

  std::jthread publishes_;
  std::jthread replays_;
};

}  // namespace baton
