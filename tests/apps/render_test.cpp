/// `baton render` from its command line to its lines (apps/programs.h).
#include "apps/programs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"
#include "io/json.h"
#include "support/program_run.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// A model with three templates and a tokenizer, without a configuration and without weights.
class Render : public ::testing::Test {
 protected:
  Render() {
    fs::create_directories(folder_);
    EXPECT_TRUE(
        write_file(folder_ / "tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})"));
    const json::Value config = {
        {"bos_token", "a"},
        {"pad_token", "<pad>"},
        {"chat_template",
         {{{"name", "default"},
           {"template",
            "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}b{% endif %}"}},
          {{"name", "tool_use"}, {"template", "{{ tools | tojson }}{{ enable_thinking }}{{ pad_token }}"}},
          {{"name", "rag"}, {"template", "{{ documents[0].title }}{{ messages[0].content }}"}},
          {{"name", "broken"}, {"template", "{% if %}"}}}}};
    EXPECT_TRUE(write_file(folder_ / "tokenizer_config.json", json::dump(config)));
  }
  ~Render() override { fs::remove_all(folder_); }

  test::ProgramEnd run(const std::string& line, std::vector<std::string> words = {}) const {
    RenderOptions options;
    CLI::App app{"test"};
    add_render_options(app, options);
    words.push_back(folder_.string());
    std::ranges::reverse(words);
    app.parse(words);
    return test::run_program(line, [&] { return render_main(options); });
  }
  std::string error_of(const std::string& line) const {
    const test::ProgramEnd end = run(line);
    EXPECT_EQ(end.code, 1);
    EXPECT_EQ(end.out, "");
    constexpr std::string_view kBegin = "baton render: line 1: ";
    EXPECT_TRUE(end.error.starts_with(kBegin)) << end.error;
    return end.error.substr(std::min(kBegin.size(), end.error.size()));
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / "baton_render_test";
};

TEST_F(Render, conversations_become_texts_or_ids) {
  const std::string lines = R"({"messages": [{"role": "user", "content": "ba"}]})"
                            "\n"
                            R"({"messages": [{"role": "user", "content": "ü"}], "add_generation_prompt": false})"
                            "\n";
  EXPECT_EQ(run(lines).out, "{\"prompt\":\"abab\"}\n{\"prompt\":\"aü\"}\n");
  EXPECT_EQ(run(lines.substr(0, lines.find('\n')), {"--tokens"}).out, "{\"prompt_token_ids\":[0,1,0,1]}\n");
}

TEST_F(Render, the_template_is_chosen_by_tools_and_by_name) {
  EXPECT_EQ(run(R"({"messages": [], "tools": [{"b": 1}], "chat_template_kwargs": {"enable_thinking": false}})").out,
            R"({"prompt":"[{\"b\": 1}]False<pad>"})"
            "\n");
  EXPECT_EQ(run(R"({"messages": [], "tools": []})").out, "{\"prompt\":\"[]<pad>\"}\n") << "an empty list is a list";
  EXPECT_EQ(run(R"({"messages": [{"content": "x"}], "documents": [{"title": "T"}], "chat_template": "rag"})").out,
            "{\"prompt\":\"Tx\"}\n");
  EXPECT_EQ(run(R"({"messages": [], "chat_template": "own {{ 1 + 1 }}"})").out, "{\"prompt\":\"own 2\"}\n");
  EXPECT_EQ(error_of(R"({"messages": [], "chat_template": "tools"})"),
            "the model has no chat template called 'tools'; there are: broken, default, rag, tool_use\n");
  EXPECT_TRUE(error_of(R"({"messages": [], "chat_template": "broken"})").starts_with("chat template line 1"));
}

TEST_F(Render, a_file_takes_the_place_of_the_models_templates) {
  const std::string file = (folder_ / "other.jinja").string();
  ASSERT_TRUE(write_file(file, "{{ messages[0].role }}!"));
  EXPECT_EQ(run(R"({"messages": [{"role": "user"}], "tools": []})", {"--chat-template", file}).out, "{\"prompt\":\"user!\"}\n");
}

TEST_F(Render, the_last_message_can_be_continued) {
  EXPECT_EQ(run(R"({"messages": [{"content": "ab"}], "continue_final_message": true})").out, "{\"prompt\":\"aab\"}\n");
  EXPECT_EQ(
      run(R"({"messages": [{"thinking": "so"}], "continue_final_message": "thinking", "chat_template": "{{ messages[0].thinking }}!"})")
          .out,
      "{\"prompt\":\"so\"}\n");
  EXPECT_EQ(error_of(R"({"messages": [{"content": "ab"}], "continue_final_message": true, "add_generation_prompt": true})"),
            "'continue_final_message' needs 'add_generation_prompt' to be false\n");
}

TEST_F(Render, wrong_lines_are_refused_by_the_field) {
  EXPECT_EQ(error_of("[]"), "the line must be an object, not a list\n");
  EXPECT_EQ(error_of("{}"), "'messages' is missing\n");
  EXPECT_EQ(error_of(R"({"messages": "x"})"), "'messages' must be a list, not a string\n");
  EXPECT_EQ(error_of(R"({"messages": ["x"]})"), "'messages[]' must be an object, not a string\n");
  EXPECT_EQ(error_of(R"({"messages": [], "documents": {}})"), "'documents' must be a list, not an object\n");
  EXPECT_EQ(error_of(R"({"messages": [], "chat_template_kwargs": []})"),
            "'chat_template_kwargs' must be an object, not a list\n");
  EXPECT_EQ(error_of(R"({"messages": [], "enable_thinking": true})"),
            "unknown field 'enable_thinking'; variables of the template belong to 'chat_template_kwargs'\n");
  EXPECT_EQ(error_of(R"({"messages": [], "chat_template": "{{ raise_exception('no') }}"})"), "no\n");
}

}  // namespace
}  // namespace baton
