/// Messages as templates take them, and that no text is lost (server/served/shape_messages.h).
#include "server/served/shape_messages.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/request/chat_history.h"
#include "text/template/chat_template.h"

namespace baton {
namespace {

/// What a template gets that shows everything and takes everything.
constexpr TemplateTraits kAll{.shows_tools = true,
                              .shows_calls = true,
                              .shows_several_calls = true,
                              .shows_results = true,
                              .takes_text_arguments = true,
                              .takes_object_arguments = true,
                              .takes_broken_arguments = true,
                              .takes_empty_content = true,
                              .takes_null_content = true,
                              .takes_absent_content = true,
                              .takes_thoughtful_calls = true,
                              .takes_bare_tools = true,
                              .knows_developer = true,
                              .shows_system = true,
                              .shows_two_systems = true,
                              .shows_later_system = true,
                              .shows_last_system = true,
                              .takes_system_parts = true,
                              .takes_user_parts = true,
                              .takes_assistant_parts = true,
                              .takes_tool_parts = true};

std::string shaped_text(std::string_view messages, const TemplateTraits& traits) {
  const auto history = parse_messages(parsed(messages), "messages");
  EXPECT_TRUE(history) << messages << ": " << (history ? "" : history.error().message);
  return history ? json::dump(shape_messages(*history, traits)) : "";
}

constexpr std::string_view kCall = R"([{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",)"
                                   R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]}])";

