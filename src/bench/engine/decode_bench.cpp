/// `baton bench decode`: one engine, stepped on this thread, and the arms in turn.
#include "bench/engine/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <span>

#include <fmt/format.h>

#include "bench/engine/arms.h"
#include "bench/engine/bench_model.h"
#include "bench/engine/decode_report.h"
#include "bench/engine/engine_steps.h"
#include "bench/engine/expert_counts.h"
#include "bench/report/machine_report.h"
#include "bench/report/statistics.h"
#include "cli/output.h"
#include "core/one_line.h"
#include "load/load_engine.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}
double seconds_since(Clock::time_point begin) { return seconds_between(begin, Clock::now()); }

/// Streams of shared prompts after the first one: beyond those of requests, so that no prompt begins like another.
constexpr std::int32_t kFirstLaterPrompt = 1 << 16;

/// The prompt of stream `stream`. Any token ids will do, but the first must differ between streams.
std::vector<TokenId> made_up_tokens(std::int32_t count, std::int32_t stream, std::int32_t n_vocab) {
  std::vector<TokenId> tokens;
  std::uint32_t state = 12345u + 7919u * static_cast<std::uint32_t>(stream);
  for (std::int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(i == 0 ? stream % n_vocab : (state >> 8) % static_cast<std::uint32_t>(n_vocab)));
    state = state * 1664525u + 1013904223u;
  }
  return tokens;
}

/// The engine under test, and the runs of the arms.
class Runner {
 public:
  /// `experts` counts in the engine's device, or is null.
  Runner(std::unique_ptr<Engine> engine, ExpertCountBackend* experts, const ModelSpec& spec, const DecodeBenchOptions& options)
      : engine_(std::move(engine)),
        experts_(experts),
        n_vocab_(spec.n_vocab),
        keeps_prompts_(!spec.has_recurrent_layers()),
        shares_prompts_(std::ranges::any_of(options.arms, has_shared_prompts)),
        options_(options) {}

  /// Generates a few tokens, so that no timed run is the first.
  Result<void> warm_up() {
    Request request = make_request(0, 16);
    request.prompt = made_up_tokens(16, 1, n_vocab_);
    BATON_TRY_VOID(engine_->submit(std::move(request)));
    return step_to_end(*engine_);
  }

  /// Computes the shared prompt number `index` once and pins it in place of the one before. Returns its tokens per second; 0 where
  /// there is nothing to share.
  Result<double> prefill(std::size_t index) {
    const std::int32_t stream = index == 0 ? 0 : kFirstLaterPrompt + static_cast<std::int32_t>(index);
    shared_ = made_up_tokens(options_.shared[index], stream, n_vocab_);
    if (pin_) engine_->unpin(*pin_);
    pin_.reset();
    n_pinned_ = 0;
    if (shared_.empty() || !(keeps_prompts_ || shares_prompts_)) return 0;
    print_note("prefilling {} shared tokens\n", shared_.size());
    const auto begin = Clock::now();
    BATON_TRY(const PinInfo prefix, engine_->pin(shared_));
    pin_ = prefix.id;
    n_pinned_ = prefix.n_pinned_tokens;
    return prefix.n_tokens / seconds_since(begin);
  }

  /// Computes what an arm must find in the cache besides the shared prompt; where whole prompts are not kept, one prompt of the
  /// unshared arm. Returns tokens per second; 0 if there is nothing else.
  Result<double> fill(const std::string& arm, std::int32_t n_requests) {
    const std::int32_t block_len = engine_->info().block_len;
    if (has_shared_prompts(arm) && (!keeps_prompts_ || n_cacheable() == n_shared() / block_len * block_len)) return 0;
    const auto begin = Clock::now();
    std::int64_t n_tokens = 0;
    const std::int32_t n_prompts = keeps_prompts_ ? n_requests : 1;
    for (std::int32_t i = 0; i < n_prompts; ++i) {
      Request request = request_of(arm, i, 1);
      n_tokens += static_cast<std::int64_t>(request.prompt.size());
      BATON_TRY_VOID(engine_->submit(std::move(request)));
      BATON_TRY_VOID(step_to_end(*engine_));
      if (!has_shared_prompts(arm)) print_note("unshared: prefilled {} of {} prompts\n", i + 1, n_prompts);
    }
    return static_cast<double>(n_tokens) / seconds_since(begin);
  }

