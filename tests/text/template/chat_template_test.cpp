/// Chat templates: the contract of ChatTemplate, and real templates compared with Jinja2's results.
#include "text/template/chat_template.h"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "support/source_folder.h"

namespace baton {
namespace {

json::Value from(std::string_view text) {
  auto value = json::parse(text, "test");
  EXPECT_TRUE(value.has_value()) << value.error().message;
  return value ? *value : json::Value();
}

/// The context with the fields of `variables`.
ChatTemplate::Context context_of(const json::Value& variables) {
  ChatTemplate::Context context;
  context.extra = variables;
  if (variables.contains("messages")) context.messages = variables["messages"];
  if (variables.contains("tools")) context.tools = variables["tools"];
  context.add_generation_prompt = variables.value("add_generation_prompt", false);
  return context;
}

Result<std::string> render(const std::string& source, const json::Value& variables) {
  BATON_TRY(const ChatTemplate chat_template, ChatTemplate::parse(source));
  return chat_template.render(context_of(variables));
}

std::string render_or_message(const std::string& source, const json::Value& variables) {
  const auto text = render(source, variables);
  return text ? *text : "error: " + text.error().message;
}

std::filesystem::path data_folder() {
  const char* folder = std::getenv("BATON_TEST_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder) / "chat-templates";
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

json::Value read_golden(const std::string& name) {
  return json::parse_file(test::source_folder() / "tests/goldens/chat_templates" / name).value();
}

constexpr std::string_view kChatMl =
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}\n"
    "{{ '<|im_start|>assistant\\n' }}\n"
    "{% endif %}";

TEST(ChatTemplate, renders_messages_with_the_whitespace_rules_of_transformers) {
  const auto chat_template = ChatTemplate::parse(std::string(kChatMl));
  ASSERT_TRUE(chat_template.has_value()) << chat_template.error().message;
  ChatTemplate::Context context;
  context.messages = from(R"([{"role": "user", "content": "Grüße"}])");
  EXPECT_EQ(chat_template->render(context).value(), "<|im_start|>user\nGrüße<|im_end|>\n\n");
  context.add_generation_prompt = true;
  EXPECT_EQ(chat_template->render(context).value(), "<|im_start|>user\nGrüße<|im_end|>\n\n<|im_start|>assistant\n\n");
}

TEST(ChatTemplate, passes_tokens_tools_and_further_variables) {
  ChatTemplate::Context context;
  context.role_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  context.extra = from(R"({"enable_thinking": false, "eos_token": "<end>"})");
  const auto chat_template =
      ChatTemplate::parse("{{ bos_token }}|{{ eos_token }}|{{ tools is none }}|{{ enable_thinking }}|{{ nothing }}");
  ASSERT_TRUE(chat_template.has_value());
  EXPECT_EQ(chat_template->render(context).value(), "<s>|<end>|True|False|");
  context.tools = from(R"([{"b": 1, "a": "<é>"}])");
  EXPECT_EQ(ChatTemplate::parse("{{ tools | tojson }}")->render(context).value(), R"([{"b": 1, "a": "<é>"}])");
}

TEST(ChatTemplate, passes_documents_or_none) {
  const auto chat_template = ChatTemplate::parse(
      "{% if documents is none %}none{% else %}{% for d in documents %}{{ d.title }}: {{ d.text }}.{% endfor %}{% endif %}");
  ASSERT_TRUE(chat_template.has_value());
  ChatTemplate::Context context;
  EXPECT_EQ(chat_template->render(context).value(), "none");
  context.documents = from(R"([{"title": "A", "text": "one"}, {"title": "B", "text": "two"}])");
  EXPECT_EQ(chat_template->render(context).value(), "A: one.B: two.");
}

/// The text that ends after `field` of the last of `messages`.
std::string continued(const std::string& source, std::string_view messages, const std::string& field) {
  ChatTemplate::Context context;
  context.messages = from(messages);
  context.continued_field = field;
  const auto text = ChatTemplate::parse(source)->render(context);
  if (text) return *text;
  EXPECT_EQ(text.error().param, "continue_final_message");
  return "error: " + text.error().message;
}

TEST(ChatTemplate, the_last_message_is_continued_where_the_template_writes_it) {
  const std::string plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}";
  const std::string trims = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}<end>{% endfor %}";
  const std::string_view messages = R"([{"role": "u", "content": "We have"}, {"role": "a", "content": "We have "}])";
  EXPECT_EQ(continued(plain, messages, "content"), "[u]We have<end>[a]We have ");
  EXPECT_EQ(continued(trims, messages, "content"), "[u] We have<end>[a] We have");
  EXPECT_EQ(continued(plain, R"([{"role": "a", "content": ""}])", "content"), "[a]");
  // A template that writes only the part after the reasoning.
  EXPECT_EQ(continued("{{ messages[0].content.split('</think>')[-1] }}!", R"([{"content": "x</think>y"}])", "content"), "y");
  EXPECT_EQ(continued("{% for p in messages[0].content %}{{ p.text }};{% endfor %}",
                      R"([{"content": [{"text": "a"}, {"text": "b"}, {"image": 1}]}])", "content"),
            "a;b");
  EXPECT_EQ(continued("{{ messages[0].thinking }}!", R"([{"thinking": "so", "content": "x"}])", "thinking"), "so");
}

TEST(ChatTemplate, a_last_message_that_cannot_be_continued_is_an_error) {
  const std::string plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
  for (const char* messages : {R"([])", R"([{"role": "a"}])", R"([{"content": null}])", R"([{"content": [{"image": 1}]}])"})
    EXPECT_EQ(continued(plain, messages, "content"),
              "error: 'continue_final_message' needs a last message whose 'content' is a text");
  EXPECT_EQ(continued("{{ messages[0].role }}", R"([{"role": "a", "content": "x"}])", "content"),
            "error: 'continue_final_message' needs a last message whose 'content' the chat template writes out");
}

TEST(ChatTemplate, hands_the_message_of_raise_exception_to_the_caller_unchanged) {
  const auto text = render("\n{{ raise_exception('Roles must alternate') }}", from("{}"));
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(text.error().message, "Roles must alternate");
}

TEST(ChatTemplate, names_line_and_construct_of_an_error_while_rendering) {
  const auto text = render("a\nb{{ 1 }}\n{% if true %}{{ message.content.strip() }}{% endif %}", from("{}"));
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(text.error().message, "chat template line 3, in '.content': 'message' is undefined");
}

TEST(ChatTemplate, names_the_variable_whose_attribute_cannot_be_set) {
  EXPECT_EQ(render_or_message("{% set nowhere_to_be_found.x = 1 %}", from("{}")),
            "error: chat template line 1, in 'set': 'nowhere_to_be_found' is undefined");
}

TEST(ChatTemplate, refuses_unsupported_features_by_name_when_parsing) {
  const auto included = ChatTemplate::parse("x\n{% include 'header' %}");
  ASSERT_FALSE(included.has_value());
  EXPECT_EQ(included.error().code, ErrorCode::unsupported);
  EXPECT_EQ(included.error().message, "chat template line 2: the tag 'include' is not supported");
  const auto filtered = ChatTemplate::parse("{{ x\n| urlize }}");
  ASSERT_FALSE(filtered.has_value());
  EXPECT_EQ(filtered.error().message, "chat template line 2: the filter 'urlize' is not known");
  EXPECT_FALSE(ChatTemplate::parse("\xff").has_value());
}

TEST(ChatTemplate, shows_the_time_it_is_given) {
  ChatTemplate::Context context;
  std::tm day = {};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_hour = 12;
  day.tm_isdst = -1;
  context.now = std::chrono::system_clock::from_time_t(std::mktime(&day));
  EXPECT_EQ(ChatTemplate::parse("{{ strftime_now('%d %b %Y') }}")->render(context).value(), "26 Jul 2024");
}

TEST(ChatTemplate, is_movable_and_renders_in_several_threads_at_once) {
  auto parsed = ChatTemplate::parse(std::string(kChatMl));
  ASSERT_TRUE(parsed.has_value());
  const ChatTemplate chat_template = std::move(*parsed);
  ChatTemplate::Context context;
  for (int i = 0; i < 50; ++i) context.messages.push_back({{"role", "user"}, {"content", std::to_string(i)}});
  const std::string expected = chat_template.render(context).value();
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) threads.emplace_back([&] { text = chat_template.render(context).value(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
}

TEST(ChatTemplate, refuses_messages_nested_too_deeply) {
  json::Value nested = json::Value::array();
  for (int i = 0; i < 2000; ++i) {
    json::Value outer = json::Value::array();
    outer.push_back(std::move(nested));
    nested = std::move(outer);
  }
  ChatTemplate::Context context;
  context.messages = std::move(nested);
  const auto text = ChatTemplate::parse("x")->render(context);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::invalid_request);
}

/// Checks a golden: the text, or that there is an error. If the template raises the error, its message is the
/// golden's.
void expect_golden(const json::Value& golden, const Result<std::string>& text, const std::string& name) {
  if (golden.contains("expected")) {
    EXPECT_EQ(text ? *text : "error: " + text.error().message, golden["expected"].get<std::string>()) << name;
    return;
  }
  const std::string error = golden["error"].get<std::string>();
  if (error.starts_with("SecurityError")) return;  // lists and dicts may be changed here, as in other engines
  ASSERT_FALSE(text.has_value()) << name << " gave " << *text;
  if (error.starts_with("TemplateError: ")) {
    EXPECT_EQ(text.error().message, error.substr(15)) << name;
  }
}

/// tools/make_goldens.py writes it with jinja2, configured as in Transformers.
TEST(ChatTemplate, equals_jinja2_on_every_committed_case) {
  const json::Value file = read_golden("cases.json");
  std::tm day = {};
  day.tm_year = 126;
  day.tm_mday = 2;
  day.tm_hour = 3;
  day.tm_min = 4;
  day.tm_sec = 5;
  day.tm_isdst = -1;
  ASSERT_EQ(file["now"], "2026-01-02T03:04:05");
  const auto now = std::chrono::system_clock::from_time_t(std::mktime(&day));
  const auto render_now = [&](const std::string& source, const json::Value& variables) -> Result<std::string> {
    BATON_TRY(const ChatTemplate chat_template, ChatTemplate::parse(source));
    ChatTemplate::Context context = context_of(variables);
    context.now = now;
    return chat_template.render(context);
  };
  EXPECT_GE(file["features"].size(), 100U);
  for (const json::Value& feature : file["features"])
    expect_golden(feature, render_now(feature["template"].get<std::string>(), file["feature_context"]),
                  feature["name"].get<std::string>());
  EXPECT_GE(file["rendered"].size(), 80U);
  for (const json::Value& golden : file["rendered"]) {
    json::Value variables = file["chat_tokens"];
    const std::string name = golden["template"].get<std::string>(), chat = golden["chat"].get<std::string>();
    for (const auto& [key, value] : file["chats"][chat].items()) variables[key] = value;
    expect_golden(golden, render_now(file["templates"][name].get<std::string>(), variables), name + ", " + chat);
  }
}

/// The 64-bit FNV-1a digest in hex.
std::string digest_of(std::string_view text) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const char byte : text) digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(digest));
  return hex;
}

