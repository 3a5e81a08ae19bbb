/// Names, templates, token ids and the limit of the context.
#include "server/prompt/prompts.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/schedule/request_check.h"
#include "io/json_dismantle.h"
#include "server/http/json_body.h"
#include "server/request/json_fields.h"
#include "server/served/shape_messages.h"
#include "text/tokenizer/vocabulary_bytes.h"

namespace baton {
namespace {

Error not_served(std::string_view name, const ServedModel& model, const Prefixes& prefixes) {
  constexpr std::size_t kShown = 100;
  return {ErrorCode::not_found,
          fmt::format("the model '{}' does not exist; there are: {}", name.substr(0, kShown),
                      short_list(served_names(model, prefixes))),
          "model"};
}

/// How many of the prefix's public tokens a prompt begins with. A template need not put the prefix first.
std::int32_t n_public_tokens(const Prefixes::Entry& prefix, std::span<const TokenId> tokens) {
  const std::span<const TokenId> pinned = prefix.pinned();
  return static_cast<std::int32_t>(std::ranges::mismatch(pinned, tokens).in1 - pinned.begin());
}

/// The token that ends the model's reasoning; none if it takes several, or there are several texts that end it.
std::vector<TokenId> end_of_reasoning(const ServedModel& model) {
  if (model.format.reasoning_ends().size() != 1) return {};
  std::vector<TokenId> ids = model.tokenizer.encode(model.format.reasoning_ends().front(), /*add_special_tokens=*/false);
  if (ids.size() != 1) ids.clear();
  return ids;
}

}  // namespace

std::optional<ContextExcess> context_excess(const ServedModel& model, std::int64_t prompt_len, const SamplingParams& sampling) {
  const std::int32_t max_len = model.max_model_len;
  if (max_len <= 0) return std::nullopt;
  if (prompt_len >= max_len) return ContextExcess{prompt_len, {}, max_len};
  if (!sampling.max_tokens || prompt_len + *sampling.max_tokens <= max_len) return std::nullopt;
  return ContextExcess{prompt_len, sampling.max_tokens, max_len};
}

std::optional<ContextExcess> text_excess(const ServedModel& model, std::size_t n_bytes) {
  if (model.max_prompt_bytes == 0 || n_bytes <= model.max_prompt_bytes) return std::nullopt;
  return ContextExcess{model.least_tokens(n_bytes), {}, model.max_model_len, /*is_least=*/true};
}

std::optional<ContextExcess> text_excess(const ServedModel& model, const json::Value& messages) {
  std::size_t n_bytes = 0;
  const auto add = [&](const json::Value* text) {
    if (text != nullptr && text->is_string()) n_bytes += text->get_ref<const std::string&>().size();
  };
  for (const json::Value& message : messages) {
    // Of what the model itself has said, templates leave out parts.
    if (json::is_text(message["role"], "assistant")) continue;
    const json::Value* content = json::find(message, "content");
    add(content);
    if (content == nullptr || !content->is_array()) continue;
    for (const json::Value& part : *content) add(json::find(part, "text"));
  }
  return text_excess(model, n_bytes);
}

Error openai_excess(const ContextExcess& excess) {
  return {ErrorCode::invalid_request,
          context_excess_message(excess.max_len, excess.prompt_len, excess.max_tokens, excess.is_least),
          excess.max_tokens ? "max_tokens" : "messages"};
}

std::vector<std::string> served_names(const ServedModel& model, const Prefixes& prefixes) {
  std::vector<std::string> names = model.names;
  prefixes.for_each([&](const Prefixes::Entry& entry) { names.push_back(model.names[0] + ":" + entry.definition.name); });
  return names;
}

Result<ModelAndPrefix> resolve_target(const ServedModel& model, const Prefixes& prefixes, const GenerationRequest& request) {
  ModelAndPrefix target{request.model.empty() ? model.names[0] : request.model, {}};
  std::string_view prefix_name = request.prefix ? std::string_view(*request.prefix) : std::string_view();
  std::string_view prefix_field = "prefix";
  if (std::ranges::find(model.names, target.model) == model.names.end()) {
    const auto colon = target.model.rfind(':');
    if (colon == std::string::npos || std::ranges::find(model.names, target.model.substr(0, colon)) == model.names.end())
      return tl::unexpected<Error>(not_served(target.model, model, prefixes));
    const std::string_view named = std::string_view(target.model).substr(colon + 1);
    if (request.prefix && *request.prefix != named)
      return bad("prefix", "'model' names the prefix '{}' and 'prefix' names '{}'", named.substr(0, 100),
                 request.prefix->substr(0, 100));
    prefix_name = named;
    prefix_field = "model";
  }
  if (request.prefix || prefix_field == "model") {
    target.prefix = prefixes.find(prefix_name);
    if (!target.prefix)
      return tl::unexpected<Error>(request.prefix ? prefixes.not_found(prefix_name, "prefix")
                                                  : not_served(target.model, model, prefixes));
  }
  return target;
}

/// Refuses a `reasoning_effort` that the model does not know: templates write any.
Result<void> check_effort(const parsers::MessageFormat& format, const ChatRequest& request) {
  const auto known = format.efforts();
  const json::Value* effort = known.empty() ? nullptr : json::find(request.template_variables, "reasoning_effort");
  if (effort == nullptr || !effort->is_string()) return {};
  const std::string& value = effort->get_ref<const std::string&>();
  if (std::ranges::find(known, value) != known.end()) return {};
  return bad_field(request.has_effort ? "reasoning_effort" : "chat_template_kwargs.reasoning_effort",
                   "must be one of {} for this model, not \"{}\"", fmt::join(known, ", "), value.substr(0, 40));
}

/// Refuses tools that the model would not see, and calls that would not be read.
Result<void> check_tools(const ServedModel& model, const ToolFields& tools) {
  if (!model.tool_traits.shows_tools)
    return bad_field("tools",
                     "is not supported with the chat template of {}, which does not show tools to the model; start the server "
                     "with the --chat-template of a model that calls tools",
                     model.names[0]);
  if (tools.choice.kind == parsers::ToolChoice::Kind::automatic && model.format.tool_parser().empty())
    return bad_field("tools",
                     "need a parser of calls, and the chat template of {} is of no known format; start the server with "
                     "--tool-call-parser (one of {})",
                     model.names[0], fmt::join(parsers::MessageFormat::tool_parsers(), ", "));
  return {};
}

Result<std::string> render_chat(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request,
                                const IsCancelled& is_cancelled) {
  if (!model.chat_template)
    return bad("messages", "the model {} has no chat template; use /v1/completions, or start the server with --chat-template",
               model.names[0]);
  if (prefix && !prefix->definition.tokens.empty())
    return bad("prefix",
               "the prefix {} is a list of tokens, which /v1/completions can begin with; conversations need one that "
               "was registered with 'text' or 'messages'",
               prefix->definition.name);
  const bool is_excluded = model.excludes_unchosen_tools && request.tools.choice.kind == parsers::ToolChoice::Kind::none;
  const bool has_tools = request.tools.tools != nullptr && !is_excluded;
  const TemplateTraits& traits = model.traits_for(has_tools);
  if (has_tools) BATON_TRY_VOID(check_tools(model, request.tools));
  BATON_TRY_VOID(check_effort(model.format, request));
  // The copies may be large, and memory may be short when they end.
  ChatTemplate::Context context;
  const json::Dismantling end_of_messages(context.messages), end_of_tools(context.tools), end_of_variables(context.extra);
  json::Value messages = !prefix ? json::Value(json::Value::array()) : prefix->definition.messages;
  const json::Dismantling end_of_copies(messages);
  for (const json::Value& message : request.messages) messages.push_back(message);
  context.messages = shape_messages(std::move(messages), traits);
  if (has_tools) context.tools = shape_tools(request.tools.definitions, traits);
  context.add_generation_prompt = request.add_generation_prompt;
  if (request.continue_final_message) context.continued_field = "content";
  context.role_tokens = model.tokenizer.role_tokens();
  context.extra = request.template_variables;
  context.max_output_bytes = model.max_rendered_bytes();
  context.is_cancelled = is_cancelled;
  auto text = model.template_for(has_tools).render(context);
  if (!text && text.error().code != ErrorCode::unavailable) {
    text.error().code = ErrorCode::invalid_request;
    if (text.error().param.empty()) text.error().param = "messages";
  }
  return text;
}

Result<TokenizedPrompt> tokenize_rendered(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request,
                                          std::string_view text, const IsCancelled& is_cancelled) {
  BATON_TRY_VOID(model.check_prompt_bytes(text.size(), "messages"));
  WorkBudget budget(Tokenizer::limits_for(text.size()), is_cancelled);
  TokenizedPrompt prompt;
  prompt.begin = model.format.begin_after(text);
  BATON_TRY(prompt.tokens, model.tokenizer.encode_behind(prefix ? prefix->chat_head : EncodedHead(), text,
                                                         request.add_special_tokens, budget));
  if (prefix) prompt.n_public = n_public_tokens(*prefix, prompt.tokens);
  return prompt;
}

Result<TokenizedPrompt> tokenize_chat(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request,
                                      const IsCancelled& is_cancelled) {
  BATON_TRY(const std::string text, render_chat(model, prefix, request, is_cancelled));
  return tokenize_rendered(model, prefix, request, text, is_cancelled);
}

Result<void> set_reading(const ServedModel& model, const TokenizedPrompt& prompt, ChatRequest& request,
                         const IsCancelled& is_cancelled) {
  const bool has_calls = request.tools.tools && request.tools.choice.kind != parsers::ToolChoice::Kind::none;
  if (!has_calls && model.format.reasoning_parser().empty()) return {};
  MessageReading& reading = request.generation.reading;
  reading.format = &model.format;
  if (has_calls) {
    WorkBudget budget(kToolLimits, is_cancelled);
    auto index = model.format.index(*request.tools.tools, budget);
    if (!index) {
      index.error().param = "tools";
      return tl::unexpected<Error>(std::move(index.error()));
    }
    reading.tools = std::move(*index);
  }
  if (has_calls && !request.tools.custom.empty())
    reading.custom = std::make_shared<const std::set<std::string>>(request.tools.custom);
  reading.markers = model.markers;
  reading.begins_in_reasoning = prompt.begin.in_reasoning;
  reading.begins_in_content = prompt.begin.in_content;
  reading.shows_reasoning = request.includes_reasoning;
  reading.is_parallel = request.tools.is_parallel;
  reading.has_calls_first = request.generation.grammar && request.generation.grammar->content != nullptr;
  reading.is_named = request.tools.choice.kind == parsers::ToolChoice::Kind::named;
  reading.demands_calls = reading.is_named || request.tools.choice.kind == parsers::ToolChoice::Kind::required;
  reading.has_short_ids = model.tool_traits.has_short_ids;
  return {};
}

Result<TokenizedPrompt> tokenize_completion(const ServedModel& model, const Prefixes::Use& prefix,
                                            const CompletionRequest& request, const Prompt& prompt,
                                            const IsCancelled& is_cancelled) {
  const Tokenizer& tokenizer = model.tokenizer;
  const auto* text = std::get_if<std::string>(&prompt);
  if (text != nullptr) BATON_TRY_VOID(model.check_prompt_bytes(text->size(), "prompt"));
  const bool is_of_tokens = prefix && !prefix->definition.tokens.empty();
  std::vector<TokenId> tokens;
  if (prefix) tokens = is_of_tokens ? prefix->definition.tokens : prefix->text_ids[request.add_special_tokens];
  if (text == nullptr) {
    const auto& ids = std::get<std::vector<TokenId>>(prompt);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    return TokenizedPrompt{std::move(tokens),
                           request.echo ? tokenizer.decode(ids, /*skip_special_tokens=*/false) : std::string(), 0};
  }
  const std::size_t n_bytes = text->size() + (prefix ? prefix->text.size() : 0);
  WorkBudget budget(Tokenizer::limits_for(n_bytes), is_cancelled);
  if (is_of_tokens) {
    BATON_TRY(const std::vector<TokenId> ids, tokenizer.encode(*text, /*add_special_tokens=*/false, budget));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  } else if (prefix) {
    BATON_TRY(tokens, tokenizer.encode_behind(prefix->text_head, prefix->text + *text, request.add_special_tokens, budget));
  } else {
    BATON_TRY(tokens, tokenizer.encode(*text, request.add_special_tokens, budget));
  }
  return TokenizedPrompt{std::move(tokens), request.echo ? *text : std::string(), 0};
}

Result<Grammars::Constrained> constraint_of(const ServedModel& model, const GenerationRequest& request, std::string_view salt,
                                            const IsCancelled& is_cancelled) {
  if (!request.grammar) return Grammars::Constrained{};
  const std::string& field = request.grammar->field;
  if (!model.grammars) return bad_field(field, "is not supported by this program");
  BATON_TRY(Grammars::Constrained made, model.grammars->constraint(*request.grammar, model.tokenizer, salt, is_cancelled));
  return made;
}

Result<void> allow_reasoning(const ServedModel& model, const parsers::AnswerBegin& begin, GenerationRequest& request) {
  if (!request.grammar) return {};
  if (begin.in_reasoning && !end_of_reasoning(model).empty()) return {};
  StructuredOutput& asked = *request.grammar;
  auto behind = model.format.behind_reasoning(asked.source, asked.is_answer, begin, model.marker_texts);
  if (!behind) return bad(asked.field, "'{}': {}", asked.field, behind.error().message);
  asked.source = std::move(*behind);
  return {};
}

std::vector<Request> engine_requests(const ServedModel& model, const GenerationRequest& request, const Constraint& constraint,
                                     std::span<const TokenizedPrompt> prompts) {
  Request common;
  common.constraint = constraint;
  common.sampling = request.sampling;
  common.sampling.bad_words = spell_words(model.tokenizer, request.bad_words);
  common.n_sequences = request.n;
  common.priority = request.priority;
  if (request.deadline_ms) common.deadline = std::chrono::milliseconds(*request.deadline_ms);
  common.speculation = request.speculation;
  common.scope.salt = request.cache_salt;
  std::vector<Request> requests;
  for (const TokenizedPrompt& prompt : prompts) {
    Request& asked = requests.emplace_back(common);
    asked.prompt = prompt.tokens;
    if (constraint.matcher && prompt.begin.may_reason && prompt.begin.in_reasoning)
      asked.constraint.begins_behind = end_of_reasoning(model);
    // A registered prefix is public; the salt separates only what follows it.
    if (!request.cache_salt.empty()) asked.scope.salt_from = prompt.n_public;
  }
  return requests;
}

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
    if (request.prompts.size() != 1) return bad_field("prompt", "must be one prompt");
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
    return bad_field("tokens", "has {} ids; this model's maximum context length is {}", tokens.size(), model.max_model_len);
  return json::Value{{"prompt", model.tokenizer.decode(tokens, /*skip_special_tokens=*/false)}};
}

json::Value tokenizer_info(const ServedModel& model) {
  json::Value info{{"tokenizer_class", "baton"}, {"model_max_length", model.max_model_len}};
  for (const char* const role : {"bos_token", "eos_token", "pad_token", "unk_token"}) info[role] = nullptr;
  for (const auto& [role, token] : model.tokenizer.role_tokens()) info[role] = token;
  return info;
}

}  // namespace baton
