/// Structured output over HTTP: errors, and compilation as short and as long work (server/routes/generation.cpp).
#include <deque>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace baton {
namespace {

constexpr std::string_view kRefusedByWork = "((a{1,300}){1,300}){1,300}";  // only after half a second

std::string completion(std::string_view fields) { return fmt::format(R"({{"prompt": "ab", {}}})", fields); }

/// The value of a metric of the grammars, or -1.
double metric(const ServerFixture& fixture, std::string_view name) {
  const std::string page = fixture.get("/metrics").body;
  const std::string line = fmt::format("\nbaton:grammar_{}", name);
  const auto at = page.find(line);
  if (at == std::string::npos) return -1;
  const auto value = page.find("} ", at);
  return std::stod(page.substr(value + 2));
}

TEST(RoutesGrammars, name_the_field_and_the_place_of_a_mistake) {
  const ServerFixture fixture;
  struct Case {
    std::string_view fields;
    std::string_view param;
    std::string_view place;
  };
  const Case cases[] = {
      {R"("response_format": {"type": "xml"})", "response_format.type", "xml"},
      {R"("guided_json": {"properties": {"a": {"if": {}}}})", "guided_json", "#/properties/a"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "sting"}}})",
       "response_format.json_schema.schema", "sting"},
      {R"("structured_outputs": {"regex": "(a"})", "structured_outputs.regex", "byte 2"},
      {R"("grammar": "root ::= other")", "grammar", "other"},
      {R"("guided_regex": "a", "grammar": "root ::= \"a\"")", "grammar", "only one"},
  };
  for (const Case& one : cases) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
      const std::string body =
          fmt::format(R"({{"prompt": "ab", "messages": [{{"role": "user", "content": "a"}}], {}}})", one.fields);
      const RawResponse response = fixture.post(path, body);
      EXPECT_EQ(response.status, 400) << body << response.body;
      const json::Value error = parsed(response.body)["error"];
      EXPECT_EQ(error["param"], one.param) << response.body;
      EXPECT_NE(error["message"].get<std::string>().find(one.place), std::string::npos) << response.body;
    }
  }
  EXPECT_EQ(metric(fixture, "refusals_total"), 8) << "those of a compiler";
  EXPECT_EQ(metric(fixture, "cache_entries"), 0);
}

TEST(RoutesGrammars, a_grammar_that_takes_long_does_not_keep_short_requests_waiting) {
  const ServerFixture fixture;
  ASSERT_EQ(fixture.post("/v1/completions", completion(R"("guided_regex": "(")")).status, 400) << "the vocabulary is built";
  std::string letters;
  // On a busy machine a compilation may be over before three short requests are asked; if they waited for it, each would be.
  ServerFixture::wait_until([&] {
    letters += 'b';  // another expression each time
    const double n_refused = metric(fixture, "refusals_total");
    std::thread slow([&] {
      const RawResponse response =
          fixture.post("/v1/completions", completion(fmt::format(R"("guided_regex": "{}{}")", letters, kRefusedByWork)));
      EXPECT_EQ(response.status, 400) << response.body;
      EXPECT_NE(response.body.find("more than"), std::string::npos) << response.body;
    });
    int n_short = 0;
    while (metric(fixture, "refusals_total") == n_refused && n_short < 1000) {
      EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "ab"})").status, 200);
      ++n_short;
    }
    slow.join();
    return n_short > 3;
  });
}

TEST(RoutesGrammars, a_compilation_ends_when_its_client_leaves) {
  const ServerFixture fixture;
  std::string letters;
  // On a busy machine a compilation may be over before its client has left. Uncancelled, each of them would be refused at its end.
  ServerFixture::wait_until([&] {
    const double n_misses = metric(fixture, "cache_misses_total"), n_refused = metric(fixture, "refusals_total");
    {
      std::deque<RawClient> clients;  // more than there are threads
      for (int i = 0; i < 4; ++i) {
        letters += 'b';
        clients.emplace_back(fixture.server->port())
            .send_post("/v1/completions", completion(fmt::format(R"("guided_regex": "{}{}")", letters, kRefusedByWork)));
      }
      ServerFixture::wait_until([&] { return metric(fixture, "cache_misses_total") > n_misses; });
    }
    EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "ab"})").status, 200) << "a thread is free again";
    return metric(fixture, "refusals_total") == n_refused;
  });
}

