/// The flags of the benchmarks that run an engine themselves.
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/bench/ablation_bench.h"
#include "apps/bench/arms.h"
#include "apps/bench/decode_bench.h"
#include "apps/bench/throughput_bench.h"
#include "apps/options.h"

namespace baton {
namespace {

/// The flags of the model but those that the arms decide and those that only texts need; and --shape.
void add_bench_model_options(CLI::App& app, ModelFlags& model, std::string& shape) {
  add_model_options(app, model);
  for (const char* flag : {"--attention", "--max-num-queued-reqs", "--enable-prefix-caching", "--prefix", "--max-pinned-blocks",
                           "--chat-template", "--generation-config"})
    app.remove_option(app.get_option(flag));
  app.add_option("--shape", shape,
                 "With random weights in place of a model: a name of bench/shapes, or a folder with a config.json")
      ->group("Model");
}

void add_arms(CLI::App& app, std::vector<std::string>& arms) {
  app.add_option("--arms", arms,
                 "relay: a shared prompt is read once a step; paged: by each request; unshared: each has a copy of its own")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(choices(kArmNames)))
      ->capture_default_str()
      ->group("Arms");
}

/// The flags of OfflineBenchOptions.
void add_offline_bench_options(CLI::App& app, OfflineBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  app.remove_option(app.get_option("--seed"));  // the dataset's
  app.add_option("--tokenizer", options.tokenizer,
                 "Folder or file of the tokenizer, for datasets of text (default: the model's; shapes have none)")
      ->group("Model");
  const auto row = [&](const char* flags, auto& value, const char* help) {
    return app.add_option(flags, value, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->capture_default_str()
        ->group("Arms");
  };
  add_arms(app, options.arms);
  row("--runs", options.n_runs, "Runs of each arm, interleaved")->check(CLI::Range(1, 1000));
  row("--num-warmups", options.n_warmups,
      "Requests that run before the first timed run (default: a quarter of them all, at most --max-num-seqs)")
      ->check(CLI::NonNegativeNumber);
  row("--time-limit-s", options.time_limit_s,
      "Seconds after which a run is cut; it then counts the requests that have finished; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  row("--output-json,--json", options.json_file, "File for the numbers");
}

}  // namespace

void add_decode_bench_options(CLI::App& app, DecodeBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  app.remove_option(app.get_option("--max-num-seqs"));  // the numbers of requests decide it
  const auto row = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Workload");
  };
  row("--shared", options.shared, "Tokens of the shared prompt")->check(CLI::Range(0, 1 << 20));
  row("--own", options.own, "Prompt tokens of each request behind it (at least one is sent)")->check(CLI::Range(0, 1 << 20));
  row("--new", options.n_new, "Tokens each request generates; the first is not timed")->check(CLI::Range(2, 1 << 20));
  row("--requests", options.requests, "Numbers of requests at once")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096));
  row("--runs", options.n_runs, "Runs of each arm, interleaved")->check(CLI::Range(1, 1000));
  add_arms(app, options.arms);
  row("--json", options.json_file, "File for the numbers");
}

void add_throughput_bench_options(CLI::App& app, ThroughputBenchOptions& options) {
  add_offline_bench_options(app, options);
  add_dataset_options(app, options.dataset);
  app.footer(
      "Examples:\n"
      "  baton bench throughput --num-prompts 64 --input-len 128 --output-len 32 --prefix-len 512\n"
      "  baton bench throughput --shape llama-2-7b --device cuda --dataset-name sharegpt --dataset-path ShareGPT_stat.csv \\\n"
      "    --prefix-len 1024 --time-limit-s 100 --output-json throughput.json");
}

void add_ablation_bench_options(CLI::App& app, AblationBenchOptions& options) {
  add_offline_bench_options(app, options);
  app.remove_option(app.get_option("--arms"));
  app.remove_option(app.get_option("--num-warmups"));  // each arm runs as many as a step takes
  app.add_option("--arms", options.arms,
                 "baton: as it is; sample-each: a sampling call for each sequence; copy-each: each result is copied alone; "
                 "detokenize-on-step: the thread that steps makes the text; all: the three together")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(choices(kAblationArms)))
      ->capture_default_str()
      ->group("Arms");
  add_dataset_options(app, options.dataset);
  app.footer(
      "The lessons are those of vLLM's issue 421.\n"
      "Example:\n"
      "  baton bench ablation --shape llama-2-13b --device cuda --tokenizer tokenizer.json \\\n"
      "    --dataset-name sharegpt --dataset-path ShareGPT_stat.csv --num-prompts 1000 --runs 1");
}

}  // namespace baton
