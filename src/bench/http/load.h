/// The load of `baton bench serve` and `baton bench stream`: sends requests when they are due, and reads their answers as they
/// arrive, on one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/http/http_streams.h"
#include "core/result.h"

namespace baton {

struct LoadOptions {
  std::string url;
  std::vector<std::string> headers;                            ///< lines; the content type is added
  std::size_t n_slots = 0;                                     ///< requests under way at the same time
  double timeout_s = std::numeric_limits<double>::infinity();  ///< a request that takes longer has failed
  double silence_s = std::numeric_limits<double>::infinity();  ///< or one whose answer brings nothing for so long
};

/// The requests of a load, and what becomes of their answers. Times are seconds from the load's begin. Calls come from the
/// load's thread.
class LoadSource {
 public:
  virtual ~LoadSource() = default;

  /// No request will be sent any more, unless one that is under way leads to it.
  virtual bool is_over(double now_s) const = 0;
  /// When the next request is to be sent; infinity: not before an answer has ended. Asked only before the load is over.
  virtual double next_due_s() const = 0;
  /// The body of that request, which is sent now.
  virtual std::string begin(std::size_t slot, double now_s) = 0;
  /// Bytes of an answer's body. Returns a fault for which the request is ended; empty: it continues.
  virtual std::string take(std::size_t slot, const HttpHead& head, std::string_view bytes, double at_s) = 0;
  /// A request has ended; `error` says why its answer is not whole and is empty if it is.
  virtual void end(std::size_t slot, const HttpHead& head, std::string error, double now_s) = 0;
  /// Work for times when nothing is due.
  virtual void prepare() {}
};

/// Runs the load until it is over and all answers have ended. `on_second` is called about once a second. SIGINT
/// (watch_interrupts) ends the requests under way. Returns the seconds that it took. Errors: invalid_request (more slots than
/// open files are allowed).
Result<double> run_load(const LoadOptions& options, LoadSource& source, const std::function<void(double seconds)>& on_second);

}  // namespace baton
