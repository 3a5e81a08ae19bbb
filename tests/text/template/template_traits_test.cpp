/// What probing finds of templates (text/template/template_traits.h).
#include "text/template/template_traits.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include <gtest/gtest.h>

namespace baton {
namespace {

TemplateTraits traits_of(std::string source) {
  const auto parsed = ChatTemplate::parse(std::move(source));
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return probe_template(*parsed, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

/// A template that writes `call` for each call, and roles and contents.
std::string with_calls(std::string_view call) {
  return "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
         "{% for c in m.tool_calls or [] %}" +
         std::string(call) + "{% endfor %}{% endfor %}";
}

TEST(TemplateTraits, of_a_template_of_texts_are_none) {
  const TemplateTraits plain = traits_of("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  EXPECT_FALSE(plain.shows_tools);
  EXPECT_FALSE(plain.shows_calls);
  EXPECT_TRUE(plain.shows_results) << "it writes any role";
  EXPECT_FALSE(plain.knows_developer) << "it writes any name";
  EXPECT_FALSE(plain.has_short_ids);
}

TEST(TemplateTraits, tell_arguments_as_text_from_arguments_as_objects) {
  const TemplateTraits object = traits_of(with_calls("{{ c.function.name }}({{ c.function.arguments | tojson }})"));
  EXPECT_TRUE(object.shows_tools);
  EXPECT_TRUE(object.shows_calls);
  EXPECT_TRUE(object.shows_results);
  EXPECT_TRUE(object.takes_object_arguments);
  EXPECT_FALSE(object.takes_text_arguments) << "tojson writes a text in quotes";

  const TemplateTraits text = traits_of(with_calls("{{ c.function.name + c.function.arguments }}"));
  EXPECT_TRUE(text.takes_text_arguments);
  EXPECT_FALSE(text.takes_object_arguments);

  const TemplateTraits python = traits_of(with_calls("{{ c.function.name }}({{ c.function.arguments }})"));
  EXPECT_TRUE(python.takes_text_arguments);
  EXPECT_FALSE(python.takes_object_arguments) << "written as Python writes a dict";

  const TemplateTraits both =
      traits_of(with_calls("{{ c.function.name }}{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
                           "{{ c.function.arguments | tojson }}{% endif %}"));
  EXPECT_TRUE(both.takes_text_arguments);
  EXPECT_TRUE(both.takes_object_arguments);

  const TemplateTraits xml = traits_of(
      with_calls("<{{ c.function.name }}>{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}"));
  EXPECT_TRUE(xml.takes_object_arguments);
  EXPECT_FALSE(xml.takes_text_arguments);
}

TEST(TemplateTraits, say_whether_content_beside_calls_may_be_null_or_absent) {
  constexpr std::string_view kCall = "{{ c.function.name }}{{ c.function.arguments | tojson }}";
  const TemplateTraits any = traits_of(with_calls(kCall));
  EXPECT_TRUE(any.takes_null_content);
  EXPECT_TRUE(any.takes_absent_content);
  const auto with_content = [&](std::string_view content) {
    std::string source = with_calls(kCall);
    source.replace(source.find("{{ m.content or '' }}"), 21, content);
    return traits_of(source);
  };
  const TemplateTraits written = with_content("{{ m.content }}");
  EXPECT_FALSE(written.takes_null_content) << "it writes None";
  EXPECT_TRUE(written.takes_absent_content);
  const TemplateTraits joined = with_content("{{ 'x' + m.content }}");
  EXPECT_FALSE(joined.takes_null_content);
  EXPECT_FALSE(joined.takes_absent_content);
  EXPECT_TRUE(joined.shows_calls);
}

TEST(TemplateTraits, find_the_length_of_ids_and_the_role_of_developers) {
  EXPECT_TRUE(traits_of(with_calls("{{ c.function.name }}{{ c.function.arguments | tojson }}{% if c.id | length != 9 %}"
                                   "{{ raise_exception('ids have nine letters') }}{% endif %}"))
                  .has_short_ids);
  EXPECT_TRUE(traits_of("{% for m in messages %}{% if m.role in ['system', 'developer'] %}<sys>{% endif %}{{ m.content }}"
                        "{% endfor %}")
                  .knows_developer);
  EXPECT_FALSE(traits_of("{% for m in messages %}{% if m.role in ['system', 'user'] %}{{ m.content }}{% endif %}{% endfor %}")
                   .knows_developer);
}

TEST(TemplateTraits, of_published_templates) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set: no published template is probed";
  const std::filesystem::path folder = std::filesystem::path(data) / "chat-templates/templates";
  const auto of = [&](const std::string& name) {
    std::ifstream file(folder / (name + ".jinja"));
    return traits_of(std::string(std::istreambuf_iterator<char>(file), {}));
  };
  int n_with_tools = 0, n_with_calls = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const TemplateTraits traits = of(entry.path().stem().string());
    n_with_tools += traits.shows_tools;
    n_with_calls += traits.shows_calls;
  }
  EXPECT_GE(n_with_tools, 44);
  EXPECT_GE(n_with_calls, 44);
  const TemplateTraits qwen = of("Qwen-Qwen3-0.6B");
  EXPECT_TRUE(qwen.shows_tools && qwen.shows_results && qwen.takes_text_arguments && qwen.takes_object_arguments);
  EXPECT_TRUE(qwen.takes_empty_content);
  EXPECT_FALSE(qwen.takes_null_content || qwen.takes_absent_content) << "it looks for </think> in the content";
  const TemplateTraits coder = of("Qwen3-Coder");
  EXPECT_TRUE(coder.takes_object_arguments && !coder.takes_text_arguments) << "it writes a tag for each argument";
  const TemplateTraits r1 = of("deepseek-ai-DeepSeek-R1-Distill-Llama-8B");
  EXPECT_TRUE(r1.shows_calls && r1.takes_null_content && !r1.takes_empty_content) << "calls stand where content is none";
  EXPECT_FALSE(r1.shows_tools);
  EXPECT_TRUE(of("mistralai-Mistral-Nemo-Instruct-2407").has_short_ids);
  EXPECT_FALSE(of("mistralai-Ministral-3-14B-Reasoning-2512").has_short_ids);
  const TemplateTraits granite = of("ibm-granite-granite-3.3-2B-Instruct");
  EXPECT_TRUE(granite.shows_tools && granite.shows_results && !granite.shows_calls);
  const TemplateTraits gpt_oss = of("openai-gpt-oss-120b");
  EXPECT_TRUE(gpt_oss.knows_developer && gpt_oss.shows_calls && gpt_oss.takes_empty_content && gpt_oss.takes_absent_content);
  EXPECT_FALSE(gpt_oss.shows_several_calls || gpt_oss.takes_thoughtful_calls || gpt_oss.takes_bare_tools);
  EXPECT_TRUE(qwen.shows_several_calls && qwen.takes_thoughtful_calls && qwen.takes_bare_tools);
  EXPECT_FALSE(of("Qwen-Qwen2.5-7B-Instruct").knows_developer);
  EXPECT_FALSE(of("google-gemma-2-2b-it").shows_tools);
}

}  // namespace
}  // namespace baton
