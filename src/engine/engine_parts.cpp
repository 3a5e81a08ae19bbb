/// Chooses sizes from the options and allocates memory.
#include "engine/engine_parts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/limits/memory_limit.h"
#include "core/log.h"
#include "core/one_line.h"
#include "engine/cache/cache_size.h"
#include "kernels/ops.h"

namespace baton {
namespace {

/// A snapshot stands at a block's end. Where it is made a step ends, which must not cut a chunk of an operation on states.
Result<void> check_snapshot_interval(const EngineOptions& options, const ModelSpec& spec) {
  const std::int32_t interval = options.state_snapshot_interval;
  if (interval == 0) return {};
  const auto refuse = [&](const std::string& reason) {
    return fail(ErrorCode::invalid_request, fmt::format("--state-snapshot-interval {}: {}", interval, reason),
                "state_snapshot_interval");
  };
  if (!spec.has_recurrent_layers()) return refuse(spec.family + " has no recurrent layers");
  if (!options.enable_prefix_caching) return refuse("snapshots of states belong to the prefix cache, which is off");
  const std::int32_t unit = std::max(kStateChunk, options.block_len);
  if (interval < 0 || interval % unit != 0)
    return refuse(fmt::format("it must be 0 (off) or a multiple of {}, the {}", unit,
                              unit == kStateChunk ? "positions of a chunk in which recurrent layers compute prompts"
                                                  : "tokens of a block (--block-size)"));
  const bool is_asked = options.max_model_len > 0;
  const std::int32_t limit = is_asked ? options.max_model_len : spec.max_position;
  if (interval < limit) return {};
  return refuse(fmt::format("prompts have fewer than {} tokens ({}), so none would have a snapshot at an interval", limit,
                            is_asked ? "--max-model-len" : "the model's limit"));
}

Result<void> check_options(const EngineOptions& options, const ModelSpec& spec) {
  const auto refuse = []<class... Args>(const char* field, fmt::format_string<Args...> message, Args&&... args) {
    return fail(ErrorCode::invalid_request, fmt::format(message, std::forward<Args>(args)...), field);
  };
  if (options.max_num_seqs < 1 || options.max_num_seqs > 4096)
    return refuse("max_num_seqs", "--max-num-seqs must be from 1 to 4096, got {}", options.max_num_seqs);
  if (options.max_num_batched_tokens < 1 || options.max_num_batched_tokens > (1 << 20)) {
    return refuse("max_num_batched_tokens", "--max-num-batched-tokens must be from 1 to {}, got {}", 1 << 20,
                  options.max_num_batched_tokens);
  }
  if (options.block_len < 16 || options.block_len > kAttentionChunk || kAttentionChunk % options.block_len != 0)
    return refuse("block_size", "--block-size must be 16, 32, 64, 128 or 256, got {}", options.block_len);
  if (options.max_model_len < kFittingLength || options.max_model_len == 1 || options.max_model_len > spec.max_position) {
    return refuse("max_model_len", "--max-model-len must be auto, or from 2 to the {} positions of this model, got {}",
                  spec.max_position, options.max_model_len);
  }
  if (options.max_prefill_tokens < 0)
    return refuse("max_prefill_tokens", "--max-prefill-tokens must be 0 (the device's default) or more, got {}",
                  options.max_prefill_tokens);
  if (options.step_timeout_ms < 0) return refuse("step_timeout", "--step-timeout must be 0 (off) or more");
  BATON_TRY_VOID(check_speculation(options.speculation));
  if (options.speculation.method == DraftMethod::mtp && !spec.uses_mtp)
    return refuse("speculative_config",
                  "--speculative-config: method 'mtp': the model was loaded without its layer for drafts");
  if (options.snapshot_bytes && !spec.has_recurrent_layers())
    return refuse("state_cache_memory_bytes", "--state-cache-memory-bytes: {} has no recurrent layers", spec.family);
  if (options.snapshot_bytes && !options.enable_prefix_caching)
    return refuse("state_cache_memory_bytes",
                  "--state-cache-memory-bytes: snapshots of states belong to the prefix cache, which is off");
  BATON_TRY_VOID(check_snapshot_interval(options, spec));
  if (options.max_num_queued_reqs < 0)
    return refuse("max_num_queued_reqs", "--max-num-queued-reqs must be 0 (no limit) or more, got {}",
                  options.max_num_queued_reqs);
  return {};
}

std::int32_t max_prefill_of(const EngineOptions& options, const BackendTuning& tuning) {
  const std::int32_t wanted = options.max_prefill_tokens > 0 ? options.max_prefill_tokens
                              : tuning.prefill_rows > 0      ? tuning.prefill_rows
                                                             : options.max_num_batched_tokens;
  return std::min(wanted, options.max_num_batched_tokens);
}

/// Bound of the partial attention states of a step: enough to cut the whole context of every row into chunks, within
/// 128 MB. With a smaller bound the planner cuts less.
std::int32_t max_partials_of(const EngineOptions& options, const ModelSpec& spec, std::int32_t max_model_len) {
  const std::int64_t wanted = static_cast<std::int64_t>(options.max_num_batched_tokens) * (max_model_len / kAttentionChunk + 2);
  std::int64_t bytes_each = 0;
  for (const LayerSpec& layer : spec.layers)
    bytes_each = std::max(bytes_each, static_cast<std::int64_t>(layer.attention.n_heads) * (layer.attention.v_dim() + 2) * 4);
  return static_cast<std::int32_t>(std::min(wanted, std::max<std::int64_t>((128 << 20) / bytes_each, 1024)));
}

/// List entries of sequences that all have lists of the largest size, within the option's bound.
std::int32_t max_list_entries_of(const EngineOptions& options, std::int32_t n_samples, std::int32_t max_model_len) {
  const std::int64_t n_each = max_model_len + static_cast<std::int64_t>(kMaxLogitBiases + kMaxBadWords + kMaxAllowedIds);
  return static_cast<std::int32_t>(std::min<std::int64_t>(options.max_list_entries, n_each * n_samples));
}

/// Bound of the prompt rows that a step scores: their logits take at most 64 MB; 256 MB if the model drafts, as half of these rows
/// are drafts, and 32 requests with 3 drafts each of a vocabulary of 248,320 take 96.
std::int32_t max_scores_of(const EngineOptions& options, const ModelSpec& spec) {
  const std::int64_t within = (std::int64_t{spec.uses_mtp ? 256 : 64} << 20) / (4 * static_cast<std::int64_t>(spec.n_vocab));
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(within, 1, options.max_num_batched_tokens));
}

std::int32_t max_drafts_of(const EngineOptions& options, const ModelSpec& spec) { return max_scores_of(options, spec) / 2; }

/// The bounds of a step, for all layer groups alike. `n_dealt_workers`: number of workers to which plans assign pairs;
/// 0: plans assign none.
Result<StepBounds> bounds_of(const EngineOptions& options, const ModelSpec& spec, std::span<const LayerGroup> groups,
                             std::int32_t n_dealt_workers, std::int32_t max_model_len) {
  const std::int32_t max_scores = max_scores_of(options, spec);
  const std::int32_t max_drafts = max_drafts_of(options, spec);
  const std::int32_t n_blocks = (max_model_len + options.block_len - 1) / options.block_len;
  const std::int64_t n_wanted = static_cast<std::int64_t>(options.max_num_seqs) * n_blocks;
  StepBounds bounds;
  bounds.max_rows = options.max_num_batched_tokens;
  bounds.max_samples = options.max_num_seqs + max_scores;
  bounds.max_partials = max_partials_of(options, spec, max_model_len);
  bounds.max_slots = options.max_num_seqs + max_drafts;
  bounds.max_items = std::max(bounds.max_items, bounds.max_rows);  // leaves need at most one item for each row
  bounds.max_pairs = 0;
  for (const LayerGroup& group : groups)
    if (n_dealt_workers > 0) bounds.max_pairs = std::max(bounds.max_pairs, bounds.max_items * group.shape.n_kv_heads);
  bounds.max_workers = n_dealt_workers;
  bounds.max_block_entries = options.max_block_entries > 0
                                 ? options.max_block_entries
                                 : static_cast<std::int32_t>(std::min<std::int64_t>(n_wanted, kMaxBlockEntries));
  bounds.max_list_entries = max_list_entries_of(options, bounds.max_slots, max_model_len);
  bounds.max_state_runs = spec.has_recurrent_layers() ? options.max_num_seqs : 0;
  bounds.n_groups = static_cast<std::int32_t>(groups.size());
  bounds.max_positions = max_model_len;
  bounds.max_masks = bounds.max_slots;
  bounds.mask_words = (spec.n_vocab + 31) / 32;
  if (n_blocks > bounds.max_block_entries)
    return fail(ErrorCode::invalid_request,
                fmt::format("--max-model-len {}: a sequence of that length has {} blocks, and a step can list {}",
                            max_model_len, n_blocks, bounds.max_block_entries),
                "max_model_len");
  return bounds;
}

/// Captures decode steps if the backend gains by it, up to the rows of a step in which all sequences run and draft.
/// Capturing takes time and memory, so it is logged.
Result<void> capture_steps(Executor& executor, const EngineOptions& options, const BackendTuning& tuning) {
  const std::int32_t n_rows = std::min(tuning.max_captured_rows, options.max_num_seqs * (1 + options.speculation.n_tokens));
  if (options.enforce_eager || n_rows == 0) return {};
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t free_before = executor.backend().free_memory_bytes();
  BATON_TRY(const std::size_t n_graphs, executor.capture_steps(n_rows));
  log::info("event=graphs_captured graphs={} largest_rows={} seconds={:.2f} mb={:.0f}", n_graphs, n_rows,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
            static_cast<double>(free_before - executor.backend().free_memory_bytes()) / 1e6);
  return {};
}

/// Of the host tier's bytes, those for states of a model that has them. Keys of a few thousand tokens take as much as a state, and
/// either is worth nothing without the other.
constexpr double kTierStateShare = 1.0 / 3;
/// To lose one is told to all others.
constexpr std::int64_t kMostTierStates = 1 << 16;

/// How many entries the host tier can hold, of one block of each group: groups as in CacheSizeOptions; and how many states. Refuses
/// what the tier does not support, and more memory than there is.
Result<void> size_tier(const EngineOptions& options, const CacheSizeOptions& size, EngineInfo& info) {
  const int n_ranks = info.backend.world_size;
  const double gib = static_cast<double>(options.host_tier_bytes) / 0x1p30;
  const auto refuse = [&](ErrorCode code, const std::string& reason) {
    return fail(code, fmt::format("--kv-offloading-size {:g}: {}", gib, reason), "kv_offloading_size");
  };
  if (options.host_tier_bytes < 0) return refuse(ErrorCode::invalid_request, "it must be 0 (off) or more");
  if (options.host_tier_bytes == 0) return {};
  if (!options.enable_prefix_caching)
    return refuse(ErrorCode::invalid_request, "it keeps what the prefix cache evicts, and prefix caching is off");
  if (n_ranks > 1)
    return refuse(ErrorCode::unsupported, fmt::format("it is not offered with tensor parallelism ({} ranks)", n_ranks));
  if (std::ranges::any_of(size.groups, [](const CacheSizeOptions::Group& group) { return group.window > 0; }))
    return refuse(ErrorCode::unsupported, "it is not offered for models with sliding windows");
  const std::int64_t free_bytes = std::min(free_host_memory(), memory_limit());
  if (options.host_tier_bytes > free_bytes)
    return refuse(ErrorCode::out_of_memory, fmt::format("{} bytes are asked for, and this process may take {} bytes more",
                                                        options.host_tier_bytes, free_bytes));
  const bool has_states = info.state_slot_bytes > 0;
  const auto state_bytes =
      static_cast<std::int64_t>(has_states ? kTierStateShare * static_cast<double>(options.host_tier_bytes) : 0);
  const std::int64_t n_slots = (options.host_tier_bytes - state_bytes) / info.tier_entry_bytes;
  const std::int64_t n_states = has_states ? state_bytes / info.state_slot_bytes : 0;
  const auto too_small = [&](const std::string& reason) {
    const double state_part = has_states ? static_cast<double>(info.state_slot_bytes) / kTierStateShare : 0;
    const double block_part = static_cast<double>(info.tier_entry_bytes) / (has_states ? 1 - kTierStateShare : 1);
    const double least_gib = std::max(state_part, block_part) / 0x1p30;
    const double digits = std::pow(10, std::floor(std::log10(least_gib)) - 2);  // rounded up to three significant ones
    return refuse(ErrorCode::invalid_request,
                  fmt::format("{}; the smallest size is {:g}", reason, (std::floor(least_gib / digits) + 1) * digits));
  };
  if (n_slots == 0)
    return too_small(fmt::format("a block of {} tokens takes {} bytes", options.block_len, info.tier_entry_bytes));
  if (has_states && n_states == 0)
    return too_small(
        fmt::format("a third of it is for states of recurrent layers, and one takes {} bytes", info.state_slot_bytes));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  info.n_tier_slots = static_cast<std::int32_t>(std::min(n_slots, kMost));
  info.n_tier_states = static_cast<std::int32_t>(std::min<std::int64_t>(n_states, kMostTierStates));
  return {};
}

/// The ids of the model and of the options. One beyond the vocabulary ends nothing, because it is never sampled.
std::vector<TokenId> all_eos_ids(const EngineOptions& options, const ModelSpec& spec) {
  std::vector<TokenId> ids = spec.eos_token_ids;
  for (const TokenId id : options.eos_token_ids) {
    if (id < 0 || id >= spec.n_vocab)
      log::warning("event=eos_token_ignored id={} reason=\"the model's vocabulary has {} ids\"", id, spec.n_vocab);
    else if (std::ranges::find(ids, id) == ids.end())
      ids.push_back(id);
  }
  return ids;
}

}  // namespace

namespace {

bool has_windows(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers,
                             [](const LayerSpec& layer) { return !layer.is_recurrent() && layer.attention.window > 0; });
}

}  // namespace

EngineOptions options_for(const ModelSpec& spec, const EngineOptions& options) {
  EngineOptions possible = options;
  if (!spec.has_recurrent_layers()) return possible;
  if (has_windows(spec)) possible.enable_prefix_caching = false;
  possible.mask_budget.time = std::chrono::hours(1);
  possible.mask_budget.steps = MaskBudget{}.steps;
  return possible;
}

std::int32_t n_kept_rows(const EngineOptions& options, const ModelSpec& spec) {
  if (!spec.has_recurrent_layers()) return 0;
  return 2 * std::min(max_drafts_of(options, spec), options.max_num_seqs * kMaxDraftTokens);
}

std::int32_t max_rows_in_flight(const EngineOptions& options) {
  return static_cast<std::int32_t>(Executor::kMaxInFlight) * options.max_num_batched_tokens;
}

namespace {

/// What is known before anything is allocated.
struct SizedEngine {
  EngineInfo info;  ///< without the cache, whose size depends on the memory that is left
  std::vector<LayerGroup> groups;
  StepBounds bounds;
  AttentionPlanOptions plan;
  CacheSizeOptions cache;  ///< without the free memory
};

Result<SizedEngine> size_engine(const EngineOptions& options, const Backend& backend, const Model& model) {
  const ModelSpec spec = model.spec();
  BATON_TRY_VOID(check_options(options, spec));
  const BackendCapabilities capabilities = backend.capabilities();
  const BackendTuning tuning = backend.tuning();
  SizedEngine sized;
  EngineInfo& info = sized.info;
  info.backend = backend.info();
  info.max_model_len = options.max_model_len > 0 ? options.max_model_len : spec.max_position;
  info.n_vocab = spec.n_vocab;
  info.has_mtp = spec.uses_mtp;
  info.block_len = options.block_len;
  info.kv_dtype = options.kv_dtype;
  info.weight_dtype = model.weight_dtype();
  info.weight_scheme = model.weight_scheme();
  info.activation_scheme = model.activation_scheme();
  info.attention = options.relay ? "relay" : "paged";
  info.batch_invariant = options.batch_invariant;
  info.enable_prefix_caching = options.enable_prefix_caching;
  info.max_num_seqs = options.max_num_seqs;
  info.max_num_batched_tokens = options.max_num_batched_tokens;
  info.max_prefill_tokens = max_prefill_of(options, tuning);
  info.paces_prefill = options.max_prefill_tokens == 0 && tuning.prefill_rows == 0 && options.uses_step_times;
  info.eos_token_ids = all_eos_ids(options, spec);
  for (const AttentionShape& shape : model.attention_shapes(options.block_len, options.kv_dtype))
    sized.groups.push_back({shape, model.n_layers_of_group(static_cast<int>(sized.groups.size()))});
  const std::int32_t n_dealt_workers = capabilities.deals_pairs ? tuning.attention_costs.n_workers : 0;
  BATON_TRY(sized.bounds, bounds_of(options, spec, sized.groups, n_dealt_workers, info.max_model_len));
  sized.plan = {.relay = options.relay,
                .batch_invariant = options.batch_invariant,
                .costs = tuning.attention_costs,
                .deals_pairs = capabilities.deals_pairs,
                .max_items = sized.bounds.max_items,
                .max_partials = sized.bounds.max_partials};
  CacheSizeOptions& cache = sized.cache;
  for (const KvShape& shape : model.kv_shapes(1, options.block_len, options.kv_dtype)) {
    cache.groups.push_back({backend.kv_block_bytes(shape), sized.groups.at(cache.groups.size()).shape.window});
    info.tier_entry_bytes += cache.groups.back().block_bytes;
  }
  info.state_dtype = options.state_dtype;
  info.state_snapshot_interval = options.state_snapshot_interval;
  const StateShape state = model.state_shape(1, options.state_dtype);
  info.state_slot_bytes = state.slot_bytes();
  info.kept_row_bytes = state.kept_row_bytes();
  info.n_kept_rows = n_kept_rows(options, spec);
  BATON_TRY_VOID(size_tier(options, cache, info));
  cache.block_len = options.block_len;
  cache.max_model_len = info.max_model_len;
  cache.max_num_seqs = options.max_num_seqs;
  cache.max_rows_in_flight = max_rows_in_flight(options);
  cache.kv_cache_bytes = options.kv_cache_bytes;
  cache.memory_utilization = options.memory_utilization;
  cache.is_host_memory = capabilities.shares_host_memory;
  cache.keeps_prefixes = options.enable_prefix_caching;
  return sized;
}

/// Bytes of the states of running sequences, and of their drafts.
std::int64_t running_state_bytes(const EngineInfo& info) {
  return info.max_num_seqs * info.state_slot_bytes + info.n_kept_rows * info.kept_row_bytes;
}

/// Sizes the cache within what every rank has free when all else is allocated, so it fits the rank with the least. Ranks of
/// one host divide its memory.
Result<void> size_cache(const EngineOptions& options, std::int64_t free_bytes, SizedEngine& sized) {
  EngineInfo& info = sized.info;
  CacheSizeOptions& cache = sized.cache;
  const std::int64_t tier_bytes = info.tier_bytes();
  cache.free_memory_bytes = cache.is_host_memory ? free_bytes / std::max(1, info.backend.world_size) - tier_bytes : free_bytes;
  if (info.state_slot_bytes > 0) {
    cache.free_memory_bytes -= running_state_bytes(info);
    std::int32_t n_snapshots = 0;
    if (options.enable_prefix_caching) {
      BATON_TRY(n_snapshots, choose_snapshots(cache, info.state_slot_bytes, options.snapshot_bytes));
    }
    const bool is_asked_for = options.snapshot_bytes.value_or(0) > 0 || options.state_snapshot_interval > 0;
    if (is_asked_for && n_snapshots == 0)
      log::warning(
          "event=no_snapshots state_cache_memory_bytes={} state_bytes={} state_snapshot_interval={} effect=\"the memory has "
          "room for no snapshot of a state: only slots that no sequence uses hold some, and no prefix can be registered\"",
          options.snapshot_bytes ? std::to_string(*options.snapshot_bytes) : "default", info.state_slot_bytes,
          options.state_snapshot_interval);
    cache.free_memory_bytes -= n_snapshots * info.state_slot_bytes;
    info.n_state_slots = info.max_num_seqs + n_snapshots;
  }
  if (options.max_model_len == kFittingLength) {
    const std::int32_t most = std::exchange(info.max_model_len, longest_fitting(cache));
    cache.max_model_len = info.max_model_len;
    log::info("event=max_model_len_chosen max_model_len={} model={}", info.max_model_len, most);
    if (options.state_snapshot_interval >= info.max_model_len)
      log::warning(
          "event=no_interval_snapshots state_snapshot_interval={} max_model_len={} effect=\"prompts are too short for a "
          "snapshot at an interval\"",
          options.state_snapshot_interval, info.max_model_len);
  }
  BATON_TRY(info.cache_groups, choose_cache_groups(cache));
  info.n_blocks = std::ranges::max(info.cache_groups, {}, &CacheGroup::n_blocks).n_blocks;
  if (const auto n_ends = n_kept_ends(info.cache_groups, info.block_len); n_ends && options.enable_prefix_caching)
    log::info("event=kept_windows ends={} tokens={} note=\"ends of prompts and answers that later prompts can continue\"",
              *n_ends, std::int64_t{info.n_blocks} * info.block_len);
  for (std::size_t g = 0; g < cache.groups.size(); ++g)
    info.kv_cache_bytes += info.cache_groups[g].n_blocks * cache.groups[g].block_bytes;
  if (tier_bytes > 0 && cache.is_host_memory && info.kv_cache_bytes > cache.free_memory_bytes) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("--kv-offloading-size {:g}: the KV cache takes {} bytes of the same memory, and {} bytes are left "
                            "beside the tier",
                            static_cast<double>(tier_bytes) / 0x1p30, info.kv_cache_bytes, cache.free_memory_bytes),
                "kv_offloading_size");
  }
  return {};
}

/// Refuses states that do not fit what is free, before anything is allocated.
Result<void> check_states(const EngineInfo& info, const Backend& backend) {
  if (info.state_slot_bytes == 0) return {};
  const std::int64_t needed = running_state_bytes(info);
  const std::int64_t free_bytes = backend.free_memory_bytes();
  if (needed > free_bytes)
    return fail(ErrorCode::out_of_memory,
                fmt::format("the states of {} in recurrent layers, and of their drafts, need {} bytes ({} each), and {} bytes "
                            "are free: lower --max-num-seqs",
                            counted(info.max_num_seqs, "sequence"), needed, info.state_slot_bytes, free_bytes),
                "max_num_seqs");
  return {};
}

}  // namespace

Result<EngineParts> make_parts(const EngineOptions& options, std::unique_ptr<Backend> backend, std::unique_ptr<Model> model) {
  BATON_TRY(SizedEngine sized, size_engine(options, *backend, *model));
  const ModelSpec spec = model->spec();
  BATON_TRY_VOID(check_states(sized.info, *backend));
  const BackendTuning tuning = backend->tuning();
  BATON_TRY(std::unique_ptr<Executor> executor,
            Executor::create(std::move(backend), std::move(model), sized.bounds, options.ranks));
  BATON_TRY_VOID(size_cache(options, executor->free_memory_bytes(), sized));
  if (sized.info.n_state_slots > 0) {
    BATON_TRY_VOID(executor->allocate_states(sized.info.n_state_slots, sized.info.n_kept_rows, sized.info.state_dtype));
    log::info(
        "event=recurrent_layers state_dtype={} state_mb={:.1f} sequences={} snapshots={} snapshot_interval={} draft_mb={:.2f} "
        "drafts={} prefix_caching={}",
        to_string(sized.info.state_dtype), static_cast<double>(sized.info.state_slot_bytes) / 1e6, sized.info.max_num_seqs,
        sized.info.n_snapshots(), sized.info.state_snapshot_interval, static_cast<double>(sized.info.kept_row_bytes) / 1e6,
        sized.info.n_kept_rows, options.enable_prefix_caching ? "on" : "off");
  }
  BATON_TRY_VOID(executor->allocate_cache(sized.info.cache_groups, options.block_len, options.kv_dtype));
  if (sized.info.n_tier_slots > 0) BATON_TRY_VOID(executor->allocate_tier(sized.info.n_tier_slots, sized.info.n_tier_states));
  std::optional<DraftBuilder> drafter;
  if (spec.uses_mtp) {
    BATON_TRY_VOID(executor->allocate_drafts());
    drafter.emplace(sized.groups.front(), sized.plan);
  }
  BATON_TRY_VOID(capture_steps(*executor, options, tuning));
  return EngineParts{std::move(sized.info),
                     BatchBuilder(std::move(sized.groups), sized.plan, spec.has_recurrent_layers()),
                     std::move(drafter),
                     std::move(executor),
                     sized.bounds,
                     max_scores_of(options, spec),
                     max_drafts_of(options, spec)};
}

}  // namespace baton
