/// The endpoints: which handler answers which path.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/signal_set.hpp>

#include "core/mutex.h"
#include "engine/engine.h"
#include "io/content_coding.h"
#include "io/json.h"
#include "server/answer/dispatcher.h"
#include "server/dialects/dialect.h"
#include "server/dialects/responses/store.h"
#include "server/http/cors.h"
#include "server/http/server.h"
#include "server/keys/api_keys.h"
#include "server/limits/budget.h"
#include "server/limits/task_thread.h"
#include "server/limits/text_queue.h"
#include "server/limits/thread_watch.h"
#include "server/observe/metrics_page.h"
#include "server/prefixes/prefixes.h"
#include "server/prompt/prompts.h"
#include "server/routes/begin_answer.h"
#include "server/served/served_model.h"
#include "web/pages.h"

namespace baton {

struct RoutesOptions {
  CorsOptions cors;
  std::string version;
  ResponseStoreLimits response_limits = {};
  std::size_t max_body_bytes = HttpLimits().max_body_bytes;  ///< of a compressed body when it is decoded
  std::int32_t max_logprobs = 20;
  grammar::JsonSpaces json_spaces = grammar::JsonSpaces::readable;  ///< see RequestBounds
  std::span<const WebFile> pages;                                   ///< constants; empty: this server has no page
};

/// The objects that handlers use; all outlive the handlers.
struct RoutesContext {
  ApiKeys& keys;
  const ServedModel& model;
  Prefixes& prefixes;
  Engine& engine;
  AnswerDispatcher& dispatcher;
  MetricsPage& metrics;
  Budgets& budgets;
  const ConnectionCounts& connections;
  ThreadWatch& watch;
};

/// Answers requests. Parsing, templates, tokenising, and what lists or shows something run on a TextQueue, fairly among keys.
/// Prefixes are registered on a thread of their own (Prefixes). What must wait for no client's work has threads too: /metrics one (eight requests that wait get the same page), and
/// the key file another.
/// Only answers of a few bytes are made at once.
class Routes {
 public:
  Routes(RoutesOptions options, const RoutesContext& context);
  ~Routes();

  /// How errors of a request for this path are written. Thread: any.
  static const ErrorForm& errors_of(std::string_view path);
  /// Looks up the route of a request: its ticket, which the next two take. Thread: I/O; does not wait.
  static std::shared_ptr<Ticket> look_up(const HttpRequest& head);
  /// Refuses a request by its header: unknown path, wrong method, missing key, another body than JSON. Otherwise the ticket
  /// names its sender. Thread: I/O; does not wait.
  std::optional<HttpResponse> check_header(const HttpRequest& head, Ticket& ticket) const;
  /// Takes a request that was not refused. Thread: I/O; does not wait.
  void handle(ExchangeId exchange, HttpRequest request, std::shared_ptr<Ticket> ticket);
  /// Builds what the first grammar needs, so that no request waits for it.
  void prepare_grammars();
  /// Reads the key file again at each SIGHUP. Without one, and at SIGUSR1, a line of the log says that nothing happens.
  void watch_signals();
  /// Ends the threads; requests that were not begun are dropped.
  void stop();

 private:
  struct Call;
  /// nullopt: the answer comes later, mostly from the engine.
  using Response = std::optional<HttpResponse>;
  using Handler = Response (Routes::*)(const Call&);
  static constexpr std::string_view kTooManyTexts =
      "too many requests wait for this server's templates and tokenizer; please try again";
  enum class RunsOn { io, texts, pages, metrics };
  enum class Access { none, key, admin };
  struct Route {
    std::string_view path;    // one that ends in "/" stands for all that begin with it
    std::string_view method;  // GET answers HEAD too
    Access access;            // what the sender needs, see KeyRole
    RunsOn runs_on;
    Handler handler;

    bool answers(std::string_view asked) const { return method == asked || (method == "GET" && asked == "HEAD"); }
  };
  /// A request, its sender, and its handler. What its header says is known first.
  struct Call : Ticket, std::enable_shared_from_this<Call> {
    std::span<const Route> routes;  ///< of its path, one for each method; empty: unknown
    const Route* route = nullptr;   ///< the one of its method; null: none
    const Dialect* dialect = nullptr;
    Caller caller;
    ExchangeId exchange;
    HttpRequest request;
    mutable bool is_long = false;  ///< it runs as long work, see TextQueue; set before it is queued

