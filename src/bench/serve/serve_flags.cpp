/// The flags of `baton bench serve` and `baton bench stream`, which drive a running server, as rows.
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/serve/serve_bench.h"
#include "bench/stream/stream_bench.h"
#include "cli/flag_rows.h"
#include "cli/options.h"

namespace baton {
namespace {

/// Adds an option that takes the last of several values, in a group of the help text.
template <class Value>
CLI::Option* serve_row(CLI::App& app, const char* group, const char* flag, Value& value, const char* help) {
  return app.add_option(flag, value, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->capture_default_str()
      ->group(group);
}

/// Adds an option of several values, separated by commas or given one after another.
template <class Value>
CLI::Option* serve_list(CLI::App& app, const char* group, const char* flag, std::vector<Value>& values, const char* help) {
  return app.add_option(flag, values, help)->delimiter(',')->capture_default_str()->group(group);
}

void add_server_flags(CLI::App& app, ServeBenchOptions& options) {
  constexpr const char* kGroup = "Server";
  ServeTargetOptions& target = options.target;
  serve_row(app, kGroup, "--backend", options.backend,
            "openai (and vllm): token ids to /v1/completions; openai-chat: text to /v1/chat/completions")
      ->check(CLI::IsMember(choices(kServeBackends)));
  serve_row(app, kGroup, "--base-url", target.base_url, "The server: http://HOST:PORT, in place of --host and --port");
  serve_row(app, kGroup, "--host", target.host, "The server's host");
  serve_row(app, kGroup, "--port", target.port, "The server's port")->check(CLI::Range(1, 65535));
  serve_row(app, kGroup, "--endpoint", options.endpoint, "The path that requests go to; default: the backend's");
  app.add_option("--header", target.headers, "KEY=VALUE, sent with each request; OPENAI_API_KEY is sent as bearer token")
      ->group(kGroup);
  serve_row(app, kGroup, "--model", target.model, "The model's name or folder; default: the first of /v1/models");
  serve_row(app, kGroup, "--served-model-name", target.served_model_name, "Its name in requests; default: --model");
  serve_row(app, kGroup, "--tokenizer", target.tokenizer,
            "Folder, Hugging Face id or file; default: the model's, if it is a folder on this machine or the demo model");
  serve_row(app, kGroup, "--vocab-size", target.vocab_size, "Size of the vocabulary; default: the model's or the tokenizer's")
      ->check(at_least_zero());
  serve_row(app, kGroup, "--ready-check-timeout-sec", target.ready_timeout_s, "Wait so long for the server; 0: do not wait")
      ->check(at_least_zero());
}

void add_load_flags(CLI::App& app, ServeBenchOptions& options) {
  constexpr const char* kGroup = "Load";
  serve_list(
      app, kGroup, "--request-rate", options.rates,
      "Requests a second, or inf: all at once. Several rates, 1,2,4, are loads one after another. A dataset with arrivals "
      "keeps them without this flag")
      ->each([&options](const std::string&) { options.is_rate_given = true; });
  serve_row(app, kGroup, "--burstiness", options.schedule.burstiness,
            "1: Poisson arrivals; less: more bursty; more: more even; inf: equal gaps");
  serve_row(app, kGroup, "--max-concurrency", options.max_concurrency, "Most requests under way; 0: no limit")
      ->check(at_least_zero());
  serve_row(app, kGroup, "--ramp-up-strategy", options.schedule.ramp_up,
            "linear or exponential: the rate grows from request to request, in place of --request-rate");
  serve_row(app, kGroup, "--ramp-up-start-rps", options.schedule.ramp_up_start, "First rate of the ramp");
  serve_row(app, kGroup, "--ramp-up-end-rps", options.schedule.ramp_up_end, "Last rate of the ramp");
  serve_row(app, kGroup, "--num-warmups", options.num_warmups,
            "Requests before the first load; they share its prefixes, not its own parts")
      ->check(at_least_zero());
  serve_row(app, kGroup, "--time-limit-s", options.time_limit_s,
            "Send nothing after so many seconds; what is under way ends; 0: no limit")
      ->check(at_least_zero());
  serve_row(app, kGroup, "--timeout-s", options.timeout_s, "A request that takes longer has failed")
      ->check(at_least_zero(/*or_zero=*/false));
  app.add_flag("--ignore-eos,!--no-ignore-eos", options.ignore_eos,
               "Answers have exactly the dataset's length (the default); --no-ignore-eos lets the model end them")
      ->group(kGroup);
  serve_row(app, kGroup, "--temperature", options.temperature, "Of sampling; 0 is greedy")->check(at_least_zero());
  serve_row(app, kGroup, "--extra-body", options.extra_body, "A JSON object whose fields each request gets too");
}

void add_report_flags(CLI::App& app, ServeBenchOptions& options) {
  constexpr const char* kGroup = "Report";
  serve_list(app, kGroup, "--percentile-metrics", options.report.metrics, "Which of ttft, tpot, itl, e2el")
      ->check(CLI::IsMember(choices(kServeMetrics)));
  serve_list(app, kGroup, "--metric-percentiles", options.report.percents, "Percentiles of these");
  serve_list(app, kGroup, "--goodput", options.goodput,
             "Service levels in ms, ttft:200,tpot:50,e2el:5000: counts requests that meet all");
  serve_row(app, kGroup, "--sustained-at", options.report.sustained_at_s,
            "A load is sustained if its mean latency a token, e2e / tokens, stays within so many seconds")
      ->check(at_least_zero(/*or_zero=*/false));
  serve_row(app, kGroup, "--label", options.label, "Name of this run in files");
  app.add_option("--metadata", options.metadata, "KEY=VALUE, copied into the result")->group(kGroup);
  app.add_flag("--save-result", options.save_result, "Write a JSON file for each load")->group(kGroup);
  app.add_flag("--save-detailed", options.save_detailed, "With lengths, times, texts and errors of each request")
      ->group(kGroup);
  app.add_flag("--append-result", options.append_result, "Append a line to --result-filename instead")->group(kGroup);
  serve_row(app, kGroup, "--result-dir", options.result_dir, "Folder of these files");
  serve_row(app, kGroup, "--result-filename", options.result_filename,
            "Default: LABEL-RATEqps-MODEL-DATE.json; a sweep has all loads under \"runs\" in it");
  serve_row(app, kGroup, "--json", options.json_file, "File for the numbers");
}

}  // namespace

void add_serve_bench_options(CLI::App& app, ServeBenchOptions& options) {
  add_server_flags(app, options);
  add_load_flags(app, options);
  add_dataset_options(app, options.dataset);
  add_report_flags(app, options);
  app.footer(
      "Examples:\n"
      "  baton serve &  baton bench serve --num-prompts 64 \\\n"
      "      --random-input-len 512 --random-output-len 64\n"
      "  baton bench serve --base-url http://gpu:8000 --request-rate 1,2,4,8 \\\n"
      "      --time-limit-s 100 --prefix-len 2048 --dataset-name sharegpt \\\n"
      "      --dataset-path ShareGPT_stat.csv --goodput ttft:500,tpot:50 \\\n"
      "      --json rates.json\n"
      "  baton bench serve --model bench/shapes/llama-2-7b --served-model-name llama \\\n"
      "      --dataset-name prefix_repetition");
}

void add_stream_bench_options(CLI::App& app, StreamBenchOptions& options) {
  const auto row = [&](const char* flags, auto& value, const char* help) {
    return app.add_option(flags, value, help)->capture_default_str()->group("Load");
  };
  row("URL,--url", options.url, "The server: http://HOST:PORT");
  row("--clients", options.n_clients, "Connections, each with one request after another; 0: only wait, and look at the server")
      ->check(CLI::Range(0, 60000));
  row("--seconds", options.seconds, "Requests begin for so long; those under way end")->check(CLI::Range(0.0, 86400.0));
  row("--requests", options.n_requests, "Requests in all; 0: no limit but the seconds")->check(at_least_zero());
  row("--max-tokens", options.max_tokens, "Tokens of each answer, exactly")->check(CLI::Range(1, 1 << 20));
  app.add_flag("--chat,!--completions", options.is_chat, "/v1/chat/completions (the default) or /v1/completions")
      ->group("Load");
  app.add_flag("--text-only", options.text_only, "Do not ask for token ids: what most clients do, but a lost token is not seen")
      ->group("Load");
  row("--prompts", options.prompts_file, "JSON lines {messages | prompt, prefix?} to take in turn; default: short questions")
      ->check(CLI::ExistingFile);
  row("--server-pid", options.server_pid,
      "The server's process, if it is on this machine: its processor time is shown by thread")
      ->check(at_least_zero());
  row("--json", options.json_file, "File for the numbers");
}

}  // namespace baton
