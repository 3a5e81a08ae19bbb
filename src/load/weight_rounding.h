/// What `--quantization` means for a model: nothing new for a checkpoint that is quantised so, or weights that are rounded at load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "load/model_options.h"
#include "model/quantization.h"
#include "model/source/rounding.h"
#include "model/spec.h"

namespace baton {

/// `options.quantization` and `options.quantize_lm_head` beside what the checkpoint's configuration states. Errors (invalid_request)
/// name both: another method than the checkpoint's; one that only checkpoints have, where the checkpoint is dense; an output layer
/// that nothing rounds.
Result<WeightRounding> rounding_of(const ModelOptions& options, const QuantizationSpec& stated);

/// What says how a model's weights are quantised, beside its config.json.
struct QuantizationText {
  std::vector<std::pair<std::string, std::string>> files;  ///< of quantization_files(), the ones that are there: name, contents
  std::string rounding;                                    ///< what weights are rounded to at load; empty: they are not
  std::string activations;                                 ///< of ModelOptions::activation_dtype; empty: "auto"

  /// All of it, for checksums.
  std::string whole() const;
};

/// Reads it of the model in `folder`. Errors: those of reading the files and of rounding_of.
Result<QuantizationText> quantization_text(const std::filesystem::path& folder, const ModelOptions& options);

/// How many matrices have a scale for so many columns of a row; 0: for the row.
using ScaleCounts = std::map<std::int64_t, std::int64_t>;

/// "one for each row", or, of int4, "one for 128 columns (24 matrices), one for the row (4 matrices)".
std::string scales_text(const WeightRounding& rounding, const ScaleCounts& counts);

/// One log line: the scheme, its scales and the matrices that stay in 16 bits. Nothing where weights stay as they are.
void log_rounding(const WeightRounding& rounding, const ModelSpec& spec);

}  // namespace baton
