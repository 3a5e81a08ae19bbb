/// The sockets and threads of published KV events.
#include "server/observe/kv_event_publisher.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zmq.hpp>

#include "core/check.h"
#include "core/limits/thread_body.h"
#include "core/log.h"

namespace baton {
namespace {

using json::Value;

constexpr std::chrono::milliseconds kLook{100};  ///< how often the threads see that they are to stop
constexpr std::int64_t kEndOfReplay = -1;
/// Of a part of a message to this server, beside the topic: subscriptions, and requests for a replay. libzmq disconnects a
/// peer that sends more, before it takes memory for it.
constexpr std::size_t kMostReceivedBytes = 4096;
/// Parts of a request for a replay: the peer's address, an empty part, a number.
constexpr std::size_t kRequestParts = 3;
/// How long closing waits for subscribers that have not read the last messages.
constexpr int kLingerMs = 500;
/// Of each thread, for messages while memory is short.
constexpr std::size_t kKvEventsReserveBytes = std::size_t{1} << 20;

std::array<std::uint8_t, 8> big_endian(std::int64_t number) {
  std::array<std::uint8_t, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(number) >> (56 - 8 * i));
  return bytes;
}

std::int64_t from_big_endian(const zmq::message_t& message) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number = number << 8 | static_cast<const std::uint8_t*>(message.data())[i];
  return static_cast<std::int64_t>(number);
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// An endpoint that names no other host is this server's own.
bool is_to_be_bound(std::string_view endpoint) {
  return endpoint.find('*') != std::string_view::npos || endpoint.find("::") != std::string_view::npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
}

Value name_of(const BlockHash& hash, KvBlockNames names) {
  if (names == KvBlockNames::integers) return hash.low;
  std::vector<std::uint8_t> bytes;
  for (const std::uint64_t half : {hash.high, hash.low})
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(half >> shift));
  return Value::binary(std::move(bytes));
}

Value text_or_null(const std::string& text) { return text.empty() ? Value() : Value(text); }

/// A field of an event: its name, its value, and whether an object leaves it out.
struct EventField {
  const char* name;
  Value value;
  bool is_default = false;
};

/// The fields that a stored block has, in the order of a list.
std::vector<EventField> stored_fields(const KvEvent& event, const Value& hashes, const KvEventFormat& format) {
  const CacheGroup& group = format.groups.at(static_cast<std::size_t>(event.group));
  Value extra_keys;  // for each block the keys that its hash has beside the tokens, or null
  if (!event.salt.empty()) extra_keys = Value::array_t(event.hashes.size(), Value::array({event.salt}));
  return {{"block_hashes", hashes},
          {"parent_block_hash", event.parent ? name_of(*event.parent, format.block_names) : Value()},
          {"token_ids", event.tokens},
          {"block_size", format.block_len},
          {"lora_id", Value(), true},
          {"medium", format.medium},
          {"lora_name", text_or_null(event.adapter), event.adapter.empty()},
          {"extra_keys", extra_keys, event.salt.empty()},
          {"group_idx", event.group},
          {"kv_cache_spec_kind", group.has_window() ? "sliding_window" : "full_attention"},
          {"kv_cache_spec_sliding_window", group.has_window() ? Value(group.window) : Value(), !group.has_window()}};
}

Value event_value(const KvEvent& event, const KvEventFormat& format) {
  Value hashes = Value::array();
  for (const BlockHash& hash : event.hashes) hashes.push_back(name_of(hash, format.block_names));
  const char* type = "AllBlocksCleared";
  std::vector<EventField> fields;
  if (event.kind == KvEvent::Kind::stored) {
    type = "BlockStored";
    fields = stored_fields(event, hashes, format);
  } else if (event.kind == KvEvent::Kind::removed) {
    type = "BlockRemoved";
    fields = {{"block_hashes", hashes}, {"medium", format.medium}, {"group_idx", event.group}};
  }
  if (format.encoding == KvEventEncoding::array) {
    Value list = Value::array({type});
    for (EventField& field : fields) list.push_back(std::move(field.value));
    return list;
  }
  Value object = {{"type", type}};
  for (EventField& field : fields)
    if (!field.is_default) object[field.name] = std::move(field.value);
  return object;
}

constexpr auto kEventKeys =
    std::to_array<std::string_view>({"enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "buffer_steps",
                                     "hwm", "topic", "encoding", "block_hashes"});
constexpr std::int64_t kMostMessages = 100'000'000;
constexpr std::uint32_t kMostPort = 65535;

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

