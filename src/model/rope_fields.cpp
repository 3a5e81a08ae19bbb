/// The fields of rope_fields.h.
#include "model/rope_fields.h"

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/config_fields.h"

namespace baton::fields {
namespace {

using json::Value;
using ScalingKind = RopeScaling::Kind;

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

/// The weight of the logarithm that scales queries: RopeSpec::query_beta.
constexpr std::string_view kQueryBeta = "llama_4_scaling_beta";

/// Fields that only other architectures compute with. A model that has one is not the model its name says.
constexpr auto kForeignKeys = std::to_array<std::string_view>(
    {kQueryBeta, "mrope_section", "mrope_interleaved", "short_mscale", "long_mscale", "attn_factor", "extrapolation_factor"});

/// The field `key` of `config`, an object; null where it is absent or null.
Result<const Value*> optional_object(const Value& config, std::string_view key) {
  const Value* found = json::find(config, key);
  if (found == nullptr || found->is_null()) return nullptr;
  if (!found->is_object()) return json::wrong_type(key, "an object", *found);
  return found;
}

/// `rope_type`, in Transformers' older spelling `type`; "default" where neither is there.
Result<std::string> type_of(const Value& parameters) {
  for (const std::string_view key : {"rope_type", "type"}) {
    BATON_TRY(auto type, json::get_optional<std::string>(parameters, key));
    if (type) return std::move(*type);
  }
  return std::string("default");
}

Result<ScalingKind> kind_of(const Value& parameters, const RopeContext& context) {
  BATON_TRY(const std::string type, type_of(parameters));
  if (type == "default") return ScalingKind::none;
  if (type == "linear") return ScalingKind::linear;
  if (type == "dynamic") return ScalingKind::dynamic;
  if (type == "llama3") return ScalingKind::llama3;
  if (type == "yarn") return context.yarn_is_longrope ? ScalingKind::longrope : ScalingKind::yarn;
  if (type == "longrope" || type == "su") return ScalingKind::longrope;
  return unsupported("rope_type", type, R"("default", "linear", "dynamic", "llama3", "yarn" or "longrope")");
}

/// A number above 0; nullopt where the field is absent or null.
Result<std::optional<double>> positive(const Value& parameters, std::string_view key) {
  BATON_TRY(const auto found, json::get_optional<double>(parameters, key));
  if (found && !(*found > 0 && *found <= kMaxFactor))
    return bad_value(key, "'{}' must be above 0 and at most {}, not {}", key, kMaxFactor, *found);
  return found;
}

Result<double> factor_of(const Value& parameters) {
  if (json::find(parameters, "factor") == nullptr) return json::missing("factor");
  return optional_number(parameters, "factor", 1, kMaxFactor, 1);
}

/// How many times longer contexts become: `factor`, or the ratio of the two lengths.
Result<double> factor_or_ratio(const Value& parameters, const RopeContext& context, const RopeScaling& scaling) {
  const Value* factor = json::find(parameters, "factor");
  if (factor != nullptr && !factor->is_null()) return factor_of(parameters);
  return static_cast<double>(context.max_position) / scaling.original_max_position;
}

Result<void> read_llama3(const Value& parameters, RopeScaling& scaling) {
  BATON_TRY(scaling.low_freq_factor, optional_number(parameters, "low_freq_factor", 1e-6, kMaxFactor, scaling.low_freq_factor));
  BATON_TRY(scaling.high_freq_factor,
            optional_number(parameters, "high_freq_factor", 1e-6, kMaxFactor, scaling.high_freq_factor));
  if (scaling.high_freq_factor >= scaling.low_freq_factor) return {};
  return bad_value("high_freq_factor", "'high_freq_factor' must be at least 'low_freq_factor', but they are {} and {}",
                   scaling.high_freq_factor, scaling.low_freq_factor);
}

/// YaRN's attention factor for contexts `factor` times longer (arXiv:2309.00071, equation 22), with the weight that
/// DeepSeek gives its logarithm.
double yarn_attention_factor(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1; }

Result<void> read_yarn(const Value& parameters, const RopeSpec& spec, RopeScaling& scaling) {
  if (spec.theta <= 1) return bad_value("rope_theta", "'rope_theta' must be above 1, not {}", spec.theta);
  const auto read_beta = [&](std::string_view key, double& beta) -> Result<void> {
    BATON_TRY(const auto found, json::get_optional<double>(parameters, key));
    if (!found || *found == 0) return {};  // 0 is the default in Transformers
    BATON_TRY(beta, optional_number(parameters, key, 1e-6, kMaxFactor, beta));
    return {};
  };
  BATON_TRY_VOID(read_beta("beta_fast", scaling.beta_fast));
  BATON_TRY_VOID(read_beta("beta_slow", scaling.beta_slow));
  if (scaling.beta_fast < scaling.beta_slow)
    return bad_value("beta_fast", "'beta_fast' must be at least 'beta_slow', but they are {} and {}", scaling.beta_fast,
                     scaling.beta_slow);
  BATON_TRY(const auto truncate, json::get_optional<bool>(parameters, "truncate"));
  scaling.truncate = truncate.value_or(true);
  BATON_TRY(const double mscale, optional_number(parameters, "mscale", 0, kMaxFactor, 0));
  BATON_TRY(const double mscale_all_dim, optional_number(parameters, "mscale_all_dim", 0, kMaxFactor, 0));
  if (mscale_all_dim != 0) scaling.score_factor = std::pow(yarn_attention_factor(scaling.factor, mscale_all_dim), 2);
  BATON_TRY(const auto attention_factor, positive(parameters, "attention_factor"));
  if (attention_factor) {
    scaling.attention_factor = *attention_factor;
  } else if (mscale != 0 && mscale_all_dim != 0) {
    scaling.attention_factor =
        yarn_attention_factor(scaling.factor, mscale) / yarn_attention_factor(scaling.factor, mscale_all_dim);
  } else {
    scaling.attention_factor = yarn_attention_factor(scaling.factor, 1);
  }
  return {};
}

/// A divisor for each pair of rotated elements.
Result<std::vector<double>> divisors(const Value& parameters, std::string_view key, std::int32_t rotary_dim) {
  BATON_TRY(auto found, json::get<std::vector<double>>(parameters, key));
  if (found.size() != static_cast<std::size_t>(rotary_dim / 2))
    return bad_value(key, "'{}' must hold {} numbers, one for two rotated elements of a head, not {}", key, rotary_dim / 2,
                     found.size());
  for (const double divisor : found)
    if (!(divisor >= 1e-6 && divisor <= kMaxFactor))
      return bad_value(key, "'{}' must hold numbers from 1e-06 to {}, not {}", key, kMaxFactor, divisor);
  return found;
}

Result<void> read_longrope(const Value& parameters, const RopeSpec& spec, RopeScaling& scaling) {
  if (scaling.original_max_position < 2)
    return bad_value("original_max_position_embeddings", "'original_max_position_embeddings' must be at least 2, not {}",
                     scaling.original_max_position);
  BATON_TRY(scaling.short_factors, divisors(parameters, "short_factor", spec.rotary_dim));
  BATON_TRY(scaling.long_factors, divisors(parameters, "long_factor", spec.rotary_dim));
  BATON_TRY(const auto attention_factor, positive(parameters, "attention_factor"));
  if (attention_factor) {
    scaling.attention_factor = *attention_factor;
  } else if (scaling.factor > 1) {  // arXiv:2402.13753, section 4.2
    scaling.attention_factor = std::sqrt(1 + std::log(scaling.factor) / std::log(scaling.original_max_position));
  }
  return {};
}

Result<RopeScaling> read_scaling(const Value& parameters, const RopeContext& context, const RopeSpec& spec) {
  RopeScaling scaling;
  BATON_TRY(scaling.kind, kind_of(parameters, context));
  for (const std::string_view key : kForeignKeys) {
    if (key == kQueryBeta && context.scales_queries) continue;
    if (key.starts_with("mrope_") && context.ignores_sections) continue;
    BATON_TRY_VOID(expect_null(parameters, key));
  }
  if (scaling.kind == ScalingKind::none) return scaling;
  if (scaling.kind == ScalingKind::linear || scaling.kind == ScalingKind::dynamic) {
    BATON_TRY(scaling.factor, factor_of(parameters));
    if (scaling.kind == ScalingKind::linear) return scaling;
    if (spec.rotary_dim < 4) return unsupported("rope_type", "dynamic", "\"default\" where two elements of a head are rotated");
    scaling.original_max_position = context.max_position;
    return scaling;
  }
  BATON_TRY(scaling.original_max_position,
            optional_size(parameters, "original_max_position_embeddings", kMaxPositions, context.max_position));
  if (context.original_max_position > 0) scaling.original_max_position = context.original_max_position;
  if (scaling.kind == ScalingKind::llama3) {
    BATON_TRY(scaling.factor, factor_of(parameters));
    BATON_TRY_VOID(read_llama3(parameters, scaling));
    return scaling;
  }
  BATON_TRY(scaling.factor, factor_or_ratio(parameters, context, scaling));
  if (scaling.kind == ScalingKind::yarn) {
    BATON_TRY_VOID(read_yarn(parameters, spec, scaling));
  } else {
    BATON_TRY_VOID(read_longrope(parameters, spec, scaling));
  }
  return scaling;
}

}  // namespace

Result<RopeSpec> read_rope_parameters(const Value* parameters, const RopeContext& context) {
  const Value none = Value::object();
  const Value& object = parameters == nullptr ? none : *parameters;
  for (const std::string_view type : {"full_attention", "sliding_attention"})
    if (json::find(object, type) != nullptr)
      return unsupported("rope_parameters", object, "one rotation of all layers for this architecture");
  RopeSpec spec;
  BATON_TRY(spec.theta, optional_number(object, "rope_theta", 1, kMaxTheta, context.theta));
  BATON_TRY(const double share, optional_number(object, "partial_rotary_factor", 0, 1, context.rotary_factor));
  if (share != 1 && !context.allows_partial) return unsupported("partial_rotary_factor", share, "1");
  spec.rotary_dim = static_cast<std::int32_t>(context.head_dim * share);  // rounded down, as in Transformers
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0)
    return bad_value("partial_rotary_factor",
                     "'partial_rotary_factor' must leave an even number of a head's {} elements, not {}", context.head_dim,
                     spec.rotary_dim);
  BATON_TRY(spec.scaling, read_scaling(object, context, spec));
  if (context.scales_queries) {
    BATON_TRY(const auto beta, json::get<double>(object, kQueryBeta));
    BATON_TRY(spec.query_beta, optional_number(object, kQueryBeta, 0, kMaxFactor, beta));
    BATON_TRY(spec.query_length, required_size(object, "original_max_position_embeddings", kMaxPositions));
  }
  return spec;
}

Result<RopeSpec> read_rope(const Value& config, const RopeContext& context) {
  RopeContext with_own = context;
  BATON_TRY(with_own.theta, optional_number(config, "rope_theta", 1, kMaxTheta, context.theta));
  BATON_TRY(with_own.rotary_factor, optional_number(config, "partial_rotary_factor", 0, 1, context.rotary_factor));
  if (const Value* own = json::find(config, "original_max_position_embeddings"); own != nullptr && !own->is_null()) {
    BATON_TRY(with_own.original_max_position, required_size(config, "original_max_position_embeddings", kMaxPositions));
  }
  BATON_TRY(const Value* parameters, optional_object(config, "rope_scaling"));
  if (parameters == nullptr) {
    BATON_TRY(parameters, optional_object(config, "rope_parameters"));
  }
  return read_rope_parameters(parameters, with_own);
}

}  // namespace baton::fields
