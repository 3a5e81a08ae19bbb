/// The keys of a configuration of KV events.
#include "server/observe/kv_events_config.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

using json::Value;

constexpr auto kEventKeys =
    std::to_array<std::string_view>({"enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "buffer_steps",
                                     "hwm", "topic", "encoding", "block_hashes"});
constexpr std::int64_t kMostMessages = 100'000'000;

/// An error of the flag `key`.
tl::unexpected<Error> event_config_error(std::string_view key, const std::string& message) {
  return fail(ErrorCode::invalid_request, fmt::format("'{}': {}", key, message), std::string(key));
}

/// Sets `to` to the field `name`, if it is there and not null.
template <class T>
Result<void> read_event_field(const Value& config, std::string_view key, std::string_view name, T& to) {
  const auto value = json::get_optional<T>(config, name);
  if (!value) return event_config_error(key, value.error().message);
  if (value->has_value()) to = **value;
  return {};
}

/// The number `name`, from `least` on.
Result<void> read_event_count(const Value& config, std::string_view key, std::string_view name, std::int64_t least,
                              std::int64_t& to) {
  BATON_TRY_VOID(read_event_field(config, key, name, to));
  if (to < least || to > kMostMessages)
    return event_config_error(key, fmt::format("'{}' must be from {} to {}", name, least, kMostMessages));
  return {};
}

/// The field `name` as one of two words.
Result<bool> is_second_word(const Value& config, std::string_view key, std::string_view name,
                            const std::array<std::string_view, 2>& words) {
  std::string word(words[0]);
  BATON_TRY_VOID(read_event_field(config, key, name, word));
  if (std::ranges::find(words, word) == words.end())
    return event_config_error(key, fmt::format("'{}' must be \"{}\" or \"{}\"", name, words[0], words[1]));
  return word == words[1];
}

}  // namespace

Result<KvEventsConfig> parse_kv_events_config(const Value& config, std::string_view key) {
  if (!config.is_object()) return json::wrong_type(key, "an object", config);
  for (const auto& [name, value] : config.get_ref<const Value::object_t&>())
    if (std::ranges::find(kEventKeys, name) == kEventKeys.end())
      return event_config_error(
          key, fmt::format("'{}' is not known to this server; it reads {}", name.substr(0, 64), fmt::join(kEventKeys, ", ")));
  KvEventsConfig read;
  std::int64_t buffer_steps = static_cast<std::int64_t>(read.buffer_steps);
  std::int64_t high_water_mark = read.high_water_mark;
  BATON_TRY_VOID(read_event_field(config, key, "enable_kv_cache_events", read.is_enabled));
  BATON_TRY_VOID(read_event_field(config, key, "endpoint", read.endpoint));
  BATON_TRY_VOID(read_event_field(config, key, "replay_endpoint", read.replay_endpoint));
  BATON_TRY_VOID(read_event_field(config, key, "topic", read.topic));
  BATON_TRY_VOID(read_event_count(config, key, "buffer_steps", 1, buffer_steps));
  BATON_TRY_VOID(read_event_count(config, key, "hwm", 0, high_water_mark));
  BATON_TRY(const bool is_array, is_second_word(config, key, "encoding", {"map", "array"}));
  BATON_TRY(const bool is_bytes, is_second_word(config, key, "block_hashes", {"int", "bytes"}));
  // vLLM's `publisher`: with "null" nothing is published, whatever else is set.
  BATON_TRY(const bool is_silent, is_second_word(config, key, "publisher", {"zmq", "null"}));
  if (read.endpoint.empty()) return event_config_error(key, "'endpoint' is empty");
  read.is_enabled = read.is_enabled && !is_silent;
  read.buffer_steps = static_cast<std::size_t>(buffer_steps);
  read.high_water_mark = static_cast<int>(high_water_mark);
  read.encoding = is_array ? KvEventEncoding::array : KvEventEncoding::map;
  read.block_names = is_bytes ? KvBlockNames::bytes : KvBlockNames::integers;
  return read;
}

}  // namespace baton
