/// The table of endpoints and their handlers.
#include "server/routes/routes.h"

#include <algorithm>
#include <csignal>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/attempt.h"
#include "core/check.h"
#include "core/limits/insist.h"
#include "core/limits/thread_time.h"
#include "core/log.h"
#include "core/parallel.h"
#include "io/json_dismantle.h"
#include "server/dialects/messages/dialect.h"
#include "server/dialects/openai/dialect.h"
#include "server/dialects/responses/dialect.h"
#include "server/http/json_body.h"
#include "server/keys/api_keys.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;

constexpr std::size_t kMaxLoggedFields = 100;
constexpr std::string_view kNoRefusal =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to refuse a request\"";

/// The method as a metrics label: one of few, whatever clients send.
std::string method_label(std::string_view method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
    if (method == known) return std::string(known);
  return "OTHER";
}

Value model_entry(const ServedModel& model, const std::string& id, const Value& parent, std::int64_t created) {
  return {{"id", id},
          {"object", "model"},
          {"created", created},
          {"owned_by", "baton"},
          {"root", model.root},
          {"parent", parent},
          {"max_model_len", model.max_model_len},
          {"weight_scheme", model.weight_scheme},
          {"activation_scheme", model.activation_scheme},
          {"permission", Value::array()}};
}

/// "/v1/models/" is "/v1/models": some clients end every path with a slash.
std::string_view without_last_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

HttpResponse unauthorized() {
  return {401, {{"Content-Type", "application/json"}, {"WWW-Authenticate", "Bearer"}}, R"({"error":"Unauthorized"})"};
}

}  // namespace

std::span<const Routes::Route> Routes::table() {
  static constexpr Route routes[] = {
      {kChatCompletions.path, "POST", Access::key, RunsOn::texts, &Routes::converse},
      {kCompletionsPath, "POST", Access::key, RunsOn::texts, &Routes::completions},
      {kResponses.path, "POST", Access::key, RunsOn::texts, &Routes::converse},
      {kResponsePath, "GET", Access::key, RunsOn::pages, &Routes::stored_response},
      {kResponsePath, "DELETE", Access::key, RunsOn::pages, &Routes::remove_response},
      {kResponsePath, "POST", Access::key, RunsOn::texts, &Routes::count_response_tokens},
      {kMessages.path, "POST", Access::key, RunsOn::texts, &Routes::converse},
      {kMessages.count_path, "POST", Access::key, RunsOn::texts, &Routes::count_tokens},
      {kChatRenderPath, "POST", Access::key, RunsOn::texts, &Routes::render_chat_prompt},
      {kCompletionsRenderPath, "POST", Access::key, RunsOn::texts, &Routes::render_completion_prompts},
      {"/v1/models", "GET", Access::key, RunsOn::pages, &Routes::models},
      {"/v1/models/", "GET", Access::key, RunsOn::pages, &Routes::model},
      {"/v1/prefixes", "GET", Access::admin, RunsOn::pages, &Routes::prefixes},
      {"/v1/prefixes", "POST", Access::admin, RunsOn::texts, &Routes::register_prefix},
      {"/v1/prefixes/", "GET", Access::admin, RunsOn::pages, &Routes::prefix},
      {"/v1/prefixes/", "DELETE", Access::admin, RunsOn::pages, &Routes::remove_prefix},
      {"/tokenize", "POST", Access::key, RunsOn::texts, &Routes::tokenize},
      {"/detokenize", "POST", Access::key, RunsOn::texts, &Routes::detokenize},
      {"/tokenizer_info", "GET", Access::key, RunsOn::pages, &Routes::tokenizer_info},
      {"/", "GET", Access::none, RunsOn::io, &Routes::page},
      {"/page/", "GET", Access::none, RunsOn::io, &Routes::page},
      {"/live", "GET", Access::admin, RunsOn::pages, &Routes::live},
      {"/health", "GET", Access::none, RunsOn::io, &Routes::health},
      {"/livez", "GET", Access::none, RunsOn::io, &Routes::livez},
      {"/ping", "GET", Access::none, RunsOn::io, &Routes::health},
      {"/ping", "POST", Access::none, RunsOn::io, &Routes::health},
      {"/metrics", "GET", Access::none, RunsOn::metrics, &Routes::metrics},
      {"/version", "GET", Access::none, RunsOn::io, &Routes::version},
      {"/load", "GET", Access::none, RunsOn::io, &Routes::load},
      {"/v1/embeddings", "POST", Access::key, RunsOn::io, &Routes::not_offered},
      {"/v1/moderations", "POST", Access::key, RunsOn::io, &Routes::not_offered},
      {"/v1/audio/", "POST", Access::key, RunsOn::io, &Routes::not_offered},
      {"/v1/images/", "POST", Access::key, RunsOn::io, &Routes::not_offered},
  };
  return routes;
}

