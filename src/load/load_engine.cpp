/// Loads weights and makes an engine.
#include "load/load_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "engine/step/rank_steps.h"
#include "io/safetensors.h"
#include "load/activation_dtype.h"
#include "load/byte_text.h"
#include "load/rank_load.h"
#include "load/weight_rounding.h"
#include "model/config.h"
#include "model/source/mtp.h"
#include "model/source/safetensors.h"
#include "model/split.h"
#include "model/weights.h"

namespace baton {
namespace {

Result<DType> weight_dtype(const ModelOptions& options, const ModelSpec& spec, const Backend& backend) {
  const bool has_bf16 = backend.capabilities().has_bf16_matmul;
  const bool has_f16 = backend.capabilities().has_f16_matmul;
  if (options.dtype == "auto") {
    if (spec.dtype == DType::f32) return DType::f32;
    if (spec.dtype == DType::f16 && has_f16) return DType::f16;
    return has_bf16 ? DType::bf16 : DType::f32;
  }
  const DType asked = dtype_from_name(options.dtype).value();
  if (asked == DType::bf16 && !has_bf16)
    return fail(
        ErrorCode::unsupported,
        fmt::format("--dtype {}: this processor has no bf16 matmuls ({}); use float32", options.dtype, backend.info().features),
        "dtype");
  if (asked == DType::f16 && !has_f16)
    return fail(ErrorCode::unsupported,
                fmt::format("--dtype {}: device {} has no float16 matmuls; use {}", options.dtype, backend.info().name,
                            has_bf16 ? "bfloat16 or float32" : "float32"),
                "dtype");
  return asked;
}

/// Attention writes its result in float32 or in the type of its queries: the cache's, bf16 over float8_e4m3. The next
/// matmul takes the weights'.
Result<void> check_kv_dtype(const ModelOptions& options, const ModelSpec& spec, DType kv, DType weights) {
  if (kv == DType::f8_e4m3 && spec.layers.front().attention.latent)
    return fail(ErrorCode::unsupported,
                fmt::format("--kv-cache-dtype {}: {} caches latent vectors (multi-head latent attention), which Baton keeps in "
                            "the model's dtype or in float32",
                            options.kv_cache_dtype, spec.family),
                "kv_cache_dtype");
  const bool fits_8_bits = kv == DType::f8_e4m3 && weights == DType::bf16;
  if (kv == weights || kv == DType::f32 || weights == DType::f32 || fits_8_bits) return {};
  const std::string_view or_8_bits = weights == DType::bf16 ? ", on CUDA float8_e4m3," : "";
  return fail(ErrorCode::unsupported,
              fmt::format("--kv-cache-dtype {}: with weights in {} the cache must be {}{} or float32", options.kv_cache_dtype,
                          to_string(weights), to_string(weights), or_8_bits),
              "kv_cache_dtype");
}

Result<void> check_recurrent_layers(const ModelSpec& spec, const Backend& backend) {
  const std::string_view kind = kind_not_computed(spec, backend.capabilities());
  if (kind.empty()) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{} has recurrent layers ({}), which --device {} does not compute yet; --device cpu does",
                          spec.family, kind, backend.info().name),
              "device");
}

/// Refuses attention that the device does not offer before weights are read: it makes a storage of one block for each layer group.
Result<void> check_attention(const ModelSpec& of_rank, DType kv_dtype, Backend& backend) {
  for (std::int32_t group = 0; group < of_rank.n_groups(); ++group) {
    const auto layer = std::ranges::find_if(of_rank.layers,
                                            [&](const LayerSpec& each) { return !each.is_recurrent() && each.group == group; });
    const AttentionSpec& attention = layer->attention;
    const KvShape shape{.n_layers = 1,
                        .n_blocks = 1,
                        .n_kv_heads = attention.n_kv_heads,
                        .head_dim = attention.head_dim,
                        .dtype = kv_dtype,
                        .latent_dim = attention.latent ? attention.latent->rank : 0};
    if (const auto storage = backend.make_kv_storage(shape); !storage) return tl::unexpected(storage.error());
  }
  return {};
}

/// Refuses states that the device does not offer before weights are read: it makes a storage of one slot in one layer.
Result<void> check_states(const ModelOptions& options, const ModelSpec& of_rank, DType dtype, Backend& backend) {
  StateShape shape = state_shape(of_rank, 1, dtype);
  if (shape.n_layers == 0) return {};
  shape.n_layers = 1;
  const auto storage = backend.make_state_storage(shape);
  if (storage) return {};
  if (options.state_cache_dtype == "auto") return tl::unexpected(storage.error());
  return fail(storage.error().code,
              fmt::format("--state-cache-dtype {}: {}", options.state_cache_dtype, storage.error().message),
              "state_cache_dtype");
}

EngineOptions engine_options(const ModelOptions& options, LoadDtypes dtypes) {
  EngineOptions made = options;
  made.relay = options.attention == "relay";
  made.has_priorities = options.scheduling_policy == "priority";
  made.by_size = options.scheduling_policy == "fair";
  made.kv_dtype = dtypes.kv;
  made.state_dtype = dtypes.states;
  made.host_tier_bytes = static_cast<std::int64_t>(options.kv_offloading_size * 0x1p30);
  made.step_timeout_ms = static_cast<std::int32_t>(options.step_timeout_s * 1000);
  return made;
}

/// Refuses weights that do not fit free memory before any memory is touched: a host without memory kills processes
/// instead of refusing allocations.
Result<void> check_memory(const ModelFiles& files, const ModelSpec& spec, const WeightBytes& bytes, DType dtype,
                          const Backend& backend) {
  const std::int64_t needed = bytes.needed(backend.capabilities().shares_host_memory);
  const std::int64_t free_bytes = backend.free_memory_bytes();
  if (needed <= free_bytes) return {};
  return fail(
      ErrorCode::out_of_memory,
      fmt::format("{}: loading its {:.1f} million parameters in {} needs {} bytes ({}) of memory, and {} bytes ({}) are "
                  "free",
                  files.name, static_cast<double>(spec.n_parameters()) / 1e6, to_string(dtype), needed, byte_text(needed),
                  free_bytes, byte_text(free_bytes)));
}

/// The checkpoint's scales of keys and values, which only a cache in 8 bits needs: with another one, scales that cannot be read are
/// none. Rank 0 alone knows the cache; the other ranks read the same scales.
Result<KvScales> kv_scales(const ModelSpec& spec, const Checkpoint& checkpoint, DType kv_dtype, bool is_first_rank) {
  auto scales = read_kv_scales(spec, checkpoint);
  const bool has_8_bits = kv_dtype == DType::f8_e4m3;
  if (!scales && has_8_bits && is_first_rank) return scales;
  const bool has_scales = !scales || !scales->keys.empty() || !scales->values.empty();
  if (has_scales && is_first_rank)
    log::info("event=kv_scales use=\"{}\"", has_8_bits ? "keys and values in float8_e4m3 are stored divided by the checkpoint's"
                                                       : "none: the cache is not in float8_e4m3");
  return scales ? std::move(*scales) : KvScales{};
}

/// Seconds since the last call, or since it was made.
class StopWatch {
 public:
  double lap_s() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

/// Loads the model onto the device. `times` says how long the device took; the other times are added.
Result<TimedEngine> load_onto(std::unique_ptr<Backend> backend, LoadTimes times, const ModelFiles& files,
                              const ModelOptions& options) {
  StopWatch watch;
  auto loaded = load_model(files, options, *backend);
  const auto engine_of = [&]() -> Result<std::unique_ptr<Engine>> {
    if (!loaded) return tl::unexpected(loaded.error());
    EngineOptions made = engine_options(options, loaded->dtypes);
    times.weights_s = watch.lap_s();
    BATON_TRY(const GenerationConfig generation, load_generation_config(files, options));
    made.eos_token_ids.insert(made.eos_token_ids.end(), generation.eos_token_ids.begin(), generation.eos_token_ids.end());
    return Engine::create(made, std::move(backend), std::move(loaded->model));
  };
  auto engine = engine_of();
  if (!engine) {
    RankSteps(options.ranks).end();  // the other ranks wait for steps
    return tl::unexpected(engine.error());
  }
  times.engine_s = watch.lap_s();
  const EngineInfo info = (*engine)->info();
  log::info(
      "model={} architecture={} parameters={:.1f}M dtype={} weights={} weights_mb={:.1f} activations={} kv_dtype={} "
      "kv_tokens={} "
      "kv_mb={:.0f} max_model_len={} attention={}{} device=\"{}\" isa={} load_s={:.2f}",
      log_value(files.name), loaded->spec.family, static_cast<double>(loaded->spec.n_parameters()) / 1e6,
      to_string(loaded->dtypes.weights), log_value(info.weight_scheme), static_cast<double>(loaded->weight_bytes) / 1e6,
      info.activation_scheme, to_string(info.kv_dtype), static_cast<std::int64_t>(info.n_blocks) * info.block_len,
      static_cast<double>(info.kv_cache_bytes) / 1e6, info.max_model_len, info.attention,
      info.batch_invariant ? " batch_invariant=1" : "", info.backend.device, info.backend.features, times.total_s());
  return TimedEngine{std::move(*engine), times};
}

}  // namespace

Result<std::unique_ptr<Backend>> open_device(const ModelOptions& options) {
  BATON_TRY_VOID(check_model_options(options));
  BackendOptions made{.n_threads = options.threads, .batch_invariant = options.batch_invariant, .ranks = options.ranks};
  if (options.ranks == nullptr) return make_backend(options.device, made);
  made.device = options.ranks->local_rank();
  auto backend = make_backend(options.device, made);
  if (!backend)
    backend.error().message =
        fmt::format("--tensor-parallel-size {}: {}", options.ranks->world_size(), backend.error().message);
  return backend;
}

Result<DType> state_dtype(const ModelOptions& options, const ModelSpec& spec) {
  const std::string& word = options.state_cache_dtype;
  if (word == "auto") return DType::f32;
  const auto refuse = [&](std::string_view reason) {
    return fail(ErrorCode::invalid_request, fmt::format("--state-cache-dtype {}: {} {}", word, spec.family, reason),
                "state_cache_dtype");
  };
  const DType dtype = dtype_from_name(word).value();
  const StateShape shape = state_shape(spec, 1, dtype);
  if (shape.n_layers == 0) return refuse("has no recurrent layers");
  if (shape.n_heads == 0 && dtype != DType::f32)
    return refuse("keeps the last inputs of its convolutions, which are float32, and no matrices");
  return dtype;
}

Result<LoadDtypes> load_dtypes(const ModelOptions& options, const ModelSpec& spec, const Backend& backend) {
  LoadDtypes dtypes;
  BATON_TRY(dtypes.weights, weight_dtype(options, spec, backend));
  dtypes.kv = options.kv_cache_dtype == "auto" ? dtypes.weights : dtype_from_name(options.kv_cache_dtype).value();
  BATON_TRY_VOID(check_kv_dtype(options, spec, dtypes.kv, dtypes.weights));
  BATON_TRY(dtypes.states, state_dtype(options, spec));
  return dtypes;
}

