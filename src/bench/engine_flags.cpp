/// The flags of the benchmarks that run an engine themselves.
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/engine/arms.h"
#include "bench/engine/decode_bench.h"
#include "bench/engine/grammar_bench.h"
#include "bench/engine/steps_bench.h"
#include "bench/offline/ablation_bench.h"
#include "bench/offline/latency_bench.h"
#include "bench/offline/mmlu_bench.h"
#include "bench/offline/throughput_bench.h"
#include "bench/prefix_cache/prefix_cache_bench.h"
#include "bench/startup/startup_bench.h"
#include "cli/flag_rows.h"
#include "cli/options.h"

namespace baton {
namespace {

/// The flags of the model without the arms' and the texts' flags; and --shape.
void add_bench_model_options(CLI::App& app, ModelFlags& model, std::string& shape) {
  add_model_options(app, model);
  for (const char* flag : {"--attention", "--scheduling-policy", "--max-num-queued-reqs", "--enable-prefix-caching", "--prefix",
                           "--max-pinned-blocks", "--chat-template", "--generation-config"})
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
      ->check(at_least_zero());
  row("--time-limit-s", options.time_limit_s,
      "Seconds after which a run is cut; it then counts the requests that have finished; 0: no limit")
      ->check(at_least_zero());
  row("--output-json,--json", options.json_file, "File for the numbers");
}

}  // namespace

void add_decode_bench_options(CLI::App& app, DecodeBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  app.remove_option(app.get_option("--max-num-seqs"));  // the numbers of requests decide it
  const auto row = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Workload");
  };
  row("--shared", options.shared, "Tokens of the shared prompt, as 64,512,4096: one prompt after another")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 1 << 20));
  row("--own", options.own, "Prompt tokens of each request after it (at least one is sent)")->check(CLI::Range(0, 1 << 20));
  row("--new", options.n_new, "Tokens each request generates; the first is not timed")->check(CLI::Range(2, 1 << 20));
  row("--requests", options.requests, "Numbers of requests at once, as 1,8,32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096));
  row("--runs", options.n_runs, "Runs of each arm, interleaved")->check(CLI::Range(1, 1000));
  add_arms(app, options.arms);
  app.add_option(
         "--draft-acceptance", options.draft_acceptance,
         "With --speculative-config of method mtp: a coin accepts each draft with this probability, as random weights accept "
         "none; the report says so")
      ->check(CLI::Range(0.0, 1.0))
      ->group("Workload");
  app.add_option("--drafts", options.drafts,
                 "With it: numbers of drafts of a request in a step, as 0,1,3, beside each other; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, kMaxDraftTokens))
      ->group("Workload");
  app.add_flag("--count-experts", options.count_experts,
               "Also count the experts that a step reads (routes twice, so that steps take a little longer)")
      ->group("Workload");
  row("--json", options.json_file, "File for the numbers");
}

void add_steps_bench_options(CLI::App& app, StepsBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  // The numbers decide them.
  for (const char* flag : {"--max-num-seqs", "--max-prefill-tokens"}) app.remove_option(app.get_option(flag));
  const auto row = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Workload");
  };
  row("--shared", options.shared, "Tokens of a prompt that all requests share, rounded down to blocks")
      ->check(CLI::Range(0, 1 << 20));
  row("--own", options.own, "Prompt tokens of each decoding request after it (at least one)")->check(CLI::Range(0, 1 << 20));
  row("--requests", options.requests, "Numbers of decoding requests, as 0,32,128")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 4096));
  row("--prompt-tokens", options.prompt_tokens, "Numbers of prompt tokens in a step, as 0,64,512")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 32768));
  row("--prompts", options.n_prompts, "Requests that have these tokens, each an equal part")->check(CLI::Range(1, 1024));
  row("--steps", options.n_steps, "Timed steps of each size")->check(CLI::Range(1, 1000));
  row("--output-json,--json", options.json_file, "File for the numbers");
}

