/// Sums over a model's layers and over the headers of its files.
#include "load/model_info.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "engine/cache/cache_size.h"
#include "engine/engine_parts.h"
#include "io/json.h"
#include "io/other_weights.h"
#include "io/safetensors.h"
#include "load/load_engine.h"
#include "load/weight_rounding.h"
#include "model/decoder.h"
#include "model/source/mtp.h"
#include "model/source/safetensors.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::vector<KvGroup> groups_of(const ModelSpec& spec, DType kv_dtype) {
  std::vector<KvGroup> groups(static_cast<std::size_t>(spec.n_groups()));
  const auto add = [&](const LayerSpec& layer) {
    if (!layer.has_attention()) return;
    KvGroup& group = groups[static_cast<std::size_t>(layer.group)];
    const AttentionSpec& attention = layer.attention;
    ++group.n_layers;
    group.n_kv_heads = attention.n_kv_heads;
    group.head_dim = attention.head_dim;
    group.window = attention.window;
    if (attention.latent) group.latent_dim = attention.latent->rank;
    group.bytes_per_token += attention.cached_width() * static_cast<std::int64_t>(size_bytes(kv_dtype));
  };
  for (const LayerSpec& layer : spec.layers) add(layer);
  if (const MtpSpec* const mtp = spec.used_mtp()) add(mtp->layer);
  return groups;
}

/// Of a model whose configuration has a layer for drafts. `checkpoint`: null: there are no weights.
DraftLayerInfo draft_layer_of(ModelSpec spec, const LoadDtypes& dtypes, const Checkpoint* checkpoint,
                              const WeightRounding& rounding) {
  const auto held = [&] { return weight_bytes(spec, dtypes.weights, ModelRank{}, checkpoint, rounding).held; };
  const auto kept = [&] {
    std::int64_t bytes = 0;
    for (const KvGroup& group : groups_of(spec, dtypes.kv)) bytes += group.bytes_per_token;
    return bytes;
  };
  spec.uses_mtp = false;
  const std::int64_t held_without = held(), kept_without = kept();
  if (const auto used = use_mtp(spec, checkpoint); !used) return {.fault = used.error().message};
  return {.weight_bytes = held() - held_without, .kv_bytes_per_token = kept() - kept_without};
}

/// Numbers that only quantised weights are stored in, and that are not read as tensors of their own.
bool is_of_schemes_alone(std::string_view stored_dtype) { return stored_dtype == "I8" || stored_dtype == "F8_E8M0"; }

/// Sets what the device and the options make of the model's dtypes.
Result<void> set_dtypes(const ModelOptions& options, const Backend* device, ModelInfo& info) {
  if (device != nullptr) {
    BATON_TRY(info.dtypes, load_dtypes(options, info.spec, *device));
    return {};
  }
  info.dtypes.weights = info.spec.dtype;
  info.dtypes.kv = options.kv_cache_dtype == "auto" ? info.spec.dtype : dtype_from_name(options.kv_cache_dtype).value();
  BATON_TRY(info.dtypes.states, state_dtype(options, info.spec));
  return {};
}

/// Sets what the headers of the weights say.
Result<void> read_weights(const fs::path& folder, const ModelOptions& options, const Backend* device,
                          const WeightRounding& rounding, ModelInfo& info) {
  const auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) {
    std::error_code ignored;
    const bool has_files = fs::exists(folder / "model.safetensors", ignored) ||
                           fs::exists(folder / "model.safetensors.index.json", ignored) || !other_weights_in(folder).empty();
    if (has_files) info.weights_fault = checkpoint.error().message;
    return {};
  }
  for (const std::string& name : checkpoint->names()) {
    const StoredTensor& stored = *checkpoint->find(name);
    const auto tensor = checkpoint->load(name);
    if (!tensor && !is_of_schemes_alone(stored.dtype)) {
      info.weights_fault = tensor.error().message;
    } else {
      const std::string dtype = tensor ? std::string(to_string(tensor->dtype)) : stored.dtype;
      info.stored_bytes[dtype] += static_cast<std::int64_t>(stored.bytes.size());
    }
  }
  if (!info.weights_fault.empty()) return {};
  ModelSpec fitted = info.spec;
  if (const auto fits = fit_to_checkpoint(fitted, *checkpoint); !fits) {
    info.weights_fault = fits.error().message;
  } else if (const auto drafts = fitted.uses_mtp ? use_mtp(fitted, &*checkpoint) : Result<void>(); !drafts) {
    info.weights_fault = drafts.error().message;
  } else if (const auto are_there = check_weights(fitted, *checkpoint, ModelRank{}, rounding); !are_there) {
    info.weights_fault = are_there.error().message;
  } else {
    info.spec = std::move(fitted);
    BATON_TRY_VOID(set_dtypes(options, device, info));
    info.weights = weight_bytes(info.spec, info.dtypes.weights, ModelRank{}, &*checkpoint, rounding);
    if (info.spec.mtp) info.draft_layer = draft_layer_of(info.spec, info.dtypes, &*checkpoint, rounding);
  }
  return {};
}

/// Sets what matrices multiply, as far as it is known before they are loaded.
Result<void> set_activations(const ModelOptions& options, const Backend* device, const WeightRounding& rounding,
                             ModelInfo& info) {
  if (device == nullptr && options.activation_dtype == "auto") return {};
  const BackendCapabilities capabilities = device != nullptr ? device->capabilities() : BackendCapabilities{.has_int8_x = true};
  BATON_TRY(info.activations, activations_of(options, info.spec.quantization, rounding, capabilities));
  if (info.activations->kind == ActivationChoice::Kind::int8)
    BATON_TRY_VOID(expect_taken(*info.activations, info.weights.has_integers));
  return {};
}

/// Of the file that Tokenizer::load reads.
std::string kind_of_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "tokenizer.json", ignored)) {
    const auto root = json::parse_file(folder / "tokenizer.json");
    const json::Value* model = root ? json::find(*root, "model") : nullptr;
    const json::Value* type = model != nullptr ? json::find(*model, "type") : nullptr;
    return fmt::format("{} (tokenizer.json)", type != nullptr && type->is_string() ? type->get<std::string>() : "BPE");
  }
  if (fs::exists(folder / "tekken.json", ignored)) return "Tekken (tekken.json)";
  if (fs::exists(folder / "tokenizer.model", ignored)) return "SentencePiece (tokenizer.model)";
  if (fs::exists(folder / "tiktoken.model", ignored)) return "tiktoken (tiktoken.model)";
  if (fs::exists(folder / "vocab.json", ignored)) return "BPE (vocab.json and merges.txt)";
  return "";
}

void read_tokenizer(const fs::path& folder, ModelInfo& info) {
  info.tokenizer = kind_of_tokenizer(folder);
  if (info.tokenizer.empty()) return;
  const auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer) {
    info.tokenizer_fault = tokenizer.error().message;
    return;
  }
  info.n_tokens = tokenizer->n_vocab();
  for (const auto& [name, source] : tokenizer->chat_templates()) info.templates.push_back(name);
}

/// The tokens of a context of `len` that a group keeps.
std::int64_t kept(const KvGroup& group, std::int64_t len) {
  return group.window == 0 ? len : std::min<std::int64_t>(len, group.window);
}

}  // namespace

Result<ModelInfo> read_model_info(const fs::path& folder, const ModelOptions& options, const Backend* device) {
  ModelInfo info;
  info.max_num_seqs = options.max_num_seqs;
  BATON_TRY(info.spec, read_model_spec(folder));
  if (options.speculation.method == DraftMethod::mtp) BATON_TRY_VOID(use_mtp(info.spec, nullptr));
  BATON_TRY(const WeightRounding rounding, rounding_of(options, info.spec.quantization));
  BATON_TRY_VOID(set_dtypes(options, device, info));
  info.weights = weight_bytes(info.spec, info.dtypes.weights, ModelRank{}, nullptr, rounding);
  if (info.spec.mtp) info.draft_layer = draft_layer_of(info.spec, info.dtypes, nullptr, rounding);
  BATON_TRY_VOID(read_weights(folder, options, device, rounding, info));
  BATON_TRY_VOID(set_activations(options, device, rounding, info));
  info.groups = groups_of(info.spec, info.dtypes.kv);
  info.n_recurrent_layers = info.spec.n_recurrent_layers();
  const StateShape state = state_shape(info.spec, 1, info.dtypes.states);
  info.state_bytes = state.slot_bytes();
  info.draft_bytes = state.kept_row_bytes();
  read_tokenizer(folder, info);
  BATON_TRY(info.generation, read_generation_config(folder));
  return info;
}

std::int32_t default_context(const ModelInfo& info) { return std::min(info.spec.max_position, 8192); }

MemoryFit fit_in(const ModelInfo& info, std::int64_t memory_bytes, double share, std::int32_t context_len, bool is_host) {
  MemoryFit fit{.weight_bytes = info.weights.needed(is_host), .context_len = context_len};
  EngineOptions engine;
  engine.max_num_seqs = info.max_num_seqs;
  fit.state_bytes = info.max_num_seqs * info.state_bytes + n_kept_rows(engine, info.spec) * info.draft_bytes;
  if (!info.weights_fault.empty() || fit.weight_bytes > memory_bytes) return fit;
  std::int64_t left = memory_bytes - info.weights.held - fit.state_bytes;
  if (left <= 0) return fit;
  if (info.has_prefix_cache() && info.state_bytes > 0) {
    fit.n_snapshots =
        choose_snapshots({.max_num_seqs = info.max_num_seqs, .free_memory_bytes = left, .memory_utilization = share},
                         info.state_bytes, std::nullopt)
            .value();
    left -= fit.n_snapshots * info.state_bytes;
  }
  fit.cache_bytes = static_cast<std::int64_t>(static_cast<double>(left) * share);
  const double of_context = static_cast<double>(context_bytes(info.groups, context_len));
  fit.n_tokens = static_cast<std::int64_t>(static_cast<double>(fit.cache_bytes) / of_context * context_len);
  return fit;
}

std::int64_t context_bytes(const std::vector<KvGroup>& groups, std::int64_t len) {
  std::int64_t bytes = 0;
  for (const KvGroup& group : groups) bytes += group.bytes_per_token * kept(group, len);
  return bytes;
}

SharingBytes sharing_bytes(const std::vector<KvGroup>& groups, const SharedWorkload& workload) {
  const std::int64_t n = workload.n_requests, shared = workload.shared_len, own = workload.own_len;
  SharingBytes bytes;
  for (const KvGroup& group : groups) {
    const std::int64_t whole = kept(group, shared + own);
    const std::int64_t apart = kept(group, own);
    bytes.apart += group.bytes_per_token * n * whole;
    bytes.shared += group.bytes_per_token * (whole - apart + n * apart);  // a window may not reach all that is shared
  }
  return bytes;
}

}  // namespace baton