/// The texts of a completion's choices, all of which must have ended.
std::vector<std::string> texts_of(const RawResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<std::string> texts;
  const json::Value body = parsed(response.body);
  for (const json::Value& choice : body["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "stop") << response.body;
    texts.push_back(choice["text"].get<std::string>());
  }
  return texts;
}

/// What a random model writes at temperature 1 under grammars of each kind.
TEST(RoutesGrammars, answers_keep_to_each_kind_of_grammar) {
  const ServerFixture fixture;
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"("structured_outputs": {"choice": ["red", "green", "blue green"]})", "red|green|blue green"},
      {R"("guided_regex": "[a-c]{2}-[0-9]{3}")", "[a-c]{2}-[0-9]{3}"},
      {R"x("grammar": "root ::= \"(\" (\"x\" | \"yy\") \")\"")x", R"(\((x|yy)\))"},
      {R"("structured_outputs": {"json": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 12},
          "b": {"enum": ["x", null, true]}}, "required": ["b", "a"], "additionalProperties": false},
          "disable_any_whitespace": true})",
       R"x(\{"a":([5-9]|1[0-2]),"b":("x"|null|true)\})x"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array",
          "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}}})",
       R"(\[\s*(true|false)(,\s*(true|false))?\s*\])"},
  };
  for (const auto& [fields, expected] : cases) {
    const std::regex whole{std::string(expected)};
    const std::string body = completion(fmt::format(R"("max_tokens": 400, "n": 4, {})", fields));
    const std::vector<std::string> texts = texts_of(fixture.post("/v1/completions", body));
    ASSERT_EQ(texts.size(), 4u);
    for (const std::string& text : texts) EXPECT_TRUE(std::regex_match(text, whole)) << fields << ": " << text;
  }
  EXPECT_EQ(metric(fixture, "cache_entries"), 5);
  EXPECT_EQ(metric(fixture, "compile_seconds_count"), 5);
}

TEST(RoutesGrammars, a_json_object_begins_and_continues_as_one) {
  const ServerFixture fixture;
  const RawResponse response = fixture.post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "no word of it"}], "response_format": {"type": "json_object"}, "max_tokens": 40})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::string text = parsed(response.body)["choices"][0]["message"]["content"].get<std::string>();
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(^\{\s*("|\}))"))) << text;
}

TEST(RoutesGrammars, other_fields_hold_beside_a_grammar) {
  const ServerFixture fixture;
  const auto ask = [&](std::string_view fields) {
    return fixture.post("/v1/completions",
                        completion(fmt::format(R"("guided_regex": "[ab]{{8}}", "max_tokens": 40, {})", fields)));
  };
  const std::regex whole("[ab]{8}");
  for (const std::string_view fields :
       {R"("n": 3, "presence_penalty": 2, "frequency_penalty": 2)", R"("logprobs": 3, "min_tokens": 3)",
        R"("repetition_penalty": 1.5, "seed": 7)", R"("speculative_config": {"num_speculative_tokens": 4}, "temperature": 0)",
        R"("logit_bias": {"97": 5}, "bad_words": ["aba"])", R"("priority": 0, "top_k": 1)", R"("return_token_ids": true)"})
    for (const std::string& text : texts_of(ask(fields))) EXPECT_TRUE(std::regex_match(text, whole)) << fields << ": " << text;
  const std::vector<std::string> without_a = texts_of(ask(R"("logit_bias": {"97": -100})"));
  EXPECT_EQ(without_a[0], "bbbbbbbb");
  const std::vector<std::string> stopped = texts_of(ask(R"("stop": "b", "include_stop_str_in_output": true)"));
  EXPECT_TRUE(std::regex_match(stopped[0], std::regex("a*b|a{8}"))) << stopped[0];
  const RawResponse streamed = ask(R"("stream": true, "n": 2)");
  EXPECT_EQ(streamed.status, 200);
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n")) << streamed.body;
  const json::Value scored = parsed(ask(R"("logprobs": 2)").body)["choices"][0]["logprobs"];
  EXPECT_EQ(scored["tokens"].size(), 9u) << "the end of sequence too";
}

TEST(RoutesGrammars, speculation_and_seeds_change_nothing_under_a_grammar) {
  const ServerFixture fixture;
  const auto ask = [&](std::string_view fields) {
    return texts_of(fixture.post(
        "/v1/completions",
        completion(fmt::format(
            R"("structured_outputs": {{"regex": "(the same words again and again: [ab]{{4}}; ){{3}}"}}, "max_tokens": 200, "seed": 3, {})",
            fields))));
  };
  const std::vector<std::string> plain = ask(R"("speculative_config": {"num_speculative_tokens": 0})");
  EXPECT_EQ(ask(R"("speculative_config": {"num_speculative_tokens": 4})"), plain);
  EXPECT_EQ(plain[0].size(), 3 * 38u);
}