/// Refuses a port beyond 65535, of which ZeroMQ would take the lower 16 bits.
Result<void> check_tcp_port(std::string_view key, std::string_view name, const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://", kDigits = "0123456789";
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon < kTcp.size()) return {};
  const std::string_view port = std::string_view(endpoint).substr(colon + 1);
  std::uint32_t number = 0;
  if (port.find_first_not_of(kDigits) != port.npos) return {};
  if (std::from_chars(port.data(), port.data() + port.size(), number).ec == std::errc() && number <= kMostPort) return {};
  return event_config_error(key, fmt::format("'{}' must have a port from 0 to {}, and is {}", name, kMostPort, endpoint));
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
  BATON_TRY_VOID(check_tcp_port(key, "endpoint", read.endpoint));
  BATON_TRY_VOID(check_tcp_port(key, "replay_endpoint", read.replay_endpoint));
  read.is_enabled = read.is_enabled && !is_silent;
  read.buffer_steps = static_cast<std::size_t>(buffer_steps);
  read.high_water_mark = static_cast<int>(high_water_mark);
  read.encoding = is_array ? KvEventEncoding::array : KvEventEncoding::map;
  read.block_names = is_bytes ? KvBlockNames::bytes : KvBlockNames::integers;
  return read;
}

std::vector<std::uint8_t> encode_kv_events(std::span<const KvEvent> events, double time_s, const KvEventFormat& format) {
  Value list = Value::array();
  for (const KvEvent& event : events) list.push_back(event_value(event, format));
  return Value::to_msgpack(Value::array({time_s, std::move(list), 0}));
}

void KvEventMirror::apply(const KvEvent& event) {
  switch (event.kind) {
    case KvEvent::Kind::cleared:
      blocks_.clear();
      numbers_.clear();
      return;
    case KvEvent::Kind::removed:
      for (const BlockHash& hash : event.hashes) {
        const auto at = numbers_.find({event.group, hash});
        if (at == numbers_.end()) continue;
        blocks_.erase(at->second);
        numbers_.erase(at);
      }
      return;
    case KvEvent::Kind::stored: break;
  }
  std::optional<BlockHash> parent = event.parent;
  const auto len = static_cast<std::size_t>(block_len_);
  for (std::size_t i = 0; i < event.hashes.size(); ++i) {
    const Name name{event.group, event.hashes[i]};
    const auto tokens = std::span(event.tokens).subspan(i * len, len);
    if (numbers_.emplace(name, next_number_).second)
      blocks_.emplace(next_number_++,
                      std::pair(name, Block{parent, {tokens.begin(), tokens.end()}, {event.adapter, event.salt}}));
    parent = event.hashes[i];
  }
}

std::vector<KvEvent> KvEventMirror::snapshot() const {
  KvEventRecorder recorder;
  for (const auto& [number, named] : blocks_) {
    const auto& [name, block] = named;
    recorder.stored(name.first, name.second, block.parent, block.tokens, &block.scope, !block.scope.salt.empty());
  }
  std::vector<KvEvent> events = recorder.take();
  events.insert(events.begin(), KvEvent{KvEvent::Kind::cleared});
  return events;
}

struct KvEventPublisher::Sockets {
  zmq::context_t context{1};
  zmq::socket_t publishing;
  zmq::socket_t replaying;  ///< empty without a replay endpoint
};

KvEventPublisher::KvEventPublisher(const KvEventsConfig& config) : config_(config), sockets_(std::make_unique<Sockets>()) {}
KvEventPublisher::~KvEventPublisher() { stop(); }

Result<void> KvEventPublisher::open() {
  std::string_view opened = config_.endpoint;
  try {
    const auto most_received = static_cast<std::int64_t>(kMostReceivedBytes + config_.topic.size());
    sockets_->publishing = zmq::socket_t(sockets_->context, zmq::socket_type::pub);
    sockets_->publishing.set(zmq::sockopt::sndhwm, config_.high_water_mark);
    sockets_->publishing.set(zmq::sockopt::linger, kLingerMs);
    sockets_->publishing.set(zmq::sockopt::maxmsgsize, most_received);
    if (is_to_be_bound(config_.endpoint)) {
      sockets_->publishing.bind(config_.endpoint);
    } else {
      sockets_->publishing.connect(config_.endpoint);
    }
    if (config_.replay_endpoint.empty()) return {};
    opened = config_.replay_endpoint;
    sockets_->replaying = zmq::socket_t(sockets_->context, zmq::socket_type::router);
    sockets_->replaying.set(zmq::sockopt::linger, kLingerMs);
    sockets_->replaying.set(zmq::sockopt::maxmsgsize, most_received);
    sockets_->replaying.bind(config_.replay_endpoint);
  } catch (const zmq::error_t& error) {
    return fail(error.num() == EINVAL || error.num() == EPROTONOSUPPORT ? ErrorCode::invalid_request : ErrorCode::unavailable,
                fmt::format("--kv-events-config: the endpoint {} cannot be opened: {}", opened, error.what()),
                "kv_events_config");
  }
  return {};
}

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::bind(const KvEventsConfig& config) {
  std::unique_ptr<KvEventPublisher> publisher(new KvEventPublisher(config));
  BATON_TRY_VOID(publisher->open());
  return publisher;
}