  /// Runs as many requests as `result` says once.
  Result<void> run(DecodeRun& result) {
    engine_->set_relay(has_relay(result.arm));
    Watched watched;
    for (std::int32_t i = 0; i < result.n_requests; ++i) {
      Request request = request_of(result.arm, i, options_.n_new);
      if (options_.draft_acceptance) request.speculation = {.n_tokens = result.n_drafts, .method = DraftMethod::mtp};
      BATON_TRY(const RequestId id, engine_->submit(std::move(request)));
      watched.n_tokens[id] = 0;
    }
    BATON_TRY_VOID(watch(watched));
    if (watched.n_cached < result.n_requests * n_kept(result.arm) || (keeps_prompts_ && watched.n_timed == 0))
      return fail(ErrorCode::out_of_memory, shortage(result));
    if (watched.n_steps == 0)
      return fail(ErrorCode::invalid_request,
                  fmt::format("answers of {} tokens end before the prompts of {} requests are computed, which are not kept{}: "
                              "give --new more",
                              options_.n_new, result.n_requests, has_shared_prompts(result.arm) ? " whole" : ""),
                  "new");
    const double seconds = seconds_between(watched.begin, watched.end);
    result.tokens_per_s.push_back(static_cast<double>(watched.n_timed) / seconds);
    result.tokens_per_step = static_cast<double>(watched.n_timed) / static_cast<double>(watched.n_steps * result.n_requests);
    result.step_ms = 1e3 * seconds / static_cast<double>(watched.n_steps);
    result.host_ms = std::max(0.0, result.step_ms - 1e3 * watched.run_seconds / static_cast<double>(watched.n_runs));
    result.kv_bytes_requested = watched.kv_bytes_requested;
    result.kv_bytes_saved = watched.kv_bytes_saved;
    if (experts_ != nullptr) result.experts_per_layer = mean_of(experts_->n_chosen());
    return {};
  }

  const Engine& engine() const { return *engine_; }

 private:
  std::int32_t n_shared() const { return static_cast<std::int32_t>(shared_.size()); }

  /// Counters of a run, from the step on in which the last request gets its first token.
  struct Watched {
    std::map<RequestId, std::int32_t> n_tokens;
    Clock::time_point begin;
    Clock::time_point end;
    std::int64_t n_timed = 0;  ///< tokens
    std::int64_t n_steps = 0;
    std::int64_t n_runs = 0;  ///< whose times are in run_seconds; those of later steps, with fewer rows, are not
    double run_seconds = 0;
    std::int64_t first_step = 0;  ///< metrics' number of steps before them
    bool has_ended = false;       ///< with drafts: a request has ended
    std::int64_t n_cached = 0;    ///< prompt tokens found in the cache
    std::int64_t kv_bytes_requested = 0;
    std::int64_t kv_bytes_saved = 0;

    void add_run(double seconds) {
      run_seconds += seconds;
      ++n_runs;
    }
  };

  Request make_request(std::int32_t index, std::int32_t n_new) const {
    Request request;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = n_new;
    // The last tokens differ: equal sequences would be one prefix. No prompt may be empty.
    std::vector<TokenId> prompt = shared_;
    const auto own = made_up_tokens(std::max(options_.own, 1), 1 + index, n_vocab_);
    prompt.insert(prompt.end(), own.begin(), own.end());
    request.prompt = std::move(prompt);
    return request;
  }

