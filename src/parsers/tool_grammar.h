/// The grammar of an answer that calls tools or reasons first.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "grammar/grammar.h"
#include "io/json.h"
#include "parsers/message_format.h"
#include "parsers/reasoning_parser.h"
#include "parsers/tool_formats.h"

namespace baton::parsers {

/// MessageFormat::grammar for a format and a list of tools that is not empty. `may_reason`: reasoning may stand in front,
/// so a demanded call, or content that keeps to a grammar, may follow up to two line ends.
Result<std::optional<grammar::GrammarSource>> tool_grammar(const ToolFormat& format, const AnswerDemand& demand,
                                                           bool may_reason);

/// A format of a structural tag: the formats in an array, one after the other.
json::Value sequence_of(json::Value elements);

/// Tags of the calls that an answer may have. Errors (invalid_request): a name that is not a tool's or that the format cannot write.
Result<json::Value> possible_calls(const ToolFormat& format, const AnswerDemand& demand);

/// MessageFormat::behind_reasoning for these markers.
Result<grammar::GrammarSource> grammar_behind_reasoning(const ReasoningMarkers& markers, const grammar::GrammarSource& source,
                                                        bool begins_in_reasoning, std::span<const std::string> special_tokens);

/// The texts of a grammar, as a format of a structural tag. Its literal texts hold no special tokens of the tag around it.
/// Errors: invalid_request for a text that must be JSON and is none.
Result<json::Value> format_of(const grammar::GrammarSource& source);

}  // namespace baton::parsers
