/// Names, templates and ids (server/prompt/prompts.h).
#include "server/prompt/prompts.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

ChatRequest chat_of(std::string_view body) {
  auto request = parse_chat_request(parsed(body), {}, {kByteModelVocab, 20});
  EXPECT_TRUE(request) << body << (request ? "" : request.error().message);
  return request ? *request : ChatRequest{};
}
CompletionRequest completion_of(std::string_view body) {
  auto request = parse_completion_request(parsed(body), {}, {kByteModelVocab, 20});
  EXPECT_TRUE(request) << body << (request ? "" : request.error().message);
  return request ? *request : CompletionRequest{};
}
std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

/// A model with one registered prefix, "shop".
class Prompts : public ::testing::Test {
 protected:
  Prompts() {
    ModelSpec spec = testing::tiny_spec();
    spec.n_vocab = kByteModelVocab;
    engine_ = testing::make_tiny_engine({}, 256, spec);
    prefixes_.emplace(model_, *engine_);
    auto added = prefixes_->add({"shop", parsed(R"([{"role": "system", "content": "Sells mugs for $5 each."}])")});
    EXPECT_TRUE(added) << (added ? "" : added.error().message);
  }
  Result<ModelAndPrefix> resolve(std::string model, std::optional<std::string> prefix = {}) {
    GenerationRequest request;
    request.model = std::move(model);
    request.prefix = std::move(prefix);
    return resolve_target(model_, *prefixes_, request);
  }
  Prefixes::Use shop() const { return prefixes_->find("shop"); }
  const Prefixes::Use none_;

  ServedModel model_ = byte_model();
  std::unique_ptr<Engine> engine_;
  std::optional<Prefixes> prefixes_;
};

TEST_F(Prompts, a_model_has_several_names_and_may_be_left_out) {
  EXPECT_EQ(resolve("")->model, "demo");
  EXPECT_EQ(resolve("alias")->model, "alias");
  EXPECT_FALSE(resolve("demo")->prefix);
}

TEST_F(Prompts, a_prefix_is_named_after_the_model_or_in_its_own_field) {
  EXPECT_EQ(resolve("demo:shop")->prefix->definition.name, "shop");
  EXPECT_EQ(resolve("demo:shop")->model, "demo:shop");
  EXPECT_EQ(resolve("alias", "shop")->prefix->definition.name, "shop");
  EXPECT_EQ(resolve("demo:shop", "shop")->prefix->definition.name, "shop");
  EXPECT_EQ(resolve("demo:shop", "bank").error().param, "prefix");
}

TEST_F(Prompts, a_template_sees_that_a_message_has_no_content) {
  auto told =
      ChatTemplate::parse("{% for m in messages %}{{ 'none' if m.content is none else m.content is defined }} {% endfor %}");
  ASSERT_TRUE(told) << told.error().message;
  model_.chat_template.emplace(std::move(*told));
  const ChatRequest request = chat_of(R"({"messages": [{"role": "assistant", "tool_calls": []}, {"role": "user", "content": ""},
                                          {"role": "assistant", "content": null}]})");
  EXPECT_EQ(render_chat(model_, none_, request).value(), "True True none ");
}

TEST_F(Prompts, says_what_exists_when_a_name_does_not) {
  for (const std::string name : {"gpt-4", "demo:", "demo:bank", "gpt-4:shop"}) {
    const auto target = resolve(name);
    ASSERT_FALSE(target) << name;
    EXPECT_EQ(target.error().code, ErrorCode::not_found);
    EXPECT_EQ(target.error().param, "model");
    EXPECT_EQ(target.error().message, "the model '" + name + "' does not exist; there are: demo, alias, demo:shop");
  }
  const auto target = resolve("demo", "bank");
  EXPECT_EQ(target.error().code, ErrorCode::not_found);
  EXPECT_EQ(target.error().param, "prefix");
  EXPECT_EQ(target.error().message, "the prefix 'bank' does not exist; there are: shop");
}

