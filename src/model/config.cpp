/// Reads config.json and generation_config.json.
#include "model/config.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "io/file.h"
#include "io/json.h"
#include "model/config_fields.h"
#include "model/rope.h"

namespace baton {
namespace {

using json::Value;

/// A number that has a float32 neither infinite nor 0 unless it is 0: sampling computes in float32.
Result<std::optional<double>> sampling_number(const Value& root, std::string_view key) {
  BATON_TRY(const auto number, json::get_optional<double>(root, key));
  using Limits = std::numeric_limits<float>;
  if (number && *number != 0 && !(std::abs(*number) >= Limits::min() && std::abs(*number) <= Limits::max()))
    return fields::bad_value(key, "'{}' must be a number that float32 holds, not {}", key, *number);
  return number;
}

Result<GenerationConfig> read_generation_fields(const Value& root) {
  GenerationConfig config;
  BATON_TRY(config.do_sample, json::get_optional<bool>(root, "do_sample"));
  BATON_TRY(config.temperature, sampling_number(root, "temperature"));
  BATON_TRY(config.top_p, sampling_number(root, "top_p"));
  BATON_TRY(config.top_k, json::get_optional<std::int32_t>(root, "top_k"));
  BATON_TRY(config.min_p, sampling_number(root, "min_p"));
  BATON_TRY(config.repetition_penalty, sampling_number(root, "repetition_penalty"));
  BATON_TRY(config.max_new_tokens, json::get_optional<std::int32_t>(root, "max_new_tokens"));
  if (config.temperature && *config.temperature < 0)
    return fields::bad_value("temperature", "'temperature' must be at least 0, not {}", *config.temperature);
  if (config.top_p && !(*config.top_p > 0 && *config.top_p <= 1))
    return fields::bad_value("top_p", "'top_p' must be above 0 and at most 1, not {}", *config.top_p);
  if (config.top_k && *config.top_k < -1)
    return fields::bad_value("top_k", "'top_k' must be at least -1, not {}", *config.top_k);
  if (config.min_p && !(*config.min_p >= 0 && *config.min_p <= 1))
    return fields::bad_value("min_p", "'min_p' must be from 0 to 1, not {}", *config.min_p);
  if (config.repetition_penalty && !(*config.repetition_penalty > 0))
    return fields::bad_value("repetition_penalty", "'repetition_penalty' must be above 0, not {}", *config.repetition_penalty);
  if (config.max_new_tokens && *config.max_new_tokens < 1)
    return fields::bad_value("max_new_tokens", "'max_new_tokens' must be at least 1, not {}", *config.max_new_tokens);
  BATON_TRY(config.eos_token_ids, fields::token_ids(root, "eos_token_id", fields::kMaxVocab));
  return config;
}

/// Parses `text` and reads it with `read`. Prefixes errors with the file's name.
template <class Read>
auto read_object(std::string_view text, std::string_view what, Read read) -> decltype(read(std::declval<const Value&>())) {
  auto root = json::parse_of_python(text, what);
  if (!root) return fail(ErrorCode::invalid_data, std::move(root.error().message));
  if (!root->is_object())
    return fail(ErrorCode::invalid_data, fmt::format("{} must hold an object, not {}", what, json::describe_type(*root)));
  auto config = read(*root);
  if (config) return config;
  Error error = std::move(config.error());
  error.message = fmt::format("{}: {}", what, error.message);
  if (error.code == ErrorCode::invalid_request) error.code = ErrorCode::invalid_data;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Result<ModelSpec> parse_model_spec(std::string_view text, std::string_view what, std::span<const Family> families) {
  return read_object(text, what, [families](const Value& root) -> Result<ModelSpec> {
    BATON_TRY(const Family* const family, find_family(families, root));
    BATON_TRY(ModelSpec spec, family->read(root));
    spec.family = family->name;
    BATON_TRY(spec.quantization, read_model_quantization(root));
    for (const RopeSpec& rope : spec.ropes) spec.max_position = scaled_max_position(rope, spec.max_position);
    for (LayerSpec& layer : spec.layers)  // a window that no context exceeds would only cost a layer group
      if (layer.attention.window >= spec.max_position) {
        layer.attention.window = 0;
        layer.attention.is_chunked = false;
      }
    group_layers(spec);
    return spec;
  });
}

Result<ModelSpec> read_model_spec(const std::filesystem::path& folder, std::span<const Family> families) {
  const std::filesystem::path path = folder / "config.json";
  BATON_TRY(const std::string text, read_file(path));
  BATON_TRY(ModelSpec spec, parse_model_spec(text, path.string(), families));
  if (spec.quantization.method.empty()) {
    BATON_TRY(spec.quantization, read_quantization_file(folder));
  }
  return spec;
}

Result<GenerationConfig> parse_generation_config(std::string_view text, std::string_view what) {
  return read_object(text, what, read_generation_fields);
}

Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  const auto text = read_file(path);
  if (!text && text.error().code == ErrorCode::not_found) return GenerationConfig{};
  if (!text) return tl::unexpected<Error>(text.error());
  return parse_generation_config(*text, path.string());
}

}  // namespace baton
