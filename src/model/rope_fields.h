/// The fields of a config.json that say how positions rotate queries and keys: `rope_theta` with `rope_scaling`
/// (Transformers 4), or `rope_parameters` (5). Errors are as in config_fields.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "model/spec.h"

namespace baton::fields {

/// What a rotation is read for, and what it is where the config says nothing.
struct RopeContext {
  std::int32_t head_dim = 0;
  std::int32_t max_position = 0;  ///< `max_position_embeddings`
  double theta = 10000;
  double rotary_factor = 1;                ///< the share of a head that is rotated
  bool allows_partial = false;             ///< else a config that rotates less than whole heads is refused
  bool yarn_is_longrope = false;           ///< a scaling called "yarn" is longrope, as in early Phi-3
  bool ignores_sections = false;           ///< of a rotation by several positions of a token, which are alike in text
  bool scales_queries = false;             ///< `llama_4_scaling_beta` must be there, else it is refused
  std::int32_t original_max_position = 0;  ///< `original_max_position_embeddings` of the config itself; 0: absent
};

/// The rotation of all layers. `rope_scaling` counts before `rope_parameters`, what either holds before the fields of
/// the config itself, and the config's own `original_max_position_embeddings` before theirs. As in Transformers.
Result<RopeSpec> read_rope(const json::Value& config, const RopeContext& context);
/// The rotation that `parameters` describes, an object or null. Fields of the config itself do not count.
Result<RopeSpec> read_rope_parameters(const json::Value* parameters, const RopeContext& context);

}  // namespace baton::fields