/// real_templates.json has the digest of Jinja2's text, or its error, for each of 55 templates with six conversations.
TEST(ChatTemplate, equals_jinja2_on_real_templates) {
  if (data_folder().empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const json::Value file = read_golden("real_templates.json");
  int texts = 0;
  for (const json::Value& golden : file["cases"]) {
    const std::string name = golden["template"].get<std::string>();
    const std::string conversation = golden["context"].get<std::string>();
    const auto chat_template = ChatTemplate::parse(read(data_folder() / "templates" / name));
    ASSERT_TRUE(chat_template.has_value()) << name << ": " << chat_template.error().message;
    ChatTemplate::Context context = context_of(file["contexts"][conversation]);
    context.now = std::chrono::system_clock::from_time_t(file["now"].get<std::time_t>());
    const auto text = chat_template->render(context);
    ASSERT_EQ(text.has_value(), golden.contains("digest"))
        << name << ", " << conversation << ": " << (text ? golden["error"].get<std::string>() : text.error().message);
    if (!text) continue;
    EXPECT_EQ(digest_of(*text), golden["digest"].get<std::string>()) << name << ", " << conversation << "\n" << *text;
    ++texts;
  }
  EXPECT_GE(file["cases"].size(), 300U);
  std::cout << texts << " texts and " << file["cases"].size() - static_cast<std::size_t>(texts) << " errors as in Jinja2\n";
}

TEST(ChatTemplate, a_text_ends_at_the_length_that_is_asked_for) {
  const ChatTemplate made = ChatTemplate::parse("{% for i in range(1000) %}{{ messages[0] * 100 }}{% endfor %}").value();
  ChatTemplate::Context context{.messages = {std::string(1000, 'a')}};
  context.max_output_bytes = 250'000;
  const auto text = made.render(context);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::too_large);
  EXPECT_NE(text.error().message.find("more than 250000 bytes of output"), std::string::npos) << text.error().message;
  EXPECT_EQ(ChatTemplate::parse("{{ messages[0] }}").value().render(context)->size(), 1000U);
}

