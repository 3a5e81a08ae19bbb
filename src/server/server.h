/// The HTTP server of one engine: binds its address, registers prefixes, opens the port, drains and ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/answer/dispatcher.h"
#include "server/http/server.h"
#include "server/keys/api_keys.h"
#include "server/limits/thread_watch.h"
#include "server/observe/kv_event_publisher.h"
#include "server/prefixes/prefix_folder.h"
#include "server/prefixes/prefix_store.h"
#include "server/prefixes/prefixes.h"
#include "server/routes/routes.h"
#include "server/served/served_model.h"

namespace baton {

struct ServerOptions {
  HttpAddress address;
  HttpLimits limits;
  ApiKeyOptions keys = {};
  RoutesOptions routes;  ///< CORS, version
  grammar::GrammarCache::Options grammars = {};
  PrefixLimits prefix_limits = {};
  std::filesystem::path prefix_folder = {};  ///< see PrefixFolder; empty: none
  OutwardLinks prefix_links = OutwardLinks::refused;
  PrefixStoreOptions prefix_store = {};       ///< if it has a folder, the served model must have its digest
  KvEventsConfig kv_events = {};              ///< if they are enabled, EngineOptions::kv_events must be set
  std::int64_t shutdown_timeout_ms = 30'000;  ///< after it, running requests are aborted
  std::int64_t step_timeout_ms = 60'000;      ///< a thread that works longer for a request hangs, see ThreadWatch; 0: never
  std::int64_t longest_silence_ms = 15'000;   ///< a stream that has nothing to say for so long says that it waits
  /// SIGTERM and SIGINT begin the shutdown, and a second one ends it at once; SIGHUP reads the key file again;
  /// without such a file it is noted, as SIGUSR1 is, and the server continues.
  bool handles_signals = false;
};

/// Ends the engine that a server has served, after `wait`. If a step hangs, the program ends without it after three
/// seconds, with a log line and exit code 1. Thread: the engine's owner.
void stop_engine(Engine& engine);

/// Serves one model. Thread: the owner's, except `begin_shutdown`, which any may call.
class Server {
 public:
  /// Reads the key file, opens the prefix store, and binds the address without accepting connections and the endpoints of KV events (see
  /// ApiKeys::create, PrefixStore::open, HttpServer::bind, KvEventPublisher::bind).
  static Result<std::unique_ptr<Server>> bind(ServerOptions options);
  ~Server();

  /// Computes or loads the prefixes, those of the API that are stored, and those of the folder; pins them, then opens the port. The engine must have been started
  /// and must live until `wait` has returned.
  Result<void> start(ServedModel model, Engine& engine, std::vector<PrefixDefinition> prefixes);

  std::string address() const { return http_->address(); }
  std::uint16_t port() const { return http_->port(); }
  const Prefixes& prefixes() const { return *prefixes_; }
  const Budgets& budgets() const { return http_->budgets(); }
  const ApiKeys& keys() const { return *keys_; }
  /// Requests that have arrived and whose answers are not complete.
  std::size_t n_open() const { return dispatcher_->n_open(); }

  /// From now on /health answers 503 and new requests are refused; running requests continue. A second call aborts
  /// them.
  void begin_shutdown();
  /// Waits for begin_shutdown, then for running requests (at most the shutdown timeout), and closes the port. If a thread
  /// does not end then, the program ends without it, with a log line. Idempotent.
  void wait();

 private:
  explicit Server(ServerOptions options)
      : options_(std::move(options)), watch_(std::chrono::milliseconds(options_.step_timeout_ms)) {}
  Result<void> register_prefixes(Engine& engine, std::vector<PrefixDefinition> prefixes);
  void set_engine(Engine* engine);
  bool drain();

  ServerOptions options_;
  ThreadWatch watch_;
  std::unique_ptr<ApiKeys> keys_;
  std::optional<ServedModel> model_;
  std::unique_ptr<PrefixStore> store_;  // null: prefixes are not stored
  std::unique_ptr<Prefixes> prefixes_;
  bool is_serving_ = false;  // from start to the end of wait; the owner's
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<MetricsPage> metrics_;
  std::unique_ptr<AnswerDispatcher> dispatcher_;
  std::unique_ptr<Routes> routes_;
  std::unique_ptr<PrefixFolder> folder_;
  std::unique_ptr<KvEventPublisher> kv_events_;  // null: none are published

  Mutex mutex_;  // locked before the engine's
  Condition changed_;
  Engine* engine_ BATON_GUARDED_BY(mutex_) = nullptr;  // while the server serves
  int n_shutdown_calls_ BATON_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton
