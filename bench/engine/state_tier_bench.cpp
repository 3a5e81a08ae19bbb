/// Time of a first token behind a long prompt of a model with recurrent layers: computed, and where keys and state are on the device,
/// in host memory, or in the pieces of a stored prefix.
///
/// `from`: 0 computed with an empty cache, 1 found on the device, 2 in the host tier after other prompts have taken its blocks and
/// slots, 3 loaded as a stored prefix is (its file in memory) and then asked for. `tokens` is the length of the prompt. On a CPU
/// the model is a tiny Qwen3.5 on two threads, on a GPU ($BATON_BENCH_DEVICE=cuda) bench/shapes/qwen3.5-4b; weights are
/// random. The cache holds two prompts, and two snapshots. Counter `cached`: tokens of the prompt that were not computed.
/// The times without `from:0` divided by that with it are the ratios of bench/results/prefix-cache-recurrent.md.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
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
constexpr std::int32_t kOwnTokens = 40;
enum From : std::int64_t { computed, device, host, store };

bool is_cuda() {
  const char* const device = std::getenv("BATON_BENCH_DEVICE");
  return device != nullptr && std::string(device) == "cuda";
}

std::unique_ptr<Engine> make_engine(std::int32_t n_tokens) {
  auto backend = make_backend(is_cuda() ? "cuda" : "cpu", {.n_threads = 2});
  check(backend.has_value(), [&] { return backend.error().message; });
  const std::filesystem::path source(BATON_SOURCE_DIR);
  auto spec = read_model_spec(source / (is_cuda() ? "bench/shapes/qwen3.5-4b" : "tests/goldens/qwen3_5_tiny_chunks"));
  check(spec.has_value(), [&] { return spec.error().message; });
  spec->max_position = std::max(spec->max_position, n_tokens + kBlockLen);
  const DType dtype = is_cuda() ? DType::bf16 : DType::f32;
  auto weights = random_weights(*spec, **backend, dtype, 1, 2);
  check(weights.has_value(), "state_tier_bench: no weights");
  auto model = std::make_unique<Model>(*spec, std::move(*weights));
  const std::int64_t state_bytes = state_shape(*spec, 1, EngineOptions{}.state_dtype).slot_bytes();
  std::int64_t block_bytes = 0;
  for (const KvShape& shape : model->kv_shapes(1, kBlockLen, dtype)) block_bytes += (*backend)->kv_block_bytes(shape);
  const std::int64_t prompt_bytes = n_tokens / kBlockLen * block_bytes;
  EngineOptions options;
  options.max_model_len = n_tokens + kBlockLen;
  options.max_num_seqs = 2;
  options.kv_dtype = dtype;
  options.kv_cache_bytes = 2 * prompt_bytes + 4 * block_bytes;
  options.snapshot_bytes = 2 * state_bytes;
  options.host_tier_bytes = 6 * (prompt_bytes + 2 * state_bytes);
  auto engine = Engine::create(options, std::move(*backend), std::move(model));
  check(engine.has_value(), [&] { return engine.error().message; });
  return std::move(*engine);
}

std::vector<TokenId> prompt_of(std::uint32_t seed, std::int32_t n_tokens) {
  std::mt19937 rng(seed);
  std::vector<TokenId> prompt(static_cast<std::size_t>(n_tokens));
  for (TokenId& token : prompt) token = static_cast<TokenId>(3 + rng() % 120);
  return prompt;
}

/// Tokens of the prompt that were found.
std::int32_t ask(Engine& engine, std::vector<TokenId> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 1;
  check(engine.submit(std::move(request)).has_value(), "state_tier_bench: a request is refused");
  std::int32_t n_cached = 0;
  while (engine.step())
    for (const Event& event : engine.wait_events(std::chrono::milliseconds(0))) n_cached = event.stats.cached_tokens;
  return n_cached;
}

using Pieces = std::vector<std::vector<std::byte>>;

/// The pieces of the prompt's file, but for its own tokens.
Pieces stored(Engine& engine, const std::vector<TokenId>& prefix) {
  Pieces pieces;
  const auto pin = engine.pin(prefix);
  check(pin.has_value(), [&] { return pin.error().message; });
  const auto done = engine.export_pin(pin->id, [&](std::span<const std::byte> piece) -> Result<void> {
    pieces.emplace_back(piece.begin(), piece.end());
    return {};
  });
  check(done.has_value(), [&] { return done.error().message; });
  engine.unpin(pin->id);
  return pieces;
}

void state_tier(benchmark::State& state) {
  const auto from = static_cast<From>(state.range(0));
  const auto n_tokens = static_cast<std::int32_t>(state.range(1));
  static std::unique_ptr<Engine> engine;
  static std::int32_t engine_len = 0;
  if (std::exchange(engine_len, n_tokens) != n_tokens) {
    engine.reset();
    engine = make_engine(n_tokens);
    ask(*engine, prompt_of(99, n_tokens));
  }
  const std::vector<TokenId> prompt = prompt_of(1, n_tokens);
  const std::vector<TokenId> prefix(prompt.begin(), prompt.end() - kOwnTokens);
  engine->drop_cached_blocks();
  const Pieces pieces = from == store ? stored(*engine, prefix) : Pieces{};
  std::int32_t n_cached = 0;
  for (auto run : state) {
    engine->drop_cached_blocks();
    if (from == device || from == host) ask(*engine, prompt);
    for (std::uint32_t i = 0; from == host && i < 3; ++i) ask(*engine, prompt_of(10 + i, n_tokens));
    const auto begin = std::chrono::steady_clock::now();
    std::optional<PinInfo> pin;
    if (from == store) {
      std::size_t n_read = 0;
      auto loaded = engine->pin_from(prefix, {}, [&](std::vector<std::byte>& piece) -> Result<void> {
        piece = pieces.at(n_read++);
        return {};
      });
      check(loaded.has_value(), [&] { return loaded.error().message; });
      pin = *loaded;
    }
    n_cached = ask(*engine, prompt);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (pin) engine->unpin(pin->id);
  }
  state.counters["cached"] = n_cached;
}
BENCHMARK(state_tier)
    ->ArgNames({"from", "tokens"})
    ->ArgsProduct({{computed, device, host, store}, {520, 2040, 6516}})
    ->Iterations(3)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton
