/// Requests of the Anthropic dialect as calls for a conversation, and what they mark to be kept in the cache.
#include "server/dialects/messages/dialect.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/json_dismantle.h"
#include "server/dialects/messages/answer.h"
#include "server/dialects/messages/cache_marks.h"
#include "server/dialects/messages/request.h"
#include "server/request/chat_dismantle.h"

namespace baton {
namespace {

using json::Value;

struct ReadMessage {
  ChatRequest chat;
  std::vector<CacheMark> marks;
  std::vector<std::string> tool_keys;
};

Result<ReadMessage> read_message(const Value& body, const ReadContext& context, bool needs_max_tokens) {
  BATON_TRY(MessagesRequest request, read_messages_request(body, needs_max_tokens));
  const json::Dismantling end_of_chat(request.chat);
  context.log_unknown_fields(request.unknown_fields);
  auto chat = parse_chat_request(request.chat, context.model.defaults, context.bounds);
  if (!chat) return tl::unexpected<Error>(messages_error(std::move(chat.error()), request.tool_keys));
  return ReadMessage{std::move(*chat), std::move(request.marks), std::move(request.tool_keys)};
}

/// The writer of the answer to a request with such a body, which keeps what is marked when the answer is complete.
MakeAnswerWriter marking_writer(const Value& body, const std::vector<CacheMark>& marks, const ReadContext& context,
                                const ModelAndPrefix& target, const Request& asked) {
  const std::vector<MarkedPrefix> marked =
      marked_prefixes(context.model, target.prefix, body, marks, asked.prompt, context.block_len, context.is_unwanted);
  std::vector<PrefixDefinition> kept;
  for (const MarkedPrefix& prefix : marked)
    kept.push_back({.name = {},
                    .messages = nullptr,
                    .ttl = prefix.ttl,
                    .tokens = {asked.prompt.begin(), asked.prompt.begin() + prefix.n_tokens},
                    .source = PrefixSource::mark,
                    .owner = context.caller.account == nullptr ? std::string() : context.caller.account->name(),
                    .max_pinned_blocks = context.caller.max_pinned_blocks,
                    .scope = asked.scope});
  std::function<void()> keep;
  if (!kept.empty()) keep = [&prefixes = context.prefixes, kept = std::move(kept)] { prefixes.want_marked(kept); };
  MessagesPlan plan{marked.empty() ? 0 : marked.back().n_tokens, has_context_management(body), std::move(keep)};
  return [plan = std::move(plan)](const AnswerContent& content, const Tokenizer&) {
    return std::make_unique<MessagesWriter>(content, plan);
  };
}

}  // namespace

Result<std::optional<ConversationCall>> read_message_call(const Value& body, const ReadContext& context) {
  BATON_TRY(ReadMessage read, read_message(body, context, /*needs_max_tokens=*/true));
  const ChatDismantling end_of_chat(read.chat);
  auto writer_of = [&body, &context, marks = std::move(read.marks)](const ModelAndPrefix& target, const Request& asked) {
    return marking_writer(body, marks, context, target, asked);
  };
  return std::optional(
      ConversationCall{std::move(read.chat), std::move(writer_of),
                       [keys = std::move(read.tool_keys)](Error error) { return messages_error(std::move(error), keys); }});
}

Result<std::optional<ChatRequest>> read_message_to_count(const Value& body, const ReadContext& context) {
  BATON_TRY(ReadMessage read, read_message(body, context, /*needs_max_tokens=*/false));
  return std::optional(std::move(read.chat));
}

Value message_count(const Value& body, std::size_t n_tokens) {
  Value counted;
  counted["input_tokens"] = n_tokens;
  // Nothing was taken out of the conversation.
  if (has_context_management(body)) counted["context_management"]["original_input_tokens"] = n_tokens;
  return counted;
}

}  // namespace baton
