/// What the prefix cache of a model with windows finds again, without a model: the cache of an engine, its sizes, and sequences that
/// run as the scheduler runs them.
///
/// `requests` sequences of a round run `running` at a time, in random order, and the next round begins when all have ended. Prompts
/// are computed 8192 tokens a step; then every step adds a token to each running sequence.
///
///     chat       4 rounds: a prompt is the conversation so far (answers of 250 tokens) and 200 tokens more
///     reasoning  the same with answers of 600 tokens, whose first 400 the next prompt lacks, as those of harmony
///     again      2 rounds: prompts of 2208 tokens, 2048 of them of one prompt, and the same prompts again; answers of 64 tokens
///     users      4 rounds: a request of each of `requests` system prompts of 1000 tokens, each time with 200 others after it
///
/// `shape` chooses the layers: 0 gpt-oss-20b, 1 Gemma-3-27B, 2 Gemma-2-9B, 3 Mistral-7B v0.1 (all layers have windows). Counters, in
/// percent of the prompt tokens: `found` in the cache, and `possible`, of an unbounded cache of whole blocks.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.h"
#include "core/split_mix.h"
#include "engine/cache/cache_size.h"
#include "engine/cache/kv_cache.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;
constexpr std::int32_t kStepTokens = 8192;
constexpr std::int32_t kMaxModelLen = 8192;

struct Shape {
  std::int32_t window = 0;
  std::int64_t window_bytes = 0;  ///< of a token, in all layers with a window
  std::int64_t full_bytes = 0;    ///< in the others
};
constexpr std::array kShapes{Shape{128, 24'576, 24'576}, Shape{1024, 425'984, 81'920}, Shape{4096, 172'032, 172'032},
                             Shape{4096, 131'072, 0}};

enum class Workload : std::uint8_t { chat, reasoning, again, users };

struct Asked {
  std::vector<TokenId> prompt;
  std::int32_t n_new = 0;
  std::int32_t n_known = 0;  ///< tokens that an unbounded cache has
};

std::vector<TokenId> drawn(std::uint64_t stream, std::int64_t n) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<TokenId>(split_mix(stream, static_cast<std::uint64_t>(i)) >> 34));
  return tokens;
}

void append(std::vector<TokenId>& to, const std::vector<TokenId>& tokens) { to.insert(to.end(), tokens.begin(), tokens.end()); }

/// The prompts of one request of each round. `answer_of(round)` is the same stream that the simulation generates.
class Rounds {
 public:
  Rounds(Workload workload, std::int64_t request) : workload_(workload), request_(static_cast<std::uint64_t>(request) << 20) {}

  static int n_rounds(Workload workload) { return workload == Workload::again ? 2 : 4; }
  std::vector<TokenId> answer(int round) const {
    constexpr std::array<std::int64_t, 4> kLens{250, 600, 64, 100};
    return drawn(request_ + 0x8000U + static_cast<std::uint64_t>(round), kLens.at(static_cast<std::size_t>(workload_)));
  }
  Asked next(int round) {
    const auto own = [&](std::int64_t n) { return drawn(request_ + static_cast<std::uint64_t>(round), n); };
    Asked asked;
    asked.n_new = static_cast<std::int32_t>(answer(round).size());
    if (workload_ == Workload::again) {
      asked.prompt = drawn(1, 2048);
      append(asked.prompt, drawn(request_, 160));
      asked.n_known = round == 0 ? (request_ == 0 ? 0 : 2048) : 2207;
    } else if (workload_ == Workload::users) {
      asked.prompt = drawn(request_, 1000);
      append(asked.prompt, drawn(request_ + 0x100U + static_cast<std::uint64_t>(round), 200));
      asked.n_known = round == 0 ? 0 : 1000;
    } else {
      if (round > 0) {
        const std::vector<TokenId> last = answer(round - 1);
        asked.n_known = static_cast<std::int32_t>(history_.size());
        if (workload_ == Workload::chat) asked.n_known += static_cast<std::int32_t>(last.size()) - 1;
        history_.insert(history_.end(), last.begin() + (workload_ == Workload::reasoning ? 400 : 0), last.end());
      }
      append(history_, own(200));
      asked.prompt = history_;
    }
    return asked;
  }

 private:
  Workload workload_;
  std::uint64_t request_;
  std::vector<TokenId> history_;
};

struct Running {
  BlockTable table;
  std::vector<TokenId> tokens;
  std::vector<TokenId> answer;
  std::int32_t prompt_len = 0;
  std::int32_t n_filled = 0;
};

class Simulation {
 public:
  Simulation(const Shape& shape, std::int64_t bytes, std::int32_t n_running)
      : n_running_(n_running),
        cache_({.block_len = kBlockLen, .groups = groups_of(shape, bytes, n_running), .max_rows_in_flight = 2 * kStepTokens}) {}