Result<LoadedModel> load_model(const ModelFiles& files, const ModelOptions& options, Backend& backend) {
  BATON_TRY(ModelSpec spec, read_model_spec(files.folder));
  const bool is_dummy = options.load_format == "dummy";
  std::optional<Checkpoint> checkpoint;
  if (!is_dummy) {
    BATON_TRY(checkpoint, Checkpoint::open(files.folder));
    BATON_TRY_VOID(fit_to_checkpoint(spec, *checkpoint));
  }
  if (options.speculation.method == DraftMethod::mtp) BATON_TRY_VOID(use_mtp(spec, checkpoint ? &*checkpoint : nullptr));
  BATON_TRY_VOID(check_recurrent_layers(spec, backend));
  BATON_TRY(const WeightRounding rounding, rounding_of(options, spec.quantization));
  BATON_TRY(const ActivationChoice activations, activations_of(options, spec.quantization, rounding, backend.capabilities()));
  BATON_TRY(const LoadDtypes dtypes, load_dtypes(options, spec, backend));
  const DType dtype = dtypes.weights;
  if (options.dtype == "auto" && dtype == DType::f32 && spec.dtype != DType::f32)
    log::info("dtype=float32 reason=\"this processor has no bf16 matmuls ({})\"", backend.info().features);
  if (options.ranks != nullptr && options.ranks->rank() == 0)
    RankSteps(options.ranks).device(describe_device(dtype, word_for_ranks(activations, options), backend.info()));
  const BackendInfo device = backend.info();
  BATON_TRY(ModelSpec of_rank, split_spec(spec, {device.rank, device.world_size}));
  BATON_TRY_VOID(check_states(options, of_rank, dtypes.states, backend));
  BATON_TRY_VOID(check_attention(of_rank, dtypes.kv, backend));
  const WeightBytes bytes =
      weight_bytes(spec, dtype, {device.rank, device.world_size}, checkpoint ? &*checkpoint : nullptr, rounding);
  BATON_TRY_VOID(check_memory(files, spec, bytes, dtype, backend));
  using Kind = ActivationChoice::Kind;
  const bool has_int8_x = activations.kind == Kind::int8;
  if (has_int8_x && device.rank == 0) BATON_TRY_VOID(expect_taken(activations, bytes.has_integers));
  if (device.rank == 0) log_rounding(rounding, spec);
  BATON_TRY(ModelWeights weights,
            is_dummy ? random_weights(spec, backend, dtype, options.seed, options.threads, rounding, has_int8_x)
                     : load_weights(spec, *checkpoint, backend, dtype, options.threads, rounding, has_int8_x));
  if (checkpoint) {
    BATON_TRY(weights.kv_scales, kv_scales(spec, *checkpoint, dtypes.kv, device.rank == 0));
  }
  if (activations.kind == Kind::fp8) {
    BATON_TRY(weights.has_f8_rows, expect_taken(activations, takes_f8_rows(spec, weights)));
  }
  const std::size_t weight_bytes = weights.size_bytes();
  auto model = std::make_unique<Model>(std::move(of_rank), std::move(weights));
  return LoadedModel{std::move(spec), std::move(model), dtypes, weight_bytes};
}

Result<std::unique_ptr<Engine>> load_engine(const ModelFiles& files, const ModelOptions& options) {
  BATON_TRY(TimedEngine timed, load_timed_engine(files, options));
  return std::move(timed.engine);
}

Result<std::unique_ptr<Engine>> load_engine(const ModelFiles& files, const ModelOptions& options,
                                            std::unique_ptr<Backend> backend) {
  check(options.ranks == nullptr, "load_engine: the other ranks must know the model before a device is opened");
  BATON_TRY(TimedEngine timed, load_onto(std::move(backend), LoadTimes{}, files, options));
  return std::move(timed.engine);
}

Result<TimedEngine> load_timed_engine(const ModelFiles& files, const ModelOptions& options) {
  StopWatch watch;
  BATON_TRY_VOID(check_model_options(options));
  if (options.ranks != nullptr) {
    BATON_TRY(const std::string what, describe_load(files, options));
    RankSteps(options.ranks).load(what);
  }
  auto backend = open_device(options);
  if (!backend) {
    RankSteps(options.ranks).end();  // the other ranks wait for what this one says of its device
    return tl::unexpected(std::move(backend.error()));
  }
  return load_onto(std::move(*backend), LoadTimes{.device_s = watch.lap_s()}, files, options);
}

}  // namespace baton
