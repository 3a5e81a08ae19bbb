/// Runs the cases one after another on one engine, which this thread steps.
#include "bench/prefix_cache/prefix_cache_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bench/engine/bench_model.h"
#include "bench/engine/engine_steps.h"
#include "bench/report/machine_report.h"
#include "cli/progress.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

/// What an engine did with a prompt.
struct Answered {
  std::vector<TokenId> prompt;
  std::vector<TokenId> answer;
  std::int32_t cached_len = 0;
  double first_token_ms = 0;
};

/// The engine, and the cases that it runs.
class CaseRunner {
 public:
  CaseRunner(Engine& engine, const DatasetTokens& tokens) : engine_(engine), tokens_(tokens) {}

  /// Generates a few tokens, so that no timed step is the first of its kind.
  Result<void> warm_up() {
    PrefixCase of{.kind = "identical", .shared_len = 64, .own_len = 1, .answer_len = 4, .n_requests = 2};
    of.shared_len = std::min(of.shared_len, engine_.info().max_model_len - of.own_len - of.answer_len);
    return run(of).map([](const PrefixCaseResult&) {});
  }

  Result<PrefixCaseResult> run(const PrefixCase& of) {
    engine_.drop_cached_blocks();
    CasePrompts prompts(of, tokens_, n_run_++);
    PrefixCaseResult result{.of = of};
    const std::int64_t rows_before = n_rows();
    ComputedTokens computed;
    std::int64_t n_told = 0;
    BATON_TRY(const std::optional<PinInfo> pin, register_prefix(of, prompts));
    const auto unpin = [&] {
      if (pin) engine_.unpin(pin->id);
    };
    if (pin) {
      const auto pinned = std::span(prompts.shared()).first(static_cast<std::size_t>(pin->n_pinned_tokens));
      computed.add({pinned.begin(), pinned.end()});
      n_told += pin->n_pinned_tokens;
    }
    std::vector<TokenId> answer;
    while (std::ssize(result.requests) < of.n_requests) {
      std::vector<std::vector<TokenId>> wave;
      do wave.push_back(prompts.next(answer));
      while (of.is_at_once() && std::ssize(wave) < of.n_requests);
      auto answered = answer_all(std::move(wave), of.answer_len);
      if (!answered) {
        unpin();
        return tl::unexpected(std::move(answered.error()));
      }
      for (Answered& each : *answered) {
        n_told += std::ssize(each.prompt) - each.cached_len + of.answer_len - 1;
        result.requests.push_back(counts_of(each, computed));
        answer = each.answer;
        // The last token of an answer was not computed.
        each.prompt.insert(each.prompt.end(), each.answer.begin(), each.answer.end() - 1);
        computed.add(std::move(each.prompt));
      }
    }
    result.n_rows_untold = n_rows() - rows_before - n_told;
    unpin();
    return result;
  }

 private:
  /// Nothing for a case without a registered prefix, and where the engine has no prefix cache.
  Result<std::optional<PinInfo>> register_prefix(const PrefixCase& of, const CasePrompts& prompts) {
    if (!of.is_registered() || !engine_.info().enable_prefix_caching) return std::nullopt;
    BATON_TRY(PinInfo pin, engine_.pin(prompts.shared()));
    return pin;
  }

  /// Answers all prompts, which come at once. After an error the engine has none of them.
  Result<std::vector<Answered>> answer_all(std::vector<std::vector<TokenId>> prompts, std::int32_t answer_len) {
    std::map<RequestId, std::size_t> index_of;
    auto answered = answer(std::move(prompts), answer_len, index_of);
    if (answered) return answered;
    for (const auto& [id, index] : index_of) engine_.cancel(id);
    static_cast<void>(step_to_end(engine_));  // another failure is that of the next case
    return answered;
  }

