/// The keys of a speculative_config.
#include "server/request/speculative_config.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "server/request/json_fields.h"

namespace baton {

Result<SpeculationOptions> parse_speculative_config(const json::Value& config, std::string_view key) {
  constexpr std::string_view kTokens = "num_speculative_tokens";
  constexpr std::string_view kMax = "prompt_lookup_max";
  constexpr std::string_view kMin = "prompt_lookup_min";
  if (!config.is_object()) return json::wrong_type(key, "an object", config);
  const auto refuse = [&](std::string message) {
    return fail(ErrorCode::invalid_request, fmt::format("'{}': {}", key, message), std::string(key));
  };
  for (const auto& [name, value] : config.get_ref<const json::Value::object_t&>()) {
    const bool is_known = name == "method" || name == kTokens || name == kMax || name == kMin;
    if (!is_known) {
      return refuse(fmt::format("'{}' is not supported by this server; it reads method, {}, {} and {}", name.substr(0, 64),
                                kTokens, kMax, kMin));
    }
  }
  const auto named = [&](Error error) {
    error.param = std::string(key);
    error.message = fmt::format("'{}': {}", key, error.message);
    return tl::unexpected<Error>(std::move(error));
  };
  auto method = json::get_optional<std::string>(config, "method");
  if (!method) return named(std::move(method.error()));
  if (*method && **method != "ngram")
    return refuse(
        fmt::format("method '{}' is not supported by this server; the method there is 'ngram'", (*method)->substr(0, 64)));
  auto n_tokens = openai::integer_field(config, kTokens, 0, kMaxDraftTokens);
  if (!n_tokens) return named(std::move(n_tokens.error()));
  auto longest = openai::integer_field(config, kMax, 1, kMaxLookupLen);
  if (!longest) return named(std::move(longest.error()));
  auto shortest = openai::integer_field(config, kMin, 1, kMaxLookupLen);
  if (!shortest) return named(std::move(shortest.error()));

  SpeculationOptions options;
  options.n_tokens = n_tokens->value_or(kDefaultDraftTokens);
  if (*longest || *shortest) {
    options.lookup_max = *longest ? **longest : **shortest;
    options.lookup_min = *shortest ? **shortest : **longest;
  }
  if (options.lookup_min > options.lookup_max)
    return refuse(fmt::format("{} {} is over {} {}", kMin, options.lookup_min, kMax, options.lookup_max));
  return options;
}

}  // namespace baton
