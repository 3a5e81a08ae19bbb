/// `baton bench steps`: an engine, stepped on this thread, with prompts that arrive at every step.
#include "bench/engine/steps_bench.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bench/engine/bench_model.h"
#include "bench/engine/engine_steps.h"
#include "bench/report/latency_statistics.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "bench/report/statistics.h"
#include "cli/output.h"
#include "core/split_mix.h"
#include "load/load_engine.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

/// Steps of a size before the timed ones: one is in flight when the first request is submitted, and one more fills the pipeline.
constexpr std::int32_t kUntimed = 3;

class StepsRunner {
 public:
  StepsRunner(std::unique_ptr<Engine> engine, const ModelSpec& spec, const StepsBenchOptions& options)
      : engine_(std::move(engine)), n_vocab_(spec.n_vocab), options_(options) {
    const std::int32_t block_len = engine_->info().block_len;
    append_tokens(options.shared / block_len * block_len, shared_);
  }

  /// Puts the shared prompt into the cache.
  Result<void> fill() {
    BATON_TRY_VOID(engine_->submit(request_of(1, 2)));
    BATON_TRY_VOID(step_to_end(*engine_));
    if (shared_.empty()) return {};
    BATON_TRY_VOID(engine_->pin(shared_));
    return {};
  }

  /// Times all sizes with `n_decodes` decoding requests.
  Result<void> run(std::int32_t n_decodes, std::vector<StepCost>& costs) {
    std::vector<RequestId> decoding;
    for (std::int32_t i = 0; i < n_decodes; ++i) {
      BATON_TRY(const RequestId id, engine_->submit(request_of(std::max(options_.own, 1), n_new(options_))));
      decoding.push_back(id);
      without_token_.insert(id);
    }
    while (!without_token_.empty()) BATON_TRY_VOID(step());
    for (const std::int32_t n_tokens : options_.prompt_tokens) {
      if (n_decodes + n_tokens == 0) continue;
      StepCost cost{n_decodes, n_tokens, {}};
      BATON_TRY_VOID(time_steps(cost));
      costs.push_back(std::move(cost));
    }
    for (const RequestId id : decoding) engine_->cancel(id);
    return step_to_end(*engine_);
  }

  const Engine& engine() const { return *engine_; }

  /// Tokens of a decoding request: enough for all steps, and for those in which the others compute their prompts.
  static std::int32_t n_new(const StepsBenchOptions& options) {
    const auto n_sizes = static_cast<std::int32_t>(options.prompt_tokens.size());
    const std::int32_t most = *std::ranges::max_element(options.requests);
    return 64 + n_sizes * (kUntimed + options.n_steps + 4) + most;
  }

 private:
  void append_tokens(std::int32_t count, std::vector<TokenId>& tokens) {
    for (std::int32_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<TokenId>(mix_bits(++n_drawn_) % static_cast<std::uint64_t>(n_vocab_)));
  }

  /// Its own tokens are new: none of them is in the cache.
  Request request_of(std::int32_t n_own, std::int32_t n_new) {
    Request request;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = n_new;
    std::vector<TokenId> prompt = shared_;
    append_tokens(n_own, prompt);
    request.prompt = std::move(prompt);
    return request;
  }

  Result<void> step() {
    if (!engine_->step()) return fail(ErrorCode::internal, "the engine has no step to run while requests decode");
    for (const Event& event : engine_->wait_events(std::chrono::milliseconds(0))) {
      if (event.finished == FinishReason::error)
        return fail(ErrorCode::internal, "a sequence ended with a NaN among its logits");
      if (!event.tokens.empty()) without_token_.erase(event.request);
    }
    return {};
  }

  Result<void> submit_prompts(std::int32_t n_tokens) {
    for (std::int32_t i = 0; i < options_.n_prompts && n_tokens > 0; ++i) {
      const std::int32_t n_own = (n_tokens + i) / options_.n_prompts;
      BATON_TRY_VOID(engine_->submit(request_of(n_own, 1)));
    }
    return {};
  }

