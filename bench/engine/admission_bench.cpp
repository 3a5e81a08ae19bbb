/// The scheduler alone on a simulated clock, under loads with common prompts: how many different prompts run at a time, and
/// how long first tokens take.
///
/// Prompts have 2048 tokens in common with others of their group and 128 of their own; 256 slots, 16384 tokens in a step.
/// Answers have 64 to 448 tokens, in the jobs with `equal` 256.
///
///     job      groups x requests, all there at the start, in random order
///     strangers  3000 requests, `rate` a second; half share one prompt, the others share nothing
///     groups   3000 requests, `rate` a second, of 64 groups
///
/// A step takes 5.1 ms, and for each decode 25 us, for each different prompt that decodes 56 us, for each row of prefill
/// 26 us: about Llama-3-8B on an H200 (bench/results/h200-peers.md). Counters, with times in seconds:
///
///     prompts       different prompts among the decodes of a step, mean
///     all           simulated time to the end
///     p50, p99      time to the first token; shared_ and own_: of requests that share a prompt, and of strangers
///     overtaken     the most later requests admitted before one
///     plan, plan99  microseconds of the processor for a plan, median and 99th percentile
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/split_mix.h"
#include "engine/schedule/scheduler.h"

namespace baton {
namespace {

constexpr std::int32_t kShared = 2048;
constexpr std::int32_t kOwn = 128;
constexpr std::int32_t kSlots = 256;
constexpr std::int32_t kBlockLen = 16;
constexpr int kStranger = -1;

struct Asked {
  double arrival_s = 0;
  int group = kStranger;
  std::int32_t n_new = 256;
};

/// Token `index` of a stream; different streams have different tokens.
TokenId token_of(std::uint64_t stream, std::int64_t index) {
  return static_cast<TokenId>(mix_bits(stream * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(index)) >> 33);
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

class Run {
 public:
  explicit Run(std::vector<Asked> asked)
      : asked_(std::move(asked)),
        cache_(40'000, kBlockLen, true),
        scheduler_({.by_size = true, .max_num_seqs = kSlots, .max_num_batched_tokens = 16384}, cache_),
        first_token_s_(asked_.size(), -1),
        n_overtaken_(asked_.size(), 0) {}

  void to_end() {
    while (true) {
      take_arrivals();
      std::optional<StepPlan> next = plan();
      if (in_flight_) {
        now_ += seconds_of(*in_flight_);
        commit(*in_flight_);
      } else if (!next) {
        if (n_arrived_ == asked_.size()) return;
        now_ = asked_[n_arrived_].arrival_s;
      }
      in_flight_ = std::move(next);
      scheduler_.take_finished();
    }
  }

  void report(benchmark::State& state) const {
    std::vector<double> all, shared, own;
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      all.push_back(first_token_s_[i] - asked_[i].arrival_s);
      (asked_[i].group == kStranger ? own : shared).push_back(all.back());
    }
    state.counters["all"] = now_;
    state.counters["prompts"] = n_prompts_ / static_cast<double>(std::max<std::int64_t>(1, n_steps_));
    for (const auto& [name, share] : {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}}) {
      state.counters[name] = percentile(all, share);
      state.counters[std::string("shared_") + name] = percentile(shared, share);
      state.counters[std::string("own_") + name] = percentile(own, share);
    }
    state.counters["overtaken"] = *std::ranges::max_element(n_overtaken_);
    state.counters["plan"] = percentile(plan_us_, 0.5);
    state.counters["plan99"] = percentile(plan_us_, 0.99);
  }

 private:
  void take_arrivals() {
    for (; n_arrived_ < asked_.size() && asked_[n_arrived_].arrival_s <= now_; ++n_arrived_) {
      SequenceTask task;
      task.id = SequenceId{static_cast<std::int64_t>(n_arrived_)};
      task.request = RequestId{task.id.value};
      task.prompt_len = kShared + kOwn;
      task.max_len = task.prompt_len + asked_[n_arrived_].n_new;
      const std::uint64_t own = 2 * n_arrived_ + 1;
      const int group = asked_[n_arrived_].group;
      std::vector<TokenId> prompt;
      for (std::int32_t i = 0; i < task.prompt_len; ++i)
        prompt.push_back(token_of(group == kStranger || i >= kShared ? own : 2 * static_cast<std::uint64_t>(group), i));
      scheduler_.add(std::make_unique<Sequence>(std::move(task), std::move(prompt)));
      waiting_.insert(static_cast<std::int64_t>(n_arrived_));
    }
  }

  /// Nothing if the plan is empty.
  std::optional<StepPlan> plan() {
    const auto begin = std::chrono::steady_clock::now();
    StepPlan plan = scheduler_.plan();
    plan_us_.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    for (const SequenceId id : plan.admitted) {
      waiting_.erase(id.value);
      for (auto at = waiting_.begin(); at != waiting_.end() && *at < id.value; ++at)
        ++n_overtaken_[static_cast<std::size_t>(*at)];
    }
    if (plan.is_empty()) return {};
    return plan;
  }

  double seconds_of(const StepPlan& plan) {
    std::set<std::int64_t> prompts;
    for (std::int32_t i = 0; i < plan.n_decodes; ++i) {
      const std::int64_t id = plan.sequences[static_cast<std::size_t>(i)].id.value;
      const int group = asked_[static_cast<std::size_t>(id)].group;
      prompts.insert(group == kStranger ? -1 - id : group);
    }
    n_prompts_ += static_cast<double>(prompts.size());
    n_steps_ += plan.n_decodes > 0 ? 1 : 0;
    return 5.1e-3 + 25e-6 * plan.n_decodes + 56e-6 * static_cast<double>(prompts.size()) + 26e-6 * plan.n_prefill();
  }

  void commit(const StepPlan& plan) {
    std::vector<StepOutcome> outcomes;
    for (const PlannedSequence& planned : plan.sequences) {
      const Sequence* sequence = scheduler_.find(planned.id);
      if (sequence == nullptr || sequence->schedule->finished) continue;
      StepOutcome& outcome = outcomes.emplace_back();
      outcome.id = planned.id;
      if (planned.max_tokens == 0) continue;
      outcome.tokens.push_back({token_of(2 * static_cast<std::uint64_t>(planned.id.value) + 1, sequence->n_tokens()), {}, {}});
      if (sequence->n_tokens() + 1 == sequence->task->max_len) outcome.finished = FinishReason::length;
      double& first = first_token_s_[static_cast<std::size_t>(planned.id.value)];
      if (first < 0) first = now_;
    }
    scheduler_.commit(plan, outcomes);
  }

  std::vector<Asked> asked_;
  KvCache cache_;
  Scheduler scheduler_;
  std::size_t n_arrived_ = 0;
  double now_ = 0;
  std::optional<StepPlan> in_flight_;
  std::set<std::int64_t> waiting_;
  std::vector<double> first_token_s_;
  std::vector<std::int32_t> n_overtaken_;
  std::vector<double> plan_us_;
  double n_prompts_ = 0;
  std::int64_t n_steps_ = 0;
};

std::int32_t any_length(std::mt19937& random) { return 64 + static_cast<std::int32_t>(random() % 385); }

void measure(benchmark::State& state, const std::vector<Asked>& asked) {
  for (auto _ : state) {
    Run run(asked);
    run.to_end();
    run.report(state);
  }
}

void job(benchmark::State& state) {
  std::mt19937 random(static_cast<std::uint32_t>(state.range(3)));
  std::vector<Asked> asked;
  for (std::int64_t i = 0; i < state.range(0) * state.range(1); ++i)
    asked.push_back({.group = static_cast<int>(i % state.range(0)), .n_new = state.range(2) > 0 ? 256 : any_length(random)});
  std::ranges::shuffle(asked, random);
  measure(state, asked);
}
BENCHMARK(job)
    ->ArgNames({"groups", "requests", "equal", "seed"})
    ->ArgsProduct({{64}, {16}, {1, 0}, {1, 2, 3}})
    ->ArgsProduct({{256}, {16}, {0}, {1, 2, 3}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

/// Requests that arrive at random times; group_of chooses a group.
template <class GroupOf>
void arrivals(benchmark::State& state, const GroupOf& group_of) {
  std::mt19937 random(static_cast<std::uint32_t>(state.range(1)));
  std::exponential_distribution<double> gap(static_cast<double>(state.range(0)));
  std::vector<Asked> asked;
  double now = 0;
  for (int i = 0; i < 3000; ++i)
    asked.push_back({.arrival_s = now += gap(random), .group = group_of(random), .n_new = any_length(random)});
  measure(state, asked);
}
void rates(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rate", "seed"})->ArgsProduct({{15, 30, 60}, {1, 2, 3}})->Unit(benchmark::kMillisecond)->Iterations(1);
}

void strangers(benchmark::State& state) {
  arrivals(state, [](std::mt19937& random) { return random() % 2 == 0 ? 0 : kStranger; });
}
BENCHMARK(strangers)->Apply(rates);

void groups(benchmark::State& state) {
  arrivals(state, [](std::mt19937& random) { return static_cast<int>(random() % 64); });
}
BENCHMARK(groups)->Apply(rates);

}  // namespace
}  // namespace baton