TEST(ShapeMessages, gives_arguments_as_the_template_wants_them) {
  TemplateTraits traits = kAll;
  EXPECT_EQ(shaped_text(kCall, traits), kCall) << "a text that the template writes stays as the model wrote it";
  traits.takes_text_arguments = false;
  const auto arguments = [&](std::string_view given) {
    return json::dump(parsed(
        shaped_text(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" + std::string(given) + "}}]}]",
                    traits))[0]["tool_calls"][0]["function"]["arguments"]);
  };
  EXPECT_EQ(arguments(R"("{\"a\": 1, \"b\": {}}")"), R"({"a":1,"b":{}})");
  EXPECT_EQ(arguments(R"("")"), "{}");
  EXPECT_EQ(arguments(R"({"a": 1})"), R"({"a":1})");
  // What is not an object is held by one, or read out of a text.
  EXPECT_EQ(arguments(R"("{\"a\": \"b")"), R"({"arguments":"{\"a\": \"b"})");
  EXPECT_EQ(arguments(R"("[1]")"), R"({"arguments":[1]})");
  EXPECT_EQ(arguments(R"("5")"), R"({"arguments":5})");
  EXPECT_EQ(arguments(R"("so be it")"), R"({"arguments":"so be it"})");
  EXPECT_EQ(arguments(R"("\"{\\\"a\\\": 1}\"")"), R"({"a":1})") << "encoded twice";
  traits.takes_text_arguments = true;
  EXPECT_EQ(arguments(R"("{\"a\": ")"), R"("{\"a\": ")") << "as it was written";
  traits.takes_broken_arguments = false;
  EXPECT_EQ(arguments(R"("{\"a\": ")"), R"({"arguments":"{\"a\": "})");
  EXPECT_EQ(arguments(R"("{\"a\": 1}")"), R"("{\"a\": 1}")");
  traits.takes_object_arguments = false;
  EXPECT_EQ(arguments(R"("{\"a\": ")"), R"("{\"arguments\":\"{\\\"a\\\": \"}")");
  traits.takes_text_arguments = true;
  traits.takes_object_arguments = false;
  EXPECT_EQ(arguments(R"({"a": 1})"), R"("{\"a\":1}")");
}

TEST(ShapeMessages, gives_content_ids_and_roles_as_the_template_wants_them) {
  const auto content = [](std::string_view given, bool takes_null, bool takes_absent) {
    TemplateTraits traits = kAll;
    traits.takes_null_content = takes_null;
    traits.takes_absent_content = takes_absent;
    const json::Value message = parsed(shaped_text(
        R"([{"role":"assistant",)" + std::string(given) + R"("tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}])",
        traits))[0];
    const json::Value* found = json::find(message, "content");
    return found == nullptr ? "absent" : json::dump(*found);
  };
  constexpr std::string_view kNull = R"("content":null,)", kText = R"("content":"a",)";
  EXPECT_EQ(content(kNull, true, true), "null");
  EXPECT_EQ(content(kNull, false, true), "absent");
  EXPECT_EQ(content(kNull, false, false), R"("")");
  EXPECT_EQ(content("", true, true), "absent");
  EXPECT_EQ(content("", true, false), "null");
  EXPECT_EQ(content("", false, false), R"("")");
  EXPECT_EQ(content(kText, false, false), R"("a")");
  EXPECT_EQ(content(R"("content":"",)", true, true), R"("")");
  TemplateTraits no_text = kAll;
  no_text.takes_empty_content = false;
  EXPECT_TRUE(parsed(shaped_text(R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f"}}]}])",
                                 no_text))[0]["content"]
                  .is_null());

  TemplateTraits traits = kAll;
  traits.has_short_ids = true;
  traits.knows_developer = false;
  const json::Value messages = parsed(shaped_text(R"([{"role":"developer","content":"d"},{"role":"assistant","content":"",
      "tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"call_1","content":"r"}])",
                                                  traits));
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"].get<std::string>().size(), 9u);
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"], messages[2]["tool_call_id"]);
  EXPECT_EQ(parsed(shaped_text(R"([{"role":"developer","content":"d"}])", kAll))[0]["role"], "developer");
}

TEST(ShapeMessages, gives_each_call_a_message_of_its_own_where_the_template_shows_one) {
  TemplateTraits traits = kAll;
  traits.shows_several_calls = false;
  const json::Value messages =
      parsed(shaped_text(R"([{"role":"user","content":"q"},{"role":"assistant","content":"so","reasoning":"hm","note":"n",
      "tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"g"}}]},
      {"role":"tool","tool_call_id":"b","content":"B"},{"role":"tool","tool_call_id":"a","content":"A"},{"role":"tool","content":"C"},
      {"role":"user","content":"r"}])",
                         traits));
  std::string order;
  for (const json::Value& message : messages)
    order +=
        message["content"].get<std::string>() +
        (message.contains("tool_calls") ? "<" + message["tool_calls"][0]["function"]["name"].get<std::string>() + ">" : " ");
  EXPECT_EQ(order, "q so<f>A <g>B C r ");
  EXPECT_EQ(messages[1]["reasoning"], "hm");
  EXPECT_EQ(messages[1]["note"], "n");
  EXPECT_FALSE(messages[3].contains("reasoning"));
  EXPECT_FALSE(messages[3].contains("note"));
}

TEST(ShapeMessages, content_ends_the_reasoning_where_the_template_does_not_take_both) {
  TemplateTraits traits = kAll;
  traits.takes_thoughtful_calls = false;
  const auto shaped = [&](std::string_view fields) {
    return parsed(shaped_text(
        R"([{"role":"assistant",)" + std::string(fields) + R"(,"tool_calls":[{"function":{"name":"f"}}]}])", traits))[0];
  };
  const json::Value both = shaped(R"("content":"so","reasoning":"hm")");
  EXPECT_EQ(both["content"], "");
  for (const char* const key : {"reasoning", "reasoning_content", "thinking"}) EXPECT_EQ(both[key], "hm\n\nso");
  EXPECT_EQ(shaped(R"("content":"so")")["content"], "so");
  EXPECT_EQ(shaped(R"("content":"","reasoning":"hm")")["thinking"], "hm");
}

TEST(ShapeMessages, tools_get_a_description_where_the_template_needs_one) {
  const json::Value tools = parsed(R"([{"function":{"name":"f"}},{"function":{"name":"g","description":"d"}}])");
  EXPECT_EQ(shape_tools(tools, kAll), tools);
  const json::Value shaped = shape_tools(tools, {});
  EXPECT_EQ(shaped[0]["function"]["description"], "");
  EXPECT_EQ(shaped[1]["function"]["description"], "d");
}

TEST(ShapeMessages, writes_calls_as_content_for_templates_that_do_not_show_them) {
  constexpr TemplateTraits kTexts{.shows_results = true};
  EXPECT_EQ(shaped_text(kCall, kTexts), R"([{"role":"assistant","content":"[{\"name\":\"f\",\"arguments\":{\"a\":1}}]"}])");
  EXPECT_EQ(
      shaped_text(R"([{"role":"assistant","content":"so","tool_calls":[{"function":{"name":"f","arguments":"{"}},
      {"function":{"name":"g","arguments":{}}}]}])",
                  kTexts),
      R"([{"role":"assistant","content":"so\n[{\"name\":\"f\",\"arguments\":\"{\"},{\"name\":\"g\",\"arguments\":{}}]"}])");
}

/// A conversation as a template shows it; the template's own message where it refuses.
std::string shown(const ChatTemplate& chat_template, const TemplateTraits& traits, const json::Value& messages,
                  bool has_tools = false) {
  const auto history = parse_messages(messages, "messages");
  EXPECT_TRUE(history) << (history ? "" : history.error().message);
  ChatTemplate::Context context;
  context.messages = shape_messages(*history, traits);
  context.add_generation_prompt = true;
  context.role_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  if (has_tools)
    context.tools = parsed(R"([{"type":"function","function":{"name":"f","description":"d","parameters":
        {"type":"object","properties":{"a":{"type":"string","description":"a"}},"required":["a"]}}}])");
  const auto text = chat_template.render(context);
  return text ? *text : "refused: " + text.error().message;
}

std::string shown(std::string_view source, std::string_view messages) {
  const auto made = ChatTemplate::parse(std::string(source));
  EXPECT_TRUE(made) << source;
  return shown(*made, probe_template(*made, {}), parsed(messages));
}

// Templates that show less and less of the system.
constexpr std::string_view kEverywhere = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr std::string_view kOnceInFront =
    "{% if messages[0].role == 'system' %}<S>{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}{% if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}{{ raise_exception('roles must "
    "alternate') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr std::string_view kFrontOfAll =  // and silent about all others
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
constexpr std::string_view kNotAtEnd =
    "{% if messages[-1].role == 'system' %}{{ raise_exception('the last message is of the user') }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr std::string_view kNever =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}<{{ m.role }}>{{ m.content "
    "}}"
    "{% endfor %}";
constexpr std::string_view kNeverSilently =
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
constexpr std::string_view kOwnTemplates[] = {kEverywhere, kOnceInFront, kFrontOfAll, kNotAtEnd, kNever, kNeverSilently};

constexpr std::string_view kTwoInFront = R"([{"role":"system","content":"S1"},{"role":"developer","content":"S2"},
    {"role":"user","content":"U1"}])";
