/// What a connection knows about its request besides HTTP: how errors are written, and what the server's owner knows.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "server/http/error_body.h"
#include "server/http/message.h"

namespace baton {

/// How errors are written for the clients of a dialect. A constant.
struct ErrorForm {
  /// An error response of http/error_body.h in this form. It keeps its status, headers and message.
  HttpResponse (*rewrite)(HttpResponse error);
  /// The headers that every answer has, errors too.
  HttpHeaders (*headers)();
};

/// The form of error_body.h, which is the OpenAI API's. Paths of no dialect have it.
inline constexpr ErrorForm kOpenaiErrors = {[](HttpResponse error) { return error; }, [] { return HttpHeaders(); }};

/// An error in this form, with the headers of every answer.
inline HttpResponse refusal_in(const ErrorForm& form, int status, std::string_view message) {
  HttpResponse response = form.rewrite(error_response(status, message, {}));
  std::ranges::move(form.headers(), std::back_inserter(response.headers));
  return response;
}

/// What the server's owner finds out about a request from its header. The connection keeps it until the body is complete, and
/// hands it back with the request. The owner derives a type of its own.
struct Ticket {
  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  virtual ~Ticket() = default;

  const ErrorForm* errors = &kOpenaiErrors;  ///< never null
  /// The request comes from the operator (health, metrics): it is answered although connections, files or memory
  /// are used up.
  bool is_health_check = false;
};

}  // namespace baton