void add_grammar_bench_options(CLI::App& app, GrammarBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  app.remove_option(app.get_option("--max-num-seqs"));  // the number of requests decides it
  app.add_option("--tokenizer", options.tokenizer, "Folder or file of the tokenizer (default: the model's; shapes have none)")
      ->group("Model");
  const auto row = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Workload");
  };
  row("--requests", options.requests, "Requests at once")->check(CLI::Range(1, 4096));
  row("--own", options.own, "Prompt tokens of each request")->check(CLI::Range(1, 1 << 20));
  row("--new", options.n_new, "Tokens each request generates; the first is not timed")->check(CLI::Range(8, 4096));
  row("--runs", options.n_runs, "Runs of each arm, interleaved")->check(CLI::Range(1, 1000));
  row("--json", options.json_file, "File for the numbers");
  app.add_option("--arms", options.arms,
                 "free: no grammar; grammar: JSON of a schema; first-use: a schema never used before; canonical: the "
                 "schema's text in the tokenizer's tokens; drafts: the same, drafted")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(choices(kGrammarArms)))
      ->capture_default_str()
      ->group("Arms");
}

void add_prefix_cache_bench_options(CLI::App& app, PrefixCacheBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  const auto row = [&](const char* flags, auto& value, const char* help) {
    return app.add_option(flags, value, help)->capture_default_str()->group("Cases");
  };
  const auto list = [&](const char* flag, auto& value, const char* help) {
    return row(flag, value, help)->delimiter(',')->allow_extra_args(false);
  };
  list("--cases", options.cases.kinds,
       "shared: requests after one prompt; registered: the same, and the prompt is pinned first; identical: one prompt twice; "
       "turns: a conversation; reasoning: one whose answers lose their first half; forks: requests that come at once")
      ->check(CLI::IsMember(choices(kPrefixCaseKinds)));
  list("--shared", options.cases.shared, "Tokens of the shared prompt, one set of cases for each")
      ->check(CLI::Range(1, 1 << 20));
  list("--own", options.cases.own, "Tokens of each request after it; shared and registered take all of them, others the first")
      ->check(CLI::Range(1, 1 << 20));
  row("--turns", options.cases.n_turns, "Turns of a conversation")->check(CLI::Range(2, 1000));
  row("--forks", options.cases.n_forks, "Requests that come at once")->check(CLI::Range(3, 4096));
  row("--answer", options.cases.answer_len, "Tokens of a turn's answer")->check(CLI::Range(1, 1 << 20));
  row("--output-json,--json", options.json_file, "File for the numbers")->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.footer(
      "Examples:\n"
      "  baton bench prefix-cache --shared 480 --own 40\n"
      "  baton bench prefix-cache --shape qwen3.5-4b --device cuda --json table.json");
}

void add_throughput_bench_options(CLI::App& app, ThroughputBenchOptions& options) {
  add_offline_bench_options(app, options);
  add_dataset_options(app, options.dataset);
  app.footer(
      "Examples:\n"
      "  baton bench throughput --num-prompts 64 --input-len 128 --output-len 32 \\\n"
      "      --prefix-len 512\n"
      "  baton bench throughput --shape llama-2-7b --device cuda \\\n"
      "      --dataset-name sharegpt --dataset-path ShareGPT_stat.csv \\\n"
      "      --prefix-len 1024 --time-limit-s 100 --output-json throughput.json");
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
      "  baton bench ablation --shape llama-2-13b --device cuda \\\n"
      "      --tokenizer tokenizer.json --dataset-name sharegpt \\\n"
      "      --dataset-path ShareGPT_stat.csv \\\n"
      "      --num-prompts 1000 --runs 1");
}

