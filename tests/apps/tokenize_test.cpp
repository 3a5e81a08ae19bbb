/// `baton tokenize` from its command line to its lines (apps/programs.h).
#include "apps/programs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"
#include "support/program_run.h"
#include "support/source_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

/// Runs the program with `words` and with `text` on standard input.
test::ProgramEnd run(std::vector<std::string> words, const std::string& text) {
  TokenizeOptions options;
  CLI::App app{"test"};
  add_tokenize_options(app, options);
  std::ranges::reverse(words);
  app.parse(words);
  return test::run_program(text, [&] { return tokenize_main(options); });
}

const std::string kDemo = (test::source_folder() / "models/demo").string();

TEST(Tokenize, lines_become_ids_and_ids_become_lines) {
  const Tokenizer tokenizer = Tokenizer::load(kDemo).value();
  const std::string texts = "\"What does it cost?\"\n\"\"\n\"Gr\\u00fc\\u00dfe\\n\"\n";
  for (const std::vector<std::string>& model :
       {std::vector<std::string>{kDemo}, {"--tokenizer", kDemo}, {"--tokenizer", kDemo + "/tokenizer.json"}, {"demo"}, {}}) {
    std::vector<std::string> words = model;
    words.push_back("--no-special-tokens");
    const test::ProgramEnd encoded = run(words, texts);
    ASSERT_EQ(encoded.code, 0) << encoded.error;
    EXPECT_EQ(encoded.out.substr(0, encoded.out.find('\n')),
              json::dump(json::Value(tokenizer.encode("What does it cost?", false))));
    words = model;
    words.push_back("--decode");
    const test::ProgramEnd decoded = run(words, encoded.out);
    EXPECT_EQ(decoded.code, 0) << decoded.error;
    EXPECT_EQ(decoded.out, "\"What does it cost?\"\n\"\"\n\"Grüße\\n\"\n");
  }
}

TEST(Tokenize, special_tokens_are_put_around_texts_and_left_out_of_them) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "baton_tokenize_special";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file(folder / "tokenizer.json", R"({
    "added_tokens": [{"id": 2, "content": "<s>", "special": true}],
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})"));
  EXPECT_EQ(run({folder.string()}, "\"ab\"").out, "[2,0,1]\n");
  EXPECT_EQ(run({folder.string(), "--no-special-tokens"}, "\"ab\"").out, "[0,1]\n");
  EXPECT_EQ(run({folder.string(), "--decode"}, "[2,0]").out, "\"<s> a\"\n") << "without a decoder, tokens are joined by spaces";
  EXPECT_EQ(run({folder.string(), "--decode", "--skip-special-tokens"}, "[2,0]").out, "\"a\"\n");
  const test::ProgramEnd unknown = run({folder.string(), "--decode"}, "[0]\n[0, 3]\n");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.out, "\"a\"\n");
  EXPECT_EQ(unknown.error, "baton tokenize: line 2: the id 3 is not a token of this tokenizer, whose largest id is 2\n");
  std::filesystem::remove_all(folder);
}

TEST(Tokenize, a_line_of_another_kind_is_refused_by_its_number) {
  EXPECT_EQ(run({kDemo}, "\"a\"\n\n[1]\n").error, "baton tokenize: line 3: the text must be a string, not a list\n");
  EXPECT_EQ(run({kDemo, "--decode"}, "\"a\"\n").error, "baton tokenize: line 1: 'ids' must be a list, not a string\n");
  EXPECT_EQ(run({kDemo, "--decode"}, "[-1]\n").code, 1);
  EXPECT_NE(run({kDemo}, "{\n").error.find("baton tokenize: line 1: it is not valid JSON"), std::string::npos);
}

TEST(Tokenize, flags_that_contradict_each_other_and_models_that_do_not_exist_are_refused) {
  EXPECT_EQ(run({kDemo, "--skip-special-tokens"}, "").code, 2);
  EXPECT_EQ(run({kDemo, "--decode", "--no-special-tokens"}, "").code, 2);
  const test::ProgramEnd absent = run({"/no/such/folder"}, "");
  EXPECT_EQ(absent.code, 1);
  EXPECT_NE(absent.error.find("/no/such/folder"), std::string::npos) << absent.error;
}

}  // namespace
}  // namespace baton
