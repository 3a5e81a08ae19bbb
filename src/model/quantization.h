/// What a config.json states about how the matrices of a checkpoint are quantised.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "kernels/stored_matrix.h"

namespace baton {

/// The weights that share a scale.
enum class ScaleKind : std::uint8_t { tensor, row, group, block };

/// The scheme of some matrices of a checkpoint.
struct SchemeStatement {
  WeightScheme scheme = WeightScheme::dense;
  ScaleKind scales = ScaleKind::row;
  std::int64_t rows = 1;     ///< of a block
  std::int64_t columns = 0;  ///< of a block or a group
  bool is_symmetric = true;  ///< no zeros, or zeros that say nothing
  bool operator==(const SchemeStatement&) const = default;
};

/// "int4 with a scale for 128 columns of a row".
std::string to_string(const SchemeStatement& statement);

struct QuantizationSpec {
  std::string method = {};                       ///< as the file calls it; empty: nothing is stated
  std::vector<SchemeStatement> statements = {};  ///< a matrix that is not dense is stored as one of them says
  bool adds_one_to_zeros = false;                ///< GPTQ's first format: zeros are stored less one
  bool has_f8_activations = false;    ///< beside all weights in f8: 8-bit floats with a scale for the row or the tensor
  bool has_int8_activations = false;  ///< beside all weights in integers: 8-bit integers, each row rounded by its largest
};

/// Reads `quantization_config`, or `compression_config` of older files, of a config.json. Other activations than these two
/// kinds stay in 16 or 32 bits, which loses nothing. Errors (unsupported) name the
/// method, the format or the field, and what is read instead; invalid_data.
Result<QuantizationSpec> read_quantization(const json::Value& config);

/// The same of a whole model's config.json, which may state it for its text model (`text_config`) alone.
Result<QuantizationSpec> read_model_quantization(const json::Value& config);

/// Names of files beside a config.json that state it where the config.json does not: NVIDIA's, and those of older AutoGPTQ and
/// AutoAWQ.
std::span<const std::string_view> quantization_files();

/// What the first of these files in `folder` states; nothing if there is none. Errors: those above, with the file's path.
Result<QuantizationSpec> read_quantization_file(const std::filesystem::path& folder);

}  // namespace baton