constexpr std::string_view kLater = R"([{"role":"system","content":"S1"},{"role":"user","content":"U1"},
    {"role":"system","content":"S2"},{"role":"assistant","content":"A1"},{"role":"system","content":"S3"},
    {"role":"user","content":"U2"}])";
constexpr std::string_view kAtEnd = R"([{"role":"user","content":"U1"},{"role":"assistant","content":"A1"},
    {"role":"user","content":"U2"},{"role":"system","content":"S1"}])";
constexpr std::string_view kAlone = R"([{"role":"system","content":"S1"}])";

TEST(ShapeMessages, puts_messages_of_the_system_where_a_template_shows_them) {
  EXPECT_EQ(shown(kEverywhere, kTwoInFront), "<system>S1<system>S2<user>U1");
  EXPECT_EQ(shown(kOnceInFront, kTwoInFront), "<S>S1\n\nS2<user>U1");
  EXPECT_EQ(shown(kFrontOfAll, kTwoInFront), "<system>S1\n\nS2<user>U1");
  EXPECT_EQ(shown(kNever, kTwoInFront), "<user>S1\n\nS2\n\nU1");
  EXPECT_EQ(shown(kNeverSilently, kTwoInFront), "<user>S1\n\nS2\n\nU1");

  EXPECT_EQ(shown(kEverywhere, kLater), "<system>S1<user>U1<system>S2<assistant>A1<system>S3<user>U2");
  EXPECT_EQ(shown(kOnceInFront, kLater), "<S>S1<user>U1\n\nS2<assistant>A1<user>S3\n\nU2");
  EXPECT_EQ(shown(kFrontOfAll, kLater), "<system>S1<user>U1\n\nS2<assistant>A1<user>S3\n\nU2");
  EXPECT_EQ(shown(kNever, kLater), "<user>S1\n\nU1\n\nS2<assistant>A1<user>S3\n\nU2");

  EXPECT_EQ(shown(kEverywhere, kAtEnd), "<user>U1<assistant>A1<user>U2<system>S1");
  EXPECT_EQ(shown(kOnceInFront, kAtEnd), "<user>U1<assistant>A1<user>U2\n\nS1");
  EXPECT_EQ(shown(kNotAtEnd, kAtEnd), "<user>U1<assistant>A1<user>U2\n\nS1");
  EXPECT_EQ(shown(kNotAtEnd, kLater), "<system>S1<user>U1<system>S2<assistant>A1<system>S3<user>U2");
  EXPECT_EQ(shown(kNever, kAtEnd), "<user>U1<assistant>A1<user>U2\n\nS1");

  EXPECT_EQ(shown(kOnceInFront, kAlone), "<S>S1");
  EXPECT_EQ(shown(kNever, kAlone), "<user>S1");
  EXPECT_EQ(shown(kOnceInFront, R"([{"role":"user","content":"U1"},{"role":"assistant","content":"A1"},
      {"role":"system","content":"S1"}])"),
            "<user>U1<assistant>A1<user>S1");
}

