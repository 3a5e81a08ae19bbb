/// The step loop on a simulated clock.
#include "engine/step/replay.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/split_mix.h"

namespace baton {
namespace {

/// Token `index` of a stream; different streams have different tokens.
TokenId token_of(std::uint64_t stream, std::int64_t index) {
  return static_cast<TokenId>(mix_bits(stream * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(index)) >> 33);
}

std::uint64_t stream_of_run(std::int64_t run) { return 2 * static_cast<std::uint64_t>(run); }
std::uint64_t stream_of_sequence(SequenceId id) { return 2 * static_cast<std::uint64_t>(id.value) + 1; }

std::vector<TokenId> prompt_of(const Trace& trace, const TraceRequest& request, SequenceId id) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(request.prompt_len));
  for (std::int32_t i = 0; i < request.prompt_len; ++i) {
    const auto run = static_cast<std::size_t>(i / trace.run_len);
    tokens[static_cast<std::size_t>(i)] = run < request.runs.size()
                                              ? token_of(stream_of_run(request.runs[run]), i % trace.run_len)
                                              : token_of(stream_of_sequence(id), i);
  }
  return tokens;
}

Distribution distribution_of(std::vector<float>& values) {
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::ranges::nth_element(values, place);
    return static_cast<double>(*place);
  };
  return {at(0.5), at(0.99), at(1.0)};
}

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options)
      : trace_(trace),
        options_(options),
        cache_(options.n_blocks, options.block_len, options.enable_prefix_caching, options.life_of_reuse),
        scheduler_(options.scheduler, cache_) {}

  ReplayReport run() {
    while (true) {
      take_arrivals();
      StepPlan plan = scheduler_.plan();
      count(plan);
      std::optional<StepPlan> next;
      if (!plan.is_empty()) next = std::move(plan);
      if (in_flight_) {
        const double seconds = seconds_of(*in_flight_);
        now_ += seconds;
        scheduler_.took(*in_flight_, seconds);
        commit(*in_flight_);
      } else if (!next) {
        check(scheduler_.n_running() + scheduler_.n_waiting() == 0, "replay: sequences wait, and nothing is planned");
        if (next_request_ == trace_.requests.size()) break;
        now_ = std::max(now_, trace_.requests[next_request_].arrival_s);
      }
      in_flight_ = std::move(next);
      take_finished();
    }
    report_.simulated_s = now_;
    report_.queue_s = distribution_of(queue_s_);
    report_.first_token_s = distribution_of(first_token_s_);
    report_.gap_s = distribution_of(gap_s_);
    for (const float seconds : token_s_) report_.mean_token_s += seconds / static_cast<double>(token_s_.size());
    report_.token_s = distribution_of(token_s_);
    return report_;
  }

 private:
  struct Times {
    double arrival = 0;
    double first_token = -1;
    double last_token = -1;
  };

  double seconds_of(const StepPlan& plan) const {
    if (options_.costs) return options_.costs->seconds(plan.n_decodes, plan.n_prefill());
    return options_.step_s + options_.row_s * plan.n_rows;
  }

  void take_arrivals() {
    for (; next_request_ < trace_.requests.size() && trace_.requests[next_request_].arrival_s <= now_; ++next_request_) {
      const TraceRequest& request = trace_.requests[next_request_];
      SequenceTask task;
      task.id = SequenceId{static_cast<std::int64_t>(next_request_)};
      task.request = RequestId{task.id.value};
      task.prompt_len = request.prompt_len;
      task.max_len = request.prompt_len + std::max(request.output_len, 1);
      ++report_.n_requests;
      // The keys of the last token are not stored.
      if (request.prompt_len < 1 || cache_.n_blocks_for(task.max_len - 1) > cache_.n_blocks()) {
        ++report_.n_refused;
        continue;
      }
      times_[task.id] = {.arrival = request.arrival_s};
      std::vector<TokenId> prompt = prompt_of(trace_, request, task.id);
      scheduler_.add(std::make_unique<Sequence>(std::move(task), std::move(prompt)));
    }
  }

  void count(const StepPlan& plan) {
    for (const SequenceId id : plan.admitted) {
      const Sequence& sequence = *scheduler_.find(id);
      if (sequence.schedule->n_admissions > 1) continue;
      queue_s_.push_back(static_cast<float>(now_ - times_.at(id).arrival));
      const std::int32_t n_cached = sequence.schedule->n_cached;
      report_.prompt_tokens += sequence.task->prompt_len;
      report_.cached_tokens += n_cached;
      report_.runs += (sequence.task->prompt_len + trace_.run_len - 1) / trace_.run_len;
      report_.cached_runs += n_cached / trace_.run_len;
    }
    report_.preemptions += plan.n_preempted;
    report_.recomputed_tokens += plan.n_recomputed_tokens;
    if (plan.is_empty()) return;
    ++report_.steps;
    report_.rows += plan.n_rows;
    if (plan.n_decodes > 0)
      report_.most_prefill_beside_decodes = std::max(report_.most_prefill_beside_decodes, plan.n_prefill());
  }

  void commit(const StepPlan& plan) {
    outcomes_.clear();
    for (const PlannedSequence& planned : plan.sequences) {
      const Sequence* sequence = scheduler_.find(planned.id);
      if (sequence == nullptr || sequence->schedule->finished) continue;
      StepOutcome& outcome = outcomes_.emplace_back();
      outcome.id = planned.id;
      if (planned.max_tokens == 0) continue;
      outcome.tokens.push_back({token_of(stream_of_sequence(planned.id), sequence->n_tokens()), {}, {}});
      if (sequence->n_tokens() + 1 == sequence->task->max_len) outcome.finished = FinishReason::length;
      Times& times = times_.at(planned.id);
      auto& list = times.last_token < 0 ? first_token_s_ : gap_s_;
      list.push_back(static_cast<float>(now_ - (times.last_token < 0 ? times.arrival : times.last_token)));
      if (times.first_token < 0) times.first_token = now_;
      times.last_token = now_;
      ++report_.output_tokens;
      const std::int32_t n_generated = sequence->n_tokens() + 1 - sequence->task->prompt_len;
      if (outcome.finished && n_generated > 1)
        token_s_.push_back(static_cast<float>((now_ - times.first_token) / (n_generated - 1)));
    }
    scheduler_.commit(plan, outcomes_);
  }

  void take_finished() {
    for (const auto& sequence : scheduler_.take_finished()) {
      report_.most_preemptions = std::max(report_.most_preemptions, sequence->schedule->n_preemptions);
      times_.erase(sequence->task->id);
    }
  }

  const Trace& trace_;
  ReplayOptions options_;
  KvCache cache_;
  Scheduler scheduler_;
  std::size_t next_request_ = 0;
  double now_ = 0;
  std::optional<StepPlan> in_flight_;
  std::unordered_map<SequenceId, Times> times_;
  std::vector<StepOutcome> outcomes_;
  std::vector<float> queue_s_;
  std::vector<float> first_token_s_;
  std::vector<float> gap_s_;
  std::vector<float> token_s_;
  ReplayReport report_;
};

}  // namespace

ReplayReport replay(const Trace& trace, const ReplayOptions& options) { return Replay(trace, options).run(); }

std::int64_t blocks_for_all(const Trace& trace, std::int32_t block_len) {
  std::int64_t n = 0;
  for (const TraceRequest& request : trace.requests)
    n += (request.prompt_len + std::max(request.output_len, 1) + block_len - 1) / block_len;
  return n;
}

}  // namespace baton
