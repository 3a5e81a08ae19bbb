/// Reads and checks a model's config.json and generation_config.json, field by field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "model/families/families.h"
#include "model/spec.h"

namespace baton {

/// Default sampling parameters that a model ships; nullopt where its file sets none.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int32_t> top_k;  ///< 0 and -1: off
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;    ///< above 0
  std::optional<std::int32_t> max_new_tokens;  ///< at least 1
  std::vector<TokenId> eos_token_ids;          ///< in addition to ModelSpec's; each >= 0
};

/// Reads FOLDER/config.json with the family that it names. Unknown fields are ignored. Errors begin with the file's
/// name: not_found, invalid_data (missing, wrong type, out of range), unsupported (an architecture outside `families`,
/// or a value that would change the arithmetic in a way that Baton does not compute).
Result<ModelSpec> read_model_spec(const std::filesystem::path& folder, std::span<const Family> families = shipped_families());
/// The same from the text of a config.json. Errors call it `what`.
Result<ModelSpec> parse_model_spec(std::string_view text, std::string_view what,
                                   std::span<const Family> families = shipped_families());

/// Reads FOLDER/generation_config.json. If there is no such file, nothing is set.
Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder);
Result<GenerationConfig> parse_generation_config(std::string_view text, std::string_view what);

}  // namespace baton