  /// Requests of the unshared arm must not share blocks.
  Request request_of(const std::string& arm, std::int32_t index, std::int32_t n_new) const {
    Request request = make_request(index, n_new);
    if (!has_shared_prompts(arm)) request.scope.salt = fmt::format("request {}", index);
    return request;
  }

  /// Prompt tokens of a request that are cached after its prefill: full blocks, without the last token, which is
  /// always computed.
  std::int64_t n_cacheable() const {
    const std::int32_t block_len = engine_->info().block_len;
    return (n_shared() + std::max(options_.own, 1) - 1) / block_len * block_len;
  }

  /// Prompt tokens of each request that the arm finds in the cache.
  std::int64_t n_kept(const std::string& arm) const {
    if (keeps_prompts_) return n_cacheable();
    return has_shared_prompts(arm) ? n_pinned_ : 0;
  }

  /// Says that the requests of a run did not find n_kept tokens.
  std::string shortage(const DecodeRun& run) const {
    const EngineInfo& info = engine_->info();
    return fmt::format(
        "the KV cache of {} tokens does not hold what {} requests need in the {} arm{}: give it more "
        "(--kv-cache-memory-bytes) or take fewer requests",
        static_cast<std::int64_t>(info.n_blocks) * info.block_len, run.n_requests, run.arm, short_group());
  }

  /// Says which layer group has the smallest share of free blocks; nothing if there is only one.
  std::string short_group() const {
    const EngineInfo& info = engine_->info();
    if (info.cache_groups.size() < 2) return "";
    std::size_t group = 0;
    double least = 2;
    for (std::size_t g = 0; g < info.cache_groups.size(); ++g) {
      const double share =
          static_cast<double>(engine_->free_blocks(static_cast<int>(g)).size()) / info.cache_groups[g].n_blocks;
      if (share < least) group = g;
      least = std::min(least, share);
    }
    const CacheGroup& of = info.cache_groups[group];
    return fmt::format(" (of the {} blocks of layers {}, {} are free)", of.n_blocks,
                       of.has_window() ? fmt::format("with a window of {} tokens", of.window) : "without a window",
                       engine_->free_blocks(static_cast<int>(group)).size());
  }

  static bool is_last(const Event& event) { return event.finished.has_value(); }

  static Result<void> count_cached(std::span<const Event> events, Watched& watched) {
    for (const Event& event : events)
      if (event.finished) watched.n_cached += event.stats.cached_tokens;
    return {};
  }

  /// Steps until nothing is left to do. Adds the steps' counts to `watched`.
  Result<void> watch(Watched& watched) {
    std::size_t n_without_token = watched.n_tokens.size();
    const auto after_step = [&](std::span<const Event> events) -> Result<void> {
      const bool is_timing = n_without_token == 0;
      if (options_.draft_acceptance && is_timing) watched.has_ended |= std::ranges::any_of(events, is_last);
      if (watched.has_ended) return count_cached(events, watched);
      for (const Event& event : events) {
        std::int32_t& count = watched.n_tokens[event.request];
        if (count == 0 && !event.tokens.empty()) --n_without_token;
        count += static_cast<std::int32_t>(event.tokens.size());
        if (is_timing) watched.n_timed += static_cast<std::int64_t>(event.tokens.size());
        if (event.finished) watched.n_cached += event.stats.cached_tokens;
      }
      if (n_without_token > 0) return {};
      const EngineMetrics& metrics = engine_->metrics();
      if (!is_timing) {
        watched.begin = watched.end = Clock::now();
        watched.kv_bytes_requested = -metrics.kv_bytes_requested.value();
        watched.kv_bytes_saved = -metrics.kv_bytes_saved.value();
        watched.first_step = metrics.steps.value();
      } else if (options_.draft_acceptance) {
        watched.end = Clock::now();
        watched.n_steps = metrics.steps.value() - watched.first_step;
        watched.add_run(newest_run_seconds());
      } else if (watched.n_timed == static_cast<std::int64_t>(watched.n_tokens.size()) * (watched.n_steps + 1)) {
        // A step that gave each request a token; the last call of step() gives none.
        watched.end = Clock::now();
        ++watched.n_steps;
        watched.add_run(newest_run_seconds());
      }
      return {};
    };
    BATON_TRY_VOID(step_to_end(*engine_, after_step));
    if (n_without_token == 0) {
      watched.kv_bytes_requested += engine_->metrics().kv_bytes_requested.value();
      watched.kv_bytes_saved += engine_->metrics().kv_bytes_saved.value();
    }
    return {};
  }