constexpr std::string_view kToolsAndFormat = R"("tools": [{"type": "function", "function": {"name": "switch", "strict": true,
    "parameters": {"type": "object", "properties": {"on": {"const": true}}, "required": ["on"],
    "additionalProperties": false}}}], "parallel_tool_calls": false, "max_tokens": 200)";
constexpr std::string_view kFormat = R"({"type": "object", "properties": {"ok": {"const": 1}}, "required": ["ok"],
    "additionalProperties": false})";

/// A model that can call tools and never reasons. A bias of the first byte decides between a call ("<", 60) and content
/// ("{", 123).
ServerFixture caller() {
  ServedModel model = tool_model();
  model.format = *parsers::MessageFormat::make("hermes", "", "");
  model.look_at_templates();
  return ServerFixture({}, {}, 256, 2048, std::move(model));
}
std::string biased(char first) { return fmt::format(R"("logit_bias": {{"{}": 100}})", static_cast<int>(first)); }

/// A chat request with tools and a format of content, streamed or not.
std::string calls_or_content(char first, std::string_view fields = R"("stream": false)") {
  return fmt::format(
      R"({{"messages": [{{"role": "user", "content": "q"}}], {}, {}, {}, "response_format": {{"type": "json_schema",
          "json_schema": {{"name": "n", "schema": {}}}}}}})",
      kToolsAndFormat, biased(first), fields, kFormat);
}

TEST(RoutesGrammars, an_answer_is_a_call_or_content_in_the_asked_format) {
  const ServerFixture fixture = caller();
  const RawResponse called = fixture.post("/v1/chat/completions", calls_or_content('<'));
  ASSERT_EQ(called.status, 200) << called.body;
  const json::Value call = parsed(called.body)["choices"][0];
  EXPECT_EQ(call["finish_reason"], "tool_calls") << called.body;
  EXPECT_TRUE(call["message"]["content"].is_null());
  EXPECT_EQ(call["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(call["message"]["tool_calls"][0]["function"]["name"], "switch");
  EXPECT_EQ(parsed(call["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()), parsed(R"({"on": true})"));

  const RawResponse said = fixture.post("/v1/chat/completions", calls_or_content('{'));
  ASSERT_EQ(said.status, 200) << said.body;
  const json::Value content = parsed(said.body)["choices"][0];
  EXPECT_EQ(content["finish_reason"], "stop") << said.body;
  EXPECT_EQ(parsed(content["message"]["content"].get<std::string>()), parsed(R"({"ok": 1})"));
  EXPECT_FALSE(content["message"].contains("tool_calls") && !content["message"]["tool_calls"].empty());
}

TEST(RoutesGrammars, a_call_or_content_streams) {
  const ServerFixture fixture = caller();
  for (const char first : {'<', '{'}) {
    const RawResponse streamed = fixture.post("/v1/chat/completions", calls_or_content(first, R"("stream": true)"));
    ASSERT_EQ(streamed.status, 200) << streamed.body;
    EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
    std::string content;
    std::string arguments;
    std::string finish;
    for (std::size_t at = streamed.body.find("data: {"); at != std::string::npos; at = streamed.body.find("data: {", at + 1)) {
      const json::Value frame = parsed(std::string_view(streamed.body).substr(at + 6, streamed.body.find("\n\n", at) - at - 6));
      const json::Value& choice = frame["choices"][0];
      if (choice["delta"].contains("content") && choice["delta"]["content"].is_string())
        content += choice["delta"]["content"].get<std::string>();
      if (choice["delta"].contains("tool_calls"))
        arguments += choice["delta"]["tool_calls"][0]["function"].value("arguments", "");
      if (choice["finish_reason"].is_string()) finish = choice["finish_reason"].get<std::string>();
    }
    if (first == '<') {
      EXPECT_EQ(content, "");
      EXPECT_EQ(parsed(arguments), parsed(R"({"on": true})"));
      EXPECT_EQ(finish, "tool_calls");
    } else {
      EXPECT_EQ(parsed(content), parsed(R"({"ok": 1})"));
      EXPECT_EQ(arguments, "");
      EXPECT_EQ(finish, "stop");
    }
  }
}

TEST(RoutesGrammars, the_other_dialects_take_tools_beside_a_format_too) {
  const ServerFixture fixture = caller();
  for (const char first : {'<', '{'}) {
    const std::string responses =
        fmt::format(R"({{"input": "q", "tools": [{{"type": "function", "name": "switch", "strict": true, "parameters":
            {{"type": "object", "properties": {{"on": {{"const": true}}}}, "required": ["on"], "additionalProperties": false}}}}],
            "parallel_tool_calls": false, "max_output_tokens": 200, {},
            "text": {{"format": {{"type": "json_schema", "name": "n", "schema": {}}}}}}})",
                    biased(first), kFormat);
    const RawResponse response = fixture.post("/v1/responses", responses);
    ASSERT_EQ(response.status, 200) << response.body;
    const json::Value item = parsed(response.body)["output"][0];
    EXPECT_EQ(item["type"], first == '<' ? "function_call" : "message") << response.body;
    if (first == '<')
      EXPECT_EQ(parsed(item["arguments"].get<std::string>()), parsed(R"({"on": true})"));
    else
      EXPECT_EQ(parsed(item["content"][0]["text"].get<std::string>()), parsed(R"({"ok": 1})"));

    const std::string messages =
        fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}], "max_tokens": 200, {}, "tools": [{{"name": "switch",
            "strict": true, "input_schema": {{"type": "object", "properties": {{"on": {{"const": true}}}}, "required": ["on"],
            "additionalProperties": false}}}}], "tool_choice": {{"type": "auto", "disable_parallel_tool_use": true}},
            "output_config": {{"format": {{"type": "json_schema", "schema": {}}}}}}})",
                    biased(first), kFormat);
    const RawResponse message = fixture.post("/v1/messages", messages);
    ASSERT_EQ(message.status, 200) << message.body;
    const json::Value block = parsed(message.body)["content"][0];
    EXPECT_EQ(block["type"], first == '<' ? "tool_use" : "text") << message.body;
    if (first == '<')
      EXPECT_EQ(block["input"], parsed(R"({"on": true})"));
    else
      EXPECT_EQ(parsed(block["text"].get<std::string>()), parsed(R"({"ok": 1})"));
  }
}

