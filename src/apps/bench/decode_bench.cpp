/// `baton bench decode`: engines with the same random weights, one an arm, stepped on this thread.
#include "apps/bench/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "apps/bench/statistics.h"
#include "apps/load.h"
#include "core/log.h"
#include "io/file.h"
#include "io/json.h"
#include "model/config.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Token `index` of stream `stream`: any ids will do, but they must differ between requests.
std::vector<TokenId> made_up_tokens(std::int32_t count, std::int32_t stream, std::int32_t n_vocab) {
  std::vector<TokenId> tokens;
  std::uint32_t state = 12345u + 7919u * static_cast<std::uint32_t>(stream);
  for (std::int32_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<TokenId>(3 + (state >> 8) % static_cast<std::uint32_t>(n_vocab - 3)));
  }
  return tokens;
}

/// One engine and its shared prompt.
class Arm {
 public:
  static Result<Arm> make(const std::string& name, const ModelFiles& files, const DecodeBenchOptions& options,
                          std::int32_t max_requests) {
    ModelOptions model = options.model;
    model.attention = name == "relay" ? "relay" : "paged";
    model.enable_prefix_caching = name != "unshared";
    model.max_num_seqs = max_requests;
    model.max_num_batched_tokens = std::max(model.max_num_batched_tokens, max_requests);
    if (model.max_model_len == 0) model.max_model_len = options.shared + options.own + options.n_new + 1;
    BATON_TRY(ModelConfig config, read_model_config(files.folder));
    BATON_TRY(std::unique_ptr<Engine> engine, load_engine(files, model));
    Arm arm(name, std::move(engine), config.n_vocab, options);
    if (options.shared > 0 && name != "unshared") {
      const auto begin = Clock::now();
      BATON_TRY(const PrefixInfo prefix, arm.engine_->register_prefix("shared", arm.shared_));
      arm.prefill_tokens_per_s_ = prefix.n_tokens / seconds_since(begin);
    }
    return arm;
  }

  /// One run: submits, steps until every request has its first token, then times the rest.
  Result<void> run(std::int32_t n_requests, DecodeRun& result) {
    std::map<RequestId, std::int32_t> n_tokens;
    for (std::int32_t i = 0; i < n_requests; ++i) {
      Request request;
      request.prompt = shared_;
      // One token of its own at least: sequences that are equal to the last token would be one prefix, and no prompt is empty.
      const auto own = made_up_tokens(std::max(options_.own, 1), 1 + n_submitted_++, n_vocab_);
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.max_tokens = options_.n_new;
      BATON_TRY(const RequestId id, engine_->submit(std::move(request)));
      n_tokens[id] = 0;
    }
    std::int32_t n_without_token = n_requests;
    Clock::time_point begin;
    std::int64_t requested = 0;
    std::int64_t saved = 0;
    std::int64_t n_timed = 0;
    for (std::int32_t n_open = n_requests; n_open > 0;) {
      engine_->step();
      const bool was_timing = n_without_token == 0;
      for (const Event& event : engine_->wait_events(std::chrono::milliseconds(0))) {
        std::int32_t& count = n_tokens[event.request];
        if (count == 0 && !event.tokens.empty()) --n_without_token;
        count += static_cast<std::int32_t>(event.tokens.size());
        if (was_timing) n_timed += static_cast<std::int64_t>(event.tokens.size());
        if (event.finished == FinishReason::error)
          return fail(ErrorCode::internal, "a sequence ended with a NaN among its logits");
        if (event.finished) --n_open;
      }
      if (!was_timing && n_without_token == 0) {
        begin = Clock::now();
        requested = engine_->metrics().kv_bytes_requested.value();
        saved = engine_->metrics().kv_bytes_saved.value();
      }
    }
    result.tokens_per_s.push_back(static_cast<double>(n_timed) / seconds_since(begin));
    result.kv_bytes_requested = engine_->metrics().kv_bytes_requested.value() - requested;
    result.kv_bytes_saved = engine_->metrics().kv_bytes_saved.value() - saved;
    result.prefill_tokens_per_s = prefill_tokens_per_s_;
    return {};
  }

  const std::string& name() const { return name_; }

 private:
  Arm(std::string name, std::unique_ptr<Engine> engine, std::int32_t n_vocab, const DecodeBenchOptions& options)
      : name_(std::move(name)),
        engine_(std::move(engine)),
        n_vocab_(n_vocab),
        options_(options),
        shared_(made_up_tokens(options.shared, 0, n_vocab)) {}