void add_latency_bench_options(CLI::App& app, LatencyBenchOptions& options) {
  add_bench_model_options(app, options.model, options.shape);
  app.remove_option(app.get_option("--max-num-seqs"));  // the batch size
  const auto row = [&](const char* flags, auto& value, const char* help, int least) {
    app.add_option(flags, value, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->capture_default_str()
        ->check(CLI::Range(least, 1 << 20))
        ->group("Workload");
  };
  row("--input-len", options.input_len, "Prompt tokens of a request behind the system prompt", 1);
  row("--output-len", options.output_len, "Tokens that a request generates", 1);
  row("--prefix-len", options.prefix_len, "Tokens of one system prompt in front of all requests", 0);
  row("--batch-size", options.batch_size, "Requests at once, at most 4096", 1);
  row("--num-iters-warmup", options.n_iters_warmup, "Batches before the first timed one", 0);
  row("--num-iters", options.n_iters, "Timed batches of each arm, interleaved", 1);
  add_arms(app, options.arms);
  app.add_option("--output-json,--json", options.json_file, "File for the numbers")->group("Workload");
  app.footer(
      "Examples:\n"
      "  baton bench latency --batch-size 4 --prefix-len 512\n"
      "  baton bench latency --shape llama-2-7b --device cuda --batch-size 32 \\\n"
      "      --prefix-len 2048 --output-json latency.json");
}

void add_mmlu_bench_options(CLI::App& app, MmluBenchOptions& options) {
  add_offline_bench_options(app, options);
  const auto row = [&](const char* flags, auto& value, const char* help) {
    return app.add_option(flags, value, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->capture_default_str()
        ->group("Dataset");
  };
  row("--dataset-path", options.dataset.path,
      "MMLU's folder, with dev/ and test/ (docs/benchmarks.md says where it comes from)")
      ->check(CLI::ExistingDirectory)
      ->required();
  app.add_option("--num-shots", options.shots,
                 "Solved questions in front of each question: numbers, one run of all arms for each")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 5))
      ->capture_default_str()
      ->group("Dataset");
  row("--mmlu-prompt", options.dataset.mmlu_prompt, "Words around the questions, Hendrycks' or the RelayAttention authors'")
      ->check(CLI::IsMember(choices(kMmluPrompts)));
  row("--subjects", options.dataset.subjects, "Subjects, separated by commas (default: all 57)");
  row("--num-prompts", options.dataset.num_prompts, "Questions, drawn from those of the subjects; 0: all")
      ->check(at_least_zero());
  row("--seed", options.dataset.seed, "Seed of the draw and the order");
  app.footer(
      "Examples:\n"
      "  baton bench mmlu --dataset-path mmlu --num-shots 1 \\\n"
      "      --subjects anatomy,virology --runs 1\n"
      "  baton bench mmlu --shape llama-2-7b --tokenizer LLAMA --device cuda \\\n"
      "      --dataset-path mmlu --num-shots 1,3,5");
}

void add_startup_bench_options(CLI::App& app, StartupBenchOptions& options) {
  options.model.log_level = "warning";
  add_bench_model_options(app, options.model, options.shape);
  const auto row = [&](const char* flags, auto& value, const char* help) {
    return app.add_option(flags, value, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->capture_default_str()
        ->group("Starts");
  };
  row("--num-iters-cold", options.n_iters_cold, "Starts without the model's files in the page cache")
      ->check(CLI::Range(0, 1000));
  row("--num-iters-warmup", options.n_iters_warmup, "Starts before the warm ones")->check(CLI::Range(0, 1000));
  row("--num-iters-warm", options.n_iters_warm, "Starts with them")->check(CLI::Range(0, 1000));
  row("--input-len", options.input_len, "Tokens of the prompt whose first answer token counts")->check(CLI::Range(1, 1 << 20));
  row("--output-json,--json", options.json_file, "File for the numbers");
  app.add_option("--started-at-ns", options.started_at_ns)->group("");  // the benchmark starts itself with it
  app.footer(
      "Examples:\n"
      "  baton bench startup\n"
      "  baton bench startup meta-llama/Llama-3.2-1B-Instruct --device cuda \\\n"
      "      --output-json startup.json");
}

}  // namespace baton