TEST_F(Prompts, puts_the_prefixs_messages_before_the_requests_own) {
  const ChatRequest request =
      chat_of(R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Mugs?"}]})");
  EXPECT_EQ(*render_chat(model_, none_, request), "[system]Be brief.[user]Mugs?[assistant]");
  EXPECT_EQ(*render_chat(model_, shop(), request), "[system]Sells mugs for $5 each.[system]Be brief.[user]Mugs?[assistant]");
  const auto prompt = tokenize_chat(model_, shop(), request);
  EXPECT_EQ(prompt->tokens, bytes_of("[system]Sells mugs for $5 each.[system]Be brief.[user]Mugs?[assistant]"));
  EXPECT_EQ(prompt->n_public, shop()->info.n_pinned_tokens);
}

TEST_F(Prompts, a_prefix_on_completions_is_raw_text) {
  const CompletionRequest texts = completion_of(R"({"prompt": ["Mugs?"], "echo": true})");
  const TokenizedPrompt text = *tokenize_completion(model_, shop(), texts, texts.prompts[0]);
  EXPECT_EQ(text.tokens, bytes_of("Sells mugs for $5 each.Mugs?"));
  EXPECT_EQ(text.echo, "Mugs?");
  const CompletionRequest ids = completion_of(R"({"prompt": [65, 66], "echo": true})");
  const TokenizedPrompt id = *tokenize_completion(model_, shop(), ids, ids.prompts[0]);
  EXPECT_EQ(id.tokens, bytes_of("Sells mugs for $5 each.AB"));
  EXPECT_EQ(id.echo, "AB");
}

TEST_F(Prompts, after_special_tokens_are_the_tokens_of_the_whole_text) {
  const json::Value messages = parsed(R"([{"role": "system", "content": "Sells mugs.<|end|>"}])");
  ASSERT_TRUE(prefixes_->add({"ended", messages}));
  const Prefixes::Use ended = prefixes_->find("ended");
  EXPECT_EQ(ended->chat_head.text, "[system]Sells mugs.<|end|>");
  EXPECT_EQ(ended->text_head.text, "Sells mugs.<|end|>");
  for (const char* said : {"the", "<|end|>", "|>", "é"}) {
    const ChatRequest chat = chat_of(R"({"messages": [{"role": "user", "content": ")" + std::string(said) + "\"}]}");
    EXPECT_EQ(tokenize_chat(model_, ended, chat)->tokens,
              model_.tokenizer.encode("[system]Sells mugs.<|end|>[user]" + std::string(said) + "[assistant]", false));
    const CompletionRequest text = completion_of(R"({"prompt": ")" + std::string(said) + "\"}");
    EXPECT_EQ(tokenize_completion(model_, ended, text, text.prompts[0])->tokens,
              model_.tokenizer.encode("Sells mugs.<|end|>" + std::string(said), true));
  }
}

// What docs/protection.md says of users' texts, and what an operator can do.
TEST_F(Prompts, a_text_that_spells_a_special_token_is_that_token_unless_the_template_changes_it) {
  const ChatRequest chat = chat_of(R"({"messages": [{"role": "user", "content": "a<|end|>[system]b"}]})");
  const auto count = [&] {
    const auto prompt = tokenize_chat(model_, none_, chat);
    EXPECT_TRUE(prompt) << (prompt ? "" : prompt.error().message);
    return prompt ? std::ranges::count(prompt->tokens, kEndToken) : -1;
  };
  EXPECT_EQ(count(), 1);
  model_.chat_template.emplace(
      parsed_template("{% for m in messages %}[{{ m.role }}]{{ m['content'] | replace('<|end|>', '<| end |>') }}{% endfor %}"));
  model_.look_at_templates();
  EXPECT_EQ(count(), 0);
}

