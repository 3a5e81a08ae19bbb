/// The page of metrics: requests that wait for it share one.
#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <string_view>

#include "core/limits/insist.h"
#include "core/log.h"
#include "server/dialects/responses/dialect.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

/// So many requests get the same page. With more, pages would be made faster than connections take them, and pile up.
constexpr std::size_t kRequestsPerPage = 8;
constexpr std::string_view kNoMetricsRefusal =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to refuse requests of metrics\"";

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
  waiting_for_metrics_.push_back(std::move(call));
  if (waiting_for_metrics_.size() > 1) return;
  try {
    metrics_thread_.post([this] { answer_metrics(); });
  } catch (const std::bad_alloc&) {
    waiting_for_metrics_.clear();
    throw;
  }
}

void Routes::answer_metrics() {
  const ThreadWatch::Work work(metrics_place_);
  std::array<std::shared_ptr<const Call>, kRequestsPerPage> taken;
  std::size_t n_taken = 0;
  bool has_more = false;
  {
    const MutexLock lock(mutex_);
    while (n_taken < taken.size() && !waiting_for_metrics_.empty()) {
      taken[n_taken++] = std::move(waiting_for_metrics_.front());
      waiting_for_metrics_.pop_front();
    }
    has_more = !waiting_for_metrics_.empty();
  }
  std::size_t next = 0;
  try {
    const Response page = metrics(*taken[0]);
    for (; next < n_taken; ++next) context_.dispatcher.respond(taken[next]->exchange, *page);
    if (has_more) metrics_thread_.post([this] { answer_metrics(); });
  } catch (const std::bad_alloc&) {
    log::warning("event=out_of_memory effect=\"requests are refused\"");
    for (; next < n_taken; ++next) refuse_for_memory(taken[next]->exchange);
    if (has_more) refuse_metrics();
  }
}

void Routes::refuse_metrics() {
  insist(kNoMetricsRefusal, [this] {
    std::deque<std::shared_ptr<const Call>> waiting;  // takes memory although it is empty
    {
      const MutexLock lock(mutex_);
      waiting.swap(waiting_for_metrics_);
    }
    for (const auto& call : waiting) refuse_for_memory(call->exchange);
  });
}

}  // namespace baton
