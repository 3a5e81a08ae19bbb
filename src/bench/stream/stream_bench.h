/// `baton bench stream`: many clients read streams of a running server. Reports what they see and what serving them
/// costs.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace baton {

struct StreamBenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::int32_t n_clients = 64;
  double seconds = 10;
  std::int64_t n_requests = 0;  ///< 0: as many as begin in the time
  std::int32_t max_tokens = 128;
  bool is_chat = true;
  bool text_only = false;
  std::string prompts_file;
  std::int32_t server_pid = 0;  ///< 0: the server's threads are not measured
  std::string json_file;
};

void add_stream_bench_options(CLI::App& app, StreamBenchOptions& options);

/// Runs the load and prints tables on standard output. Exit code: 0; 1 if there was no server or an answer had a
/// fault.
int stream_bench_main(const StreamBenchOptions& options, const std::string& command);

}  // namespace baton
