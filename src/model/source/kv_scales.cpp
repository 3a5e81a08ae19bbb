/// Looks for each layer's scales under the names that the tools give them.
#include "model/source/kv_scales.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace baton {
namespace {

/// The one number of a tensor.
Result<float> read_scale(const Checkpoint& checkpoint, const std::string& name) {
  BATON_TRY(const ConstTensorView stored, checkpoint.load(name));
  const bool is_float = stored.dtype == DType::f32 || stored.dtype == DType::bf16 || stored.dtype == DType::f16;
  if (!is_float || stored.shape.n_elements() != 1)
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}' is {} {}; one float is read as the scale of a layer's keys or values", name,
                            to_string(stored.dtype), to_string(stored.shape)));
  const float scale = visit_float(stored.dtype, [&]<class T>(T) {
    T value;
    std::memcpy(&value, stored.data, sizeof(T));
    return static_cast<float>(value);
  });
  if (!std::isfinite(scale) || scale <= 0)
    return fail(ErrorCode::invalid_data, fmt::format("tensor '{}' is {}; a scale must be finite and above 0", name, scale));
  return scale;
}

/// The scales of the keys or the values: `projection` makes them, `end` is "k_scale" or "v_scale".
Result<std::vector<float>> read_side(const ModelSpec& spec, const Checkpoint& checkpoint, std::string_view projection,
                                     std::string_view end) {
  std::vector<float> scales;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const std::string stem = checkpoint_name(spec.names, projection, layer);
    const std::string parent = stem.substr(0, stem.rfind('.') + 1);
    for (const std::string& name : {fmt::format("{}.{}", stem, end), parent + std::string(end), stem + ".output_scale"}) {
      if (!checkpoint.contains(name)) continue;
      scales.resize(spec.layers.size(), 1.0f);
      BATON_TRY(scales[layer], read_scale(checkpoint, name));
      break;
    }
  }
  return scales;
}

}  // namespace

Result<KvScales> read_kv_scales(const ModelSpec& spec, const Checkpoint& checkpoint) {
  const bool is_fused = !spec.names.qkv.empty();
  KvScales scales;
  BATON_TRY(scales.keys, read_side(spec, checkpoint, is_fused ? spec.names.qkv : spec.names.k, "k_scale"));
  BATON_TRY(scales.values, read_side(spec, checkpoint, is_fused ? spec.names.qkv : spec.names.v, "v_scale"));
  return scales;
}

bool is_kv_scale(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEnds = {".k_scale", ".v_scale", ".k_proj.output_scale", ".v_proj.output_scale"};
  for (const std::string_view end : kEnds)
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace baton
