/// `--kv-events-config`: whether, where and how changes of the prefix cache are published for routers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
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

}  // namespace baton
