/// Chat completions as calls for a conversation.
#include "server/dialects/openai/dialect.h"

#include <utility>

#include "server/dialects/openai/frames.h"

namespace baton {

MakeAnswerWriter openai_writer(const ModelAndPrefix& /*target*/, const Request& /*request*/) { return OpenaiWriter::make; }

Result<std::optional<ConversationCall>> read_chat_call(const json::Value& body, const ReadContext& context) {
  BATON_TRY(ChatRequest chat, parse_chat_request(body, context.model.defaults, context.bounds));
  context.log_unknown_fields(chat.generation.unknown_fields);
  return std::optional(ConversationCall{std::move(chat), openai_writer});
}

}  // namespace baton