    std::string handler() const { return routes.empty() ? "none" : std::string(routes.front().path); }  ///< for metrics
  };
  /// Routes of one path are neighbours.
  static std::span<const Route> table();
  static std::span<const Route> routes_of(std::string_view path);
  static const Dialect& dialect_of(std::string_view path);
  static std::string near_path(std::string_view path);

  /// Whether requests to the route count against quotas: they cost more than a page.
  static bool is_counted(const Route& route) { return route.runs_on == RunsOn::texts; }

  Response identify_sender(const HttpRequest& head, Call& call) const;
  Response refuse(const HttpRequest& head, Call& call) const;
  Response take_caller(Call& call, KeyUse& use) const;
  bool queue(std::shared_ptr<const Call> call, std::size_t n_bytes, TextQueue::Kind kind = TextQueue::Kind::text);
  bool queue_compressed(const std::shared_ptr<Call>& call);
  Result<void> decode_body(Call& call, ContentCoding coding) const;
  void queue_metrics(std::shared_ptr<const Call> call);
  void post_metrics();
  std::size_t n_waiting_for_metrics();
  std::shared_ptr<const Call> next_for_metrics();
  void pop_for_metrics();
  void answer_metrics();
  void refuse_metrics();
  Result<bool> goes_on_as_long_work(const Call& call, std::size_t n_bytes);
  TextQueue::Work work_for(const Call& call, std::size_t n_bytes, std::function<void()> act);
  void refuse_for_memory(ExchangeId exchange);
  void take_signal(int signal);
  void log_unknown_fields(const std::vector<std::string>& fields);
  IsCancelled is_unwanted(ExchangeId exchange) const;
  Result<json::Value> body_of(const Call& call) const;
  RequestBounds limits() const;
  ReadContext read_context(const Call& call);
  AnswerCall answer_call(const Call& call);
  HttpHeaders common_headers(const HttpRequest& request, const ErrorForm& errors) const;
  Response begin(const Call& call, Result<void> (Routes::*begin_answer)(const Call&));
  Result<std::optional<Constraint>> constrain(const Call& call, const GenerationRequest& generation);
  void log_ignored(const std::string& field, const std::vector<std::string>& keywords);
  Result<void> try_converse(const Call& call);
  Result<void> try_complete(const Call& call);

  Response converse(const Call& call);
  Response completions(const Call& call);
  Response count_tokens(const Call& call);
  Response render_chat_prompt(const Call& call);
  Response render_completion_prompts(const Call& call);
  Response stored_response(const Call& call);
  Response remove_response(const Call& call);
  Response count_response_tokens(const Call& call);
  Response not_offered(const Call& call);
  Response models(const Call& call);
  Response model(const Call& call);
  Response prefixes(const Call& call);
  Response prefix(const Call& call);
  Response register_prefix(const Call& call);
  void answer_registration(const Prefixes::Asked& asked, const Error* error);
  Response remove_prefix(const Call& call);
  std::optional<json::Value> show_prefix(std::string_view name) const;
  Response tokenize(const Call& call);
  Response detokenize(const Call& call);
  Response tokenizer_info(const Call& call);
  Response page(const Call& call);
  std::optional<std::string> fault() const;
  Response live(const Call& call);
  Response livez(const Call& call);
  Response health(const Call& call);
  Response metrics(const Call& call);
  Response version(const Call& call);
  Response load(const Call& call);

  RoutesOptions options_;
  RoutesContext context_;
  ResponseStore responses_;
  std::int64_t started_ = 0;  // Unix time in seconds
  TextQueue texts_;
  ThreadWatch::Place& metrics_place_;
  TaskThread metrics_thread_{"metrics"};
  TaskThread control_thread_{"control"};    // reads the key file
  boost::asio::signal_set reload_signals_;  // used by control_thread_ alone, as soon as it waits
  Mutex mutex_;
  std::deque<std::shared_ptr<const Call>> waiting_for_metrics_ BATON_GUARDED_BY(mutex_);
  std::set<std::string> logged_fields_ BATON_GUARDED_BY(mutex_);
  std::set<std::string> logged_keywords_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