TEST(ShapeMessages, gives_lists_of_texts_to_templates_that_take_them) {
  constexpr std::string_view kLists =
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}";
  constexpr std::string_view kFirstOfSystem =
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% elif m.role == 'system' %}"
      "{{ m.content[0].text }}{% else %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}";
  constexpr std::string_view kParts = R"([{"role":"system","content":[{"type":"text","text":"S1"},{"type":"text","text":"S2"}]},
      {"role":"user","content":[{"type":"text","text":"U1"},{"type":"text","text":"U2"}]}])";
  EXPECT_EQ(shown(kLists, kParts), "<system>S1S2<user>U1U2");
  EXPECT_EQ(shown(kFirstOfSystem, kParts), "<system>S1\nS2<user>(U1)(U2)") << "the second text of the system would be lost";
  EXPECT_EQ(shown(kEverywhere, kParts), "<system>S1\nS2<user>U1\nU2") << "Python's way of writing a list is not a format";
  EXPECT_EQ(shown("{% for m in messages %}<{{ m.role }}>{{ m.content | tojson }}{% endfor %}", kParts),
            "<system>\"S1\\nS2\"<user>\"U1\\nU2\"");
}

TEST(ShapeMessages, gives_results_that_a_template_does_not_show_as_text) {
  constexpr std::string_view kCalled = R"([{"role":"user","content":"U1"},{"role":"assistant","content":null,"tool_calls":[
      {"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{\"x\": "}}]},
      {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"R1"},{"type":"text","text":"R2"}]},
      {"role":"tool","tool_call_id":"b","content":"R3"},{"role":"system","content":"S1"},{"role":"user","content":"U2"}])";
  EXPECT_EQ(shown(kNeverSilently, kCalled),
            "<user>U1<assistant>[{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":\"{\\\"x\\\": \"}]"
            "<user>Result of f: R1\nR2\n\nResult of g: R3\n\nS1\n\nU2");
  EXPECT_EQ(shown(kOnceInFront, kCalled), shown(kNeverSilently, kCalled)) << "roles alternate";
}

