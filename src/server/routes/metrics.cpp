/// The page of metrics: requests that wait for it share one.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/log.h"
#include "server/dialects/responses/dialect.h"
#include "server/http/error_body.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

/// So many requests get the same page. With more, pages would be made faster than connections take them, and pile up.
constexpr std::size_t kRequestsPerPage = 8;

}  // namespace

Routes::Response Routes::metrics(const Call&) {
  return HttpResponse{200,
                      {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                      context_.metrics.render({context_.prefixes.counts(), context_.keys.counts(),
                                               context_.model.grammars->counts(), context_.budgets, context_.connections,
                                               kResponses.path, responses_.size(), responses_.n_bytes()})};
}

/// Several requests that wait get the same page, so that a flood of them is over soon. The I/O thread calls it.
void Routes::queue_metrics(std::shared_ptr<const Call> call) {
  const MutexLock lock(mutex_);
  if (waiting_for_metrics_.empty()) post_metrics();
  waiting_for_metrics_.push_back(std::move(call));
}

void Routes::post_metrics() {
  metrics_thread_.post([this] { answer_metrics(); }, [this] { refuse_metrics(); });
}

std::size_t Routes::n_waiting_for_metrics() {
  const MutexLock lock(mutex_);
  return waiting_for_metrics_.size();
}

/// The request that waits longest for the page; null: none does. It waits until pop_for_metrics.
std::shared_ptr<const Routes::Call> Routes::next_for_metrics() {
  const MutexLock lock(mutex_);
  return waiting_for_metrics_.empty() ? nullptr : waiting_for_metrics_.front();
}

void Routes::pop_for_metrics() {
  const MutexLock lock(mutex_);
  waiting_for_metrics_.pop_front();
}

/// Answers the requests that wait, with a page that is younger than they are.
void Routes::answer_metrics() {
  const ThreadWatch::Work work(metrics_place_);
  std::size_t n_left = std::min(n_waiting_for_metrics(), kRequestsPerPage);
  if (n_left == 0) return;
  const Response page = metrics(*next_for_metrics());
  for (; n_left > 0; --n_left) {
    context_.dispatcher.respond(next_for_metrics()->exchange, *page);
    pop_for_metrics();
  }
  if (n_waiting_for_metrics() > 0) post_metrics();
}

/// There was no memory for the page.
void Routes::refuse_metrics() {
  log::warning("event=out_of_memory effect=\"requests are refused\"");
  while (const auto call = next_for_metrics()) {
    context_.dispatcher.respond(call->exchange, error_response(503, TextQueue::kNoMemory, {}));
    pop_for_metrics();
  }
}

}  // namespace baton
