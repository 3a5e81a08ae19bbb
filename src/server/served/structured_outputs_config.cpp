/// The keys of a structured-outputs configuration.
#include "server/served/structured_outputs_config.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

using json::Value;

// A cache below this would hold no schema of 10 KB.
constexpr std::int64_t kLeastCacheBytes = std::int64_t{1} << 20;

/// A key of vLLM's that has one accepted value beside null.
struct NeutralKey {
  std::string_view name;
  Value accepted;
};

tl::unexpected<Error> refuse(std::string_view key, const std::string& message) {
  return fail(ErrorCode::invalid_request, fmt::format("'{}': {}", key, message), std::string(key));
}

/// The integer `name` of the object, if it is there.
Result<void> read_size(const Value& config, std::string_view key, std::string_view name, std::int64_t least, std::int64_t most,
                       std::size_t& size) {
  const Value* value = json::find(config, name);
  if (value == nullptr || value->is_null()) return {};
  const auto number = json::to_int64(*value, name, least, most);
  if (!number) return refuse(key, number.error().message);
  size = static_cast<std::size_t>(*number);
  return {};
}

}  // namespace

Result<StructuredOutputsConfig> parse_structured_outputs_config(const Value& config, std::string_view key) {
  const NeutralKey neutral[] = {{"backend", "auto"},
                                {"disable_fallback", true},
                                {"disable_additional_properties", false},
                                {"enable_in_reasoning", false},
                                {"reasoning_parser", ""}};
  constexpr std::string_view kRead[] = {"disable_any_whitespace", "cache_bytes", "max_grammar_bytes", "max_states"};
  if (!config.is_object()) return json::wrong_type(key, "an object", config);
  for (const auto& [name, value] : config.get_ref<const Value::object_t&>()) {
    if (value.is_null() || std::ranges::find(kRead, name) != std::end(kRead)) continue;
    const auto* known = std::ranges::find(neutral, name, &NeutralKey::name);
    if (known == std::end(neutral))
      return refuse(key,
                    fmt::format("'{}' is not known to this server; it reads {}", name.substr(0, 64), fmt::join(kRead, ", ")));
    if (value != known->accepted)
      return refuse(key, fmt::format("'{}' is not supported by this server; the value accepted is {}", name,
                                     json::dump(known->accepted)));
  }
  StructuredOutputsConfig read;
  const auto no_spaces = json::get_optional<bool>(config, kRead[0]);
  if (!no_spaces) return refuse(key, no_spaces.error().message);
  if (no_spaces->value_or(false)) read.spaces = grammar::JsonSpaces::none;
  BATON_TRY_VOID(read_size(config, key, "cache_bytes", kLeastCacheBytes, std::int64_t{1} << 40, read.cache_bytes));
  BATON_TRY_VOID(read_size(config, key, "max_grammar_bytes", 1, std::int64_t{1} << 30, read.max_grammar_bytes));
  BATON_TRY_VOID(read_size(config, key, "max_states", 1, std::int64_t{1} << 30, read.max_states));
  return read;
}

grammar::GrammarCache::Options cache_options(const StructuredOutputsConfig& config, std::int64_t client_bytes) {
  grammar::GrammarCache::Options options;
  options.max_bytes = config.cache_bytes > 0 ? config.cache_bytes : static_cast<std::size_t>(client_bytes / 4);
  options.grammar.max_text_bytes = config.max_grammar_bytes;
  options.grammar.max_states = config.max_states;
  options.grammar.work.bytes = std::min<std::int64_t>(options.grammar.work.bytes, static_cast<std::int64_t>(options.max_bytes));
  // One matcher alone leaves room for others.
  for (std::size_t* bytes : {&options.matcher.table_bytes, &options.matcher.local_bytes, &options.matcher.mask_bytes})
    *bytes = std::min(*bytes, options.max_bytes / 4);
  return options;
}

}  // namespace baton