  /// Runs the requests of a round.
  void run(std::vector<std::pair<Asked, std::vector<TokenId>>> asked) {
    auto next = asked.begin();
    std::deque<Running> running;
    while (next != asked.end() || !running.empty()) {
      ++step_;
      while (next != asked.end() && static_cast<std::int32_t>(running.size()) < n_running_) {
        Running begun;
        begun.tokens = std::move(next->first.prompt);
        begun.answer = std::move(next->second);
        begun.prompt_len = static_cast<std::int32_t>(begun.tokens.size());
        cache_.begin(begun.table, begun.tokens, begun.prompt_len - 1, step_);
        begun.n_filled = begun.table.n_cached_blocks * kBlockLen;
        const std::int32_t n_found = begun.n_filled;
        if (!advance(begun, begun.prompt_len)) {
          cache_.release(begun.table, begun.tokens, begun.n_filled, step_ + 1);
          next->first.prompt = std::move(begun.tokens);
          next->second = std::move(begun.answer);
          check(!running.empty(), "window_cache_bench: a request does not fit");
          break;
        }
        n_prompt_ += begun.prompt_len;
        n_found_ += n_found;
        n_possible_ += std::min(next->first.n_known, begun.prompt_len - 1) / kBlockLen * kBlockLen;
        running.push_back(std::move(begun));
        ++next;
      }
      std::erase_if(running, [&](Running& of) {
        const auto n = static_cast<std::size_t>(static_cast<std::int32_t>(of.tokens.size()) - of.prompt_len);
        if (n + 1 >= of.answer.size()) {
          cache_.release(of.table, of.tokens, of.n_filled, step_ + 1);
          return true;
        }
        of.tokens.push_back(of.answer[n]);
        if (!advance(of, of.n_filled + 1)) of.tokens.pop_back();
        return false;
      });
    }
  }

  void report(benchmark::State& state) const {
    state.counters["found"] = 100.0 * static_cast<double>(n_found_) / static_cast<double>(n_prompt_);
    state.counters["possible"] = 100.0 * static_cast<double>(n_possible_) / static_cast<double>(n_prompt_);
    state.counters["blocks"] = cache_.n_blocks(0);
    state.counters["window_blocks"] = cache_.n_blocks(cache_.n_groups() - 1);
  }

 private:
  static std::vector<CacheGroup> groups_of(const Shape& shape, std::int64_t bytes, std::int32_t n_running) {
    CacheSizeOptions options{.block_len = kBlockLen,
                             .max_model_len = kMaxModelLen,
                             .max_num_seqs = n_running,
                             .max_rows_in_flight = 2 * kStepTokens,
                             .kv_cache_bytes = bytes};
    if (shape.full_bytes > 0) options.groups.push_back({kBlockLen * shape.full_bytes, 0});
    options.groups.push_back({kBlockLen * shape.window_bytes, shape.window});
    auto groups = choose_cache_groups(options);
    check(groups.has_value(), [&] { return groups.error().message; });
    return *groups;
  }
  bool advance(Running& of, std::int32_t end) {
    while (of.n_filled < end) {
      const std::int32_t n = std::min(end, of.n_filled + kStepTokens);
      if (!cache_.extend(of.table, n)) return false;
      of.n_filled = n;
      cache_.publish(of.table, of.tokens, n, step_);
      cache_.free_behind_window(of.table, n, of.prompt_len);
    }
    return true;
  }

  std::int32_t n_running_;
  KvCache cache_;
  std::int64_t step_ = 0;
  std::int64_t n_prompt_ = 0;
  std::int64_t n_found_ = 0;
  std::int64_t n_possible_ = 0;
};

void measure(benchmark::State& state, Workload workload) {
  const Shape& shape = kShapes.at(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    Simulation simulation(shape, state.range(1) << 30, static_cast<std::int32_t>(state.range(2)));
    std::vector<Rounds> rounds;
    std::mt19937_64 random(1);
    for (std::int64_t i = 0; i < state.range(3); ++i) rounds.emplace_back(workload, i);
    for (int round = 0; round < Rounds::n_rounds(workload); ++round) {
      std::vector<std::pair<Asked, std::vector<TokenId>>> asked;
      for (Rounds& of : rounds) asked.emplace_back(of.next(round), of.answer(round));
      std::ranges::shuffle(asked, random);
      simulation.run(std::move(asked));
    }
    simulation.report(state);
  }
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"shape", "gib", "running", "requests"});
  for (const std::int64_t requests : {32, 64, 128, 256, 512, 1024}) bench->Args({0, 16, 64, requests});
  for (const std::int64_t requests : {16, 32, 64, 128}) bench->Args({1, 64, 16, requests});
  for (const std::int64_t requests : {16, 32, 64, 128}) bench->Args({2, 48, 16, requests});
  for (const std::int64_t requests : {16, 32, 64, 128}) bench->Args({3, 24, 16, requests});
  bench->Unit(benchmark::kMillisecond)->Iterations(1);
}

BENCHMARK_CAPTURE(measure, chat, Workload::chat)->Apply(sizes);
BENCHMARK_CAPTURE(measure, reasoning, Workload::reasoning)->Apply(sizes);
BENCHMARK_CAPTURE(measure, again, Workload::again)->Apply(sizes);
BENCHMARK_CAPTURE(measure, users, Workload::users)->Apply(sizes);

}  // namespace
}  // namespace baton