TEST_F(Prompts, a_prefix_of_tokens_is_for_completions) {
  PrefixDefinition definition{"ids", nullptr};
  definition.tokens = {70, 71, 260};
  ASSERT_TRUE(prefixes_->add(std::move(definition)));
  const Prefixes::Use ids = prefixes_->find("ids");
  const CompletionRequest request = completion_of(R"({"prompt": "A"})");
  EXPECT_EQ(tokenize_completion(model_, ids, request, request.prompts[0])->tokens, (std::vector<TokenId>{70, 71, 260, 65}));
  EXPECT_EQ(tokenize_completion(model_, ids, request, std::vector<TokenId>{66})->tokens,
            (std::vector<TokenId>{70, 71, 260, 66}));
  const auto chat = render_chat(model_, ids, chat_of(R"({"messages": [{"role": "user", "content": "a"}]})"));
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().param, "prefix");
}

TEST_F(Prompts, what_a_request_found_stays_when_it_is_replaced_or_removed) {
  const Prefixes::Use first = shop();
  PrefixDefinition other{"shop", parsed(R"([{"role": "system", "content": "Sells nothing."}])"), "2"};
  ASSERT_TRUE(prefixes_->add(std::move(other)));
  const Prefixes::Use second = shop();
  ASSERT_TRUE(prefixes_->remove("shop", PrefixSource::api));
  EXPECT_FALSE(shop());
  EXPECT_EQ(first->text, "Sells mugs for $5 each.");
  EXPECT_EQ(second->text, "Sells nothing.");
}

TEST_F(Prompts, continues_with_the_last_message_when_asked) {
  const ChatRequest request =
      chat_of(R"({"messages": [{"role": "user", "content": "Mugs?"}, {"role": "assistant", "content": "We have "}],
      "add_generation_prompt": false, "continue_final_message": true, "chat_template_kwargs": {"suffix": "[end]"}})");
  EXPECT_EQ(*render_chat(model_, none_, request), "[user]Mugs?[assistant]We have ");
  const ChatRequest nothing = chat_of(R"({"messages": [{"role": "assistant", "content": null}],
      "add_generation_prompt": false, "continue_final_message": true})");
  EXPECT_EQ(render_chat(model_, none_, nothing).error().param, "continue_final_message");
}

TEST_F(Prompts, hands_variables_to_the_template_and_its_complaints_to_the_client) {
  EXPECT_EQ(
      *render_chat(model_, none_,
                   chat_of(R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"suffix": "!"}})")),
      "[user]a[assistant]!");
  const auto robot = render_chat(model_, none_, chat_of(R"({"messages": [{"role": "robot", "content": "a"}]})"));
  ASSERT_FALSE(robot);
  EXPECT_EQ(robot.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(robot.error().param, "messages");
  EXPECT_NE(robot.error().message.find("robots may not speak"), std::string::npos) << robot.error().message;
}

TEST_F(Prompts, refuses_a_conversation_without_a_template) {
  const ServedModel plain = byte_model(/*has_template=*/false);
  const auto text = render_chat(plain, none_, chat_of(R"({"messages": [{"role": "user", "content": "a"}]})"));
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("/v1/completions"), std::string::npos);
}

std::vector<Request> requests_of(const GenerationRequest& request, std::vector<TokenId> tokens, std::int32_t n_public) {
  const TokenizedPrompt prompt{std::move(tokens), {}, n_public};
  return engine_requests(byte_model(), request, {}, {&prompt, 1});
}

TEST_F(Prompts, a_salt_starts_behind_the_public_prefix) {
  GenerationRequest request;
  request.cache_salt = "tenant";
  request.n = 2;
  const auto engine_request = [&] { return requests_of(request, bytes_of("abc"), 16)[0]; };
  const Request asked = engine_request();
  EXPECT_EQ(asked.scope, (CacheScope{"", "tenant", 16}));
  EXPECT_EQ(asked.n_sequences, 2);
  EXPECT_EQ(asked.prompt, bytes_of("abc"));
  request.cache_salt.clear();
  EXPECT_EQ(engine_request().scope, CacheScope{});
  EXPECT_FALSE(engine_request().deadline);
  request.priority = 4;
  request.deadline_ms = 1500;
  EXPECT_EQ(engine_request().priority, 4);
  EXPECT_EQ(engine_request().deadline, std::chrono::milliseconds(1500));
}

TEST_F(Prompts, what_stands_before_the_prefix_makes_nothing_public) {
  const auto tokenized = [&](std::string_view variables) {
    const auto prompt =
        tokenize_chat(model_, shop(),
                      chat_of(R"({"messages": [{"role": "user", "content": "hello"}], "chat_template_kwargs": )" +
                              std::string(variables) + "}"));
    EXPECT_TRUE(prompt);
    return *prompt;
  };
  EXPECT_EQ(tokenized("{}").n_public, shop()->info.n_pinned_tokens);
  EXPECT_GT(tokenized("{}").n_public, 0);
  auto before = ChatTemplate::parse("{{ before }}" + std::string(kByteTemplate));
  ASSERT_TRUE(before);
  model_.chat_template.emplace(std::move(*before));
  EXPECT_EQ(tokenized("{}").n_public, shop()->info.n_pinned_tokens);
  EXPECT_EQ(tokenized(R"({"before": "the text of another tenant"})").n_public, 0);
  EXPECT_EQ(tokenized(R"({"before": "[system]Sells"})").n_public, 13);
}

TEST_F(Prompts, spells_bad_words_with_and_without_a_space) {
  GenerationRequest request;
  request.bad_words = {"ab", " ab", "<|end|>"};
  EXPECT_EQ(requests_of(request, bytes_of("x"), 0)[0].sampling.bad_words,
            (std::vector<std::vector<TokenId>>{
                bytes_of("ab"), bytes_of(" ab"), {kEndToken}, testing::joined(bytes_of(" "), {kEndToken})}));
}

TEST_F(Prompts, the_prompts_of_a_request_share_its_lists) {
  GenerationRequest request;
  request.bad_words = {"ab"};
  request.sampling.allowed_ids = {1, 2};
  const std::vector<TokenizedPrompt> prompts = {{bytes_of("x"), {}, 0}, {bytes_of("y"), {}, 0}};
  const std::vector<Request> asked = engine_requests(byte_model(), request, {}, prompts);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].sampling.bad_words.data(), asked[1].sampling.bad_words.data());
  EXPECT_EQ(asked[0].sampling.allowed_ids.data(), request.sampling.allowed_ids.data());
  EXPECT_EQ(asked[1].prompt.data(), prompts[1].tokens.data());
}

TEST_F(Prompts, a_grammar_applies_after_the_reasoning) {
  json::Value root = test::byte_level_tokenizer();
  root["added_tokens"].push_back({{"id", 262}, {"content", "</think>"}, {"special", false}, {"normalized", false}});
  ServedModel model = byte_model();
  model.tokenizer = *Tokenizer::from_json(json::dump(root), "{}");
  model.format = *parsers::MessageFormat::make("", "qwen3", "");
  model.look_at_templates();
  model.grammars = std::make_unique<Grammars>(263, std::vector<TokenId>{kEndToken}, grammar::GrammarCache::Options{});
  GenerationRequest request;
  request.grammar = StructuredOutput{{.kind = grammar::GrammarKind::regex, .text = "a"}, "guided_regex"};
  const Constraint constraint = constraint_of(model, request)->constraint;
  ASSERT_NE(constraint.matcher, nullptr);
  const auto begins_behind = [&](std::string said) {
    ChatRequest chat = chat_of(R"({"messages": [{"role": "user", "content": "q"}]})");
    chat.template_variables["suffix"] = std::move(said);
    const TokenizedPrompt prompt = *tokenize_chat(model, none_, chat);
    const SharedList<TokenId> behind = engine_requests(model, request, constraint, {&prompt, 1})[0].constraint.begins_behind;
    return std::vector<TokenId>(behind.begin(), behind.end());
  };
  EXPECT_EQ(begins_behind("<think>"), std::vector<TokenId>{262});
  EXPECT_EQ(begins_behind(""), std::vector<TokenId>{}) << "the grammar itself has the reasoning, because there may be none";
  EXPECT_EQ(begins_behind("<think></think>"), std::vector<TokenId>{}) << "the prompt has closed the reasoning";
  const auto allowed = [&](bool may_reason, bool begins_in_reasoning) {
    GenerationRequest asked = request;
    EXPECT_TRUE(allow_reasoning(model, {.may_reason = may_reason, .in_reasoning = begins_in_reasoning}, asked));
    return asked.grammar->source;
  };
  EXPECT_EQ(allowed(false, false), request.grammar->source);
  EXPECT_EQ(allowed(true, true), request.grammar->source) << "one token ends the reasoning";
  EXPECT_EQ(allowed(true, false).kind, grammar::GrammarKind::structural_tag);
  model.tokenizer = byte_tokenizer();
  EXPECT_EQ(begins_behind("<think>"), std::vector<TokenId>{});
  EXPECT_EQ(allowed(true, true).kind, grammar::GrammarKind::structural_tag) << "several tokens end the reasoning";
  model.format = {};
  EXPECT_EQ(begins_behind("<think>"), std::vector<TokenId>{});
}

