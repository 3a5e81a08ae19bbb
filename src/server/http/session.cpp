/// The states of a connection: read a request, answer it, and again; or linger and close.
#include "server/http/session.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/log.h"
#include "server/http/server.h"

namespace baton {
namespace {

constexpr std::size_t kTlsReadBytes = 16 * 1024;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

HttpSession::HttpSession(HttpServer& server, const std::string& address, Shortage shortage, HttpSocket socket,
                         boost::asio::ssl::context* tls, const HttpLimits& limits)
    : server_(server),
      limits_(limits),
      budgets_(server.budgets()),
      stream_(tls == nullptr ? Stream(std::move(socket)) : Stream(std::in_place_type<TlsStream>, std::move(socket), *tls)),
      shortage_(shortage),
      input_share_(budgets_.headers.share()),
      unsent_share_(budgets_.unsent.share()) {
  const bool is_reserved = shortage != Shortage::none;
  if (is_reserved) limits_.header_timeout_ms = limits_.reserved_timeout_ms;
  id_ = server.room().add(address, is_reserved, std::chrono::steady_clock::now());  // last, since the destructor removes it
}

HttpSession::~HttpSession() { server_.room().remove(id_); }

HttpSocket& HttpSession::socket() {
  if (auto* tls = std::get_if<TlsStream>(&stream_)) return tls->next_layer();
  return std::get<HttpSocket>(stream_);
}

void HttpSession::set_deadline(std::int64_t timeout_ms) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

void HttpSession::remove_if_done() {
  if (state_ == State::closed && n_operations_ == 0) server_.remove(*this);
}

void HttpSession::close() noexcept {
  if (state_ == State::closed) return;
  state_ = State::closed;
  boost::system::error_code ignored;
  socket().close(ignored);
  server_.room().remove(id_);
  if (exchange_.is_valid()) server_.end_exchange(std::exchange(exchange_, ExchangeId{}), /*is_client_gone=*/true);
  // The caller may still use the session: the end of the last pending operation removes it, or else the next check_deadline.
}

bool HttpSession::has_unread_request() {
  if (state_ != State::handshaking && (state_ != State::reading || arrival_ != Arrival::none)) return false;
  boost::system::error_code error;
  return socket().available(error) > 0 && !error;
}

void HttpSession::close_if_idle() {
  if (state_ == State::handshaking || (state_ == State::reading && arrival_ == Arrival::none)) close();
}

void HttpSession::check_deadline(std::chrono::steady_clock::time_point now) {
  if (state_ == State::closed) return remove_if_done();
  if (is_writing_ && now >= write_deadline_) return close();
  if (state_ == State::answering || state_ == State::flushing || now < deadline_) return;
  if (state_ != State::reading || arrival_ == Arrival::none) return close();
  work([this] { refuse({408, "the request did not arrive in time"}); });
}

/// Reads more, or, if the client sends no more, ends what waits for it.
void HttpSession::read() {
  if (is_reading_ || state_ == State::closed) return;
  if (has_input_ended_) return state_ == State::answering ? watch_for_reset() : close();
  if (auto* tls = std::get_if<TlsStream>(&stream_)) {
    tls->async_read_some(boost::asio::buffer(tls_buffer_), [this](boost::system::error_code error, std::size_t n) {
      is_reading_ = false;
      end_operation([&] { on_read(error, {tls_buffer_.data(), n}); });
    });
  } else {
    socket().async_wait(HttpSocket::wait_read, [this](boost::system::error_code error) {
      is_reading_ = false;
      end_operation([&] { receive(error); });
    });
  }
  ++n_operations_;
  is_reading_ = true;
}

/// Reads what has arrived on a plain connection. Waiting needs no buffer: all connections share the one that they read
/// into.
void HttpSession::receive(boost::system::error_code error) {
  const std::span<char> buffer = server_.read_buffer();
  std::size_t n = 0;
  if (!error) n = socket().read_some(boost::asio::buffer(buffer.data(), buffer.size()), error);
  on_read(error, {buffer.data(), n});
}

void HttpSession::on_read(boost::system::error_code error, std::string_view bytes) {
  if (state_ == State::closed) return;
  if (error == boost::asio::error::would_block) return read();
  if (error == boost::asio::error::eof) return on_end_of_input();
  if (error) {
    afterwards_ = Afterwards::end;
    if (state_ != State::flushing) close();
    return;
  }
  if (state_ == State::lingering || (state_ == State::flushing && afterwards_ == Afterwards::end))
    return drop_input(bytes.size());
  if (!input_share_.grow(static_cast<std::int64_t>(bytes.size()))) {
    if (state_ != State::reading) return close();
    return refuse({503, fmt::format("the headers of the requests in hand have {} bytes; this server keeps {}",
                                    budgets_.headers.used(), budgets_.headers.limit())});
  }
  input_ += bytes;
  if (state_ != State::reading) return read_ahead();
  parse();
  give_back_input();
}

/// Bytes of a request that will not be parsed arrived after its answer.
void HttpSession::drop_input(std::size_t n_bytes) {
  n_dropped_ += n_bytes;
  if (n_to_drop_) n_to_drop_ = *n_to_drop_ - std::min<std::uint64_t>(*n_to_drop_, n_bytes);
  const bool is_too_much = n_dropped_ > limits_.max_linger_bytes;
  if (state_ == State::flushing) return is_too_much ? watch_for_reset() : read();
  if (is_too_much) return close();
  if (n_to_drop_ == 0) return wait_for_end();
  if (!server_.is_closing()) {
    set_deadline(limits_.linger_timeout_ms);
    deadline_ = std::min(deadline_, lingers_until_);
  }
  read();
}

/// Gives back what parsed input took.
void HttpSession::give_back_input() {
  if (input_.empty()) input_ = {};
  const auto size = static_cast<std::int64_t>(input_.size());
  if (input_share_.size() > size) input_share_.shrink(input_share_.size() - size);
}

/// The client sends no more. It may still read its answer, or it may be gone: what is sent to one that is gone is
/// answered with a reset. So something that changes nothing is sent: before the answer an interim response (RFC 9110,
/// 15.2), between two chunks a leading zero of the next one's size (RFC 9112, 7.1).
void HttpSession::on_end_of_input() {
  has_input_ended_ = true;
  const bool may_read =
      state_ == State::flushing || (state_ == State::answering && !std::holds_alternative<TlsStream>(stream_));
  if (!may_read) return close();
  watch_for_reset();
  if (state_ == State::flushing || version_ == Version::http_1_0) return;
  if (due_ == Due::head)
    queue(std::string(kContinue));
  else if (body_ == Body::chunked)
    queue("0");
  begin_write();
}

/// Reads while an answer is made, up to a limit, so that a client that leaves is noticed.
void HttpSession::read_ahead() {
  if (input_.size() < limits_.max_pipelined_bytes) return read();
  watch_for_reset();
}

/// Closes when the connection is reset, without reading.
void HttpSession::watch_for_reset() {
  if (is_watching_) return;
  socket().async_wait(HttpSocket::wait_error, [this](boost::system::error_code error) {
    is_watching_ = false;
    end_operation([&] {
      if (!error) close();
    });
  });
  ++n_operations_;
  is_watching_ = true;
}

/// Bytes of the request in hand that have not arrived; nullopt if nothing says how many.
std::optional<std::uint64_t> HttpSession::rest_of_request() const {
  if (!parser_ || !parser_->is_header_done()) return std::nullopt;
  const auto n_remaining = parser_->n_remaining();
  if (!n_remaining) return std::nullopt;
  return *n_remaining - std::min<std::uint64_t>(*n_remaining, input_.size());
}

/// How errors are written for the request being read.
const ErrorForm& HttpSession::errors() const {
  if (ticket_) return *ticket_->errors;
  return parser_ ? server_.errors_of(parser_->path()) : kOpenaiErrors;
}

void HttpSession::refuse(const HttpRefusal& refusal, const ErrorForm& form) {
  afterwards_ = Afterwards::end;
  if (parser_) n_to_drop_ = rest_of_request();
  input_ = {};
  answer_at_once(refusal_in(form, refusal.status, refusal.message));
}

/// Answers a request that is not handed on, and frees what was read of it.
void HttpSession::answer_at_once(HttpResponse response) {
  parser_.reset();
  ticket_.reset();
  give_back_input();
  server_.room().set_phase(id_, ConnectionPhase::busy);
  send_head(response, /*is_stream=*/false);
  if (body_ != Body::none) queue(std::move(response.body));
  finish_answer();
  begin_write();
}

/// Memory ran out: the request that is being read is refused, if there is memory for that. Otherwise the connection ends.
void HttpSession::give_up() noexcept {
  const bool may_refuse = state_ == State::reading && due_ == Due::head;
  if (!may_refuse || !attempt([this] { refuse_for_memory(); })) close();
}

void HttpSession::refuse_for_memory() {
  n_to_drop_ = rest_of_request();
  const ErrorForm& form = errors();
  parser_.reset();  // gives memory back before the answer takes some
  ticket_.reset();
  input_ = {};
  log::warning("event=out_of_memory effect=\"a request is given up while it is read\"");
  refuse({503, "this server has no memory left for the request"}, form);
}

/// Lets the server check the header. If it refuses the request, that is answered, and the body is not read. The
/// connection stays only if the body is here already.
bool HttpSession::refuse_by_header() {
  const HttpRequest& head = parser_->head();
  std::optional<HttpResponse> refused = server_.check_header(head, *ticket_);
  if (!refused) return false;
  const auto n_remaining = parser_->n_remaining();
  n_to_drop_ = rest_of_request();
  const bool is_body_here = n_to_drop_ == 0;
  note_head(head);
  if (!is_body_here) afterwards_ = Afterwards::end;
  input_.erase(0, is_body_here ? static_cast<std::size_t>(*n_remaining) : input_.size());
  answer_at_once(std::move(*refused));
  return true;
}

/// Whether a request may be answered although there is no room for its connection. If not, it is refused.
bool HttpSession::has_room() {
  if (shortage_ == Shortage::none || ticket_->is_health_check) return true;
  server_.room().refused(shortage_);
  note_head(parser_->head());
  refuse(server_.room().refusal_for(shortage_));
  return false;
}

/// What the request's header says of its answer.
void HttpSession::note_head(const HttpRequest& request) {
  body_ = request.method == "HEAD" ? Body::none : Body::of_known_length;
  version_ = request.is_http_1_0 ? Version::http_1_0 : Version::http_1_1;
  afterwards_ = request.keep_alive && shortage_ == Shortage::none ? Afterwards::next_request : Afterwards::end;
}

void HttpSession::dispatch() {
  state_ = State::answering;
  server_.room().set_phase(id_, ConnectionPhase::busy);
  HttpRequest request = parser_->take();
  parser_.reset();
  note_head(request);
  exchange_ = server_.begin_exchange(*this);
  server_.hand_on(exchange_, std::move(request), std::move(ticket_));
  read_ahead();
}

void HttpSession::parse() {
  if (arrival_ == Arrival::none) {
    // Some old clients send an empty line after a body.
    input_.erase(0, std::min(input_.find_first_not_of("\r\n"), input_.size()));
    if (input_.empty()) return read();
    arrival_ = Arrival::header;
    server_.room().set_phase(id_, ConnectionPhase::arriving);
    // The first request's time runs from the connection's start.
    if (n_requests_++ > 0) set_deadline(limits_.header_timeout_ms);
  }
  if (!parser_->is_header_done()) {
    input_.erase(0, parser_->put_header(input_));
    if (parser_->is_header_done() && !parser_->refusal()) {
      ticket_ = server_.look_up(parser_->head());
      if (!has_room() || refuse_by_header()) return;
    }
  }
  input_.erase(0, parser_->put(input_));
  if (parser_->refusal()) return refuse(*parser_->refusal());
  if (parser_->is_done()) return dispatch();
  if (parser_->take_expects_continue()) {
    queue(std::string(kContinue));
    begin_write();
  }
  if (parser_->is_header_done() && arrival_ == Arrival::header) {
    arrival_ = Arrival::body;
    set_deadline(limits_.body_timeout_ms);
  }
  read();
}

/// From now on a request is read.
void HttpSession::begin_reading(std::int64_t timeout_ms) {
  state_ = State::reading;
  if (n_requests_ > 0) server_.room().set_phase(id_, ConnectionPhase::idle);
  parser_.emplace(limits_, &budgets_.bodies, &budgets_.headers);
  ticket_.reset();
  arrival_ = Arrival::none;
  body_ = Body::of_known_length;
  version_ = Version::http_1_1;
  due_ = Due::head;
  sender_ = Sender::goes_on;
  set_deadline(timeout_ms);
}

void HttpSession::begin_request(std::int64_t timeout_ms) {
  begin_reading(timeout_ms);
  parse();
  give_back_input();
}

void HttpSession::start() {
  ++n_operations_;
  end_operation([this] {
    if (auto* const tls = std::get_if<TlsStream>(&stream_)) return begin_handshake(*tls);
    boost::system::error_code ignored;
    socket().non_blocking(true, ignored);
    // When many come at once, the request has usually arrived before its connection is accepted.
    begin_reading(limits_.header_timeout_ms);
    receive({});
  });
}

void HttpSession::begin_handshake(TlsStream& tls) {
  tls_buffer_.resize(kTlsReadBytes);
  set_deadline(limits_.header_timeout_ms);
  tls.async_handshake(boost::asio::ssl::stream_base::server, [this](boost::system::error_code error) {
    end_operation([&] {
      if (error) return close();
      if (state_ != State::closed) begin_request(limits_.header_timeout_ms);
    });
  });
  ++n_operations_;
}

}  // namespace baton
