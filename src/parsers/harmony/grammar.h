/// Grammars of answers in harmony.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "grammar/grammar.h"
#include "parsers/harmony/parser.h"
#include "parsers/message_format.h"
#include "parsers/tool_formats.h"

namespace baton::parsers::harmony {

/// MessageFormat::grammar for tools that are not empty: one call, or the final message. The call's header has the recipient after the
/// channel, as models write it, or in front, as the chat template does.
Result<std::optional<grammar::GrammarSource>> answer_grammar(const ToolFormat& format, const AnswerDemand& demand);

struct InFront {
  bool is_answer = false;       ///< the source is one of answer_grammar; otherwise it is of the final message's content
  bool may_reason = true;       ///< any number of messages of analysis may stand in front
  Begin begin = Begin::header;  ///< a text that the prompt has begun continues, and ends if a message must follow it
  std::span<const std::string> special_tokens = {};
};

/// MessageFormat::behind_reasoning.
Result<grammar::GrammarSource> grammar_behind_analysis(const grammar::GrammarSource& source, const InFront& front);

}  // namespace baton::parsers::harmony