TEST(ChatTemplate, a_rendering_ends_when_no_client_waits_for_it) {
  const ChatTemplate made = ChatTemplate::parse("{% for a in range(99999) %}{{ a | string | length }}{% endfor %}").value();
  ChatTemplate::Context context{.messages = json::Value::array()};
  context.is_cancelled = [] { return true; };
  const auto text = made.render(context);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::unavailable) << text.error().message;
}

/// Setting and finding one of so many by a scan would take minutes.
TEST(ChatTemplate, many_variables_cost_no_more_than_few) {
  constexpr int kVariables = 300'000;
  ChatTemplate::Context context{.messages = json::Value::array()};
  std::string variables = "{";
  for (int i = 0; i < kVariables; ++i) variables += (i > 0 ? ", \"v" : "\"v") + std::to_string(i) + "\": " + std::to_string(i);
  context.extra = json::parse(variables + "}", "the variables").value();
  const std::clock_t begin = std::clock();
  const auto text =
      ChatTemplate::parse("{% for i in range(9999) %}{% set x = v299999 %}{% endfor %}{{ v7 }}").value().render(context);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(*text, "7");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

TEST(ChatTemplate, equals_jinja2_on_one_feature_templates) {
  if (data_folder().empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  int passed = 0, total = 0;
  const json::Value tests = json::parse_file(data_folder() / "jinja_units.json").value();
  for (const json::Value& test : tests) {
    if (test["expected_python_jinja2"].is_null()) continue;
    ++total;
    // These were rendered without trim_blocks and lstrip_blocks.
    const auto body = jinja::parse(test["template"].get<std::string>(), {.trim_blocks = false, .lstrip_blocks = false});
    ASSERT_TRUE(body.has_value()) << test["name"] << ": " << body.error().message;
    jinja::Arena arena(jinja::Limits{}, read_template_json);
    jinja::Scope* scope = arena.scope(jinja::global_scope(arena, 0));
    for (auto field = test["context"].begin(); field != test["context"].end(); ++field)
      arena.set(*scope, field.key(), template_value(arena, field.value(), TemplateTexts::view).value());
    const auto text = jinja::Interpreter(arena).run(*body, scope);
    const std::string got = text ? *text : "error: " + text.error().message;
    EXPECT_EQ(got, test["expected_python_jinja2"].get<std::string>()) << test["name"] << "\n" << test["template"];
    passed += got == test["expected_python_jinja2"].get<std::string>() ? 1 : 0;
  }
  std::cout << passed << " of " << total << " one-feature templates equal\n";
}

TEST(ChatTemplate, equals_jinja2_on_the_cases_of_llama_cpp) {
  if (data_folder().empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const json::Value file = json::parse_file(data_folder() / "llamacpp_chat_cases.json").value();
  int passed = 0, total = 0;
  for (const json::Value& test : file["cases"]) {
    if (!test["agrees_python_jinja2"].get<bool>()) continue;
    ++total;
    json::Value variables = json::Value::object();
    for (const char* token : {"bos_token", "eos_token"})
      variables[token] = test.value(token, json::Value(nullptr)).is_null() ? json::Value("") : test[token];
    variables["messages"] = file["messages"];
    variables["add_generation_prompt"] = file["add_generation_prompt"];
    std::string expected = test["expected_output_jinja"].get<std::string>();
    if (expected.empty()) expected = test["expected_output"].get<std::string>();
    const std::string got = render_or_message(test["template_str"].get<std::string>(), variables);
    EXPECT_EQ(got, expected) << test["name"];
    passed += got == expected ? 1 : 0;
  }
  std::cout << passed << " of " << total << " llama.cpp cases equal\n";
  EXPECT_EQ(total, 22);
}

}  // namespace
}  // namespace baton