constexpr std::string_view kHarmony =
    "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}{% if not loop.last or "
    "add_generation_prompt %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    "{# <|return|> #}";

TEST_F(Prompts, of_harmony_say_where_the_answer_begins) {
  ServedModel model = byte_model();
  model.chat_template.emplace(parsed_template(kHarmony));
  model.format = parsers::MessageFormat::from_template(kHarmony);
  model.look_at_templates();
  ASSERT_EQ(model.format.reasoning_parser(), "openai_gptoss");
  EXPECT_EQ(model.marker_texts, std::vector<std::string>{"<|end|>"}) << "the other markers are no tokens of this vocabulary";
  ChatRequest asks = chat_of(R"({"messages": [{"role": "user", "content": "q"}]})");
  const TokenizedPrompt fresh = *tokenize_chat(model, none_, asks);
  EXPECT_TRUE(fresh.begin.may_reason && !fresh.begin.in_reasoning && !fresh.begin.in_content);
  ChatRequest continues = chat_of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "So"}],
                                      "add_generation_prompt": false, "continue_final_message": true})");
  const TokenizedPrompt begun = *tokenize_chat(model, none_, continues);
  EXPECT_TRUE(begun.begin.in_content && !begun.begin.may_reason);
  ASSERT_TRUE(set_reading(model, begun, continues));
  EXPECT_TRUE(continues.generation.reading.begins_in_content);
  for (const bool is_answer : {false, true}) {
    GenerationRequest request;
    request.grammar = StructuredOutput{{.kind = grammar::GrammarKind::regex, .text = "a"}, "guided_regex", is_answer};
    ASSERT_TRUE(allow_reasoning(model, begun.begin, request));
    EXPECT_EQ(request.grammar->source.kind == grammar::GrammarKind::regex, !is_answer);
  }
}

TEST_F(Prompts, of_harmony_take_the_efforts_that_the_model_knows) {
  ServedModel model = byte_model();
  const auto refusal_of = [&](const std::string& fields) {
    ChatRequest chat = chat_of(R"({"messages": [{"role": "user", "content": "q"}], )" + fields + "}");
    const auto text = render_chat(model, none_, chat);
    return text ? "" : text.error().param + ": " + text.error().message;
  };
  const auto refusal = [&](std::string_view effort) {
    return refusal_of(R"("reasoning_effort": ")" + std::string(effort) + '"');
  };
  EXPECT_EQ(refusal("minimal"), "");
  model.format = *parsers::MessageFormat::make("openai", "openai_gptoss", "");
  for (const std::string_view effort : {"low", "medium", "high"}) EXPECT_EQ(refusal(effort), "") << effort;
  EXPECT_NE(refusal("minimal").find("reasoning_effort: "), std::string::npos);
  EXPECT_NE(refusal("minimal").find("one of low, medium, high"), std::string::npos) << refusal("minimal");
  EXPECT_EQ(
      refusal_of(R"("chat_template_kwargs": {"reasoning_effort": "minimal"})").find("chat_template_kwargs.reasoning_effort: "),
      0u);
}

