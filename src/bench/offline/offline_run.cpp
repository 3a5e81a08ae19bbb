/// Submits a workload's requests, steps, and counts.
#include "bench/offline/offline_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "bench/engine/arms.h"
#include "bench/engine/device_busy.h"
#include "bench/engine/engine_steps.h"
#include "cli/progress.h"

namespace baton {
namespace {

constexpr std::int32_t kWarmUpLength = 32;

/// A run under way.
class OfflineRun {
 public:
  OfflineRun(Engine& engine, const Workload& workload, const OfflineRunOptions& options)
      : engine_(engine),
        workload_(workload),
        options_(options),
        // The CPU backend computes a step when its results are asked for.
        device_busy_(engine.info().backend.name != "cpu"),
        prompts_(workload.requests.size()),
        followers_(workload.requests.size()) {
    result_.arm = options.arm;
    result_.answers.resize(workload.requests.size());
    for (std::size_t i = 0; i < workload.requests.size(); ++i)
      if (const auto before = workload.requests[i].follows) followers_[*before].push_back(i);
    if (options.shows_progress)
      progress_.emplace(options.title, "requests", static_cast<std::int64_t>(workload.requests.size()));
  }

  Result<OfflineResult> run() {
    engine_.set_relay(has_relay(options_.arm));
    device_busy_.take(engine_.recent_steps());
    const double busy_before = device_busy_.seconds();
    count(-1);
    begin_ = Clock::now();
    for (std::size_t i = 0; i < workload_.requests.size(); ++i)
      if (!workload_.requests[i].follows) BATON_TRY_VOID(submit(i, workload_.requests[i].prompt));
    BATON_TRY_VOID(step_to_end(engine_, [&](std::span<const Event> events) { return after_step(events); }));
    result_.device_busy_s -= busy_before;
    if (progress_) progress_->finish();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Result<void> submit(std::size_t index, std::vector<TokenId> prompt) {
    const WorkloadRequest& of = workload_.requests[index];
    Request request;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = of.output_len;
    request.sampling.allowed_ids = of.choices;
    request.scope.salt = has_shared_prompts(options_.arm) ? options_.salt : fmt::format("{} request {}", options_.salt, index);
    if (!followers_[index].empty()) prompts_[index] = prompt;
    request.prompt = std::move(prompt);
    BATON_TRY(const RequestId id, engine_.submit(std::move(request)));
    running_[id] = index;
    return {};
  }

  Result<void> after_step(std::span<const Event> events) {
    device_busy_.take(engine_.recent_steps());
    if (is_ended_) return {};
    for (const Event& event : events) {
      const auto at = running_.find(event.request);
      if (at == running_.end()) continue;
      std::vector<TokenId>& answer = result_.answers[at->second];
      for (const TokenOutput& token : event.tokens) {
        answer.push_back(token.token);
        if (options_.on_token) options_.on_token(at->second, token.token);
      }
      if (!event.finished) continue;
      BATON_TRY_VOID(finish(event, at->second));
    }
    if (progress_) progress_->update(result_.n_requests);
    if (running_.empty()) {
      end();
    } else if (options_.time_limit_s > 0 && seconds() > options_.time_limit_s) {
      cut();
    }
    return {};
  }

  Result<void> finish(const Event& event, std::size_t index) {
    running_.erase(event.request);
    ++result_.n_requests;
    result_.prompt_tokens += event.stats.prompt_tokens;
    result_.cached_tokens += event.stats.cached_tokens;
    result_.output_tokens += event.stats.completion_tokens;
    for (const std::size_t follower : followers_[index]) {
      std::vector<TokenId> prompt = prompts_[index];
      const std::vector<TokenId>& answer = result_.answers[index];
      const std::vector<TokenId>& own = workload_.requests[follower].prompt;
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      prompt.insert(prompt.end(), own.begin(), own.end());
      BATON_TRY_VOID(submit(follower, std::move(prompt)));
    }
    prompts_[index] = {};
    return {};
  }

  /// Ends the run here: what runs and waits is cancelled.
  void cut() {
    result_.is_cut = true;
    end();
    for (const auto& [id, index] : running_) {
      engine_.cancel(id);
      result_.unfinished_output_tokens += static_cast<std::int64_t>(result_.answers[index].size());
      result_.answers[index].clear();
    }
  }

  void end() {
    is_ended_ = true;
    result_.seconds = seconds();
    result_.device_busy_s = device_busy_.seconds();
    count(1);
  }

  /// Adds the engine's counters to the result, or takes them away.
  void count(std::int64_t sign) {
    const EngineMetrics& metrics = engine_.metrics();
    result_.steps += sign * metrics.steps.value();
    result_.preemptions += sign * metrics.num_preemptions.value();
    result_.kv_bytes_requested += sign * metrics.kv_bytes_requested.value();
    result_.kv_bytes_saved += sign * metrics.kv_bytes_saved.value();
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  Engine& engine_;
  const Workload& workload_;
  const OfflineRunOptions& options_;
  DeviceBusyTime device_busy_;
  std::vector<std::vector<TokenId>> prompts_;        ///< as submitted; kept while others follow
  std::vector<std::vector<std::size_t>> followers_;  ///< of each request
  std::unordered_map<RequestId, std::size_t> running_;
  std::optional<Progress> progress_;
  Clock::time_point begin_;
  bool is_ended_ = false;  ///< the clock has stopped
  OfflineResult result_;
};

}  // namespace

double OfflineResult::prefix_hit_rate() const {
  return prompt_tokens == 0 ? 0 : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
}

double OfflineResult::per_generated_token(std::int64_t bytes) const {
  const std::int64_t n_tokens = output_tokens + unfinished_output_tokens;
  return n_tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(n_tokens);
}

double OfflineResult::device_busy_share() const { return seconds > 0 ? device_busy_s / seconds : 0; }

Result<OfflineResult> run_offline(Engine& engine, const Workload& workload, const OfflineRunOptions& options) {
  return OfflineRun(engine, workload, options).run();
}

Workload warm_up_of(const Workload& workload, std::size_t n_requests) {
  Workload made;
  for (const WorkloadRequest& request : workload.requests) {
    if (made.requests.size() == n_requests) break;
    if (request.follows) continue;
    made.requests.push_back(request);
    const auto n_most = 1 + static_cast<std::int32_t>(made.requests.size()) % kWarmUpLength;
    made.requests.back().output_len = std::min(request.output_len, n_most);
  }
  return made;
}

std::int64_t longest_context(const Workload& workload) {
  std::vector<std::int64_t> lengths;
  for (const WorkloadRequest& request : workload.requests)
    lengths.push_back(static_cast<std::int64_t>(request.prompt.size()) + request.output_len +
                      (request.follows ? lengths[*request.follows] : 0));
  return lengths.empty() ? 0 : *std::ranges::max_element(lengths);
}

EqualAnswers compare_answers(std::span<const OfflineResult* const> runs) {
  EqualAnswers equal;
  for (std::size_t i = 0; !runs.empty() && i < runs[0]->answers.size(); ++i) {
    const std::vector<TokenId>& first = runs[0]->answers[i];
    if (std::ranges::any_of(runs, [&](const OfflineResult* run) { return run->answers[i].empty(); })) continue;
    ++equal.n_compared;
    equal.n_equal += std::ranges::all_of(runs, [&](const OfflineResult* run) { return run->answers[i] == first; }) ? 1 : 0;
  }
  return equal;
}

}  // namespace baton
