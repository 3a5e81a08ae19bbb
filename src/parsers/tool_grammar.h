/// The grammar of an answer that calls tools.
#pragma once

#include <optional>

#include "core/result.h"
#include "grammar/grammar.h"
#include "parsers/message_format.h"
#include "parsers/tool_formats.h"

namespace baton::parsers {

/// MessageFormat::grammar for a format and a list of tools that is not empty. `may_reason`: reasoning may stand in front,
/// so a demanded call, or content that keeps to a grammar, may follow up to two line ends.
Result<std::optional<grammar::GrammarSource>> tool_grammar(const ToolFormat& format, const AnswerDemand& demand,
                                                           bool may_reason);

}  // namespace baton::parsers
