/// The dialect of the OpenAI API: chat completions, and plain completions beside them.
#pragma once

#include <string_view>

#include "server/dialects/dialect.h"

namespace baton {

inline constexpr Dialect kChatCompletions = {.path = "/v1/chat/completions", .ids = "chatcmpl-"};
inline constexpr std::string_view kChatRenderPath = "/v1/chat/completions/render";

/// Plain completions are no conversation, but their answers are of this dialect.
inline constexpr std::string_view kCompletionsPath = "/v1/completions";
inline constexpr std::string_view kCompletionsRenderPath = "/v1/completions/render";
inline constexpr std::string_view kCompletionIds = "cmpl-";

}  // namespace baton
