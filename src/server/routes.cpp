/// The table of endpoints and their handlers.
#include "server/routes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>
#include <boost/asio/post.hpp>

#include "core/check.h"
#include "core/log.h"
#include "server/api_error.h"
#include "server/auth.h"
#include "server/json_size.h"
#include "server/prefix_api.h"
#include "server/prompts.h"
#include "server/tokenize.h"

namespace baton {
namespace {

using json::Value;

constexpr std::size_t kMaxLoggedFields = 100;
constexpr std::string_view kPrefixPath = "/v1/prefixes/";
constexpr std::string_view kShuttingDown = "the server is shutting down";

HttpResponse json_response(const Value& body) { return {200, {{"Content-Type", "application/json"}}, json::dump(body)}; }

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// The method as a metrics label: one of few, whatever clients send.
std::string method_label(std::string_view method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
    if (method == known) return std::string(known);
  return "OTHER";
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// "demo%3Ashop" -> "demo:shop"; everything else is unchanged.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

/// Parses a body of at most `max_values` values: as text they take a few bytes, in memory many.
Result<Value> parse_body(const HttpRequest& request, std::int64_t max_values) {
  if (const std::int64_t n = count_json_values(request.body); n > max_values)
    return fail(ErrorCode::too_large,
                fmt::format("the request body has {} JSON values; this server accepts {}", n, max_values));
  BATON_TRY(Value body, json::parse(request.body, "the request body"));
  if (!body.is_object())
    return fail(ErrorCode::invalid_request,
                fmt::format("the request body must be a JSON object, not {}", json::describe_type(body)));
  return body;
}

Value model_entry(const ServedModel& model, const std::string& id, const Value& parent, std::int64_t created) {
  Value entry;
  entry["id"] = id;
  entry["object"] = "model";
  entry["created"] = created;
  entry["owned_by"] = "baton";
  entry["root"] = model.root;
  entry["parent"] = parent;
  entry["max_model_len"] = model.max_model_len;
  entry["permission"] = Value::array();
  return entry;
}

/// The response for an error; errors of the server are logged.
HttpResponse refused(const Error& error) {
  const HttpResponse response = error_response(error);
  if (response.status >= 500) log::warning("event=request_refused status={} reason=\"{}\"", response.status, error.message);
  return response;
}

}  // namespace

std::span<const Routes::Route> Routes::table() {
  static constexpr Route routes[] = {
      {"/v1/chat/completions", "POST", true, Where::texts, &Routes::chat_completions},
      {"/v1/completions", "POST", true, Where::texts, &Routes::completions},
      {"/v1/models", "GET", true, Where::pages, &Routes::models},
      {"/v1/models/", "GET", true, Where::pages, &Routes::model},
      {"/v1/prefixes", "GET", true, Where::pages, &Routes::prefixes},
      {"/v1/prefixes", "POST", true, Where::texts, &Routes::register_prefix},
      {"/v1/prefixes/", "GET", true, Where::pages, &Routes::prefix},
      {"/v1/prefixes/", "DELETE", true, Where::pages, &Routes::remove_prefix},
      {"/tokenize", "POST", true, Where::texts, &Routes::tokenize},
      {"/detokenize", "POST", true, Where::texts, &Routes::detokenize},
      {"/health", "GET", false, Where::io, &Routes::health},
      {"/livez", "GET", false, Where::io, &Routes::livez},
      {"/ping", "GET", false, Where::io, &Routes::health},
      {"/ping", "POST", false, Where::io, &Routes::health},
      {"/metrics", "GET", false, Where::pages, &Routes::metrics},
      {"/version", "GET", false, Where::io, &Routes::version},
      {"/load", "GET", false, Where::io, &Routes::load},
  };
  return routes;
}

Routes::Routes(RoutesOptions options, const RoutesContext& context)
    : options_(std::move(options)),
      context_(context),
      started_(unix_seconds()),
      texts_(context.budgets.text_work),
      pages_thread_(1),
      prefix_thread_(1),
      next_expiry_(prefix_thread_) {}

Routes::~Routes() { stop(); }

void Routes::stop() {
  pages_thread_.stop();
  prefix_thread_.stop();
  texts_.stop();
  pages_thread_.join();
  prefix_thread_.join();
}

/// The answer to a request without a handler: unknown path, wrong method, missing key, another body than JSON.
Routes::Response Routes::refuse(const HttpRequest& request, std::span<const Route* const> found) const {
  if (is_preflight(request)) return HttpResponse{200, {}, {}};
  if (found.empty()) {
    std::vector<std::string_view> paths;
    for (const Route& route : table())
      if (!route.path.ends_with('/') && (paths.empty() || paths.back() != route.path)) paths.push_back(route.path);
    return error_response(
        404, fmt::format("there is no {} here; there are: {}", request.path.substr(0, 100), fmt::join(paths, ", ")), {});
  }
  std::string allowed = "OPTIONS";
  for (const Route* route : found) {
    const bool answers = route->method == request.method || (route->method == "GET" && request.method == "HEAD");
    if (answers && route->needs_key && !is_authorized(request.header("authorization"), options_.api_keys))
      return HttpResponse{
          401, {{"Content-Type", "application/json"}, {"WWW-Authenticate", "Bearer"}}, R"({"error":"Unauthorized"})"};
    // A page of another origin can send other types without asking first (CORS).
    if (answers && route->where == Where::texts && !is_media_type(request.header("content-type"), "application/json"))
      return error_response(415,
                            fmt::format("the body must be JSON, with 'Content-Type: application/json'; the type is '{}'",
                                        request.header("content-type").substr(0, 100)),
                            {});
    if (answers) return std::nullopt;
    allowed = fmt::format("{}{}, {}", route->method, route->method == "GET" ? ", HEAD" : "", allowed);
  }
  if (request.method == "OPTIONS") return HttpResponse{204, {{"Allow", allowed}}, {}};
  HttpResponse response = error_response(
      405,
      fmt::format("{} is not allowed on {}; allowed: {}", request.method.substr(0, 20), request.path.substr(0, 100), allowed),
      {});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

/// The routes of a path, one for each method.
std::vector<const Routes::Route*> Routes::routes_of(std::string_view path) {
  std::vector<const Route*> found;
  for (const Route& route : table())
    if (route.path.ends_with('/') ? path.starts_with(route.path) && path.size() > route.path.size() : route.path == path)
      found.push_back(&route);
  return found;
}

std::optional<HttpResponse> Routes::judge(const HttpRequest& head) const {
  const std::vector<const Route*> found = routes_of(head.path);
  Response refused = refuse(head, found);
  if (!refused) return std::nullopt;
  const HttpHeaders cors = cors_headers(options_.cors, head);
  refused->headers.insert(refused->headers.end(), cors.begin(), cors.end());
  const std::string handler = found.empty() ? "none" : std::string(found[0]->path);
  context_.metrics.observe_request(handler, method_label(head.method), refused->status, /*seconds=*/0);
  log::debug("event=answered handler={} method={} status={} seconds=0", handler, method_label(head.method), refused->status);
  return refused;
}

bool Routes::is_vital(const HttpRequest& head) {
  return std::ranges::any_of(routes_of(head.path), [](const Route* route) { return !route->needs_key; });
}

void Routes::handle(ExchangeId exchange, HttpRequest request) {
  const std::vector<const Route*> found = routes_of(request.path);
  const auto chosen = std::ranges::find_if(found, [&](const Route* route) {
    return route->method == request.method || (route->method == "GET" && request.method == "HEAD");
  });
  check(chosen != found.end(), "a request without a route was not refused");
  context_.service.open(exchange, std::string(found[0]->path), method_label(request.method),
                        cors_headers(options_.cors, request));
  const std::size_t n_bytes = request.body.size();
  auto run = [this, exchange, handler = (*chosen)->handler, request = std::make_shared<HttpRequest>(std::move(request))] {
    // What a client that has left asked for is not done.
    if (context_.service.is_open(exchange)) answer(exchange, handler, *request);
  };
  switch ((*chosen)->where) {
    case Where::io: return run();
    case Where::texts: break;
    case Where::pages: return boost::asio::post(pages_thread_, std::move(run));
  }
  if (texts_.push(n_bytes, std::move(run))) return;
  context_.service.respond(
      exchange, error_response(503, "too many requests wait for this server's templates and tokenizer; please try again", {}));
}

/// Runs a handler. If memory runs out, its exchange ends, not the program.
void Routes::answer(ExchangeId exchange, Handler handler, const HttpRequest& request) {
  try {
    if (Response response = (this->*handler)(exchange, request)) context_.service.respond(exchange, std::move(*response));
  } catch (const std::bad_alloc&) {
    log::warning("event=out_of_memory path={}", request.path);
    context_.service.respond(exchange, error_response(503, "this server has no memory left for the request", {}));
  }
}

void Routes::log_unknown_fields(const std::vector<std::string>& fields) {
  const std::scoped_lock lock(mutex_);
  for (const std::string& field : fields) {
    if (logged_fields_.size() >= kMaxLoggedFields || !logged_fields_.insert(field).second) continue;
    log::info("event=unknown_field_ignored field={}", json::dump(Value(field)));
  }
}

RequestBounds Routes::limits() const { return {context_.model.n_vocab, options_.max_logprobs}; }

/// Takes what an answer's log-probabilities need from their budget. Errors: invalid_request if they are more than an answer
/// may have, unavailable if there is no room now.
Result<BudgetShare> Routes::take_scores(const GenerationRequest& request, bool is_chat,
                                        std::span<const AnswerPrompt> prompts) const {
  const ScoreCount count = count_scores(request, is_chat, prompts, context_.model.max_model_len);
  const std::int64_t limit = context_.budgets.scores_per_answer;
  if (count.total() > limit) {
    const bool is_of_prompts = count.of_prompts > count.of_answers;
    const std::string_view field = is_of_prompts && !request.echoes_logprobs ? "prompt_logprobs"
                                   : is_chat                                 ? "top_logprobs"
                                                                             : "logprobs";
    return fail(
        ErrorCode::invalid_request,
        fmt::format("'{}': tokens x (1 + alternatives) x choices come to {} log-probabilities of prompts and up to {} of "
                    "the answer (n = {}); this server puts {} into one answer",
                    field, count.of_prompts, count.of_answers, request.n, limit),
        std::string(field));
  }
  BudgetShare share = context_.budgets.scores.share();
  if (!share.grow(count.total()))
    return fail(ErrorCode::unavailable, fmt::format("the log-probabilities of answers in hand are {}; this server keeps {}",
                                                    context_.budgets.scores.used(), context_.budgets.scores.limit()));
  return share;
}

AnswerHeader Routes::answer_header(const HttpRequest& request, const GenerationRequest& generation, bool is_chat,
                                   std::string model) const {
  const std::string_view given = request.header("x-request-id");
  const bool is_usable = !given.empty() && given.size() <= kMaxRequestIdBytes &&
                         std::ranges::all_of(given, [](char c) { return c > ' ' && c <= '~'; });
  const std::string id = generation.request_id ? *generation.request_id : is_usable ? std::string(given) : random_id();
  return {is_chat, (is_chat ? "chatcmpl-" : "cmpl-") + id, unix_seconds(), std::move(model), "baton-" + options_.version};
}

Result<void> Routes::begin_chat(ExchangeId exchange, const HttpRequest& request) {
  BATON_TRY(const Value body, parse_body(request, context_.budgets.values_per_body));
  BATON_TRY(ChatRequest chat, parse_chat_request(body, context_.model.defaults, limits()));
  log_unknown_fields(chat.generation.unknown_fields);
  BATON_TRY(Target target, resolve_target(context_.model, context_.prefixes, chat.generation));
  BATON_TRY(TokenizedPrompt prompt, tokenize_chat(context_.model, target.prefix, chat));
  std::vector<Request> all = engine_requests(context_.model, chat.generation, {&prompt, 1});
  std::vector<AnswerPrompt> prompts(1);
  prompts[0].tokens = std::move(prompt.tokens);
  BATON_TRY(BudgetShare scores, take_scores(chat.generation, /*is_chat=*/true, prompts));
  if (target.prefix) context_.prefixes.count_hit(target.prefix->definition.name);
  AnswerHeader header = answer_header(request, chat.generation, /*is_chat=*/true, std::move(target.model));
  auto answer =
      std::make_unique<Answer>(std::move(header), std::move(chat.generation), std::move(prompts), context_.model.tokenizer);
  answer->keep(std::move(scores));
  return context_.service.begin(exchange, std::move(answer), std::move(all));
}

Result<void> Routes::begin_completion(ExchangeId exchange, const HttpRequest& request) {
  BATON_TRY(const Value body, parse_body(request, context_.budgets.values_per_body));
  BATON_TRY(CompletionRequest completion, parse_completion_request(body, context_.model.defaults, limits()));
  log_unknown_fields(completion.generation.unknown_fields);
  BATON_TRY(Target target, resolve_target(context_.model, context_.prefixes, completion.generation));
  const SamplingParams& sampling = completion.generation.sampling;
  const bool has_nothing_to_do = sampling.max_tokens == 0 && sampling.n_prompt_logprobs < 0;
  if (target.prefix && completion.generation.echoes_logprobs)
    return fail(ErrorCode::invalid_request,
                "'logprobs' with 'echo' is not supported by this server together with a prefix; the value accepted is null",
                "logprobs");
  std::vector<TokenizedPrompt> tokenized;
  std::vector<AnswerPrompt> prompts;
  for (const Prompt& given : completion.prompts) {
    if (!context_.service.is_open(exchange)) return {};  // its client has left
    BATON_TRY(TokenizedPrompt prompt, tokenize_completion(context_.model, target.prefix, completion, given));
    prompts.push_back({prompt.tokens, std::move(prompt.echo)});
    tokenized.push_back(std::move(prompt));
  }
  std::vector<Request> all = engine_requests(context_.model, completion.generation, tokenized);
  BATON_TRY(BudgetShare scores, take_scores(completion.generation, /*is_chat=*/false, prompts));
  if (target.prefix) context_.prefixes.count_hit(target.prefix->definition.name);
  AnswerHeader header = answer_header(request, completion.generation, /*is_chat=*/false, std::move(target.model));
  auto answer = std::make_unique<Answer>(std::move(header), std::move(completion.generation), std::move(prompts),
                                         context_.model.tokenizer);
  answer->keep(std::move(scores));
  if (!has_nothing_to_do) return context_.service.begin(exchange, std::move(answer), std::move(all));
  std::string frames = answer->take_nothing();
  context_.service.send_finished(exchange, std::move(answer), std::move(frames));
  return {};
}

Routes::Response Routes::chat_completions(ExchangeId exchange, const HttpRequest& request) {
  if (context_.engine.is_draining()) return error_response(503, kShuttingDown, {});
  if (auto begun = begin_chat(exchange, request); !begun) return refused(begun.error());
  return std::nullopt;
}

Routes::Response Routes::completions(ExchangeId exchange, const HttpRequest& request) {
  if (context_.engine.is_draining()) return error_response(503, kShuttingDown, {});
  if (auto begun = begin_completion(exchange, request); !begun) return refused(begun.error());
  return std::nullopt;
}

Routes::Response Routes::models(ExchangeId, const HttpRequest&) {
  Value list = Value::array();
  for (const std::string& name : context_.model.names) list.push_back(model_entry(context_.model, name, nullptr, started_));
  const std::string& base = context_.model.names[0];
  context_.prefixes.for_each([&](const Prefixes::Entry& entry) {
    list.push_back(model_entry(context_.model, base + ":" + entry.definition.name, base, entry.created));
  });
  Value body;
  body["object"] = "list";
  body["data"] = std::move(list);
  return json_response(body);
}

Routes::Response Routes::model(ExchangeId, const HttpRequest& request) {
  constexpr std::string_view kPath = "/v1/models/";
  GenerationRequest named;
  named.model = percent_decoded(std::string_view(request.path).substr(kPath.size()));
  const auto target = resolve_target(context_.model, context_.prefixes, named);
  if (!target) return error_response(target.error());
  const bool is_prefix = static_cast<bool>(target->prefix);
  return json_response(model_entry(context_.model, named.model, is_prefix ? Value(context_.model.names[0]) : Value(),
                                   is_prefix ? target->prefix->created : started_));
}

Routes::Response Routes::prefixes(ExchangeId, const HttpRequest&) {
  const std::int32_t block_len = context_.engine.info().block_len;
  Value list = Value::array();
  context_.prefixes.for_each(
      [&](const Prefixes::Entry& entry) { list.push_back(prefix_json(entry, context_.model.names[0], block_len)); });
  Value body;
  body["object"] = "list";
  body["data"] = std::move(list);
  return json_response(body);
}

Routes::Response Routes::prefix(ExchangeId, const HttpRequest& request) {
  const std::string name = percent_decoded(std::string_view(request.path).substr(kPrefixPath.size()));
  if (const auto shown = show_prefix(name)) return json_response(*shown);
  return error_response(context_.prefixes.not_found(name, "id"));
}

std::optional<Value> Routes::show_prefix(std::string_view name) const {
  std::optional<Value> shown;
  context_.prefixes.for_each([&](const Prefixes::Entry& entry) {
    if (entry.definition.name == name) shown = prefix_json(entry, context_.model.names[0], context_.engine.info().block_len);
  });
  return shown;
}

Routes::Response Routes::register_prefix(ExchangeId exchange, const HttpRequest& request) {
  const auto body = parse_body(request, context_.budgets.values_per_body);
  if (!body) return error_response(body.error());
  auto asked = parse_prefix_request(*body);
  if (!asked) return error_response(asked.error());
  log_unknown_fields(asked->unknown_fields);
  asked->definition.source = PrefixSource::api;
  context_.prefixes.make_way(context_.engine, asked->definition);
  boost::asio::post(prefix_thread_,
                    [this, exchange, asked = std::move(*asked)] { context_.service.respond(exchange, add_prefix(asked)); });
  return std::nullopt;
}

HttpResponse Routes::add_prefix(const PrefixRequest& asked) {
  const std::string& name = asked.definition.name;
  if (auto added = context_.prefixes.add(context_.model, context_.engine, asked.definition); !added)
    return refused(prefix_error(std::move(added.error()), asked));
  expire_prefixes();
  if (const auto shown = show_prefix(name)) return json_response(*shown);
  return error_response(context_.prefixes.not_found(name, "id"));
}

void Routes::watch_lifetimes() {
  boost::asio::post(prefix_thread_, [this] { expire_prefixes(); });
}

Routes::Response Routes::remove_prefix(ExchangeId, const HttpRequest& request) {
  const std::string name = percent_decoded(std::string_view(request.path).substr(kPrefixPath.size()));
  if (const auto removed = context_.prefixes.remove(context_.engine, name, PrefixSource::api); !removed)
    return error_response(removed.error());
  Value body;
  body["id"] = name;
  body["object"] = "prefix";
  body["deleted"] = true;
  return json_response(body);
}

/// Removes expired prefixes, and runs again when the next one expires.
void Routes::expire_prefixes() {
  const auto now = Prefixes::Clock::now();
  const auto next = context_.prefixes.remove_expired(context_.engine, now);
  if (!next) return;
  next_expiry_.expires_after(std::chrono::ceil<std::chrono::milliseconds>(*next - now));
  next_expiry_.async_wait([this](const boost::system::error_code& error) {
    if (!error) expire_prefixes();
  });
}

Routes::Response Routes::tokenize(ExchangeId, const HttpRequest& request) {
  const auto body = parse_body(request, context_.budgets.values_per_body);
  if (!body) return error_response(body.error());
  const auto answer = tokenize_request(context_.model, context_.prefixes, *body);
  return answer ? json_response(*answer) : error_response(answer.error());
}

Routes::Response Routes::detokenize(ExchangeId, const HttpRequest& request) {
  const auto body = parse_body(request, context_.budgets.values_per_body);
  if (!body) return error_response(body.error());
  const auto answer = detokenize_request(context_.model, context_.prefixes, *body);
  return answer ? json_response(*answer) : error_response(answer.error());
}

Routes::Response Routes::health(ExchangeId, const HttpRequest&) {
  return HttpResponse{context_.engine.is_draining() || context_.engine.is_stuck() ? 503 : 200, {}, {}};
}

/// A draining server is alive; a server whose engine is stuck must be restarted.
Routes::Response Routes::livez(ExchangeId, const HttpRequest&) {
  return HttpResponse{context_.engine.is_stuck() ? 503 : 200, {}, {}};
}

Routes::Response Routes::metrics(ExchangeId, const HttpRequest&) {
  return HttpResponse{200,
                      {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                      context_.metrics.render(context_.prefixes.counts(), context_.budgets, context_.connections)};
}

Routes::Response Routes::version(ExchangeId, const HttpRequest&) {
  Value body;
  body["version"] = options_.version;
  return json_response(body);
}

Routes::Response Routes::load(ExchangeId, const HttpRequest&) {
  Value body;
  body["server_load"] =
      context_.engine.metrics().num_requests_running.value() + context_.engine.metrics().num_requests_waiting.value();
  return json_response(body);
}

}  // namespace baton
