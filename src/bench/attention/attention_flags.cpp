/// The flags of `baton bench attention`.
#include <string>

#include <CLI/CLI.hpp>

#include "bench/attention/attention_bench.h"
#include "cli/options.h"

namespace baton {

void add_attention_bench_options(CLI::App& app, AttentionBenchOptions& options) {
  app.add_option("--device", options.device, "Where attention runs")
      ->check(CLI::IsMember(choices(kBackendNames)))
      ->capture_default_str();
  app.add_option("--device-number", options.device_number, "Which CUDA device")
      ->check(CLI::Range(0, 63))
      ->capture_default_str();
  app.add_option("--attention-blocks", options.attention_blocks,
                 "Blocks of the CUDA kernel's grid (0: as many as it holds at once)")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "CPU threads (0: all this process may use)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option(
         "--kv-cache-dtype", options.kv_cache_dtype,
         "Type of keys and values; queries have it too, bfloat16 for float8_e4m3. auto: bfloat16, on CUDA float16 for W1")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "float8_e4m3", "float32"}))
      ->capture_default_str();
  app.add_option("--tables", options.tables, "W1 (Flash-Decoding), W2 (RelayAttention), W3 (Llama-3-8B), pat (PAT's trees)")
      ->delimiter(',')
      ->check(CLI::IsMember({"W1", "W2", "W3", "pat"}))
      ->capture_default_str();
  CLI::Option* requests =
      app.add_option("--requests", options.free.requests, "Requests of a shape of your own, in place of the tables")
          ->delimiter(',')
          ->check(CLI::Range(1, 65536));
  CLI::Option* trees = app.add_option("--tree", options.free.trees,
                                      "In place of the tables, requests below a tree of prefixes: 1,8,512_32,512,256 is 512 "
                                      "requests with 256 tokens each after 8 prefixes of 512 after one of 32; may be repeated")
                           ->allow_extra_args(false)
                           ->excludes(requests);
  const auto shape = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->needs(requests)->capture_default_str();
  };
  const auto heads = [&](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)->capture_default_str()->check(CLI::Range(1, 1024))->check([=](const std::string&) {
      return requests->count() + trees->count() > 0 ? "" : std::string("needs --requests or --tree");
    });
  };
  shape("--shared", options.free.shared, "Tokens they share, whole blocks of 16")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20));
  shape("--own", options.free.own, "Tokens of each request after them")->delimiter(',')->check(CLI::Range(1, 1 << 20));
  shape("--groups", options.free.n_groups, "Prefixes that the requests are divided among")->check(CLI::Range(1, 65536));
  heads("--heads", options.free.n_heads, "Query heads");
  heads("--kv-heads", options.free.n_kv_heads, "KV heads");
  heads("--head-dim", options.free.head_dim, "Elements of a head");
  heads("--latent-dim", options.free.latent_dim,
        "Multi-head latent attention: a value is this many elements, the first of its key; with --kv-heads 1");
  app.add_option("--runs", options.n_runs, "Runs of each arm, interleaved (default: 7 on a CPU, 25 on CUDA)")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--processor-time", options.processor_time,
               "One CPU thread, by its processor time: for a machine that others use");
  app.add_option("--arms", options.arms, "paged: each request reads its context by itself; relay: shared runs are read once")
      ->delimiter(',')
      ->check(CLI::IsMember({"paged", "relay"}))
      ->capture_default_str();
  app.add_flag("--batch-invariant", options.batch_invariant, "The kernels and plans of batch-invariant mode");
  app.add_flag("--explain", options.explain, "Print the plan of each case: what was relayed, and by which costs");
  app.add_option("--json", options.json_file, "File for the numbers");
}

}  // namespace baton
