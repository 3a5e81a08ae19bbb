/// What the families with multi-head latent attention have in common.
#pragma once

#include <cstdint>

#include "model/config_fields.h"
#include "model/spec.h"

namespace baton {

/// What a family's fields mean if they are absent, as in Transformers.
struct LatentDefaults {
  fields::Defaults model;  ///< its head_dim does not count
  std::int32_t q_rank = 1536;
  std::int32_t rank = 512;
  std::int32_t nope_dim = 128;
  std::int32_t rope_dim = 64;
  std::int32_t v_dim = 128;
  /// `partial_rotary_factor` is the rotated share of a whole head of queries, instead of a share of qk_rope_head_dim.
  bool factor_is_of_query = false;
};

/// Llama with latent attention in all layers and the names of DeepSeek's tensors, and layers for drafting (multi-token prediction)
/// after the others, `num_nextn_predict_layers`, which are not loaded. The norms of latent attention have an epsilon of 1e-6 whatever
/// the config states. Errors (unsupported): an indexer (sparse attention), biases, KV heads fewer than query heads, a rotation of
/// some of the elements, scaled otherwise than by YaRN.
Result<ModelSpec> read_latent_layout(const json::Value& config, const LatentDefaults& defaults);

}  // namespace baton