/// A model of Mistral's format, whose marker is the special token 262.
ServedModel mistral_model() {
  constexpr std::string_view kTemplate =
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}[TOOL_CALLS][{\"name\": \"{{ c.function.name }}\", \"arguments\": "
      "{{ c.function.arguments | tojson }}}]{% endfor %}{% endfor %}";
  json::Value root = test::byte_level_tokenizer();
  root["added_tokens"].push_back({{"id", 262}, {"content", "[TOOL_CALLS]"}, {"special", true}, {"normalized", false}});
  ServedModel model = byte_model();
  model.tokenizer = *Tokenizer::from_json(json::dump(root), R"({"eos_token": "<|end|>"})");
  model.n_vocab = 263;
  model.chat_template.emplace(parsed_template(kTemplate));
  model.format = parsers::MessageFormat::from_template(kTemplate);
  model.look_at_templates();
  return model;
}

TEST(RoutesGrammars, a_demanded_call_begins_with_the_special_token_of_its_format) {
  const ServerFixture fixture({}, {}, 256, 2048, mistral_model());
  const std::string body = fmt::format(
      R"({{"messages": [{{"role": "user", "content": "q"}}], {}, "tool_choice": "required", "return_token_ids": true}})",
      kToolsAndFormat);
  const RawResponse response = fixture.post("/v1/chat/completions", body);
  ASSERT_EQ(response.status, 200) << response.body;
  const json::Value choice = parsed(response.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << response.body;
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(parsed(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()), parsed(R"({"on": true})"));
  EXPECT_EQ(choice["token_ids"][0], 262) << response.body;
  EXPECT_EQ(choice["token_ids"][1], static_cast<int>('['));
}

TEST(RoutesGrammars, a_grammar_that_the_vocabulary_cannot_spell_is_the_requests_mistake) {
  ServedModel model = byte_model();
  json::Value root = test::byte_level_tokenizer();  // without the byte of "Z"
  root["model"]["vocab"].erase("Z");
  root["model"]["vocab"]["unused"] = static_cast<int>('Z');
  model.tokenizer = *Tokenizer::from_json(json::dump(root), R"({"eos_token": "<|end|>"})");
  const ServerFixture fixture({}, {}, 256, 2048, std::move(model));
  const RawResponse whole = fixture.post("/v1/completions", completion(R"("guided_regex": "abcZ", "max_tokens": 9)"));
  EXPECT_EQ(whole.status, 400) << whole.body;
  const json::Value error = parsed(whole.body)["error"];
  EXPECT_EQ(error["type"], "BadRequestError");
  EXPECT_EQ(error["code"], 400);
  EXPECT_EQ(error["message"], "'guided_regex': the vocabulary has no token for what the grammar asks for here");
  EXPECT_EQ(error["param"], "guided_regex");
  const RawResponse stream =
      fixture.post("/v1/completions", completion(R"("guided_regex": "abcZ", "max_tokens": 9, "stream": true)"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_NE(stream.body.find(R"(data: {"error":{"message":"'guided_regex': the vocabulary has no token)"), std::string::npos)
      << stream.body;
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n")) << stream.body;
  const RawResponse message = fixture.post("/v1/messages",
                                           R"({"messages": [{"role": "user", "content": "q"}], "max_tokens": 99,
          "output_config": {"format": {"type": "json_schema", "schema": {"const": "Z"}}}})");
  EXPECT_EQ(message.status, 400) << message.body;
  EXPECT_EQ(parsed(message.body)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(parsed(message.body)["error"]["message"],
            "'output_config.format.schema': the vocabulary has no token for what the grammar asks for here");
  const RawResponse item = fixture.post("/v1/responses",
                                        R"({"input": "q", "text": {"format": {"type": "json_schema", "name": "n",
          "schema": {"const": "Z"}}}})");
  EXPECT_EQ(item.status, 400) << item.body;
  EXPECT_EQ(parsed(item.body)["error"]["param"], "text.format.schema") << item.body;
}

TEST(RoutesGrammars, a_mistake_in_tools_or_in_the_format_beside_them_names_its_field) {
  const ServerFixture fixture = caller();
  const auto param = [&](std::string_view tool_schema, std::string_view schema) {
    const RawResponse response = fixture.post(
        "/v1/chat/completions",
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "q"}}], "tools": [{{"type": "function", "function": {{"name": "f",
                "strict": true, "parameters": {}}}}}],
                "response_format": {{"type": "json_schema", "json_schema": {{"name": "n", "schema": {}}}}}}})",
            tool_schema, schema));
    EXPECT_EQ(response.status, 400) << response.body;
    return parsed(response.body)["error"]["param"];
  };
  EXPECT_EQ(param(R"({"type": "object"})", R"({"type": "sting"})"), "response_format.json_schema.schema");
  EXPECT_EQ(param(R"({"type": "object", "properties": {"a": {"type": "sting"}}})", R"({"type": "string"})"),
            "tools[0].function.parameters");
}