  Result<std::vector<Answered>> answer(std::vector<std::vector<TokenId>> prompts, std::int32_t answer_len,
                                       std::map<RequestId, std::size_t>& index_of) {
    std::vector<Answered> answered(prompts.size());
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Request request;
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.max_tokens = answer_len;
      request.speculation.emplace();
      request.prompt = prompts[i];
      answered[i].prompt = std::move(prompts[i]);
      BATON_TRY(const RequestId id, engine_.submit(std::move(request)));
      index_of[id] = i;
    }
    const auto after_step = [&](std::span<const Event> events) -> Result<void> {
      for (const Event& event : events) {
        Answered& of = answered[index_of.at(event.request)];
        if (of.answer.empty() && !event.tokens.empty())
          of.first_token_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        for (const TokenOutput& token : event.tokens) of.answer.push_back(token.token);
        of.cached_len = event.stats.cached_tokens;
      }
      return {};
    };
    BATON_TRY_VOID(step_to_end(engine_, after_step));
    return answered;
  }

  CaseRequest counts_of(const Answered& answered, const ComputedTokens& computed) const {
    CaseRequest counts;
    counts.prompt_len = static_cast<std::int32_t>(answered.prompt.size());
    counts.shared_len = computed.shared_len(answered.prompt);
    counts.again_in_kv = counts.shared_len - found_in_blocks(counts.shared_len, counts.prompt_len, engine_.info().block_len);
    counts.again = counts.shared_len - answered.cached_len;
    counts.first_token_ms = answered.first_token_ms;
    return counts;
  }

  std::int64_t n_rows() const { return std::llround(engine_.metrics().iteration_tokens_total.snapshot().sum); }

  Engine& engine_;
  const DatasetTokens& tokens_;
  std::uint64_t n_run_ = 0;
};

}  // namespace

double CaseRequest::hit_rate() const { return static_cast<double>(shared_len - again) / prompt_len; }

std::int32_t PrefixCaseResult::most_more() const {
  std::int32_t most = 0;
  for (std::size_t i = static_cast<std::size_t>(of.n_unjudged); i < requests.size(); ++i)
    most = std::max(most, requests[i].more());
  return most;
}

Result<PrefixCacheReport> run_prefix_cache_bench(const PrefixCacheBenchOptions& options) {
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  const std::int64_t max_len = model.options.max_model_len > 0 ? model.options.max_model_len : model.spec.max_position;
  PrefixCacheReport report;
  std::vector<PrefixCase> cases;
  std::int64_t longest = 0;
  for (PrefixCase& each : prefix_cases(options.cases)) {
    const bool fits = each.longest_context() <= max_len;
    if (fits) longest = std::max(longest, each.longest_context());
    (fits ? cases : report.left_out).push_back(std::move(each));
  }
  if (cases.empty())
    return fail(ErrorCode::invalid_request,
                fmt::format("{} accepts contexts of {} tokens, and every case is longer: take shorter ones (--shared, --own)",
                            model.files.name, max_len),
                "shared");
  BATON_TRY(const DatasetTokens tokens, DatasetTokens::make({.n_vocab = model.spec.n_vocab}, 0));
  BATON_TRY(const std::unique_ptr<Engine> engine, load_bench_engine(model, longest));
  report.model = model.files.name;
  report.engine = engine->info();
  CaseRunner runner(*engine, tokens);
  BATON_TRY_VOID(runner.warm_up());
  Progress progress("prefix-cache:", "cases", std::ssize(cases));
  for (const PrefixCase& each : cases) {
    if (auto result = runner.run(each))
      report.cases.push_back(std::move(*result));
    else
      report.failed.push_back({each, std::move(result.error().message)});
    progress.update(std::ssize(report.cases) + std::ssize(report.failed));
  }
  progress.finish();
  return report;
}

int prefix_cache_bench_main(const PrefixCacheBenchOptions& options, const std::string& command) {
  bool has_failed = false;
  const auto run = [&](const PrefixCacheBenchOptions& of) {
    return run_prefix_cache_bench(of).map([&](PrefixCacheReport report) {
      has_failed = !report.failed.empty();
      return report;
    });
  };
  const int code = run_benchmark("baton bench prefix-cache", options, command, run, prefix_cache_text, prefix_cache_json);
  return has_failed ? 1 : code;
}

}  // namespace baton
