/// Named chat templates: where they are written, and which of them is taken (text/template/chat_templates.h).
#include "text/template/chat_templates.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/file.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

Result<TemplateSources> sources_of(std::string_view text) {
  return template_sources(json::parse(text, "test").value(), "tokenizer_config.json");
}

TEST(ChatTemplates, are_a_text_a_list_or_an_object) {
  EXPECT_TRUE(sources_of("{}")->empty());
  EXPECT_TRUE(sources_of(R"({"chat_template": null})")->empty());
  EXPECT_EQ(*sources_of(R"({"chat_template": "T"})"), (TemplateSources{{"default", "T"}}));
  const TemplateSources two = {{"default", "B"}, {"tool_use", "A"}};
  EXPECT_EQ(*sources_of(R"({"chat_template": [{"name": "tool_use", "template": "A"}, {"name": "default", "template": "B"}]})"),
            two);
  EXPECT_EQ(*sources_of(R"({"chat_template": {"tool_use": "A", "default": "B"}})"), two);
}

TEST(ChatTemplates, damaged_ones_are_errors) {
  for (const char* text : {R"({"chat_template": 3})", R"({"chat_template": ["T"]})", R"({"chat_template": {"default": 1}})",
                           R"({"chat_template": [{"name": "x"}]})", R"({"chat_template": [{"name": 1, "template": "T"}]})"}) {
    const auto sources = sources_of(text);
    ASSERT_FALSE(sources) << text;
    EXPECT_EQ(sources.error().code, ErrorCode::invalid_data) << text;
    EXPECT_TRUE(sources.error().message.starts_with("tokenizer_config.json: ")) << sources.error().message;
  }
}

TEST(ChatTemplates, are_read_from_files_of_their_own) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("baton_chat_templates_" + std::to_string(::getpid()));
  fs::create_directories(folder / "additional_chat_templates");
  EXPECT_TRUE(read_template_files(folder)->empty());
  ASSERT_TRUE(write_file(folder / "chat_template.jinja", "D"));
  ASSERT_TRUE(write_file(folder / "additional_chat_templates/rag.jinja", "R"));
  ASSERT_TRUE(write_file(folder / "additional_chat_templates/notes.txt", "not a template"));
  EXPECT_EQ(*read_template_files(folder), (TemplateSources{{"default", "D"}, {"rag", "R"}}));
  fs::remove_all(folder);
  EXPECT_TRUE(read_template_files(folder)->empty());
}

std::string chosen(const TemplateSources& sources, std::string_view asked, bool has_tools) {
  const auto name = choose_template(sources, asked, has_tools);
  return name ? std::string(*name) : "error: " + name.error().message;
}

TEST(ChatTemplates, the_choice_is_that_of_transformers) {
  const TemplateSources three = {{"default", "D"}, {"rag", "R"}, {"tool_use", "T"}};
  EXPECT_EQ(chosen(three, "", false), "default");
  EXPECT_EQ(chosen(three, "", true), "tool_use");
  EXPECT_EQ(chosen(three, "rag", true), "rag");
  EXPECT_EQ(chosen(three, "default", true), "default");
  EXPECT_EQ(chosen({{"default", "D"}}, "", true), "default");
  EXPECT_EQ(chosen(three, "tools", false),
            "error: the model has no chat template called 'tools'; there are: default, rag, tool_use");
  EXPECT_EQ(chosen({{"rag", "R"}, {"tool_use", "T"}}, "", false),
            "error: the model has several chat templates and none is called default; name one of: rag, tool_use");
  EXPECT_EQ(chosen({{"rag", "R"}, {"tool_use", "T"}}, "", true), "tool_use");
  EXPECT_EQ(chosen({}, "", false), "error: the model has no chat template");
}

}  // namespace
}  // namespace baton
