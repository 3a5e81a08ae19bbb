/// Fuzzes the reader of config.json: any text gives an error, or numbers inside the limits that the rest of the program
/// relies on.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "model/config.h"
#include "model/rope.h"
#include "model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto spec = baton::parse_model_spec(text, "the input");
  if (!spec) return 0;
  baton::check(spec->n_parameters() > 0, "a size that overflows");
  for (const baton::LayerSpec& layer : spec->layers)
    baton::check(layer.attention.n_heads % layer.attention.n_kv_heads == 0, "heads that do not divide");
  for (const baton::RopeSpec& rope : spec->ropes)
    for (const std::int64_t n_positions : {std::int64_t{1}, std::int64_t{spec->max_position}})
      for (const float frequency : baton::rope_frequencies(rope, n_positions))
        baton::check(std::isfinite(frequency) && frequency >= 0, "a frequency that is not a number");
  for (const baton::ExpectedTensor& tensor : baton::expected_tensors(*spec))
    baton::check(tensor.shape.n_elements() > 0, "a tensor without elements");
  return 0;
}