Routes::Routes(RoutesOptions options, const RoutesContext& context)
    : options_(std::move(options)),
      context_(context),
      responses_(options_.response_limits),
      started_(unix_seconds()),
      texts_(context.budgets.text_work, context.watch, TextQueue::n_short_threads_for(n_available_threads()), thread_time),
      metrics_place_(context.watch.add("metrics")),
      reload_signals_(control_thread_.io()) {
  context_.prefixes.answer_by([this](const Prefixes::Asked& asked, const Error* error) { answer_registration(asked, error); });
  context_.prefixes.start(context_.watch);
}

Routes::~Routes() { stop(); }

void Routes::stop() {
  for (TaskThread* thread : {&metrics_thread_, &control_thread_}) thread->stop();
  context_.prefixes.stop();
  texts_.stop();
  for (TaskThread* thread : {&metrics_thread_, &control_thread_}) thread->join();
}

void Routes::take_signal(int signal) {
  if (signal == SIGUSR1) {
    log::info(
        "event=signal_without_effect signal=SIGUSR1 reason=\"the log goes to standard error, there is no file to open "
        "again\"");
  } else if (!context_.keys.has_file()) {
    log::info("event=signal_without_effect signal=SIGHUP reason=\"there is no --api-key-file to read again\"");
  } else if (!attempt([this] { context_.keys.reload(); })) {
    log::error("event=out_of_memory effect=\"the keys stay as they were before SIGHUP\"");
  }
}

void Routes::watch_signals() {
  boost::system::error_code failed;
  // Both would end the program. SIGUSR1 asks other servers for new log files.
  for (const int signal : {SIGHUP, SIGUSR1}) reload_signals_.add(signal, failed);
  reload_signals_.async_wait([this](const boost::system::error_code& cancelled, int signal) {
    if (cancelled) return;
    take_signal(signal);
    insist(kNoRefusal, [this] { watch_signals(); });
  });
}

/// Identifies the sender of a request, or answers one that may not use the route: without a key, without the right, or over a
/// quota.
Routes::Response Routes::identify_sender(const HttpRequest& head, Call& call) const {
  const Route& route = *call.route;
  if (route.access == Access::none) return std::nullopt;
  std::optional<Caller> caller = context_.keys.identify(authorization_of(head));
  const bool is_refused = caller && route.access == Access::admin && caller->role != KeyRole::admin;
  if (!caller || (is_refused && caller->account == nullptr)) return unauthorized();
  if (is_refused)
    return error_response(
        403,
        fmt::format("the key '{}' may not use {}: that takes a key of an administrator", caller->account->name(), route.path),
        {});
  call.caller = std::move(*caller);
  if (call.caller.account == nullptr || !is_counted(route)) return std::nullopt;
  return call.caller.account->refuse(RateLimit::Clock::now());
}