/// Conversations whose texts are T1, T2, ... in every place where a client may put them.
std::vector<json::Value> conversations() {
  std::vector<json::Value> made;
  const std::string texts = R"([{"type":"text","text":"T8"},{"type":"text","text":"T9"}])";
  for (const std::string_view messages : {kTwoInFront, kLater, kAtEnd}) made.push_back(parsed(messages));
  made.push_back(parsed(R"([{"role":"system","content":)" + texts + R"(},{"role":"user","content":"T1"}])"));
  made.push_back(parsed(R"([{"role":"user","content":)" + texts + R"(}])"));
  made.push_back(parsed(R"([{"role":"developer","content":"T1"},{"role":"system","content":"T2"},{"role":"user","content":)" +
                        texts + R"(},{"role":"developer","content":"T3"}])"));
  return made;
}

void texts_of(const json::Value& messages, std::vector<std::string>& texts) {
  for (const json::Value& message : messages) {
    if (message["content"].is_string()) texts.push_back(message["content"]);
    if (message["content"].is_array())
      for (const json::Value& part : message["content"]) texts.push_back(part["text"]);
  }
}

/// What the user and the assistant say in a conversation.
json::Value plain_part(const json::Value& messages) {
  json::Value plain = json::Value::array();
  for (const json::Value& message : messages)
    if (message["role"] == "user" || message["role"] == "assistant")
      plain.push_back({{"role", message["role"]}, {"content", message["content"].is_string() ? message["content"] : "T0"}});
  return plain;
}

/// The conversations that a template does not show completely, though it shows what the user and the assistant say in them.
/// `n_shown` counts the ones that it shows.
std::vector<std::string> losses(const ChatTemplate& chat_template, const TemplateTraits& traits, int& n_shown) {
  std::vector<std::string> lost;
  for (const json::Value& messages : conversations())
    for (const bool has_tools : {false, true}) {
      if (shown(chat_template, traits, plain_part(messages), has_tools).starts_with("refused")) continue;
      const std::string text = shown(chat_template, traits, messages, has_tools);
      std::vector<std::string> texts;
      texts_of(messages, texts);
      const auto missing = std::ranges::find_if(texts, [&](const auto& one) { return text.find(one) == std::string::npos; });
      if (missing == texts.end())
        ++n_shown;
      else
        lost.push_back(json::dump(messages) + " is shown as " + text);
    }
  return lost;
}

TEST(ShapeMessages, loses_no_text_in_any_of_the_own_templates) {
  int n_shown = 0;
  for (const std::string_view source : kOwnTemplates) {
    const auto made = ChatTemplate::parse(std::string(source));
    ASSERT_TRUE(made);
    for (const std::string& loss : losses(*made, probe_template(*made, {}), n_shown)) ADD_FAILURE() << source << ": " << loss;
  }
  EXPECT_EQ(n_shown, static_cast<int>(2 * conversations().size() * std::size(kOwnTemplates)));
}

TEST(ShapeMessages, loses_no_text_in_published_templates) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set: no published template is tried";
  int n_templates = 0, n_none = 0, n_shown = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(data) / "chat-templates/templates")) {
    std::ifstream file(entry.path());
    const auto made = ChatTemplate::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    ASSERT_TRUE(made) << entry.path();
    ++n_templates;
    int n_here = 0;
    const TemplateTraits traits = probe_template(*made, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    for (const std::string& loss : losses(*made, traits, n_here)) ADD_FAILURE() << entry.path().stem() << ": " << loss;
    n_none += n_here == 0;
    n_shown += n_here;
  }
  EXPECT_EQ(n_templates, 55);
  EXPECT_LE(n_none, 1) << "one needs variables of its own";
  std::cout << n_templates << " templates show " << n_shown << " conversations completely\n";
}

}  // namespace
}  // namespace baton
