/// Starting, draining and ending.
#include "server/server.h"

#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/one_line.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kDrainPoll{50};
constexpr std::chrono::milliseconds kAbortTimeout{2'000};
constexpr std::int64_t kFlushMs = 2'000;
/// How long threads have to end. What templates, tokenizers and grammars are doing is cancelled within a tenth of a second.
constexpr std::chrono::milliseconds kEndOfThreads{3'000};

}  // namespace

void stop_engine(Engine& engine) {
  ThreadWatch watch(std::chrono::milliseconds(0));
  const ThreadWatch::Work work(watch.add("engine"));
  watch.start();
  watch.end_program_after(kEndOfThreads);
  engine.stop();
}

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  BATON_TRY(server->keys_, ApiKeys::create(server->options_.keys));
  if (!server->options_.prefix_store.folder.empty()) {
    BATON_TRY(server->store_, PrefixStore::open(server->options_.prefix_store));
  }
  BATON_TRY(server->http_, HttpServer::bind(server->options_.address, server->options_.limits));
  if (server->options_.kv_events.is_enabled) {
    BATON_TRY(server->kv_events_, KvEventPublisher::bind(server->options_.kv_events));
  }
  return server;
}

Server::~Server() {
  if (!is_serving_) return;
  begin_shutdown();
  begin_shutdown();
  wait();
}

/// Those of the command line, of the store, and of the folder.
Result<void> Server::register_prefixes(Engine& engine, std::vector<PrefixDefinition> prefixes) {
  if (store_) store_->scan(engine, model_->identity);
  prefixes_ = std::make_unique<Prefixes>(*model_, engine, options_.prefix_limits, store_.get());
  for (PrefixDefinition& prefix : prefixes) {
    BATON_TRY_VOID(prefixes_->add(std::move(prefix)));
  }
  if (store_) prefixes_->restore();
  if (!options_.prefix_folder.empty()) {
    folder_ = std::make_unique<PrefixFolder>(options_.prefix_folder, options_.prefix_links, *prefixes_);
    BATON_TRY_VOID(folder_->register_all());
  }
  if (store_) store_->remove_unclaimed();
  return {};
}

Result<void> Server::start(ServedModel model, Engine& engine, std::vector<PrefixDefinition> prefixes) {
  check(!is_serving_, "a Server is started once");
  check(!model.names.empty(), "a served model has a name");
  model.set_context(engine.info().max_model_len);
  model.grammars =
      std::make_unique<Grammars>(model.n_vocab, engine.info().eos_token_ids, options_.grammars, &http_->budgets().compiles);
  model_.emplace(std::move(model));
  BATON_TRY_VOID(register_prefixes(engine, std::move(prefixes)));
  set_engine(&engine);
  metrics_ = std::make_unique<MetricsPage>(engine, model_->names[0]);
  dispatcher_ =
      std::make_unique<AnswerDispatcher>(engine, *http_, *metrics_, std::chrono::milliseconds(options_.longest_silence_ms));
  options_.routes.max_body_bytes = options_.limits.max_body_bytes;
  routes_ =
      std::make_unique<Routes>(options_.routes, RoutesContext{*keys_, *model_, *prefixes_, engine, *dispatcher_, *metrics_,
                                                              http_->budgets(), http_->connection_counts(), watch_});
  watch_.start();
  dispatcher_->start(watch_);
  routes_->prepare_grammars();
  if (options_.handles_signals) {
    if (keys_->has_file()) keys_->reload();  // a signal has no effect while the model is loaded
    routes_->watch_signals();
  }
  HttpCallbacks callbacks;
  callbacks.errors_of = Routes::errors_of;
  callbacks.look_up = Routes::look_up;
  callbacks.check_header = [this](const HttpRequest& head, Ticket& ticket) { return routes_->check_header(head, ticket); };
  callbacks.on_request = [this](ExchangeId exchange, HttpRequest request, std::shared_ptr<Ticket> ticket) {
    routes_->handle(exchange, std::move(request), std::move(ticket));
  };
  callbacks.on_writable = [this](ExchangeId exchange) { dispatcher_->client_reads(exchange); };
  callbacks.on_gone = [this](ExchangeId exchange) {
    dispatcher_->client_left(exchange);
    prefixes_->leave(exchange);
  };
  if (options_.handles_signals) callbacks.on_signal = [this] { begin_shutdown(); };
  if (auto opened = http_->start(std::move(callbacks)); !opened) {
    dispatcher_->stop();
    watch_.stop();
    set_engine(nullptr);
    return opened;
  }
  if (folder_) folder_->start();
  if (kv_events_) kv_events_->start(engine);
  log::info("event=serving address={} model={}", http_->address(), log_value(model_->names[0]));
  return {};
}

/// The engine that begin_shutdown drains; null: the server does not serve.
void Server::set_engine(Engine* engine) {
  is_serving_ = engine != nullptr;
  const MutexLock lock(mutex_);
  engine_ = engine;
}

void Server::begin_shutdown() {
  const MutexLock lock(mutex_);
  if (++n_shutdown_calls_ == 1 && engine_ != nullptr) engine_->begin_drain();
  changed_.notify_all();
}

/// Waits for running requests. False if the timeout or a second call ended the wait.
bool Server::drain() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.shutdown_timeout_ms);
  while (!dispatcher_->wait_until_empty(kDrainPoll)) {
    const MutexLock lock(mutex_);
    if (n_shutdown_calls_ > 1 || std::chrono::steady_clock::now() >= deadline) return false;
  }
  return true;
}

void Server::wait() {
  if (!is_serving_) return;
  {
    const MutexLock lock(mutex_);
    while (n_shutdown_calls_ == 0) changed_.wait(mutex_);
  }
  log::info("event=shutdown_begun open_requests={}", dispatcher_->n_open());
  if (!drain()) {
    log::warning("event=shutdown_aborts open_requests={}", dispatcher_->n_open());
    watch_.end_program_after(kEndOfThreads);
    dispatcher_->cancel_all();
    routes_->stop();  // what templates and tokenizers are doing ends early
    watch_.shutdown_goes_on();
    dispatcher_->wait_until_empty(kAbortTimeout);
  }
  watch_.end_program_after(std::chrono::milliseconds(kFlushMs) + kEndOfThreads);
  http_->stop(kFlushMs);
  if (folder_) folder_->stop();
  routes_->stop();
  dispatcher_->stop();
  if (kv_events_) kv_events_->stop();
  watch_.shutdown_goes_on();
  watch_.stop();
  set_engine(nullptr);
  log::info("event=shutdown_done");
}

}  // namespace baton
