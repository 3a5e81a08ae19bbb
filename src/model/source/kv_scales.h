/// Scales of keys and values in 8 bits that a checkpoint holds.
#pragma once

#include <vector>

#include "core/result.h"
#include "io/safetensors.h"
#include "model/spec.h"

namespace baton {

/// One scale for each layer, as KvShape has them; both are empty where the checkpoint has none. A layer without one has 1.
struct KvScales {
  std::vector<float> keys;
  std::vector<float> values;
};

/// Reads NVIDIA's names (`k_proj.k_scale`, `v_proj.v_scale`), compressed-tensors' (`self_attn.k_scale`, `self_attn.v_scale`) and its
/// older ones (`k_proj.output_scale`, `v_proj.output_scale`). Errors name the tensor: unsupported (more than one number, as a scale
/// for each head is; another type), invalid_data (a scale that is not finite and above 0).
Result<KvScales> read_kv_scales(const ModelSpec& spec, const Checkpoint& checkpoint);

/// Whether `name` ends as one of these.
bool is_kv_scale(std::string_view name);

}  // namespace baton
