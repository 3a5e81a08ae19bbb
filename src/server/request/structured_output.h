/// `response_format`, `structured_outputs` and their older names: what a request's answers must keep to.
/// `--structured-outputs-config`: what a server lets grammars do and take.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "grammar/grammar.h"
#include "grammar/grammar_cache.h"
#include "io/json.h"

namespace baton {

/// A grammar as a request brings it, and the field that it came from.
struct StructuredOutput {
  grammar::GrammarSource source;
  std::string field;       ///< "response_format.json_schema.schema"
  bool is_answer = false;  ///< `source` is of whole answers (MessageFormat::grammar); otherwise of content
  /// Where answers may be calls of tools too: what the request says of their content, which `source` is a part of.
  std::shared_ptr<const StructuredOutput> content = nullptr;
};

/// The grammar of a request's body (an object), or nullopt if its answers are free. Read are `response_format`,
/// vLLM's `structured_outputs` and its older `guided_*`, and llama.cpp's `json_schema` and `grammar`. `spaces`: of JSON,
/// unless the request forbids them. Errors (invalid_request) name the field: a wrong type, a missing or unknown key,
/// more than one grammar.
Result<std::optional<StructuredOutput>> parse_structured_output(const json::Value& body, grammar::JsonSpaces spaces);

/// The grammar of a schema in the field `field`: an object, true or false, or the text of one. Equal schemas have equal
/// texts, whatever spaces they were written with.
Result<StructuredOutput> schema_output(const json::Value& schema, std::string field, grammar::JsonSpaces spaces);

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
