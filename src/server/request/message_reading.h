/// How the text of an answer becomes a message with content, reasoning and tool calls.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "core/ids.h"
#include "core/shared_list.h"
#include "parsers/message_format.h"

namespace baton {

/// The part of a request that its answer's parser needs. The format must outlive the answer.
struct MessageReading {
  const parsers::MessageFormat* format = nullptr;       ///< null: all text is content
  std::shared_ptr<const parsers::ToolIndex> tools;      ///< null: what looks like a call is content
  std::shared_ptr<const std::set<std::string>> custom;  ///< names of tools that take a text; null: none
  SharedList<TokenId> markers;                          ///< special tokens whose text the parser must see
  bool begins_in_reasoning = false;                     ///< the prompt has opened the reasoning
  bool shows_reasoning = true;                          ///< `include_reasoning`
  bool is_parallel = true;                              ///< `parallel_tool_calls`; false: a second call ends the answer
  bool has_calls_first = false;                         ///< an answer that does not begin with a call has none
  bool demands_calls = false;                           ///< `tool_choice` demands calls: the answer has nothing else
  bool is_named = false;                                ///< `tool_choice` names a tool: the answer's end is no "tool_calls"
  bool has_short_ids = false;                           ///< the template takes ids of calls of nine characters only
};

}  // namespace baton