void KvEventPublisher::start(Engine& engine) {
  check(!format_, "a KvEventPublisher is started once");
  const EngineInfo info = engine.info();
  format_ = KvEventFormat{config_.encoding, config_.block_names, info.block_len, info.cache_groups,
                          info.backend.name == "cpu" ? "CPU" : "GPU"};
  {
    const MutexLock lock(mutex_);
    mirror_.emplace(info.block_len);
  }
  publishes_ = std::jthread(
      thread_body("kv-events", kKvEventsReserveBytes,
                  [this, &engine](MemoryReserve& reserve, const std::stop_token& stop) { run(engine, reserve, stop); }));
  if (config_.replay_endpoint.empty()) return;
  replays_ = std::jthread(thread_body("kv-replay", kKvEventsReserveBytes,
                                      [this](MemoryReserve& reserve, const std::stop_token& stop) { replay(reserve, stop); }));
}

void KvEventPublisher::stop() {
  for (std::jthread* thread : {&publishes_, &replays_}) {
    if (!thread->joinable()) continue;
    thread->request_stop();
    thread->join();
  }
  sockets_.reset();
}

void KvEventPublisher::run(Engine& engine, MemoryReserve& reserve, const std::stop_token& stop) {
  try {
    const KvEvent begin{KvEvent::Kind::cleared};
    publish(std::span(&begin, 1));
    bool is_last = false;
    while (!is_last) {
      reserve.restore();
      is_last = stop.stop_requested();
      const std::vector<KvEvent> events = engine.wait_kv_events(is_last ? std::chrono::milliseconds(0) : kLook);
      if (!events.empty()) publish(events);
    }
  } catch (const std::exception& error) {  // of ZeroMQ, or there is no memory: a subscriber would miss what was lost
    log::error("event=kv_events_ended reason=\"{}\"", error.what());
  }
}

void KvEventPublisher::publish(std::span<const KvEvent> events) {
  Message message{0, encode_kv_events(events, seconds_since_epoch(), *format_)};
  const MutexLock lock(mutex_);
  message.number = n_published_++;
  const auto number = big_endian(message.number);
  zmq::socket_t& to = sockets_->publishing;
  // A publishing socket never waits: what a subscriber has no room for is lost to it.
  to.send(zmq::buffer(config_.topic), zmq::send_flags::sndmore);
  to.send(zmq::buffer(number), zmq::send_flags::sndmore);
  to.send(zmq::buffer(message.payload), zmq::send_flags::none);
  if (config_.replay_endpoint.empty()) return;
  for (const KvEvent& event : events) mirror_->apply(event);
  kept_.push_back(std::move(message));
  if (kept_.size() > config_.buffer_steps) kept_.pop_front();
}

/// The kept messages from `number` on, or all that the cache holds if some of them are not kept.
std::vector<KvEventPublisher::Message> KvEventPublisher::messages_from(std::int64_t number) const {
  const MutexLock lock(mutex_);
  if (number > n_published_ || kept_.empty() || number < kept_.front().number)
    return {{n_published_ - 1, encode_kv_events(mirror_->snapshot(), seconds_since_epoch(), *format_)}};
  const auto n_skipped = static_cast<std::ptrdiff_t>(number - kept_.front().number);
  return {kept_.begin() + n_skipped, kept_.end()};
}

void KvEventPublisher::replay(MemoryReserve& reserve, const std::stop_token& stop) {
  zmq::socket_t& socket = sockets_->replaying;
  const auto answer = [&](zmq::message_t& client, std::int64_t number, std::span<const std::uint8_t> payload) {
    zmq::message_t address;
    address.copy(client);
    socket.send(address, zmq::send_flags::sndmore);
    socket.send(zmq::message_t(), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(big_endian(number)), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(payload.data(), payload.size()), zmq::send_flags::none);
  };
  while (!stop.stop_requested()) {
    reserve.restore();
    try {
      zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
      if (zmq::poll(&item, 1, kLook) == 0) continue;
      std::array<zmq::message_t, kRequestParts> parts;
      std::size_t n_parts = 0;
      bool has_more = true;
      for (zmq::message_t beyond; has_more; ++n_parts) {
        zmq::message_t& part = n_parts < parts.size() ? parts[n_parts] : beyond;
        if (!socket.recv(part, zmq::recv_flags::none)) break;
        has_more = part.more();
      }
      if (n_parts != parts.size() || parts[2].size() != 8) {
        log::warning("event=kv_replay_refused reason=\"a request is an empty part and a number of 8 bytes\"");
        continue;
      }
      for (const Message& message : messages_from(from_big_endian(parts[2]))) answer(parts[0], message.number, message.payload);
      answer(parts[0], kEndOfReplay, {});
    } catch (const std::exception& error) {
      log::warning("event=kv_replay_failed reason=\"{}\"", error.what());
    }
  }
}

}  // namespace baton