/// In each dialect's words: which tool, by its place and its name, and where in its schema.
TEST(RoutesGrammars, a_mistake_in_a_tools_schema_names_the_tool_and_the_place) {
  const ServerFixture fixture = caller();
  constexpr std::string_view kSchema =
      R"({"type": "object", "properties": {"x": {"type": "array", "items": {"format": "idn-email"}}}})";
  constexpr std::string_view kPlace = "the JSON schema: #/properties/x/items/format 'idn-email' is not supported";
  const auto refused = [&](std::string_view path, const std::string& body) {
    for (const std::string_view stream : {"true", "false"}) {
      const RawResponse response = fixture.post(path, fmt::format(R"({{"stream": {}, {}}})", stream, body));
      EXPECT_EQ(response.status, 400) << response.body;
      if (stream == "false") return parsed(response.body)["error"];
    }
    return json::Value();
  };
  const std::string chat = fmt::format(R"("messages": [{{"role": "user", "content": "q"}}], "tools": [
      {{"type": "function", "function": {{"name": "good", "parameters": {{"type": "object"}}}}}},
      {{"type": "function", "function": {{"name": "bad", "parameters": {}}}}}], "tool_choice": )",
                                       kSchema);
  for (const std::string_view choice : {R"("required")", R"({"type": "function", "function": {"name": "bad"}})"}) {
    const json::Value error = refused("/v1/chat/completions", chat + std::string(choice));
    EXPECT_EQ(error["param"], "tools[1].function.parameters");
    EXPECT_EQ(error["message"], fmt::format("'tools[1].function.parameters' of \"bad\": {}", kPlace));
  }
  const json::Value responses = refused(
      "/v1/responses",
      fmt::format(R"("input": "q", "tools": [{{"type": "web_search"}}, {{"type": "function", "name": "bad", "parameters": {}}}],
                     "tool_choice": "required")",
                  kSchema));
  EXPECT_EQ(responses["param"], "tools[1].parameters");
  EXPECT_EQ(responses["message"], fmt::format("'tools[1].parameters' of \"bad\": {}", kPlace));
  const json::Value messages = refused("/v1/messages", fmt::format(R"("messages": [{{"role": "user", "content": "q"}}],
      "max_tokens": 4, "tools": [{{"name": "good", "input_schema": {{"type": "object"}}}}, {{"name": "bad", "input_schema": {}}}],
      "tool_choice": {{"type": "any"}})",
                                                                   kSchema));
  EXPECT_EQ(messages["message"], fmt::format("'tools[1].input_schema' of \"bad\": {}", kPlace));
  const std::string format = fmt::format(R"({{"format": {{"type": "json_schema", "name": "n", "schema": {}}}}})", kSchema);
  const json::Value text = refused("/v1/responses", R"("input": "q", "text": )" + format);
  EXPECT_EQ(text["param"], "text.format.schema");
  EXPECT_EQ(text["message"], fmt::format("'text.format.schema': {}", kPlace));
  const json::Value config =
      refused("/v1/messages", R"("messages": [{"role": "user", "content": "q"}], "max_tokens": 4, "output_config": )" + format);
  EXPECT_EQ(config["message"], fmt::format("'output_config.format.schema': {}", kPlace));
}

