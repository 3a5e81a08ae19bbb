/// Tests of tokenizer_config.json and the files beside it.
#include "text/tokenizer/tokenizer_config.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "io/file.h"

namespace baton {
namespace {

TEST(TokenizerConfig, an_empty_text_says_nothing) {
  const auto config = TokenizerConfig::from_json("");
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->bos_token.empty() && config->special_tokens.empty() && !config->add_bos_token);
}

TEST(TokenizerConfig, reads_tokens_as_strings_and_as_objects) {
  const auto config = TokenizerConfig::from_json(R"({
    "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
    "additional_special_tokens": ["<a>", {"content": "<b>"}],
    "added_tokens_decoder": {"7": {"content": "<a>", "special": true}}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bos_token, "<s>");
  EXPECT_EQ(config->eos_token, "</s>");
  EXPECT_EQ(config->special_tokens, (std::vector<std::string>{"<s>", "</s>", "<a>", "<b>"}));
  ASSERT_EQ(config->added_tokens.size(), 1u);
  EXPECT_EQ(config->added_tokens[0].id, 7);
}

TEST(TokenizerConfig, reads_the_ends_of_texts_and_whether_spaces_are_cleaned_up) {
  const auto config = TokenizerConfig::from_json(R"({"add_eos_token": false, "clean_up_tokenization_spaces": true})");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->add_bos_token, std::nullopt);
  EXPECT_EQ(config->add_eos_token, false);
  EXPECT_TRUE(config->clean_up_tokenization_spaces);
}

TEST(TokenizerConfig, tokens_have_the_names_that_templates_use) {
  const auto config = TokenizerConfig::from_json(
      R"({"bos_token": "<s>", "pad_token": {"content": "<pad>"}, "unk_token": null, "extra_special_tokens": {"image_token": "<i>"}})");
  ASSERT_TRUE(config) << config.error().message;
  const std::map<std::string, std::string, std::less<>> expected = {
      {"bos_token", "<s>"}, {"image_token", "<i>"}, {"pad_token", "<pad>"}};
  EXPECT_EQ(config->role_tokens, expected);
}

TEST(TokenizerConfig, the_type_of_the_model_may_overrule_the_class) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_tokenizer_class_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto class_of = [&](std::string_view config, std::string_view tokenizer_config) {
    EXPECT_TRUE(write_file(folder / "config.json", config) && write_file(folder / "tokenizer_config.json", tokenizer_config));
    return TokenizerConfig::load(folder).value().tokenizer_class;
  };
  const std::string_view llama = R"({"tokenizer_class": "LlamaTokenizerFast"})";
  EXPECT_EQ(class_of(R"({"model_type": "llama"})", llama), "LlamaTokenizer");
  EXPECT_EQ(class_of(R"({"model_type": "something_new"})", llama), "LlamaTokenizer");
  EXPECT_EQ(class_of(R"({"model_type": "llama", "tokenizer_class": "LlamaTokenizer"})", "{}"), "LlamaTokenizer");
  EXPECT_EQ(class_of(R"({"model_type": "llama"})", "{}"), "");
  EXPECT_EQ(class_of(R"({"model_type": "mistral"})", llama), "");
  EXPECT_EQ(class_of(R"({"model_type": "phi"})", llama), "LlamaTokenizer");
  EXPECT_EQ(class_of(R"({"model_type": "phi"})", "{}"), "GPT2Tokenizer");
  EXPECT_EQ(class_of(R"({"model_type": "qwen2"})", llama), "Qwen2Tokenizer");
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(TokenizerConfig::load(folder)->tokenizer_class, "LlamaTokenizer");
  std::filesystem::remove_all(folder);
}

TEST(TokenizerConfig, damaged_files_are_errors) {
  for (const char* text : {"{", "[]", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
                           R"({"added_tokens_decoder": {"-1": {"content": "a"}}})", R"({"added_tokens_decoder": {"1": 3}})",
                           R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": 3})"}) {
    const auto config = TokenizerConfig::from_json(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::invalid_data) << text;
  }
}

TEST(TokenizerConfig, a_folder_gives_the_map_and_the_templates_file) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_tokenizer_config_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file(folder / "special_tokens_map.json", R"({"eos_token": "</s>"})"));
  ASSERT_TRUE(write_file(folder / "tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "old"})"));
  ASSERT_TRUE(write_file(folder / "chat_template.json", R"({"chat_template": "json"})"));
  EXPECT_EQ(TokenizerConfig::load(folder)->chat_templates, (TemplateSources{{"default", "json"}}));
  ASSERT_TRUE(write_file(folder / "chat_template.jinja", "new"));
  const auto config = TokenizerConfig::load(folder);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bos_token, "<s>");
  EXPECT_EQ(config->eos_token, "</s>");
  EXPECT_EQ(config->chat_templates, (TemplateSources{{"default", "new"}}));
}

}  // namespace
}  // namespace baton
