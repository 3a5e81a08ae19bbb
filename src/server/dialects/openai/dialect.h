/// The dialect of the OpenAI API: chat completions, and plain completions beside them.
#pragma once

#include <optional>
#include <string_view>

#include "server/dialects/dialect.h"

namespace baton {

Result<std::optional<ConversationCall>> read_chat_call(const json::Value& body, const ReadContext& context);
/// The writer of an OpenAI answer, whatever the prompt is.
MakeAnswerWriter openai_writer(const ModelAndPrefix& target, const Request& request);

inline constexpr Dialect kChatCompletions = {.path = "/v1/chat/completions", .ids = "chatcmpl-", .read = read_chat_call};
inline constexpr std::string_view kChatRenderPath = "/v1/chat/completions/render";

/// Plain completions are no conversation, but their answers are of this dialect.
inline constexpr std::string_view kCompletionsPath = "/v1/completions";
inline constexpr std::string_view kCompletionsRenderPath = "/v1/completions/render";
inline constexpr std::string_view kCompletionIds = "cmpl-";

}  // namespace baton
