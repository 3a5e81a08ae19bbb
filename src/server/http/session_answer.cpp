/// The answer of a connection: its head and body, what waits to be written, and what follows it.
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/log.h"
#include "server/http/server.h"
#include "server/http/session.h"

namespace baton {
namespace {

constexpr std::size_t kBuffersPerWrite = 16;
constexpr std::size_t kFewBytes = 64 * 1024;  // with fewer unsent bytes the next piece of a large answer is made

}  // namespace

void HttpSession::queue(std::string bytes) {
  if (bytes.empty() || state_ == State::closed) return;
  if (!unsent_share_.grow(static_cast<std::int64_t>(bytes.size()))) {
    log::warning("event=answer_dropped reason=\"{} bytes of answers wait for their clients\"", budgets_.unsent.used());
    return close();
  }
  unsent_bytes_ += bytes.size();
  unsent_.push_back(std::move(bytes));
}

void HttpSession::write() {
  work([this] { begin_write(); });
}

void HttpSession::begin_write() {
  if (is_writing_ || unsent_.empty() || state_ == State::closed) return;
  write_deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(limits_.write_timeout_ms);
  std::vector<boost::asio::const_buffer> buffers;
  for (const std::string& bytes : unsent_) {
    buffers.emplace_back(bytes.data(), bytes.size());
    if (buffers.size() == kBuffersPerWrite) break;
  }
  buffers.front() += sent_bytes_;
  const auto write_to = [&](auto& stream) {
    stream.async_write_some(buffers, [this](boost::system::error_code error, std::size_t n) {
      is_writing_ = false;
      end_operation([&] { on_write(error, n); });
    });
  };
  std::visit(write_to, stream_);
  ++n_operations_;
  is_writing_ = true;
}

void HttpSession::on_write(boost::system::error_code error, std::size_t n_bytes) {
  if (state_ == State::closed) return;
  if (error) return close();
  unsent_bytes_ -= n_bytes;
  unsent_share_.shrink(static_cast<std::int64_t>(n_bytes));
  sent_bytes_ += n_bytes;
  while (!unsent_.empty() && sent_bytes_ >= unsent_.front().size()) {
    sent_bytes_ -= unsent_.front().size();
    unsent_.pop_front();
  }
  if (sender_ == Sender::waits && unsent_bytes_ <= kFewBytes) {
    sender_ = Sender::goes_on;
    server_.tell_writable(exchange_);
  }
  if (!unsent_.empty()) return begin_write();
  if (state_ == State::flushing) on_flushed();
}

void HttpSession::on_flushed() {
  if (afterwards_ == Afterwards::next_request && !server_.is_closing()) return begin_request(limits_.idle_timeout_ms);
  linger();
}

/// After the last answer. The rest of the request is still read for a while: closing a connection with unread bytes
/// would reset it, and the client would never see the answer.
void HttpSession::linger() {
  state_ = State::lingering;
  set_deadline(limits_.linger_timeout_ms);
  lingers_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(limits_.max_linger_ms);
  // TLS has no end of one side only, so it ends when the request is here.
  boost::system::error_code ignored;
  if (!std::holds_alternative<TlsStream>(stream_)) socket().shutdown(HttpSocket::shutdown_send, ignored);
  if (n_to_drop_ == 0) return wait_for_end();
  server_.room().set_phase(id_, ConnectionPhase::arriving);
  read();
}

/// Waits for the client to close. All of the last request is here, so that closing the connection costs the client
/// nothing.
void HttpSession::wait_for_end() {
  server_.room().set_phase(id_, ConnectionPhase::finished);
  auto* tls = std::get_if<TlsStream>(&stream_);
  if (tls == nullptr) return read();
  tls->async_shutdown([this](boost::system::error_code) { end_operation([&] { close(); }); });
  ++n_operations_;
}

void HttpSession::send_head(const HttpResponse& response, bool is_stream) {
  const bool is_old = version_ == Version::http_1_0;
  due_ = Due::body;
  HttpHeaders framing = {{"Date", fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)))}};
  if (server_.is_closing() || (is_stream && is_old)) afterwards_ = Afterwards::end;
  if (is_stream && !is_old) {
    framing.emplace_back("Transfer-Encoding", "chunked");
    if (body_ != Body::none) body_ = Body::chunked;
  }
  if (!is_stream && response.status != 204) framing.emplace_back("Content-Length", std::to_string(response.body.size()));
  if (afterwards_ == Afterwards::end) framing.emplace_back("Connection", "close");
  if (afterwards_ == Afterwards::next_request && is_old) framing.emplace_back("Connection", "keep-alive");
  queue(serialize_head(response, framing));
}

void HttpSession::finish_answer() {
  if (exchange_.is_valid()) server_.end_exchange(std::exchange(exchange_, ExchangeId{}), /*is_client_gone=*/false);
  if (state_ == State::closed) return;
  state_ = State::flushing;
  if (unsent_.empty()) on_flushed();
}

void HttpSession::send(HttpOutput output) {
  work([&] { add(std::move(output)); });
}

void HttpSession::add(HttpOutput output) {
  if (state_ != State::answering || output.exchange != exchange_) return;
  switch (output.kind) {
    case HttpOutput::Kind::whole:
      send_head(output.response, /*is_stream=*/false);
      if (body_ != Body::none) queue(std::move(output.response.body));
      return finish_answer();
    case HttpOutput::Kind::head: return send_head(output.response, /*is_stream=*/true);
    case HttpOutput::Kind::piece:
      if (body_ == Body::none || output.bytes.empty()) return;
      sender_ = output.asks_for_more ? Sender::waits : Sender::goes_on;
      queue(body_ == Body::chunked ? fmt::format("{:x}\r\n{}\r\n", output.bytes.size(), output.bytes)
                                   : std::move(output.bytes));
      if (unsent_bytes_ > limits_.max_unsent_bytes) close();
      return;
    case HttpOutput::Kind::end:
      if (body_ == Body::chunked) queue("0\r\n\r\n");
      return finish_answer();
  }
}

}  // namespace baton
