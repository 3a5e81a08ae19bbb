/// The grammar of an answer that must call tools.
#pragma once

#include <optional>
#include <span>

#include "core/result.h"
#include "grammar/grammar.h"
#include "parsers/message_format.h"
#include "parsers/tool_formats.h"

namespace baton::parsers {

/// MessageFormat::grammar for a format and a list of tools that is not empty. `may_reason`: reasoning may stand in front,
/// so a demanded call may follow up to two line ends.
Result<std::optional<grammar::GrammarSource>> tool_grammar(const ToolFormat& format, std::span<const Tool> tools,
                                                           const ToolChoice& choice, bool parallel, bool may_reason);

}  // namespace baton::parsers
