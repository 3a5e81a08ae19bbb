/// Throughput with and without the host tier, where the cache holds half of the prompts that come back.
///
/// Eight prompts of 256 tokens come three times, in another order each time, one after another; each gets four tokens. The
/// cache holds four of them and what one request needs besides. The tier has twice the memory that all eight take. The
/// shape is bench/shapes/110m with random weights in bfloat16, on two threads or a GPU. `tier:0` is without the tier. A run begins
/// with an empty cache and an empty tier. Counters: requests a second, and shares of the prompt tokens that were found in
/// the cache or loaded from the tier. `--benchmark_enable_random_interleaving=true --benchmark_repetitions=5`
/// interleaves the two.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.h"
#include "engine/engine.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;
constexpr std::int32_t kPrompts = 8;
constexpr std::int32_t kPromptLen = 256;
constexpr std::int32_t kRounds = 3;
constexpr std::int32_t kPromptBlocks = kPromptLen / kBlockLen;

ModelSpec spec() {
  auto spec = parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 12, "hidden_size": 768,
      "num_attention_heads": 12, "intermediate_size": 2048, "vocab_size": 32000, "max_position_embeddings": 8192,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16"})",
                               "host_tier_bench");
  check(spec.has_value(), "host_tier_bench: no spec");
  return std::move(*spec);
}

std::unique_ptr<Engine> make_engine(bool has_tier, std::unique_ptr<Backend> backend) {
  const DType dtype = backend->capabilities().has_bf16_matmul ? DType::bf16 : DType::f32;
  auto weights = random_weights(spec(), *backend, dtype, 1, 2);
  check(weights.has_value(), "host_tier_bench: no weights");
  auto model = std::make_unique<Model>(spec(), std::move(*weights));
  const std::int64_t block_bytes = backend->kv_block_bytes(model->kv_shapes(1, kBlockLen, dtype)[0]);
  EngineOptions options;
  options.max_model_len = kPromptLen + kBlockLen;
  options.kv_dtype = dtype;
  options.kv_cache_bytes = (kPrompts / 2 * kPromptBlocks + kPromptBlocks / 4) * block_bytes;
  options.host_tier_bytes = has_tier ? 2 * kPrompts * kPromptBlocks * block_bytes : 0;
  auto engine = Engine::create(options, std::move(backend), std::move(model));
  check(engine.has_value(), [&] { return engine.error().message; });
  return std::move(*engine);
}

Request request_of(std::int32_t which) {
  std::mt19937 rng(static_cast<std::uint32_t>(which));
  std::vector<TokenId> prompt(kPromptLen);
  for (TokenId& token : prompt) token = static_cast<TokenId>(3 + rng() % 31000);
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 4;
  return request;
}

void host_tier(benchmark::State& state) {
  auto backend = make_backend(state.range(1) != 0 ? "cuda" : "cpu", {.n_threads = 2});
  if (!backend) return state.SkipWithError(backend.error().message.c_str());
  const std::unique_ptr<Engine> engine = make_engine(state.range(0) != 0, std::move(*backend));
  const EngineMetrics& metrics = engine->metrics();
  for (auto run : state) {
    engine->drop_cached_blocks();
    std::vector<std::int32_t> order(kPrompts);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 rng(7);
    for (std::int32_t round = 0; round < kRounds; ++round) {
      std::ranges::shuffle(order, rng);
      for (const std::int32_t which : order) {
        check(engine->submit(request_of(which)).has_value(), "host_tier_bench: a request is refused");
        while (engine->step()) engine->wait_events(std::chrono::milliseconds(0));
      }
    }
  }
  const auto tokens = static_cast<double>(metrics.prompt_tokens.value());
  state.counters["requests/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kPrompts * kRounds), benchmark::Counter::kIsRate);
  state.counters["found"] = static_cast<double>(metrics.prefix_cache_hits.value()) / tokens;
  state.counters["loaded"] = static_cast<double>(metrics.external_prefix_cache_hits.value()) / tokens;
}
BENCHMARK(host_tier)
    ->ArgNames({"tier", "cuda"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Iterations(1)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton
