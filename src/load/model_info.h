/// What a model needs, from its configuration and the headers of its weights: nothing is loaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "load/activation_dtype.h"
#include "load/model_options.h"
#include "model/config.h"
#include "model/spec.h"
#include "model/weights.h"

namespace baton {

/// The layers with one window and one KV shape, and what they keep of each token.
struct KvGroup {
  std::int32_t n_layers = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;         ///< of keys
  std::int32_t latent_dim = 0;       ///< over 0: values are the beginnings of keys (KvShape::latent_dim)
  std::int32_t window = 0;           ///< tokens; 0: all
  std::int64_t bytes_per_token = 0;  ///< keys and values of all its layers
};

/// What drafts by a checkpoint's own layer (MtpSpec) take, whether it is loaded or not.
struct DraftLayerInfo {
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::string fault = {};  ///< why it cannot be loaded; then there are no bytes
};

struct ModelInfo {
  ModelSpec spec;
  LoadDtypes dtypes;
  std::vector<KvGroup> groups;
  std::int32_t n_recurrent_layers = 0;
  std::int32_t max_num_seqs = 0;              ///< sequences whose states are counted
  std::int64_t state_bytes = 0;               ///< of a sequence, in all recurrent layers
  std::int64_t draft_bytes = 0;               ///< of a draft beside it
  std::optional<DraftLayerInfo> draft_layer;  ///< absent: the configuration has none
  /// Bytes of the stored tensors by number format ("BF16"); empty if there are no weights, only a configuration.
  std::map<std::string, std::int64_t> stored_bytes;
  std::string weights_fault;  ///< why the weights that are there cannot be loaded; empty if they can
  WeightBytes weights;        ///< memory for them, also if they cannot
  /// What matrices multiply that can (`--activation-dtype`); without a device only what the options demand is known.
  std::optional<ActivationChoice> activations;
  std::string tokenizer;        ///< "BPE (tokenizer.json)"...; empty if there is none
  std::string tokenizer_fault;  ///< why Baton cannot load it; empty if it can
  std::int32_t n_tokens = 0;    ///< of the tokenizer
  std::vector<std::string> templates;
  GenerationConfig generation;

  /// Whether prompts are found in the cache: see options_for (engine/engine_parts.h).
  bool has_prefix_cache() const {
    return n_recurrent_layers == 0 || std::ranges::all_of(groups, [](const KvGroup& group) { return group.window == 0; });
  }
};

/// Reads `folder`. Of `options` max_num_seqs, kv_cache_dtype, state_cache_dtype, quantization, quantize_lm_head and activation_dtype count. `device`: where
/// the model would be loaded, which decides the dtypes; null: any, and the configuration does. A tokenizer or weights that
/// cannot be loaded are facts. Errors: those of the configuration, rounding_of, activations_of, load_dtypes, expect_taken.
Result<ModelInfo> read_model_info(const std::filesystem::path& folder, const ModelOptions& options,
                                  const Backend* device = nullptr);

/// The context whose tokens are counted if none is named: the model's longest, at most 8192 tokens.
std::int32_t default_context(const ModelInfo& info);

/// What a memory has room for beside the weights.
struct MemoryFit {
  std::int32_t n_snapshots = 0;   ///< of recurrent states, beside those of running sequences
  std::int64_t weight_bytes = 0;  ///< that must be free before the weights are loaded
  std::int64_t state_bytes = 0;   ///< of recurrent states of running sequences, and of drafts beside them
  std::int64_t cache_bytes = 0;   ///< 0: the weights or the states do not fit, or the weights cannot be loaded
  std::int32_t context_len = 0;
  std::int64_t n_tokens = 0;  ///< in contexts of this length
};
/// `share`: for the cache, of what weights and the states of max_num_seqs sequences leave. `is_host`: see WeightBytes::needed.
MemoryFit fit_in(const ModelInfo& info, std::int64_t memory_bytes, double share, std::int32_t context_len, bool is_host);

/// KV bytes of one context of `len` tokens: of each group at most a window's.
std::int64_t context_bytes(const std::vector<KvGroup>& groups, std::int64_t len);

/// What requests behind one shared prompt store and read.
struct SharedWorkload {
  std::int32_t n_requests = 64;
  std::int32_t shared_len = 2048;  ///< tokens they share
  std::int32_t own_len = 256;      ///< tokens of each after them
};
/// Bytes that are kept when all of them run, and that one decode step reads.
struct SharingBytes {
  std::int64_t apart = 0;   ///< each request has its whole context for itself
  std::int64_t shared = 0;  ///< the shared prompt is kept once, and read once for all
};
SharingBytes sharing_bytes(const std::vector<KvGroup>& groups, const SharedWorkload& workload);

}  // namespace baton
