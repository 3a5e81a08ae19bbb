/// The text side of a folder: which template, and which sampling defaults (load/load_text.h).
#include "load/load_text.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/json.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// A copy of the files of the demo model that load_text reads.
class LoadText : public ::testing::Test {
 protected:
  LoadText() {
    fs::remove_all(files_.folder);
    fs::create_directories(files_.folder);
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
      if (const fs::path from = shared_folder("models/demo").value() / name; fs::exists(from)) fs::copy(from, files_.folder);
  }
  ~LoadText() override { fs::remove_all(files_.folder); }
  fs::path write(const char* name, const char* text) const {
    std::ofstream(files_.folder / name) << text;
    return files_.folder / name;
  }

  const ModelFiles files_{"copy", fs::path(::testing::TempDir()) / fmt::format("baton_load_text_test_{}", ::getpid()), false};
};

TEST_F(LoadText, sampling_defaults_are_those_of_the_generation_config) {
  const auto without = load_text(files_, {});
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_FALSE(without->defaults.temperature);
  EXPECT_FALSE(without->defaults.top_k);
  write("generation_config.json",
        R"({"do_sample": true, "temperature": 0.5, "top_p": 0.25, "top_k": -1, "repetition_penalty": 2})");
  const auto with = load_text(files_, {});
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->defaults.temperature, 0.5f);
  EXPECT_EQ(with->defaults.top_p, 0.25f);
  EXPECT_EQ(with->defaults.top_k, 0) << "-1 is off";
  EXPECT_EQ(with->defaults.repetition_penalty, 2.0f);
  EXPECT_FALSE(with->defaults.min_p);
  EXPECT_FALSE(with->defaults.max_tokens);
  ModelOptions options;
  options.generation_config = "vllm";
  EXPECT_FALSE(load_text(files_, options)->defaults.temperature);
  write("generation_config.json", R"({"do_sample": false, "temperature": 0.5})");
  EXPECT_EQ(load_text(files_, {})->defaults.temperature, 0.0f) << "greedy, whatever the temperature";
}

TEST_F(LoadText, sampling_defaults_can_come_from_another_folder) {
  write("generation_config.json", R"({"temperature": 0.5, "top_p": 0.5})");
  const fs::path other = files_.folder / "other";
  fs::create_directory(other);
  ModelOptions options;
  options.generation_config = other.string();
  const auto absent = load_text(files_, options);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().param, "generation_config");
  std::ofstream(other / "generation_config.json") << R"({"temperature": 0.25, "min_p": 0.125, "max_new_tokens": 7})";
  const auto text = load_text(files_, options);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->defaults.temperature, 0.25f);
  EXPECT_FALSE(text->defaults.top_p);
  EXPECT_EQ(text->defaults.min_p, 0.125f);
  EXPECT_EQ(text->defaults.max_tokens, 7);
  EXPECT_EQ(load_generation_config(files_, options)->max_new_tokens, 7);
  options.generation_config = "vllm";
  EXPECT_EQ(load_generation_config(files_, options)->top_p, 0.5) << "the model's, for its end tokens";
  options.generation_config = "neither";
  EXPECT_FALSE(load_text(files_, options));
}

TEST_F(LoadText, a_tokenizer_is_a_folder_or_a_file) {
  ModelOptions options;
  options.model = files_.folder.string();
  const auto folder = load_tokenizer(options, {});
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_TRUE(folder->chat_templates().contains("default"));
  options.model = (files_.folder / "tokenizer.json").string();
  const auto file = load_tokenizer(options, {});
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->encode("a mug", false), folder->encode("a mug", false));
  EXPECT_TRUE(file->chat_templates().empty()) << "nothing beside the file is read";
  options.model = write("broken.json", "{").string();
  EXPECT_FALSE(load_tokenizer(options, {}));
}

TEST_F(LoadText, a_template_file_takes_the_place_of_the_models) {
  const auto own = load_text(files_, {});
  ASSERT_TRUE(own) << own.error().message;
  ASSERT_TRUE(own->chat_template);
  EXPECT_GT(own->n_vocab, 0);
  ModelOptions options;
  options.chat_template = write("other.jinja", "{{ messages[0].content }}").string();
  EXPECT_TRUE(load_text(files_, options)->chat_template);
  options.chat_template = write("broken.jinja", "{% if %}").string();
  EXPECT_FALSE(load_text(files_, options));
  options.chat_template = (files_.folder / "absent.jinja").string();
  EXPECT_FALSE(load_text(files_, options));
}

TEST_F(LoadText, a_model_may_have_a_template_for_tools) {
  EXPECT_FALSE(load_text(files_, {})->tool_template);
  fs::create_directories(files_.folder / "additional_chat_templates");
  write("chat_template.jinja", "{{ messages[0].content }}");
  write("additional_chat_templates/tool_use.jinja", "{{ tools }}{{ messages[0].content }}");
  const auto with = load_text(files_, {});
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_TRUE(with->tool_template);
  ModelOptions options;
  options.chat_template = write("other.jinja", "{{ messages[0].content }}").string();
  EXPECT_FALSE(load_text(files_, options)->tool_template) << "the flag's is for all conversations";
}

TEST_F(LoadText, parsers_are_chosen_by_name) {
  ModelOptions options;
  options.tool_call_parser = "none";
  options.reasoning_parser = "none";
  ASSERT_TRUE(load_text(files_, options));
  EXPECT_EQ(load_text(files_, options)->format.tool_parser(), "");
  EXPECT_TRUE(load_text(files_, options)->stop_ids.empty());
  options.tool_call_parser = "nonsense";
  EXPECT_FALSE(load_text(files_, options));
}

TEST_F(LoadText, the_stop_tokens_of_harmony_end_answers) {
  ModelOptions options;
  options.tool_call_parser = "openai";
  options.reasoning_parser = "openai_gptoss";
  EXPECT_TRUE(load_text(files_, options)->stop_ids.empty()) << "the vocabulary has none";
  const TokenId first = load_text(files_, {})->tokenizer.n_vocab();
  json::Value tokenizer = *json::parse_file(files_.folder / "tokenizer.json");
  for (const auto& [id, text] : {std::pair(first, "<|call|>"), std::pair(first + 1, "<|return|>")})
    tokenizer["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", true}, {"normalized", false}});
  write("tokenizer.json", json::dump(tokenizer).c_str());
  EXPECT_EQ(load_text(files_, options)->stop_ids, (std::vector<TokenId>{first + 1, first}));
  EXPECT_TRUE(load_text(files_, {})->stop_ids.empty()) << "another format";
}

}  // namespace
}  // namespace baton
