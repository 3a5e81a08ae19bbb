/// Field by field from JSON to ModelConfig. Defaults are those of Transformers' LlamaConfig.
#include "model/config.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/file.h"
#include "io/json.h"
#include "model/architectures.h"

namespace baton {
namespace {

using json::Value;

/// Larger sizes are taken for damage: no model is near them, and their products stay inside 63 bits.
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 17;  // d_model, n_heads * head_dim
constexpr std::int64_t kMaxFeedForward = 1 << 20;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxVocab = 1 << 22;
constexpr std::int64_t kMaxPositions = 1 << 24;

tl::unexpected<Error> bad_value(std::string_view key, std::string message) {
  return fail(ErrorCode::invalid_data, std::move(message), std::string(key));
}

tl::unexpected<Error> unsupported(std::string_view key, const Value& value, std::string_view supported) {
  std::string found = json::dump(value);
  if (found.size() > 80) found = found.substr(0, 80) + "...";
  return fail(ErrorCode::unsupported, fmt::format("'{}' is {}, which is not supported; supported is {}", key, found, supported),
              std::string(key));
}

/// A size from 1 to `most`; `fallback` where the field is absent or null.
Result<std::int32_t> optional_size(const Value& root, std::string_view key, std::int64_t most, std::int64_t fallback) {
  BATON_TRY(const auto found, json::get_optional<std::int64_t>(root, key));
  const std::int64_t size = found.value_or(fallback);
  if (size < 1 || size > most) return bad_value(key, fmt::format("'{}' must be from 1 to {}, not {}", key, most, size));
  return static_cast<std::int32_t>(size);
}

Result<std::int32_t> required_size(const Value& root, std::string_view key, std::int64_t most) {
  if (json::find(root, key) == nullptr) return json::missing(key);
  BATON_TRY(const auto present, json::get<std::int64_t>(root, key));
  return optional_size(root, key, most, present);
}

/// A number in [least, most]; `fallback` where the field is absent or null.
Result<double> optional_number(const Value& root, std::string_view key, double least, double most, double fallback) {
  BATON_TRY(const auto found, json::get_optional<double>(root, key));
  const double number = found.value_or(fallback);
  if (!(number >= least && number <= most))
    return bad_value(key, fmt::format("'{}' must be from {} to {}, not {}", key, least, most, number));
  return number;
}

/// Token ids that may be written as one number, a list or null; each in [0, n_vocab).
Result<std::vector<TokenId>> token_ids(const Value& root, std::string_view key, std::int64_t n_vocab) {
  const Value* value = json::find(root, key);
  std::vector<TokenId> ids;
  if (value == nullptr || value->is_null()) return ids;
  if (value->is_array()) {
    BATON_TRY(ids, json::convert<std::vector<TokenId>>(*value, key));
  } else {
    BATON_TRY(const TokenId id, json::convert<TokenId>(*value, key));
    ids.push_back(id);
  }
  for (const TokenId id : ids)
    if (id < 0 || id >= n_vocab)
      return bad_value(key, fmt::format("'{}' must be token ids from 0 to {}, not {}", key, n_vocab - 1, id));
  return ids;
}

Result<std::string> read_architecture(const Value& root) {
  BATON_TRY(const auto names, json::get_optional<std::vector<std::string>>(root, "architectures"));
  if (names && !names->empty()) {
    BATON_TRY(const Architecture* row, find_architecture(names->front()));
    return std::string(row->name);
  }
  BATON_TRY(const auto model_type, json::get<std::string>(root, "model_type"));
  for (const Architecture& row : known_architectures())
    if (row.model_type == model_type) return std::string(row.name);
  BATON_TRY(const Architecture* row, find_architecture(model_type));
  return std::string(row->name);
}

/// Fields that change the arithmetic when they are not neutral, and that no row of the table computes.
Result<void> refuse_unsupported(const Value& root, const Architecture& architecture) {
  BATON_TRY(const auto activation, json::get_optional<std::string>(root, "hidden_act"));
  if (activation && *activation != architecture.activation)
    return unsupported("hidden_act", *activation, fmt::format("\"{}\"", architecture.activation));
  struct Neutral {
    std::string_view key;
    Value value;
  };
  const std::array<Neutral, 6> neutral = {{{"attention_bias", false},
                                           {"mlp_bias", false},
                                           {"pretraining_tp", 1},
                                           {"partial_rotary_factor", 1.0},
                                           {"is_encoder_decoder", false},
                                           {"add_cross_attention", false}}};
  for (const auto& [key, expected] : neutral) {
    const Value* found = json::find(root, key);
    if (found != nullptr && !found->is_null() && *found != expected) return unsupported(key, *found, json::dump(expected));
  }
  for (const std::string_view key : {"quantization_config", "sliding_window"}) {
    const Value* found = json::find(root, key);
    if (found != nullptr && !found->is_null()) return unsupported(key, *found, "null");
  }
  return {};
}

/// Theta and scaling: `rope_theta` with `rope_scaling` (Transformers 4) or both inside `rope_parameters` (Transformers 5).
Result<void> read_rope(const Value& root, ModelConfig& config) {
  constexpr double kMaxTheta = 1e12;
  BATON_TRY(config.rope_theta, optional_number(root, "rope_theta", 1, kMaxTheta, config.rope_theta));
  const Value* rope = json::find(root, "rope_scaling");
  if (rope == nullptr || rope->is_null()) rope = json::find(root, "rope_parameters");
  if (rope == nullptr || rope->is_null()) return {};
  if (!rope->is_object()) return json::wrong_type("rope_parameters", "an object", *rope);
  BATON_TRY(config.rope_theta, optional_number(*rope, "rope_theta", 1, kMaxTheta, config.rope_theta));
  BATON_TRY(const double rotated, optional_number(*rope, "partial_rotary_factor", 0, 1, 1));
  if (rotated != 1) return unsupported("partial_rotary_factor", rotated, "1");
  BATON_TRY(auto type, json::get_optional<std::string>(*rope, "rope_type"));
  if (!type) {
    BATON_TRY(type, json::get_optional<std::string>(*rope, "type"));
  }
  if (!type || *type == "default") return {};

  RopeScaling& scaling = config.rope_scaling;
  if (*type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (*type == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
  } else {
    return unsupported("rope_type", *type, "\"default\", \"linear\" or \"llama3\"");
  }
  if (json::find(*rope, "factor") == nullptr) return json::missing("factor");
  BATON_TRY(scaling.factor, optional_number(*rope, "factor", 1, 1e6, 1));
  if (scaling.kind == RopeScaling::Kind::linear) return {};
  BATON_TRY(scaling.low_freq_factor, optional_number(*rope, "low_freq_factor", 1e-6, 1e6, scaling.low_freq_factor));
  BATON_TRY(scaling.high_freq_factor, optional_number(*rope, "high_freq_factor", 1e-6, 1e6, scaling.high_freq_factor));
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    return bad_value("high_freq_factor",
                     fmt::format("'high_freq_factor' must be larger than 'low_freq_factor', but they are {} and {}",
                                 scaling.high_freq_factor, scaling.low_freq_factor));
  BATON_TRY(scaling.original_max_position,
            optional_size(*rope, "original_max_position_embeddings", kMaxPositions, config.max_position));
  return {};
}

Result<void> read_heads(const Value& root, ModelConfig& config) {
  BATON_TRY(config.n_heads, required_size(root, "num_attention_heads", kMaxHeads));
  BATON_TRY(config.n_kv_heads, optional_size(root, "num_key_value_heads", kMaxHeads, config.n_heads));
  if (config.n_heads % config.n_kv_heads != 0)
    return bad_value("num_key_value_heads",
                     fmt::format("'num_attention_heads' must be a multiple of 'num_key_value_heads', but they are {} and {}",
                                 config.n_heads, config.n_kv_heads));
  const Value* head_dim = json::find(root, "head_dim");
  if ((head_dim == nullptr || head_dim->is_null()) && config.d_model % config.n_heads != 0)
    return bad_value("hidden_size",
                     fmt::format("'hidden_size' must be a multiple of 'num_attention_heads' where there is no 'head_dim', "
                                 "but they are {} and {}",
                                 config.d_model, config.n_heads));
  BATON_TRY(config.head_dim, optional_size(root, "head_dim", kMaxHeadDim, config.d_model / config.n_heads));
  if (config.head_dim % 2 != 0) return bad_value("head_dim", fmt::format("'head_dim' must be even, not {}", config.head_dim));
  if (const std::int64_t width = std::int64_t{config.n_heads} * config.head_dim; width > kMaxWidth)
    return bad_value("num_attention_heads",
                     fmt::format("'num_attention_heads' * 'head_dim' must be at most {}, not {}", kMaxWidth, width));
  return {};
}

Result<DType> read_dtype(const Value& root) {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {  // Transformers 5, 4
    BATON_TRY(const auto name, json::get_optional<std::string>(root, key));
    if (!name) continue;
    const auto dtype = dtype_from_name(*name);
    if (!dtype || *dtype == DType::f8_e4m3) return unsupported(key, *name, "\"float32\", \"bfloat16\" or \"float16\"");
    return *dtype;
  }
  return DType::f32;
}

Result<ModelConfig> read_fields(const Value& root) {
  ModelConfig config;
  BATON_TRY(config.architecture, read_architecture(root));
  BATON_TRY(const Architecture* architecture, find_architecture(config.architecture));
  BATON_TRY_VOID(refuse_unsupported(root, *architecture));
  BATON_TRY(config.n_layers, required_size(root, "num_hidden_layers", kMaxLayers));
  BATON_TRY(config.d_model, required_size(root, "hidden_size", kMaxWidth));
  BATON_TRY(config.d_ff, required_size(root, "intermediate_size", kMaxFeedForward));
  BATON_TRY(config.n_vocab, required_size(root, "vocab_size", kMaxVocab));
  BATON_TRY_VOID(read_heads(root, config));
  BATON_TRY(config.max_position, optional_size(root, "max_position_embeddings", kMaxPositions, 2048));
  BATON_TRY(const double eps, optional_number(root, "rms_norm_eps", 1e-12, 1, 1e-6));
  config.rms_norm_eps = static_cast<float>(eps);
  BATON_TRY_VOID(read_rope(root, config));
  BATON_TRY(const auto tie, json::get_optional<bool>(root, "tie_word_embeddings"));
  config.tie_embeddings = tie.value_or(false);
  BATON_TRY(config.dtype, read_dtype(root));
  BATON_TRY(const auto bos, token_ids(root, "bos_token_id", config.n_vocab));
  if (!bos.empty()) config.bos_token_id = bos.front();
  BATON_TRY(config.eos_token_ids, token_ids(root, "eos_token_id", config.n_vocab));
  return config;
}

Result<GenerationConfig> read_generation_fields(const Value& root) {
  GenerationConfig config;
  BATON_TRY(config.do_sample, json::get_optional<bool>(root, "do_sample"));
  BATON_TRY(config.temperature, json::get_optional<double>(root, "temperature"));
  BATON_TRY(config.top_p, json::get_optional<double>(root, "top_p"));
  BATON_TRY(config.top_k, json::get_optional<std::int32_t>(root, "top_k"));
  BATON_TRY(config.repetition_penalty, json::get_optional<double>(root, "repetition_penalty"));
  if (config.temperature && *config.temperature < 0)
    return bad_value("temperature", fmt::format("'temperature' must be at least 0, not {}", *config.temperature));
  if (config.top_p && !(*config.top_p > 0 && *config.top_p <= 1))
    return bad_value("top_p", fmt::format("'top_p' must be above 0 and at most 1, not {}", *config.top_p));
  if (config.top_k && *config.top_k < -1)
    return bad_value("top_k", fmt::format("'top_k' must be at least -1, not {}", *config.top_k));
  BATON_TRY(config.eos_token_ids, token_ids(root, "eos_token_id", kMaxVocab));
  return config;
}

/// Parses `text`, reads it with `read`, and lets errors begin with the file's name.
template <class Read>
auto read_object(std::string_view text, std::string_view what, Read read) -> decltype(read(std::declval<const Value&>())) {
  auto root = json::parse(text, what);
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

std::int64_t ModelConfig::n_parameters() const {
  const std::int64_t d = d_model;
  const std::int64_t attention = 2 * d * (std::int64_t{n_heads} + n_kv_heads) * head_dim;
  const std::int64_t layer = attention + 3 * d * d_ff + 2 * d;
  return n_layers * layer + d + (tie_embeddings ? 1 : 2) * d * n_vocab;
}

Result<ModelConfig> parse_model_config(std::string_view text, std::string_view what) {
  return read_object(text, what, read_fields);
}

Result<ModelConfig> read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  BATON_TRY(const std::string text, read_file(path));
  return parse_model_config(text, path.string());
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