  /// Time between the beginning and the end of the newest recorded wait for the model; 0 if none is recorded.
  double newest_run_seconds() const {
    const std::vector<StepRecord> records = engine_->recent_steps();
    const auto end = std::ranges::find(records.rbegin(), records.rend(), StepRecord::What::run_end, &StepRecord::what);
    const auto begin = std::find_if(end, records.rend(), [&](const StepRecord& record) {
      return record.what == StepRecord::What::run_begin && record.step == end->step;
    });
    return begin == records.rend() ? 0 : seconds_between(begin->at, end->at);
  }

  static double mean_of(std::span<const std::int32_t> counts) {
    double sum = 0;
    for (const std::int32_t count : counts) sum += count;
    return sum / static_cast<double>(counts.size());
  }

  std::unique_ptr<Engine> engine_;
  ExpertCountBackend* experts_;
  std::int32_t n_vocab_;
  bool keeps_prompts_;   ///< whole; otherwise up to the last snapshot of a state
  bool shares_prompts_;  ///< in some arm
  const DecodeBenchOptions& options_;
  std::vector<TokenId> shared_;  ///< the shared prompt of the runs that come
  std::optional<PinId> pin_;     ///< of it
  std::int32_t n_pinned_ = 0;    ///< tokens of it that the pin keeps
};

/// The numbers of drafts that are run beside each other.
std::vector<std::int32_t> drafts_of(const DecodeBenchOptions& options) {
  return options.drafts.empty() ? std::vector{options.model.speculation.n_tokens} : options.drafts;
}

/// The engine's options: room for the longest run, and all first tokens in one step.
ModelOptions model_options_of(const DecodeBenchOptions& options, ModelOptions model) {
  model.max_num_seqs = *std::ranges::max_element(options.requests);
  model.simulated_acceptance = options.draft_acceptance;
  model.max_num_batched_tokens = std::max(model.max_num_batched_tokens, model.max_num_seqs * model.block_len);
  if (model.max_model_len == 0)
    model.max_model_len = *std::ranges::max_element(options.shared) + std::max(options.own, 1) + options.n_new;
  return model;
}

std::int32_t most_experts(const ModelSpec& spec) {
  std::int32_t most = 0;
  for (const LayerSpec& layer : spec.layers) most = std::max(most, layer.feed_forward.n_experts);
  return most;
}

/// The engine, and what counts experts in its device if that is asked for.
struct CountedEngine {
  std::unique_ptr<Engine> engine;
  ExpertCountBackend* experts = nullptr;
};

Result<CountedEngine> load_counted_engine(const BenchModel& model, const DecodeBenchOptions& options) {
  const ModelOptions chosen = model_options_of(options, model.options);
  CountedEngine made;
  if (!options.count_experts) {
    BATON_TRY(made.engine, load_engine(model.files, chosen));
    return made;
  }
  if (chosen.ranks != nullptr)
    return fail(ErrorCode::invalid_request, "--count-experts counts on one device, without --tensor-parallel-size",
                "count-experts");
  if (most_experts(model.spec) == 0)
    return fail(ErrorCode::invalid_request, model.files.name + " has no experts to count", "count-experts");
  BATON_TRY(std::unique_ptr<Backend> device, open_device(chosen));
  BATON_TRY(auto experts, ExpertCountBackend::make(std::move(device), model.spec.layers));
  made.experts = experts.get();
  BATON_TRY(made.engine, load_engine(model.files, chosen, std::move(experts)));
  return made;
}

