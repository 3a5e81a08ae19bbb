/// Decoding with and without speculation, runs in turn: the 110M shape with random weights. Its sampled tokens do not
/// repeat (no draft is accepted), its greedy tokens repeat at times, and with a bias it generates one token throughout
/// (all drafts are accepted). `recurrent` is that load on a Qwen3.5 of the same width and depth, of whose twelve layers nine are
/// Gated DeltaNet.
///
/// Arguments: requests, tokens of each. Each has 64 prompt tokens of its own. An iteration is one run of each arm.
/// `without` and `with` are the medians of tokens per second from the time when the last request has its first token.
/// `ratio` is the median over the iterations of with / without, `least` and `most` its range, and `best` the ratio of
/// the arms' best runs (other programs on the machine can only slow a run down). `accepted` is the share of accepted
/// drafts, `drafts` their number per token.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace baton {
namespace {

enum class Load { sampled, greedy, repeated, recurrent };
constexpr std::int32_t kPromptLen = 64;

ModelSpec shape_of(Load load) {
  constexpr const char* kRecurrent = R"({"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 32000, "hidden_size": 768,
      "intermediate_size": 2048, "num_hidden_layers": 12, "full_attention_interval": 4, "num_attention_heads": 12,
      "num_key_value_heads": 4, "head_dim": 64, "linear_num_key_heads": 6, "linear_num_value_heads": 12,
      "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "max_position_embeddings": 8192,
      "tie_word_embeddings": true, "eos_token_id": 2})";
  auto spec = load == Load::recurrent ? parse_model_spec(kRecurrent, "the shape")
                                      : read_model_spec(BATON_SOURCE_DIR "/bench/shapes/110m");
  check(spec.has_value(), "speculation_bench: no shape");
  return std::move(*spec);
}

class Runner {
 public:
  Runner(Load load, std::int32_t n_requests) {
    auto backend = make_backend("cpu", {});
    check(backend.has_value(), "speculation_bench: no CPU backend");
    const DType dtype = (*backend)->capabilities().has_bf16_matmul ? DType::bf16 : DType::f32;
    auto weights = random_weights(shape_of(load), **backend, dtype, 1, 0);
    check(weights.has_value(), "speculation_bench: no weights");
    EngineOptions options;
    options.kv_dtype = dtype;
    options.kv_cache_bytes = std::int64_t{2} << 30;
    options.max_num_seqs = n_requests;
    auto engine = Engine::create(options, std::move(*backend), std::make_unique<Model>(shape_of(load), std::move(*weights)));
    check(engine.has_value(), "speculation_bench: no engine");
    engine_ = std::move(*engine);
  }

  /// Tokens per second after the last first token. Every run has other tokens; the other arm's run has the same
  /// tokens.
  double run(Load load, std::int32_t n_requests, std::int32_t n_new, std::int32_t run, bool speculates) {
    for (std::int32_t i = 0; i < n_requests; ++i)
      check(engine_->submit(request(load, i, n_new, run, speculates)).has_value(), "submit");
    using Clock = std::chrono::steady_clock;
    std::int64_t n_tokens = 0, n_before = 0;
    std::vector<bool> has_begun(static_cast<std::size_t>(n_requests), false);
    std::int32_t n_begun = 0;
    Clock::time_point begin, end;
    while (engine_->step()) {
      for (const Event& event : engine_->wait_events(std::chrono::milliseconds(0))) {
        const auto at = static_cast<std::size_t>(event.request.value % n_requests);
        if (!has_begun[at]) ++n_begun;
        has_begun[at] = true;
        n_tokens += static_cast<std::int64_t>(event.tokens.size());
        end = Clock::now();
      }
      if (n_begun == n_requests && n_before == 0) {
        begin = Clock::now();
        n_before = n_tokens;
      }
    }
    return static_cast<double>(n_tokens - n_before) / std::chrono::duration<double>(end - begin).count();
  }

  const EngineMetrics& metrics() const { return engine_->metrics(); }

 private:
  static Request request(Load load, std::int32_t index, std::int32_t n_new, std::int32_t run, bool speculates) {
    std::vector<TokenId> prompt;
    std::uint32_t state = static_cast<std::uint32_t>(index + 1000 * run) * 2654435761U + 12345U;
    for (std::int32_t i = 0; i < kPromptLen; ++i) {
      state = state * 1664525U + 1013904223U;
      prompt.push_back(static_cast<TokenId>(3 + (state >> 10) % 31000));
    }
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = load == Load::sampled ? 1.0F : 0.0F;
    request.sampling.seed = static_cast<std::uint64_t>(index);
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = n_new;
    if (load == Load::repeated || load == Load::recurrent) request.sampling.logit_bias = {{7, kMaxBias}};
    request.speculation = {.n_tokens = speculates ? kDefaultDraftTokens : 0};
    return request;
  }

  std::unique_ptr<Engine> engine_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void speculation(benchmark::State& state, Load load) {
  const auto n_requests = static_cast<std::int32_t>(state.range(0));
  const auto n_new = static_cast<std::int32_t>(state.range(1));
  Runner runner(load, n_requests);
  for (const bool speculates : {false, true}) runner.run(load, n_requests, 24, 0, speculates);
  std::vector<double> without, with, ratios;
  std::int32_t run = 0;
  const std::int64_t drafts_before = runner.metrics().spec_decode_num_draft_tokens.value();
  const std::int64_t accepted_before = runner.metrics().spec_decode_num_accepted_tokens.value();
  for (auto _ : state) {
    ++run;
    const bool speculates_first = run % 2 == 0;
    const double first = runner.run(load, n_requests, n_new, run, speculates_first);
    const double second = runner.run(load, n_requests, n_new, run, !speculates_first);
    with.push_back(speculates_first ? first : second);
    without.push_back(speculates_first ? second : first);
    ratios.push_back(with.back() / without.back());
  }
  const auto n_drafts = static_cast<double>(runner.metrics().spec_decode_num_draft_tokens.value() - drafts_before);
  const auto n_accepted = static_cast<double>(runner.metrics().spec_decode_num_accepted_tokens.value() - accepted_before);
  state.counters["without"] = median(without);
  state.counters["with"] = median(with);
  state.counters["ratio"] = median(ratios);
  state.counters["least"] = *std::ranges::min_element(ratios);
  state.counters["most"] = *std::ranges::max_element(ratios);
  state.counters["best"] = *std::ranges::max_element(with) / *std::ranges::max_element(without);
  state.counters["accepted"] = n_drafts > 0 ? n_accepted / n_drafts : 0;
  state.counters["drafts"] = n_drafts / (static_cast<double>(n_new) * n_requests * run);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 64})->Args({8, 64})->Args({32, 64})->Iterations(11)->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(speculation, sampled, Load::sampled)->Apply(sizes);
BENCHMARK_CAPTURE(speculation, greedy, Load::greedy)->Apply(sizes);
BENCHMARK_CAPTURE(speculation, repeated, Load::repeated)->Apply(sizes);
BENCHMARK_CAPTURE(speculation, recurrent, Load::recurrent)->Apply(sizes);

}  // namespace
}  // namespace baton
