/// `baton serve`: an OpenAI-compatible server over one model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "server/observe/kv_events_config.h"
#include "server/prefixes/prefixes.h"
#include "server/served/structured_outputs_config.h"

namespace baton {

/// The default of --max-num-queued-reqs: a waiting sequence takes about 2 KB, and waits for 128 rounds of 128 others.
inline constexpr std::int32_t kMaxQueuedSequences = 16384;

struct ServeCommandOptions {
  ServeCommandOptions() { model.max_num_queued_reqs = kMaxQueuedSequences; }

  ModelFlags model;
  std::vector<std::string> served_model_names;
  std::string host;  ///< empty: all interfaces
  std::uint16_t port = 8000;
  std::string uds;
  std::vector<std::string> api_keys;
  std::vector<std::string> admin_api_keys;
  std::string api_key_file;  ///< empty: none
  std::string ssl_keyfile;
  std::string ssl_certfile;
  std::vector<std::string> allowed_origins{"*"};
  std::vector<std::string> allowed_methods{"*"};
  std::vector<std::string> allowed_headers{"*"};
  bool allow_credentials = false;
  std::int32_t max_logprobs = 20;
  std::int64_t shutdown_timeout_s = 30;
  std::int64_t client_memory_bytes = 0;  ///< 0: default_client_memory
  StructuredOutputsConfig structured_outputs;
  KvEventsConfig kv_events;
  bool excludes_unchosen_tools = false;         ///< see ServedModel
  std::size_t max_connections_per_address = 0;  ///< 0: no limit
  PrefixLimits prefix_limits;
  std::string prefix_folder;            ///< empty: none
  bool allows_prefix_links = false;     ///< see OutwardLinks
  std::string prefix_store;             ///< empty: prefixes are not stored
  std::int64_t prefix_store_bytes = 0;  ///< 0: what the disk holds
};

void add_serve_options(CLI::App& app, ServeCommandOptions& options);

/// Binds the port, loads the model, computes the prefixes, serves until SIGTERM or SIGINT, and lets running requests
/// finish. Exit code: 0, 1 if it could not start, 2 for flags that contradict each other.
int serve_main(const ServeCommandOptions& options);

}  // namespace baton
