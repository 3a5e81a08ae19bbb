/// The page for people and what its live view shows; the page of metrics, which the requests that wait for it share.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "engine/tree_view.h"
#include "server/dialects/responses/dialect.h"
#include "server/http/json_body.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;

/// The page may load and call nothing but this server, and no other page may show it in a frame.
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

Value tree_of(const TreeView& view) {
  Value nodes = Value::array();
  for (const TreeViewNode& node : view.nodes) {
    nodes.push_back({{"parent", node.parent},
                     {"n_tokens", node.n_tokens},
                     {"n_sequences", node.n_sequences},
                     {"is_pinned", node.is_pinned},
                     {"hash", fmt::format("{:016x}", node.hash)}});
  }
  return {{"nodes", std::move(nodes)}, {"n_cached_tokens", view.n_cached_tokens}, {"n_left_out", view.n_left_out}};
}

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

Routes::Response Routes::page(const Call& call) {
  const auto found = std::ranges::find(options_.pages, call.request.path, &WebFile::path);
  if (found == options_.pages.end())
    return error_response(404, fmt::format("the page has no file {}", call.request.path.substr(0, 100)), {});
  return HttpResponse{200,
                      {{"Content-Type", std::string(found->type)},
                       {"Content-Security-Policy", std::string(kPagePolicy)},
                       {"X-Content-Type-Options", "nosniff"},
                       {"Cache-Control", "no-cache"}},
                      std::string(found->body)};
}

/// Counters, and lengths and hashes of the prefix tree; never text.
Routes::Response Routes::live(const Call&) {
  const EngineMetrics& metrics = context_.engine.metrics();
  HttpResponse response = json_response({{"num_requests_running", metrics.num_requests_running.value()},
                                         {"num_requests_waiting", metrics.num_requests_waiting.value()},
                                         {"kv_blocks_total", metrics.kv_blocks_total.value()},
                                         {"kv_blocks_used", metrics.kv_blocks_used.value()},
                                         {"kv_blocks_pinned", metrics.kv_blocks_pinned.value()},
                                         {"prompt_tokens", metrics.prompt_tokens.value()},
                                         {"prompt_tokens_cached", metrics.prompt_tokens_cached.value()},
                                         {"generation_tokens", metrics.generation_tokens.value()},
                                         {"kv_bytes_requested", metrics.kv_bytes_requested.value()},
                                         {"kv_bytes_saved", metrics.kv_bytes_saved.value()},
                                         {"relay_groups", metrics.relay_groups.value()},
                                         {"tree", tree_of(*context_.engine.tree())}});
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

}  // namespace baton
