/// `response_format`, `structured_outputs` and their older names: what a request's answers must keep to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "grammar/grammar.h"
#include "io/json.h"

namespace baton {

/// A grammar as a request brings it, and the field that it came from.
struct StructuredOutput {
  grammar::GrammarSource source;
  std::string field;  ///< "response_format.json_schema.schema"
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

}  // namespace baton