/// A model of harmony whose markers are tokens, from 262 on in this order. It knows "<|return|>" as the end of answers.
ServerFixture speaker_of_harmony() {
  json::Value root = test::byte_level_tokenizer();
  root["added_tokens"][0]["content"] = "<|return|>";
  TokenId id = 262;
  for (const std::string_view marker : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>", "<|end|>", "<|call|>"})
    root["added_tokens"].push_back({{"id", id++}, {"content", marker}, {"special", true}, {"normalized", false}});
  ServedModel model = tool_model();
  model.tokenizer = *Tokenizer::from_json(json::dump(root), R"({"eos_token": "<|return|>"})");
  model.n_vocab = id;
  model.format = *parsers::MessageFormat::make("openai", "openai_gptoss", "");
  model.look_at_templates();
  return ServerFixture({}, {}, 256, 2048, std::move(model));
}

TEST(RoutesGrammars, an_answer_in_harmony_is_a_call_or_a_final_message_in_the_asked_format) {
  const ServerFixture fixture = speaker_of_harmony();
  // Biases choose the markers, and the channel by its first letter.
  const auto asked = [](char channel, std::string_view fields) {
    return fmt::format(
        R"({{"messages": [{{"role": "user", "content": "q"}}], "logit_bias": {{"262": 100, "263": 100, "{}": 100}}, {},
                           "return_token_ids": true, "response_format": {{"type": "json_schema",
                           "json_schema": {{"name": "n", "schema": {}}}}}}})",
        static_cast<int>(channel), fields, kFormat);
  };
  const RawResponse called = fixture.post("/v1/chat/completions", asked('c', kToolsAndFormat));
  ASSERT_EQ(called.status, 200) << called.body;
  const json::Value call = parsed(called.body)["choices"][0];
  EXPECT_EQ(call["finish_reason"], "tool_calls") << called.body;
  EXPECT_TRUE(call["message"]["content"].is_null());
  EXPECT_EQ(call["message"]["tool_calls"][0]["function"]["name"], "switch");
  EXPECT_EQ(parsed(call["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()), parsed(R"({"on": true})"));
  EXPECT_EQ(call["token_ids"][0], 262) << "a token, not the text that spells it";
  for (const std::string_view fields : {kToolsAndFormat, std::string_view(R"("stream": false)")}) {
    const RawResponse said = fixture.post("/v1/chat/completions", asked('f', fields));
    ASSERT_EQ(said.status, 200) << said.body;
    const json::Value content = parsed(said.body)["choices"][0];
    EXPECT_EQ(content["finish_reason"], "stop") << said.body;
    EXPECT_EQ(parsed(content["message"]["content"].get<std::string>()), parsed(R"({"ok": 1})"));
    EXPECT_FALSE(content["message"].contains("reasoning"));
  }
}

}  // namespace
}  // namespace baton
