/// `baton serve`: an OpenAI-compatible server over one model.
#include "apps/serve.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "cli/version.h"
#include "core/limits/memory_limit.h"
#include "core/limits/thread_body.h"
#include "core/log.h"
#include "core/one_line.h"
#include "load/model_checksum.h"
#include "ranks/rank_group.h"
#include "web/pages.h"

namespace baton {
namespace {

Result<std::vector<PrefixDefinition>> read_prefixes(const std::vector<std::string>& definitions) {
  std::vector<PrefixDefinition> read;
  for (const std::string& definition : definitions) {
    BATON_TRY(PrefixDefinition prefix, read_prefix_flag(definition));
    read.push_back(std::move(prefix));
  }
  return read;
}

ServerOptions server_options(const ServeCommandOptions& options) {
  ServerOptions made = options.server;
  made.routes.version = version_number();
  made.routes.pages = web_files();
  made.prefix_links = options.allows_prefix_links ? OutwardLinks::followed : OutwardLinks::refused;
  made.shutdown_timeout_ms = options.shutdown_timeout_s * 1000;
  made.step_timeout_ms = static_cast<std::int64_t>(options.model.step_timeout_s * 1000);
  made.handles_signals = true;
  const std::int64_t client_bytes =
      options.client_memory_bytes > 0 ? options.client_memory_bytes : default_client_memory(memory_limit());
  made.limits.budgets = budget_limits(client_bytes);
  made.grammars = cache_options(options.structured_outputs, client_bytes);
  made.routes.response_limits = response_store_limits(client_bytes);
  made.routes.json_spaces = options.structured_outputs.spaces;
  return made;
}

/// `--served-model-name NAME MODEL` gives the model two names and names none to load: most likely not what was meant. An empty name,
/// as of a variable that is not set, is one that no request can have.
Result<void> check_names(const ServeCommandOptions& options) {
  if (std::ranges::find(options.served_model_names, "") != options.served_model_names.end())
    return fail(ErrorCode::invalid_request, "--served-model-name: a name is empty", "served_model_name");
  if (options.served_model_names.size() < 2 || !options.model.model.empty()) return {};
  return fail(
      ErrorCode::invalid_request,
      fmt::format("--served-model-name {}: these are names of a model that is not given; write MODEL first, as in 'baton "
                  "serve demo --served-model-name a b'",
                  fmt::join(options.served_model_names, " ")),
      "served_model_name");
}

/// Clients of a Unix socket have no address.
Result<void> check_addresses(const ServeCommandOptions& options) {
  if (options.server.address.uds.empty() || options.server.limits.max_connections_per_address == 0) return {};
  return fail(ErrorCode::invalid_request, "--max-connections-per-address counts nothing on a Unix socket (--uds)",
              "max_connections_per_address");
}

/// What is not kept for later requests is not told of.
Result<void> check_kv_events(const ServeCommandOptions& options) {
  if (!options.server.kv_events.is_enabled || options.model.enable_prefix_caching) return {};
  return fail(ErrorCode::invalid_request, "--kv-events-config: there are no events with --no-enable-prefix-caching",
              "kv_events_config");
}

Result<void> check_prefix_store(const ServeCommandOptions& options) {
  const auto refuse = [](const char* message) { return fail(ErrorCode::invalid_request, message, "prefix_store"); };
  if (options.server.prefix_store.folder.empty()) {
    if (options.server.prefix_store.max_bytes > 0) return refuse("--prefix-store-bytes bounds nothing without --prefix-store");
    return {};
  }
  if (!options.model.enable_prefix_caching) return refuse("--prefix-store: no prefix is kept with --no-enable-prefix-caching");
  if (options.model.ranks != nullptr)
    return refuse(
        "--prefix-store cannot be used with --tensor-parallel-size over 1: each rank has a part of the keys and values");
  return {};
}

/// An empty key is a key that was meant to be set: without it everybody would be let in.
Result<void> check_keys(const ServeCommandOptions& options) {
  const auto is_empty = [](const std::vector<std::string>& keys, const char* variable) {
    const char* const in_environment = std::getenv(variable);
    return keys.empty() ? in_environment != nullptr && *in_environment == '\0' : std::ranges::find(keys, "") != keys.end();
  };
  if (is_empty(options.server.keys.api_keys, "BATON_API_KEY"))
    return fail(ErrorCode::invalid_request, "--api-key or BATON_API_KEY is empty; leave it out to serve without a key",
                "api_key");
  if (is_empty(options.server.keys.admin_api_keys, "BATON_ADMIN_API_KEY"))
    return fail(ErrorCode::invalid_request,
                "--admin-api-key or BATON_ADMIN_API_KEY is empty; without it any key may register prefixes", "admin_api_key");
  return {};
}

/// "bfloat16", or "int4 weights, bfloat16".
std::string weights_text(const EngineInfo& info) {
  const std::string dtype(to_string(info.weight_dtype));
  return info.weight_scheme == dtype ? dtype : fmt::format("{} weights, {}", info.weight_scheme, dtype);
}

/// A line about the states of recurrent layers; empty for a model without them.
std::string states_line(const EngineInfo& info) {
  if (info.state_slot_bytes == 0) return "";
  const std::string interval = info.state_snapshot_interval == 0
                                   ? ""
                                   : fmt::format(", also at every {} tokens of a prompt", info.state_snapshot_interval);
  return fmt::format("states of recurrent layers in {}; room for {} of them in the prefix cache{}\n",
                     to_string(info.state_dtype), counted(info.n_snapshots(), "snapshot"), interval);
}

/// Once a rank is lost, /health says so for a moment, and then the server ends.
class EndAtFault {
 public:
  EndAtFault(std::shared_ptr<RankGroup> ranks, Server& server) {
    if (ranks == nullptr) return;
    auto watch = [ranks = std::move(ranks), &server](MemoryReserve& reserve, const std::stop_token& stop) {
      reserve.restore();
      while (!stop.stop_requested()) {
        if (!ranks->wait_fault(kFaultPeriod)) continue;
        std::this_thread::sleep_for(kFaultShown);
        return server.begin_shutdown();
      }
    };
    watcher_ = std::jthread(thread_body("rank-fault", kReserveBytes, std::move(watch)));
  }