  Result<void> time_steps(StepCost& cost) {
    std::int64_t n_rows_before = 0;
    std::int64_t n_steps_before = 0;
    Clock::time_point last;
    for (std::int32_t i = 0; i < kUntimed + options_.n_steps; ++i) {
      BATON_TRY_VOID(submit_prompts(cost.n_prompt_tokens));
      BATON_TRY_VOID(step());
      const Clock::time_point now = Clock::now();
      if (i + 1 == kUntimed) {
        n_rows_before = n_rows();
        n_steps_before = engine_->metrics().steps.value();
      }
      if (i >= kUntimed) cost.seconds.push_back(std::chrono::duration<double>(now - last).count());
      last = now;
    }
    const std::int64_t n_steps = engine_->metrics().steps.value() - n_steps_before;
    const std::int64_t n_wanted = static_cast<std::int64_t>(options_.n_steps) * (cost.n_decodes + cost.n_prompt_tokens);
    if (n_steps != options_.n_steps || n_rows() - n_rows_before != n_wanted)
      return fail(ErrorCode::internal,
                  fmt::format("{} steps of {} decodes and {} prompt tokens had {} rows in {} steps", options_.n_steps,
                              cost.n_decodes, cost.n_prompt_tokens, n_rows() - n_rows_before, n_steps));
    // What is in flight ends before the next size.
    for (int i = 0; i < 2 && cost.n_decodes > 0; ++i) BATON_TRY_VOID(step());
    return cost.n_decodes > 0 ? Result<void>() : step_to_end(*engine_);
  }

  /// Of all steps.
  std::int64_t n_rows() const {
    return static_cast<std::int64_t>(engine_->metrics().iteration_tokens_total.snapshot().sum + 0.5);
  }

  std::unique_ptr<Engine> engine_;
  std::int32_t n_vocab_;
  const StepsBenchOptions& options_;
  std::vector<TokenId> shared_;
  std::uint64_t n_drawn_ = 0;
  std::set<RequestId> without_token_;  ///< of the decoding requests
};

/// A size that is measured twice would be two steps of one table, which `baton simulate --step-costs` refuses.
Result<void> refuse_twice(const char* flag, const std::vector<std::int32_t>& numbers) {
  for (auto at = numbers.begin(); at != numbers.end(); ++at)
    if (std::find(numbers.begin(), at, *at) != at)
      return fail(ErrorCode::invalid_request, fmt::format("{}: {} is there twice", flag, *at));
  return {};
}

Result<void> check_steps_options(const StepsBenchOptions& options) {
  if (options.requests.empty() || options.prompt_tokens.empty())
    return fail(ErrorCode::invalid_request, "at least one number of requests and one of prompt tokens are needed");
  if (*std::ranges::max_element(options.requests) == 0 && *std::ranges::max_element(options.prompt_tokens) == 0)
    return fail(ErrorCode::invalid_request, "--requests 0 and --prompt-tokens 0: such a step has no rows", "requests");
  BATON_TRY_VOID(refuse_twice("--requests", options.requests));
  BATON_TRY_VOID(refuse_twice("--prompt-tokens", options.prompt_tokens));
  for (const std::int32_t n_tokens : options.prompt_tokens)
    if (n_tokens > 0 && n_tokens < options.n_prompts)
      return fail(
          ErrorCode::invalid_request,
          fmt::format("--prompt-tokens {}: the {} requests of --prompts have one each at least", n_tokens, options.n_prompts),
          "prompt-tokens");
  return {};
}

