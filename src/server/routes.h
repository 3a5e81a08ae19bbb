/// The endpoints: which handler answers which path.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "engine/engine.h"
#include "io/json.h"
#include "server/budget.h"
#include "server/cors.h"
#include "server/http_server.h"
#include "server/metrics_page.h"
#include "server/prefixes.h"
#include "server/served_model.h"
#include "server/service.h"
#include "server/text_queue.h"

namespace baton {

struct RoutesOptions {
  std::vector<std::string> api_keys;  ///< empty: no key is needed
  CorsOptions cors;
  std::string version;
  std::int32_t max_logprobs = 20;
};

/// The objects that handlers use; all outlive the handlers.
struct RoutesContext {
  const ServedModel& model;
  Prefixes& prefixes;
  Engine& engine;
  Service& service;
  MetricsPage& metrics;
  Budgets& budgets;
  const ConnectionCounts& connections;
};

/// Answers requests. Parsing, templates and tokenising run on a TextQueue. Prefixes are registered and expire one
/// after another on a thread of their own, because computing one takes as long as its prompt. What lists or renders
/// something (/metrics, models, prefixes) runs on another, so that neither the I/O thread nor a scrape waits for
/// texts. Only answers of a few bytes are made at once.
class Routes {
 public:
  Routes(RoutesOptions options, const RoutesContext& context);
  ~Routes();

  /// Refuses a request by its header: unknown path, wrong method, missing key, another body than JSON. Thread: I/O; does not wait.
  std::optional<HttpResponse> judge(const HttpRequest& head) const;
  /// Whether a request is for whom runs the server (health, metrics) rather than for the model. Thread: I/O; does not wait.
  static bool is_vital(const HttpRequest& head);
  /// Takes a request that was not refused. Thread: I/O; does not wait.
  void handle(ExchangeId exchange, HttpRequest request);
  /// Tells that prefixes were added, so that those with a limited lifetime are removed in time. Thread: any.
  void watch_lifetimes();
  /// Ends the threads; requests that were not begun are dropped.
  void stop();

 private:
  /// nullopt: the answer comes from the engine.
  using Response = std::optional<HttpResponse>;
  using Handler = Response (Routes::*)(ExchangeId, const HttpRequest&);
  enum class Where { io, texts, pages };
  struct Route {
    std::string_view path;    // one that ends in "/" stands for all that begin with it
    std::string_view method;  // GET answers HEAD too
    bool needs_key;
    Where where;
    Handler handler;
  };
  static std::span<const Route> table();
  static std::vector<const Route*> routes_of(std::string_view path);

  Response refuse(const HttpRequest& request, std::span<const Route* const> found) const;
  void answer(ExchangeId exchange, Handler handler, const HttpRequest& request);
  void log_unknown_fields(const std::vector<std::string>& fields);
  RequestBounds limits() const;
  Result<BudgetShare> take_scores(const GenerationRequest& request, bool is_chat, std::span<const AnswerPrompt> prompts) const;
  AnswerHeader answer_header(const HttpRequest& request, const GenerationRequest& generation, bool is_chat,
                             std::string model) const;
  Result<void> begin_chat(ExchangeId exchange, const HttpRequest& request);
  Result<void> begin_completion(ExchangeId exchange, const HttpRequest& request);

  Response chat_completions(ExchangeId exchange, const HttpRequest& request);
  Response completions(ExchangeId exchange, const HttpRequest& request);
  Response models(ExchangeId exchange, const HttpRequest& request);
  Response model(ExchangeId exchange, const HttpRequest& request);
  Response prefixes(ExchangeId exchange, const HttpRequest& request);
  Response prefix(ExchangeId exchange, const HttpRequest& request);
  Response register_prefix(ExchangeId exchange, const HttpRequest& request);
  HttpResponse add_prefix(const PrefixRequest& asked);
  Response remove_prefix(ExchangeId exchange, const HttpRequest& request);
  std::optional<json::Value> show_prefix(std::string_view name) const;
  void expire_prefixes();
  Response tokenize(ExchangeId exchange, const HttpRequest& request);
  Response detokenize(ExchangeId exchange, const HttpRequest& request);
  Response livez(ExchangeId exchange, const HttpRequest& request);
  Response health(ExchangeId exchange, const HttpRequest& request);
  Response metrics(ExchangeId exchange, const HttpRequest& request);
  Response version(ExchangeId exchange, const HttpRequest& request);
  Response load(ExchangeId exchange, const HttpRequest& request);

  RoutesOptions options_;
  RoutesContext context_;
  std::int64_t started_ = 0;  // Unix time in seconds
  TextQueue texts_;
  boost::asio::thread_pool pages_thread_;
  boost::asio::thread_pool prefix_thread_;
  boost::asio::steady_timer next_expiry_;  // used by prefix_thread_ alone
  std::mutex mutex_;
  std::set<std::string> logged_fields_;
};

}  // namespace baton
