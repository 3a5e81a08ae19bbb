/// The sockets and threads of published KV events.
#include "server/observe/kv_event_publisher.h"

#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <zmq.hpp>

#include "core/check.h"
#include "core/limits/thread_body.h"
#include "core/log.h"

namespace baton {
namespace {

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

}  // namespace

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
