/// Ids of a prompt, and the text of ids.
#include "server/prompt/tokenize.h"

#include <fmt/format.h>

#include "server/request/chat_dismantle.h"

namespace baton {

Result<json::Value> tokenize_request(const ServedModel& model, const Prefixes& prefixes, const json::Value& body,
                                     const IsCancelled& is_cancelled, std::string_view conversations_at) {
  const RequestBounds limits{.n_vocab = model.n_vocab, .max_logprobs = 0, .conversations_at = conversations_at};
  TokenizedPrompt prompt;
  if (json::find(body, "messages") != nullptr) {
    BATON_TRY(ChatRequest request, parse_chat_request(body, {}, limits));
    const ChatDismantling end_of_request(request);
    BATON_TRY(const ModelAndPrefix target, resolve_target(model, prefixes, request.generation));
    BATON_TRY(prompt, tokenize_chat(model, target.prefix, request, is_cancelled));
  } else {
    BATON_TRY(const CompletionRequest request, parse_completion_request(body, {}, limits));
    BATON_TRY(const ModelAndPrefix target, resolve_target(model, prefixes, request.generation));
    if (request.prompts.size() != 1) return fail(ErrorCode::invalid_request, "'prompt' must be one prompt", "prompt");
    BATON_TRY(prompt, tokenize_completion(model, target.prefix, request, request.prompts[0], is_cancelled));
  }
  BATON_TRY(const auto wants_strings, json::get_optional<bool>(body, "return_token_strs"));
  json::Value answer{{"count", prompt.tokens.size()}, {"max_model_len", model.max_model_len}, {"tokens", prompt.tokens}};
  json::Value& strings = answer["token_strs"] = nullptr;
  if (wants_strings.value_or(false)) {
    strings = json::Value::array();
    for (const TokenId token : prompt.tokens) strings.push_back(std::string(model.tokenizer.token_text(token)));
  }
  return answer;
}

Result<json::Value> detokenize_request(const ServedModel& model, const Prefixes& prefixes, const json::Value& body) {
  GenerationRequest named;
  BATON_TRY(const auto name, json::get_optional<std::string>(body, "model"));
  named.model = name.value_or("");
  BATON_TRY_VOID(resolve_target(model, prefixes, named));
  BATON_TRY(const auto tokens, json::get<std::vector<TokenId>>(body, "tokens"));
  if (model.max_model_len > 0 && tokens.size() > static_cast<std::size_t>(model.max_model_len))
    return fail(
        ErrorCode::invalid_request,
        fmt::format("'tokens' has {} ids; this model's maximum context length is {}", tokens.size(), model.max_model_len),
        "tokens");
  return json::Value{{"prompt", model.tokenizer.decode(tokens, /*skip_special_tokens=*/false)}};
}

json::Value tokenizer_info(const ServedModel& model) {
  json::Value info{{"tokenizer_class", "baton"}, {"model_max_length", model.max_model_len}};
  for (const char* const role : {"bos_token", "eos_token", "pad_token", "unk_token"}) info[role] = nullptr;
  for (const auto& [role, token] : model.tokenizer.role_tokens()) info[role] = token;
  return info;
}

}  // namespace baton