  std::string name_;
  std::unique_ptr<Engine> engine_;
  std::int32_t n_vocab_;
  DecodeBenchOptions options_;
  std::vector<TokenId> shared_;
  double prefill_tokens_per_s_ = 0;
  std::int32_t n_submitted_ = 0;
};

json::Value to_json(const DecodeRun& run, const DecodeBenchOptions& options) {
  return {{"arm", run.arm},
          {"requests", run.n_requests},
          {"shared", options.shared},
          {"own", options.own},
          {"new", options.n_new},
          {"tokens_per_s", run.tokens_per_s},
          {"median_tokens_per_s", run.median()},
          {"spread", run.spread()},
          {"prefill_tokens_per_s", run.prefill_tokens_per_s},
          {"kv_bytes_requested", run.kv_bytes_requested},
          {"kv_bytes_saved", run.kv_bytes_saved}};
}

}  // namespace

double DecodeRun::median() const { return median_of(tokens_per_s); }

double DecodeRun::spread() const { return spread_of(tokens_per_s); }

Result<std::vector<DecodeRun>> run_decode_bench(const DecodeBenchOptions& options) {
  DecodeBenchOptions used = options;
  ModelFiles files;
  if (!options.shape.empty()) {
    BATON_TRY(std::filesystem::path folder, shared_folder("shapes/" + options.shape));
    files = {options.shape, std::move(folder), false};
    used.model.load_format = "dummy";
  } else {
    BATON_TRY(files, find_model_files(options.model));
  }
  const std::int32_t max_requests = *std::max_element(options.requests.begin(), options.requests.end());
  std::vector<Arm> arms;
  for (const std::string& name : options.arms) {
    BATON_TRY(Arm arm, Arm::make(name, files, used, max_requests));
    arms.push_back(std::move(arm));
  }
  std::vector<DecodeRun> runs;
  for (const std::int32_t n_requests : options.requests) {
    const std::size_t first = runs.size();
    for (const Arm& arm : arms) runs.push_back({arm.name(), n_requests, {}, 0, 0, 0});
    for (std::int32_t round = 0; round < options.n_runs; ++round)
      for (std::size_t i = 0; i < arms.size(); ++i) BATON_TRY_VOID(arms[i].run(n_requests, runs[first + i]));
  }
  return runs;
}

void add_decode_bench_options(CLI::App& app, DecodeBenchOptions& options) {
  add_model_options(app, options.model);
  app.add_option("--shape", options.shape, "NAME of bench/shapes, with random weights")->group("Workload");
  app.add_option("--shared", options.shared, "Tokens of the shared prompt")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group("Workload");
  app.add_option("--own", options.own, "Prompt tokens of each request behind it (at least one is sent)")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group("Workload");
  app.add_option("--new", options.n_new, "Tokens each request generates")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str()
      ->group("Workload");
  app.add_option("--requests", options.requests, "Numbers of requests at once")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group("Workload");
  app.add_option("--runs", options.n_runs, "Runs of each arm, interleaved")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Workload");
  app.add_option("--arms", options.arms, "relay, paged, unshared")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"relay", "paged", "unshared"}))
      ->capture_default_str()
      ->group("Workload");
  app.add_option("--json", options.json_file, "File for the numbers")->group("Workload");
}

int decode_bench_main(const DecodeBenchOptions& options, const std::string& command) {
  const auto runs = run_decode_bench(options);
  if (!runs) {
    fmt::print(stderr, "baton bench decode: {}\n", runs.error().message);
    return 1;
  }
  fmt::print("{}\n\n| requests | arm | tokens/s (median of {}) | spread | KV read | KV saved |\n|---|---|---|---|---|---|\n",
             command, options.n_runs);
  json::Value all = json::Value::array();
  for (const DecodeRun& run : *runs) {
    fmt::print("| {} | {} | {:.0f} | {:.0f}% | {:.2f} GB | {:.2f} GB |\n", run.n_requests, run.arm, run.median(),
               100 * run.spread(), static_cast<double>(run.kv_bytes_requested) / 1e9,
               static_cast<double>(run.kv_bytes_saved) / 1e9);
    all.push_back(to_json(run, options));
  }
  fmt::print("\nshared {} own {} new {}; prefill of the shared prompt {:.0f} tokens/s\n", options.shared, options.own,
             options.n_new, runs->front().prefill_tokens_per_s);
  if (!options.json_file.empty()) {
    if (auto written = write_file(options.json_file, json::dump_pretty({{"command", command}, {"runs", all}})); !written) {
      fmt::print(stderr, "baton bench decode: {}\n", written.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace baton
