/// Publishes changes of the prefix cache over ZeroMQ, so that routers know which server holds which prefix
/// (`--kv-events-config`): KV events as subscribers read them, and what they add up to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/cache/cache_group.h"
#include "engine/cache/kv_events.h"
#include "engine/engine.h"
#include "io/json.h"

namespace baton {

/// How an event is written: as an object with a type and without defaults, or as a list that begins with its type.
enum class KvEventEncoding : std::uint8_t { map, array };
/// How a block is named: by the 16 bytes of its hash, or by the lower 64 bits of it as an unsigned integer.
enum class KvBlockNames : std::uint8_t { integers, bytes };

struct KvEventsConfig {
  bool is_enabled = false;
  std::string endpoint = "tcp://*:5557";  ///< ZeroMQ's; with * or :: and for ipc and inproc it is bound, else connected to
  std::string replay_endpoint = {};       ///< is bound; empty: nothing is replayed
  std::size_t buffer_steps = 10'000;      ///< messages kept for replay
  int high_water_mark = 100'000;          ///< messages that wait for a slow subscriber, beyond which it misses some
  std::string topic = {};
  KvEventEncoding encoding = KvEventEncoding::map;
  KvBlockNames block_names = KvBlockNames::integers;
};

/// Reads vLLM's object {enable_kv_cache_events, publisher, endpoint, replay_endpoint, buffer_steps, hwm, topic}, and
/// Baton's keys `encoding` ("map", "array") and `block_hashes` ("int", "bytes"). Without `publisher` it is "zmq" if
/// events are enabled. Errors (invalid_request, of the field `key`): another key, a wrong type, a value out of range.
Result<KvEventsConfig> parse_kv_events_config(const json::Value& config, std::string_view key);

/// What all messages of a server have in common.
struct KvEventFormat {
  KvEventEncoding encoding = KvEventEncoding::map;
  KvBlockNames block_names = KvBlockNames::integers;
  std::int32_t block_len = 16;
  std::vector<CacheGroup> groups = {};
  std::string medium = "GPU";  ///< where the blocks are: "GPU" or "CPU"
};

/// MessagePack of a batch as vLLM publishes it: [time in seconds, [event, ...], data-parallel rank]. An event is an
/// object {type, ...} without fields that have their defaults, or a list of the type and all fields in order.
std::vector<std::uint8_t> encode_kv_events(std::span<const KvEvent> events, double time_s, const KvEventFormat& format);

/// The blocks that a cache holds after a number of events, so that a subscriber that missed some can begin again.
class KvEventMirror {
 public:
  explicit KvEventMirror(std::int32_t block_len) : block_len_(block_len) {}

  void apply(const KvEvent& event);
  /// Events that lead from nothing known to the blocks held: `cleared`, then `stored` in the order in which they were
  /// stored.
  std::vector<KvEvent> snapshot() const;
  std::size_t n_blocks() const { return blocks_.size(); }

 private:
  using Name = std::pair<std::int32_t, BlockHash>;  ///< layer group and hash
  struct NameHash {
    std::size_t operator()(const Name& name) const {
      return std::hash<BlockHash>{}(name.second) + static_cast<std::size_t>(name.first);
    }
  };
  struct Block {
    std::optional<BlockHash> parent;
    std::vector<TokenId> tokens;
    CacheScope scope;  ///< with the salt only if it applies to the block
  };

  std::int32_t block_len_;
  std::map<std::uint64_t, std::pair<Name, Block>> blocks_;  ///< by the order in which they were stored
  std::unordered_map<Name, std::uint64_t, NameHash> numbers_;
  std::uint64_t next_number_ = 0;
};

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
