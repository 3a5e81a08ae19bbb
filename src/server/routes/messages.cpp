/// The endpoints of the Anthropic dialect: handlers of Routes.
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/limits/insist.h"
#include "core/log.h"
#include "core/mutex.h"
#include "io/json_dismantle.h"
#include "server/dialects/messages/answer.h"
#include "server/dialects/messages/cache_marks.h"
#include "server/dialects/messages/dialect.h"
#include "server/dialects/messages/request.h"
#include "server/http/json_body.h"
#include "server/routes/routes.h"

namespace baton {

using json::Value;

namespace {

constexpr std::size_t kMaxWaitingPins = 64;
constexpr std::string_view kNoPins =
    "event=prefixes_out_of_memory effect=\"the program ends: there is no memory to end the pins of prompts\"";

}  // namespace

Result<void> Routes::begin_message(const Call& call) {
  BATON_TRY(Value body, body_of(call));
  const json::Dismantling end_of_body(body);
  BATON_TRY(MessagesRequest request, read_messages_request(body, /*needs_max_tokens=*/true));
  const json::Dismantling end_of_chat(request.chat);
  log_unknown_fields(request.unknown_fields);
  auto chat = parse_chat_request(request.chat, context_.model.defaults, limits());
  if (!chat) return tl::unexpected<Error>(messages_error(std::move(chat.error())));
  const auto writer_of = [&](const Target& target, const Request& asked) -> MakeAnswerWriter {
    const std::vector<MarkedPrefix> marked = marked_prefixes(context_.model, target.prefix, body, request.marks, asked.prompt,
                                                             context_.engine.info().block_len, is_unwanted(call.exchange));
    std::vector<CachePinRequest> pins;
    for (const MarkedPrefix& prefix : marked) {
      const auto end = asked.prompt.begin() + prefix.n_tokens;
      pins.push_back({{asked.prompt.begin(), end},
                      asked.scope,
                      call.caller.account == nullptr ? std::string() : call.caller.account->name(),
                      call.caller.max_pinned_blocks,
                      prefix.ttl});
    }
    std::function<void()> keep;
    if (!pins.empty()) keep = [this, pins = std::move(pins)] { keep_marked(pins); };
    return [n_marked = marked.empty() ? 0 : marked.back().n_tokens, keep = std::move(keep)](const AnswerContent& content,
                                                                                            const Tokenizer&) {
      return std::make_unique<MessagesWriter>(content, n_marked, keep);
    };
  };
  return begin_conversation(call, std::move(*chat), kMessages.ids, writer_of);
}

/// Pins prompts that are in the cache. While many wait, the next ones are not kept.
void Routes::keep_marked(const std::vector<CachePinRequest>& asked) {
  if (!context_.engine.info().enable_prefix_caching) return;
  {
    const MutexLock lock(mutex_);
    if (n_waiting_pins_ + asked.size() > kMaxWaitingPins) return;
    n_waiting_pins_ += asked.size();
  }
  const auto end_wait = [this](std::size_t n) {
    const MutexLock lock(mutex_);
    n_waiting_pins_ -= n;
  };
  try {
    post_prefix([this, asked = std::vector<CachePinRequest>(asked), end_wait] {  // not const: moving it must not copy it
      try {
        for (const CachePinRequest& one : asked) cache_pins_.keep(context_.engine, one, CachePins::Clock::now());
      } catch (const std::bad_alloc&) {
        log::warning("event=out_of_memory effect=\"a marked prompt is not kept\"");
      }
      end_wait(asked.size());
      insist(kNoPins, [this] { expire_pins(); });
    });
  } catch (const std::bad_alloc&) {
    end_wait(asked.size());
    throw;
  }
}

/// Ends pins whose time is over, and runs again when the next one's is.
void Routes::expire_pins() {
  const auto now = CachePins::Clock::now();
  const auto next = cache_pins_.remove_expired(context_.engine, now);
  if (!next) return;
  next_unpin_.expires_after(std::chrono::ceil<std::chrono::milliseconds>(*next - now));
  next_unpin_.async_wait([this](const boost::system::error_code& error) {
    if (!error) insist(kNoPins, [this] { expire_pins(); });
  });
}

Routes::Response Routes::messages(const Call& call) { return begin(call, &Routes::begin_message); }

Routes::Response Routes::count_message_tokens(const Call& call) {
  const auto count = [&]() -> Result<Value> {
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(MessagesRequest request, read_messages_request(body, /*needs_max_tokens=*/false));
    const json::Dismantling end_of_chat(request.chat);
    log_unknown_fields(request.unknown_fields);
    auto chat = parse_chat_request(request.chat, context_.model.defaults, limits());
    if (!chat) return tl::unexpected<Error>(messages_error(std::move(chat.error())));
    BATON_TRY(const Target target, resolve_target(context_.model, context_.prefixes, chat->generation));
    BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(context_.model, target.prefix, *chat, is_unwanted(call.exchange)));
    Value counted;
    counted["input_tokens"] = prompt.tokens.size();
    return counted;
  };
  const auto counted = count();
  return counted ? json_response(*counted) : logged_error_response(counted.error());
}

}  // namespace baton