Result<void> check_options(const DecodeBenchOptions& options) {
  if (options.requests.empty() || options.arms.empty() || options.shared.empty())
    return fail(ErrorCode::invalid_request, "at least one shared prompt, one number of requests and one arm are needed");
  const SpeculationOptions& drafts = options.model.speculation;
  const bool has_drafts = drafts.n_tokens > 0 && drafts.method == DraftMethod::mtp;
  if (options.draft_acceptance && !has_drafts)
    return fail(ErrorCode::invalid_request, R"(--draft-acceptance needs --speculative-config '{"method": "mtp"}')",
                "draft-acceptance");
  if (!options.drafts.empty() && !options.draft_acceptance)
    return fail(ErrorCode::invalid_request, "--drafts needs --draft-acceptance", "drafts");
  for (const std::int32_t n_drafts : options.drafts)
    if (n_drafts > drafts.n_tokens)
      return fail(ErrorCode::invalid_request,
                  fmt::format("--drafts {}: the graphs of steps are made for {} drafts (num_speculative_tokens)", n_drafts,
                              drafts.n_tokens),
                  "drafts");
  return {};
}

/// All arms with each number of requests behind the shared prompt number `index`; adds them to `report`.
Result<void> run_behind_prompt(Runner& runner, std::size_t index, const DecodeBenchOptions& options,
                               DecodeBenchReport& report) {
  BATON_TRY(report.prefill_tokens_per_s, runner.prefill(index));
  const std::int32_t most = *std::ranges::max_element(options.requests);
  for (const std::string& arm : options.arms) {
    BATON_TRY(const double filled, runner.fill(arm, most));
    if (!has_shared_prompts(arm)) report.unshared_tokens_per_s = filled;
  }
  const std::vector<std::int32_t> drafts = drafts_of(options);
  for (const std::int32_t n_requests : options.requests) {
    const std::size_t first = report.runs.size();
    for (const std::string& arm : options.arms)
      for (const std::int32_t n_drafts : drafts)
        report.runs.push_back({.arm = arm,
                               .n_shared = options.shared[index],
                               .prefill_tokens_per_s = report.prefill_tokens_per_s,
                               .n_requests = n_requests,
                               .n_drafts = n_drafts,
                               .tokens_per_s = {}});
    for (std::int32_t round = 0; round < options.n_runs; ++round) {
      for (std::size_t i = first; i < report.runs.size(); ++i) {
        DecodeRun& run = report.runs[i];
        BATON_TRY_VOID(runner.run(run));
        print_note("{} after {} tokens, {}, {}, run {} of {}: {:.1f} tokens/s\n", baton::counted(n_requests, "request"),
                   run.n_shared, run.arm, baton::counted(run.n_drafts, "draft"), round + 1, options.n_runs,
                   run.tokens_per_s.back());
      }
    }
  }
  return {};
}

}  // namespace

double DecodeRun::median() const { return median_of(tokens_per_s); }

double DecodeRun::spread() const { return spread_of(tokens_per_s); }

Result<DecodeBenchReport> run_decode_bench(const DecodeBenchOptions& options) {
  BATON_TRY_VOID(check_options(options));
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  BATON_TRY(CountedEngine counted, load_counted_engine(model, options));
  Runner runner(std::move(counted.engine), counted.experts, model.spec, options);
  DecodeBenchReport report;
  if (options.count_experts) report.n_experts = most_experts(model.spec);
  report.model = model.files.name;
  report.engine = runner.engine().info();
  BATON_TRY_VOID(runner.warm_up());
  for (std::size_t index = 0; index < options.shared.size(); ++index)
    BATON_TRY_VOID(run_behind_prompt(runner, index, options, report));
  return report;
}

int decode_bench_main(const DecodeBenchOptions& options, const std::string& command) {
  return run_benchmark("baton bench decode", options, command, run_decode_bench, decode_text, decode_json);
}

}  // namespace baton
