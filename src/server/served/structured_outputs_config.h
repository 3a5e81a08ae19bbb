/// `--structured-outputs-config`: what a server lets grammars do and take.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/result.h"
#include "grammar/grammar_cache.h"
#include "io/json.h"

namespace baton {

struct StructuredOutputsConfig {
  grammar::JsonSpaces spaces = grammar::JsonSpaces::readable;  ///< of JSON, unless a request forbids them
  std::size_t max_grammar_bytes = grammar::GrammarLimits{}.max_text_bytes;
  std::size_t max_states = grammar::GrammarLimits{}.max_states;
  std::size_t cache_bytes = 0;  ///< 0: a quarter of what clients may take
};

/// Reads vLLM's object, of which {"backend": "auto", "disable_any_whitespace": false} mean something here, and Baton's
/// keys `cache_bytes`, `max_grammar_bytes` and `max_states`. Errors (invalid_request, of the field `key`): a key that is
/// not of these unless it has its neutral value, a wrong type, a value out of range.
Result<StructuredOutputsConfig> parse_structured_outputs_config(const json::Value& config, std::string_view key);

/// The options of the cache; `client_bytes` is --client-memory-bytes.
grammar::GrammarCache::Options cache_options(const StructuredOutputsConfig& config, std::int64_t client_bytes);

}  // namespace baton