/// The engine's options: every step has room for all of its rows.
ModelOptions steps_model_options(const StepsBenchOptions& options, ModelOptions model) {
  const std::int32_t most_requests = *std::ranges::max_element(options.requests);
  const std::int32_t most_tokens = *std::ranges::max_element(options.prompt_tokens);
  // A slot is free again two steps after its request's only one.
  model.max_num_seqs = most_requests + 4 * options.n_prompts;
  model.max_num_batched_tokens = std::max(model.max_num_batched_tokens, most_requests + most_tokens);
  model.max_prefill_tokens = model.max_num_batched_tokens;
  if (model.max_model_len == 0)
    model.max_model_len =
        options.shared + std::max(std::max(options.own, 1) + StepsRunner::n_new(options), most_tokens / options.n_prompts + 2);
  return model;
}

}  // namespace

Result<StepsBenchReport> run_steps_bench(const StepsBenchOptions& options) {
  BATON_TRY_VOID(check_steps_options(options));
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  BATON_TRY(std::unique_ptr<Engine> engine, load_engine(model.files, steps_model_options(options, model.options)));
  StepsRunner runner(std::move(engine), model.spec, options);
  StepsBenchReport report;
  report.model = model.files.name;
  report.engine = runner.engine().info();
  BATON_TRY_VOID(runner.fill());
  for (const std::int32_t n_decodes : options.requests) {
    const std::size_t n_before = report.costs.size();
    BATON_TRY_VOID(runner.run(n_decodes, report.costs));
    if (report.costs.size() == n_before) continue;  // no decodes, no prompt tokens
    print_note("{} decodes: {:.2f} ms with {} prompt tokens\n", n_decodes, 1e3 * median_of(report.costs.back().seconds),
               report.costs.back().n_prompt_tokens);
  }
  return report;
}

std::string steps_text(const StepsBenchReport& report, const StepsBenchOptions& options, const std::string& command) {
  std::vector<std::string> titles{"decodes"};
  for (const std::int32_t n_tokens : options.prompt_tokens) titles.push_back(fmt::format("{} prompt tokens, ms", n_tokens));
  MarkdownTable table(titles);
  double worst = 0;
  auto cost = report.costs.begin();
  for (const std::int32_t n_decodes : options.requests) {
    std::vector<std::string> row{std::to_string(n_decodes)};
    for (const std::int32_t n_tokens : options.prompt_tokens) {
      if (n_decodes + n_tokens == 0) {
        row.emplace_back("-");
        continue;
      }
      const double p90 = percentile_of(cost->seconds, 90);
      worst = std::max(worst, p90 / median_of(cost->seconds));
      row.push_back(fmt::format("{:.2f}", 1e3 * median_of(cost++->seconds)));
    }
    table.add(row);
  }
  return fmt::format(
      "{}\n{}\n\n{}\n{}, {} weights, {} KV; {} shared tokens, {} own tokens of each decode; prompt tokens of {} request{}.\n"
      "Medians of {} steps; the 90th percentile is at most {:.2f} of the median.\n",
      command, machine_line(report.engine), table.text(), report.model, report.engine.weight_scheme,
      to_string(report.engine.kv_dtype), options.shared, std::max(options.own, 1), options.n_prompts,
      options.n_prompts == 1 ? "" : "s", options.n_steps, worst);
}

json::Value steps_json(const StepsBenchReport& report, const StepsBenchOptions& options, const std::string& command) {
  json::Value steps = json::Value::array();
  for (const StepCost& cost : report.costs)
    steps.push_back({{"decodes", cost.n_decodes},
                     {"prompt_tokens", cost.n_prompt_tokens},
                     {"seconds", cost.seconds},
                     {"median_seconds", median_of(cost.seconds)}});
  json::Value value = report_head(command, report.model, report.engine);
  value.update(
      {{"shared", options.shared}, {"own", std::max(options.own, 1)}, {"prompts", options.n_prompts}, {"steps", steps}});
  return value;
}

int steps_bench_main(const StepsBenchOptions& options, const std::string& command) {
  return run_benchmark("baton bench steps", options, command, run_steps_bench, steps_text, steps_json);
}

}  // namespace baton