/// The answer to a request without a handler: unknown path, wrong method, a refused sender, another body than JSON.
Routes::Response Routes::refuse(const HttpRequest& head, Call& call) const {
  if (is_preflight(head)) return HttpResponse{200, {}, {}};
  if (call.routes.empty()) {
    std::vector<std::string_view> paths;
    for (const Route& route : table())
      if (!route.path.ends_with('/') && route.handler != &Routes::not_offered && (paths.empty() || paths.back() != route.path))
        paths.push_back(route.path);
    const std::string near = near_path(head.path);
    const std::string hint = near.empty() ? "" : fmt::format(" (is {} meant? check the base URL)", near);
    return error_response(
        404, fmt::format("there is no {} here{}; there are: {}", head.path.substr(0, 100), hint, fmt::join(paths, ", ")), {});
  }
  if (call.route != nullptr) {
    if (Response refused = identify_sender(head, call)) return refused;
    // A page of another origin can send other types without asking first (CORS).
    if (call.route->runs_on == RunsOn::texts && !is_media_type(head.header("content-type"), "application/json"))
      return error_response(415,
                            fmt::format("the body must be JSON, with 'Content-Type: application/json'; the type is '{}'",
                                        head.header("content-type").substr(0, 100)),
                            {});
    if (const auto coding = parse_content_coding(head.header("content-encoding"));
        call.route->runs_on == RunsOn::texts && !coding) {
      HttpResponse response = error_response(415, coding.error().message, {});
      response.headers.emplace_back("Accept-Encoding", kContentCodings);
      return response;
    }
    return std::nullopt;
  }
  std::string allowed = "OPTIONS";
  for (const Route& route : call.routes)
    allowed = fmt::format("{}{}, {}", route.method, route.method == "GET" ? ", HEAD" : "", allowed);
  if (head.method == "OPTIONS") return HttpResponse{204, {{"Allow", allowed}}, {}};
  HttpResponse response = error_response(
      405, fmt::format("{} is not allowed on {}; allowed: {}", head.method.substr(0, 20), head.path.substr(0, 100), allowed),
      {});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

/// The routes of a path, one for each method.
std::span<const Routes::Route> Routes::routes_of(std::string_view path) {
  const std::span<const Route> all = table();
  const auto has_path = [path](const Route& route) {
    return route.path.size() > 1 && route.path.ends_with('/') ? path.starts_with(route.path) && path.size() > route.path.size()
                                                              : route.path == path;
  };
  const auto begin = std::ranges::find_if(all, has_path);
  return {begin, std::find_if_not(begin, all.end(), has_path)};
}

/// The dialect of a path; that of chat completions also for paths that belong to none.
const Dialect& Routes::dialect_of(std::string_view path) {
  for (const Dialect* dialect : {&kMessages, &kResponses})
    if (dialect->has(path)) return *dialect;
  return kChatCompletions;
}

const ErrorForm& Routes::errors_of(std::string_view path) { return dialect_of(path).errors; }

/// The path of a route that a path without one comes close to: with a slash twice, without /v1 or with it twice; else empty.
std::string Routes::near_path(std::string_view path) {
  std::string single;
  for (const char c : without_last_slashes(path))
    if (c != '/' || !single.ends_with('/')) single += c;
  while (single.starts_with("/v1/v1/")) single.erase(0, 3);
  for (const std::string& near : {single, "/v1" + single})
    if (near != path && !routes_of(near).empty()) return near;
  return "";
}

std::shared_ptr<Ticket> Routes::look_up(const HttpRequest& head) {
  auto call = std::make_shared<Call>();
  const std::string_view path = without_last_slashes(head.path);
  call->routes = routes_of(path);
  // A client of another dialect reads the refusal in the form of the path that it meant.
  const std::string near = call->routes.empty() ? near_path(path) : "";
  call->dialect = &dialect_of(near.empty() ? path : near);
  call->errors = &call->dialect->errors;
  for (const Route& route : call->routes) {
    if (call->route == nullptr && route.answers(head.method)) call->route = &route;
    if (route.access == Access::none && route.handler != &Routes::page) call->is_health_check = true;
  }
  return call;
}

std::optional<HttpResponse> Routes::check_header(const HttpRequest& head, Ticket& ticket) const {
  auto& call = static_cast<Call&>(ticket);
  Response refused = refuse(head, call);
  if (!refused) return std::nullopt;
  if (refused->status >= 400) refused = call.errors->rewrite(std::move(*refused));
  const HttpHeaders common = common_headers(head, *call.errors);
  refused->headers.insert(refused->headers.end(), common.begin(), common.end());
  const std::string handler = call.handler();
  context_.metrics.observe_request(handler, method_label(head.method), refused->status, /*seconds=*/0);
  log::debug("event=answered handler={} method={} status={} seconds=0", handler, method_label(head.method), refused->status);
  return refused;
}

void Routes::handle(ExchangeId exchange, HttpRequest request, std::shared_ptr<Ticket> ticket) {
  const auto call = std::static_pointer_cast<Call>(std::move(ticket));
  check(call->route != nullptr, "a request without a route was not refused");
  const Route& route = *call->route;
  call->exchange = exchange;
  call->request = std::move(request);
  call->request.path.resize(without_last_slashes(call->request.path).size());
  KeyUse use;
  Response refused = take_caller(*call, use);
  context_.dispatcher.open(exchange, call->handler(), method_label(call->request.method),
                           common_headers(call->request, *call->errors), *call->errors, std::move(use));
  if (refused) return context_.dispatcher.respond(exchange, std::move(*refused));
  bool is_queued = true;
  switch (route.runs_on) {
    case RunsOn::io: {
      // This thread does not wait for memory: without it the connection ends.
      if (Response response = (this->*route.handler)(*call)) context_.dispatcher.respond(exchange, std::move(*response));
      return;
    }
    case RunsOn::metrics: return queue_metrics(call);
    case RunsOn::texts:
      is_queued =
          call->request.header("content-encoding").empty() ? queue(call, call->request.body.size()) : queue_compressed(call);
      break;
    case RunsOn::pages: is_queued = queue(call, 0, TextQueue::Kind::page); break;
  }
  if (!is_queued) context_.dispatcher.respond(exchange, error_response(503, kTooManyTexts, {}));
}

/// Queues work on so many bytes of text. False if there is no place for it.
bool Routes::queue(std::shared_ptr<const Call> call, std::size_t n_bytes, TextQueue::Kind kind) {
  call->is_long = n_bytes > TextQueue::kLongBytes;
  TextQueue::Work work = work_for(*call, n_bytes, [this, call] {
    if (Response response = (this->*call->route->handler)(*call))
      context_.dispatcher.respond(call->exchange, std::move(*response));
  });
  work.kind = kind;
  return texts_.push(std::move(work));
}

/// Work on a request, which is left out if its client has left.
TextQueue::Work Routes::work_for(const Call& call, std::size_t n_bytes, std::function<void()> act) {
  const ExchangeId exchange = call.exchange;
  TextQueue::Work work;
  work.tenant = call.caller.tenant;
  work.n_bytes = n_bytes;
  work.refuse = [this, exchange](std::string_view why) { context_.dispatcher.respond(exchange, error_response(503, why, {})); };
  work.run = [this, exchange, act = std::move(act)] {
    if (context_.dispatcher.is_open(exchange)) act();
  };
  return work;
}

/// For a handler that finds out that it works on `n_bytes` of text. If that is long work and it was queued as short, it is
/// queued again (true), and the handler begins again there: the caller returns without an answer and leaves the call alone.
/// Error: unavailable, if there is no place for it.
Result<bool> Routes::goes_on_as_long_work(const Call& call, std::size_t n_bytes) {
  if (call.is_long || n_bytes <= TextQueue::kLongBytes) return false;
  if (!queue(call.shared_from_this(), n_bytes)) return fail(ErrorCode::unavailable, std::string(kTooManyTexts));
  return true;
}

/// The headers of every answer to a request, also of errors.
HttpHeaders Routes::common_headers(const HttpRequest& request, const ErrorForm& errors) const {
  HttpHeaders headers = cors_headers(options_.cors, request);
  std::ranges::move(errors.headers(), std::back_inserter(headers));
  return headers;
}

/// Counts a request against the quotas of its sender, which other requests of the key may have used up since the header was
/// checked. If the keys have changed since, the sender is identified again.
Routes::Response Routes::take_caller(Call& call, KeyUse& use) const {
  if (call.route->access == Access::none) return std::nullopt;
  if (!context_.keys.is_current(call.caller))
    if (Response refused = identify_sender(call.request, call)) return refused;
  if (call.caller.account == nullptr || !is_counted(*call.route)) return std::nullopt;
  if (Response refused = call.caller.account->begin(RateLimit::Clock::now())) return refused;
  use = KeyUse(*call.caller.account);
  return std::nullopt;
}

/// Answers 503. That needs memory too: it is tried until others have given some back. Not on the I/O thread.
void Routes::refuse_for_memory(ExchangeId exchange) {
  insist(kNoRefusal, [&] { context_.dispatcher.respond(exchange, error_response(503, TextQueue::kNoMemory, {})); });
}

void Routes::log_unknown_fields(const std::vector<std::string>& fields) {
  const MutexLock lock(mutex_);
  for (const std::string& field : fields) {
    if (logged_fields_.size() >= kMaxLoggedFields || !logged_fields_.insert(field).second) continue;
    log::info("event=unknown_field_ignored field={}", json::dump(Value(field)));
  }
}

/// Whether an answer is no longer wanted: its client has left, or the server ends.
IsCancelled Routes::is_unwanted(ExchangeId exchange) const {
  return [this, exchange] { return texts_.is_stopping() || !context_.dispatcher.is_open(exchange); };
}

Result<Value> Routes::body_of(const Call& call) const {
  return parse_body(call.request, context_.budgets.values_per_body, is_unwanted(call.exchange));
}

RequestBounds Routes::limits() const {
  return {context_.model.n_vocab, options_.max_logprobs, options_.json_spaces, kChatCompletions.path};
}

Routes::Response Routes::models(const Call&) {
  Value list = Value::array();
  for (const std::string& name : context_.model.names) list.push_back(model_entry(context_.model, name, nullptr, started_));
  const std::string& base = context_.model.names[0];
  context_.prefixes.for_each([&](const Prefixes::Entry& entry) {
    list.push_back(model_entry(context_.model, base + ":" + entry.definition.name, base, entry.created));
  });
  return json_response({{"object", "list"}, {"data", std::move(list)}});
}

Routes::Response Routes::model(const Call& call) {
  constexpr std::string_view kPath = "/v1/models/";
  GenerationRequest named;
  named.model = percent_decoded(std::string_view(call.request.path).substr(kPath.size()));
  const auto target = resolve_target(context_.model, context_.prefixes, named);
  if (!target) return error_response(target.error());
  const bool is_prefix = static_cast<bool>(target->prefix);
  return json_response(model_entry(context_.model, named.model, is_prefix ? Value(context_.model.names[0]) : Value(),
                                   is_prefix ? target->prefix->created : started_));
}

Routes::Response Routes::tokenize(const Call& call) {
  auto body = body_of(call);
  if (!body) return error_response(body.error());
  const json::Dismantling end_of_body(*body);
  const auto answer =
      tokenize_request(context_.model, context_.prefixes, *body, is_unwanted(call.exchange), kChatCompletions.path);
  return answer ? json_response(*answer) : error_response(answer.error());
}

Routes::Response Routes::detokenize(const Call& call) {
  auto body = body_of(call);
  if (!body) return error_response(body.error());
  const json::Dismantling end_of_body(*body);
  const auto answer = detokenize_request(context_.model, context_.prefixes, *body);
  return answer ? json_response(*answer) : error_response(answer.error());
}

Routes::Response Routes::tokenizer_info(const Call&) { return json_response(baton::tokenizer_info(context_.model)); }

/// Endpoints of other servers that clients try: a model that writes text has no answer to them.
Routes::Response Routes::not_offered(const Call& call) {
  return error_response(501,
                        fmt::format("this server has no {}: its model reads and writes text; embeddings, moderation, audio "
                                    "and images need another server",
                                    call.request.path.substr(0, 100)),
                        {});
}

/// Why the server must be restarted: its engine or a thread that works for clients hangs, or a rank is lost.
std::optional<std::string> Routes::fault() const {
  if (auto fault = context_.engine.fault()) return fault;
  if (context_.engine.is_stuck()) return "a step of the engine lasts longer than --step-timeout";
  return context_.watch.complaint();
}

Routes::Response Routes::health(const Call&) {
  if (const auto reason = fault()) return error_response(503, *reason, {});
  return HttpResponse{context_.engine.is_draining() ? 503 : 200, {}, {}};
}

/// A draining server is alive.
Routes::Response Routes::livez(const Call&) {
  if (const auto reason = fault()) return error_response(503, *reason, {});
  return HttpResponse{200, {}, {}};
}

Routes::Response Routes::version(const Call&) { return json_response({{"version", options_.version}}); }

Routes::Response Routes::load(const Call&) {
  const EngineMetrics& metrics = context_.engine.metrics();
  return json_response({{"server_load", metrics.num_requests_running.value() + metrics.num_requests_waiting.value()}});
}

/// Queues the decoding of a compressed body, which then waits in turn as a text of its own size. False if there is no place for it.
bool Routes::queue_compressed(const std::shared_ptr<Call>& call) {
  constexpr std::size_t kUsualRatio = 8;
  return texts_.push(work_for(*call, kUsualRatio * call->request.body.size(), [this, call] {
    Result<void> decoded = parse_content_coding(call->request.header("content-encoding")).and_then([&](ContentCoding coding) {
      return decode_body(*call, coding);
    });
    if (decoded && !queue(call, call->request.body.size())) decoded = fail(ErrorCode::unavailable, std::string(kTooManyTexts));
    if (!decoded) context_.dispatcher.respond(call->exchange, error_response(decoded.error()));
  }));
}

/// Puts the text of a body into its place. Errors: those of decode_content.
Result<void> Routes::decode_body(Call& call, ContentCoding coding) const {
  if (coding == ContentCoding::identity) return {};
  HttpRequest& request = call.request;
  const auto n_sent = static_cast<std::int64_t>(request.body.size());
  const auto has_room = [&](std::size_t n) {
    const std::int64_t n_more = n_sent + static_cast<std::int64_t>(n) - request.body_share.size();
    return n_more <= 0 || request.body_share.grow(n_more);
  };
  BATON_TRY(request.body, decode_content(coding, request.body, "the request body",
                                         {options_.max_body_bytes, has_room, is_unwanted(call.exchange)}));
  if (request.body_share.size() > n_sent) request.body_share.shrink(n_sent);
  return {};
}

}  // namespace baton
