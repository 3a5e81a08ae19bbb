/// `baton serve`: an OpenAI-compatible server over one model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "server/request/structured_output.h"
#include "server/server.h"

namespace baton {

/// The default of --max-num-queued-reqs: a waiting sequence takes about 2 KB, and waits for 128 rounds of 128 others.
inline constexpr std::int32_t kMaxQueuedSequences = 16384;

struct ServeCommandOptions {
  ServeCommandOptions() { model.max_num_queued_reqs = kMaxQueuedSequences; }

  ModelFlags model;
  ServerOptions server;  ///< what flags set directly; server_options() adds what follows from the others
  std::vector<std::string> served_model_names;
  std::int64_t shutdown_timeout_s = 30;
  std::int64_t client_memory_bytes = 0;  ///< 0: default_client_memory
  StructuredOutputsConfig structured_outputs;
  bool excludes_unchosen_tools = false;  ///< see ServedModel
  bool allows_prefix_links = false;      ///< see OutwardLinks
};

void add_serve_options(CLI::App& app, ServeCommandOptions& options);

/// Binds the port, loads the model, computes the prefixes, serves until SIGTERM or SIGINT, and lets running requests
/// finish. Exit code: 0, 1 if it could not start, 2 for flags that contradict each other.
int serve_main(const ServeCommandOptions& options);

}  // namespace baton
