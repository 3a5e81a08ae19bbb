/// The page for people: its files, and what its live view shows.
#include <algorithm>

#include <fmt/format.h>

#include "engine/cache/tree_view.h"
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

}  // namespace

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