 private:
  static constexpr std::chrono::milliseconds kFaultPeriod{200};
  static constexpr std::chrono::milliseconds kFaultShown{1000};
  static constexpr std::size_t kReserveBytes = std::size_t{64} << 10;
  std::jthread watcher_;
};

Result<void> run(const ServeCommandOptions& options) {
  // Prefix files and the port come before the model, so that a mistake is known at once.
  BATON_TRY(std::vector<PrefixDefinition> prefixes, read_prefixes(options.model.prefixes));
  BATON_TRY(const std::unique_ptr<Server> server, Server::bind(server_options(options)));
  if (options.server.address.host.empty() && options.server.address.uds.empty() && options.server.keys.api_keys.empty() &&
      options.server.keys.file.empty())
    log::warning("event=open_to_all reason=\"no --host and no --api-key: every interface, every caller\"");
  BATON_TRY(const ModelFiles files, find_model_files(options.model, download_bar()));
  ModelOptions engine_options = options.model;
  engine_options.kv_events = options.server.kv_events.is_enabled;
  BATON_TRY(ServedEngine loaded, load_served(files, engine_options));
  const std::unique_ptr<Engine> engine = std::move(loaded.engine);
  ServedModel model = std::move(loaded.served);
  if (!options.served_model_names.empty()) model.names = options.served_model_names;
  if (!options.server.prefix_store.folder.empty()) {
    BATON_TRY(model.identity, model_checksum(files, options.model));
  }
  model.excludes_unchosen_tools = options.excludes_unchosen_tools;
  if (!model.chat_template)
    log::warning("event=no_chat_template effect=\"/v1/chat/completions is refused; --chat-template FILE brings one\"");
  engine->start();
  const std::string name = model.names[0];
  BATON_TRY_VOID(server->start(std::move(model), *engine, std::move(prefixes)));
  const EngineInfo info = engine->info();
  print_output(
      "Baton {} serves {} ({}) at {}\n{} tokens fit the cache of {:.0f} MB; contexts up to {} tokens; attention: {}{}\n{}",
      version_number(), name, weights_text(info), server->address(), static_cast<std::int64_t>(info.n_blocks) * info.block_len,
      static_cast<double>(info.kv_cache_bytes) / 1e6, info.max_model_len, info.attention,
      info.batch_invariant ? ", batch-invariant" : "", states_line(info));
  flush_output();
  const EndAtFault watcher(options.model.ranks, *server);
  server->wait();
  stop_engine(*engine);
  return {};
}

}  // namespace

int serve_main(const ServeCommandOptions& options) {
  use_log_level(options.model);
  std::signal(SIGPIPE, SIG_IGN);  // a reader of standard output or error that is gone does not end the server
  // Until the server watches for these, they do not end it either: a program that rotates logs or keys does not know
  // that it loads a model.
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGUSR1, SIG_IGN);
  const log::BackgroundWriter writer;
  if (const auto good = check_names(options)
                            .and_then([&] { return check_keys(options); })
                            .and_then([&] { return check_addresses(options); })
                            .and_then([&] { return check_kv_events(options); })
                            .and_then([&] { return check_prefix_store(options); });
      !good) {
    print_error("baton serve", good.error());
    return 2;
  }
  return exit_code("baton serve", run(options));
}

}  // namespace baton