TEST_F(Prompts, end_when_no_client_waits_for_them) {
  const auto chat = chat_of(R"({"messages": [{"role": "user", "content": "a"}]})");
  const auto gone = [] { return true; };
  const auto rendered = render_chat(model_, none_, chat, gone);
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::unavailable) << rendered.error().message;
  int n_asked = 0;
  const auto left_later = [&] { return ++n_asked > 1; };
  const auto encoded = tokenize_chat(model_, none_, chat, left_later);
  ASSERT_FALSE(encoded);
  EXPECT_EQ(encoded.error().code, ErrorCode::unavailable) << encoded.error().message;
  CompletionRequest completion;
  const auto text = tokenize_completion(model_, none_, completion, std::string("a"), gone);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::unavailable) << text.error().message;
  EXPECT_TRUE(tokenize_chat(model_, none_, chat, [] { return false; }));
}

TEST_F(Prompts, a_template_is_stopped_when_it_writes_more_than_any_prompt_has) {
  ServedModel model = byte_model();
  model.chat_template.emplace(ChatTemplate::parse("{% for i in range(1000) %}{{ 'a' * 10000 }}{% endfor %}").value());
  model.set_context(/*max_len=*/64);
  const auto text = render_chat(model, none_, chat_of(R"({"messages": [{"role": "user", "content": "a"}]})"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::invalid_request);
  EXPECT_NE(text.error().message.find(fmt::format("more than {} bytes of output", model.max_rendered_bytes())),
            std::string::npos)
      << text.error().message;
  EXPECT_LT(model.max_rendered_bytes(), 100'000u);
}

constexpr std::string_view kWithTool = R"({"messages": [{"role": "user", "content": "q"}], "tools": [{"type": "function",
    "function": {"name": "f"}}], )";

TEST_F(Prompts, tools_are_written_by_the_template_or_refused_by_name) {
  const std::string none = std::string(kWithTool) + R"("tool_choice": "none"})";
  const auto refused = render_chat(model_, none_, chat_of(none));
  ASSERT_FALSE(refused) << "this template does not write tools";
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "tools");
  model_ = tool_model();
  EXPECT_EQ(render_chat(model_, none_, chat_of(none)).value(),
            R"([tools][{"type": "function", "function": {"name": "f"}}][user]q[assistant])")
      << "as in vLLM, whatever the choice: the prompt stays the same";
}

TEST_F(Prompts, calls_results_and_reasoning_are_shaped_for_the_template) {
  model_ = tool_model();
  EXPECT_EQ(render_chat(model_, none_, chat_of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
      "content": null, "reasoning": "why", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f",
      "arguments": "{\"a\": [1]}"}}]}, {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]}]})"))
                .value(),
            "[user]q[assistant]<think>\nwhy\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n"
            "</tool_call>[tool]r[assistant]");
}

TEST_F(Prompts, tools_that_may_not_be_called_are_left_out_where_the_server_says_so) {
  model_ = tool_model();
  const ChatRequest none = chat_of(std::string(kWithTool) + R"("tool_choice": "none"})");
  EXPECT_TRUE(render_chat(model_, none_, none).value().starts_with("[tools]"));
  model_.excludes_unchosen_tools = true;
  EXPECT_EQ(render_chat(model_, none_, none).value(), "[user]q[assistant]");
  EXPECT_TRUE(
      render_chat(model_, none_, chat_of(std::string(kWithTool) + R"("tool_choice": "auto"})")).value().starts_with("[tools]"));
}

TEST_F(Prompts, a_model_has_a_template_of_its_own_for_tools) {
  model_.tool_template.emplace(parsed_template(kToolTemplate));
  model_.look_at_templates();
  EXPECT_TRUE(
      render_chat(model_, none_, chat_of(std::string(kWithTool) + R"("tool_choice": "none"})")).value().starts_with("[tools]"));
  EXPECT_EQ(render_chat(model_, none_, chat_of(R"({"messages": [{"role": "user", "content": "q"}]})")).value(),
            "[user]q[assistant]");
}

}  // namespace
}  // namespace baton
