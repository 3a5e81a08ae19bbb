/// Results of operations that the outside world can make fail: files, checkpoints, configurations, requests, sockets.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace baton {

/// Why an operation on the outside world failed. Programs map it to an exit code, the server to an HTTP status.
enum class ErrorCode {
  invalid_request,  ///< 400: the caller's value is wrong
  not_found,        ///< 404: a model, prefix, file or tensor that does not exist
  too_large,        ///< 413: over a size limit
  unavailable,      ///< 503: queue full, shutting down
  unsupported,      ///< 501: known, but not supported by Baton
  invalid_data,     ///< a file is damaged or does not match
  out_of_memory,    ///< memory requested at start is not available
  io,               ///< the operating system refused
  internal,         ///< 500
};

constexpr std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_request: return "invalid_request";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::too_large: return "too_large";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::invalid_data: return "invalid_data";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::io: return "io";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

/// A code and one sentence that names the thing, its value and the limit. `param` names the request field, if one is
/// at fault.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string param = {};
};

template <class T>
using Result = tl::expected<T, Error>;

/// `return fail(ErrorCode::not_found, "...")` from a function that returns any Result.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string param = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(param)});
}

}  // namespace baton

#define BATON_TRY_JOIN_(a, b) a##b
#define BATON_TRY_NAME_(line) BATON_TRY_JOIN_(baton_try_result_, line)

/// `BATON_TRY(Tensor weight, load(name));` declares `weight` from a Result or returns its error from this function.
/// A Result<void> is passed on with `BATON_TRY_VOID(expression);`. Declarations with a comma need an alias first.
#define BATON_TRY(declaration, ...)                                                                                    \
  auto BATON_TRY_NAME_(__LINE__) = (__VA_ARGS__);                                                                      \
  if (!BATON_TRY_NAME_(__LINE__)) return tl::unexpected<::baton::Error>(std::move(BATON_TRY_NAME_(__LINE__).error())); \
  declaration = std::move(*BATON_TRY_NAME_(__LINE__))

#define BATON_TRY_VOID(...)                                       \
  if (auto baton_try_status_ = (__VA_ARGS__); !baton_try_status_) \
  return tl::unexpected<::baton::Error>(std::move(baton_try_status_.error()))
