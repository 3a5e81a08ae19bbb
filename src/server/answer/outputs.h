/// The outputs by which answers are sent, and what the threads that send them share.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "server/answer/answer.h"
#include "server/http/server.h"

namespace baton {

/// Statuses in logs and metrics: the client left; memory ran out.
inline constexpr int kClientClosedRequest = 499;
inline constexpr int kOutOfMemory = 503;

/// A part of the body of a stream or of a large answer.
inline HttpOutput piece_output(ExchangeId exchange, std::string bytes) {
  return {exchange, HttpOutput::Kind::piece, {}, std::move(bytes)};
}
inline HttpOutput end_output(ExchangeId exchange) { return {exchange, HttpOutput::Kind::end, {}, {}}; }
/// A whole answer, with headers beside its own.
inline HttpOutput whole_output(ExchangeId exchange, HttpResponse response, const HttpHeaders& headers) {
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  return {exchange, HttpOutput::Kind::whole, std::move(response), {}};
}
/// The status line and headers of a stream of events.
inline HttpOutput head_output(ExchangeId exchange, const HttpHeaders& headers, const AnswerHeader& header) {
  HttpResponse response;
  response.headers = headers;
  response.headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would keep the events until it has many
  response.headers.emplace_back("X-Request-Id", header.id);
  return {exchange, HttpOutput::Kind::head, std::move(response), {}};
}
inline HttpResponse whole_response(Answer& answer) {
  HttpResponse response = answer.response();
  response.headers.emplace_back("X-Request-Id", answer.header().id);
  return response;
}

}  // namespace baton
