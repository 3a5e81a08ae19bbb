/// The grammar of an answer after reasoning.
#pragma once

#include <span>
#include <string>

#include "core/result.h"
#include "grammar/grammar.h"
#include "parsers/reasoning_parser.h"

namespace baton::parsers {

/// MessageFormat::behind_reasoning for these markers.
Result<grammar::GrammarSource> grammar_behind_reasoning(const ReasoningMarkers& markers, const grammar::GrammarSource& source,
                                                        bool begins_in_reasoning, std::span<const std::string> special_tokens);

}  // namespace baton::parsers
