/// Tests of tiktoken.model.
#include "text/tokenizer/tiktoken_model.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/source_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

/// The 256 bytes as lines, whose ranks begin with `rank`; `but` is left out.
std::string byte_lines(int rank, int but = -1) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (int byte = 0; byte < 256; ++byte)
    if (byte != but)
      lines += fmt::format("{}{}== {}\n", kDigits[static_cast<std::size_t>(byte >> 2)],
                           kDigits[static_cast<std::size_t>((byte & 3) << 4)], rank++);
  return lines;
}

TEST(TiktokenModel, reads_tokens_by_rank_and_names_the_reserved_ones) {
  TokenizerConfig config;
  config.added_tokens = {{.content = "[EOS]", .id = 259}};
  // "ab", "cd" and "\xff "
  const auto model = TiktokenModel::from_text("YWI= 258\nY2Q= 0\r\n\n/yA= 257\n" + byte_lines(1), config);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(model->tokens.size(), 259u);
  EXPECT_EQ(model->tokens[0], "cd");
  EXPECT_EQ(model->tokens[1 + 'a'], "a");
  EXPECT_EQ(model->tokens[257], "ÿĠ");
  EXPECT_EQ(model->tokens[258], "ab");
  ASSERT_EQ(model->special.size(), 255u);
  EXPECT_EQ(model->special.front().content, "<|reserved_token_260|>");
  EXPECT_EQ(model->special.back().id, 514);
}

TEST(TiktokenModel, damaged_files_are_errors_that_name_the_line_or_the_rank) {
  const auto message_of = [](std::string_view text) {
    const auto model = TiktokenModel::from_text(text, {});
    EXPECT_TRUE(model || model.error().code == ErrorCode::invalid_data);
    return model ? std::string("none") : model.error().message;
  };
  for (const char* line : {"YQ==", "YQ== ", "YQ== x", "YQ== 1x", "YQ== -1", "YQ== 9999999999", " 1", "a*== 1", "YQ==  1"})
    EXPECT_EQ(message_of("YWI= 0\n" + std::string(line)), "tiktoken.model: line 2 is not a token in base64 and its rank")
        << line;
  EXPECT_EQ(message_of("YQ== 1"), "tiktoken.model: the rank 1 stands where 0 is the next one");
  EXPECT_EQ(message_of("YQ== 0\nYWI= 0"), "tiktoken.model: the rank 0 stands where 1 is the next one");
  EXPECT_EQ(message_of("\n"), "tiktoken.model: there are no tokens");
  EXPECT_EQ(message_of(byte_lines(0)), "none");
  EXPECT_EQ(message_of(byte_lines(0, 0xe4)), "tiktoken.model: byte 0xe4 has no token, so that text with it could not be read");
}

// That another class cuts words as this one does cannot be known.
TEST(TiktokenModel, of_another_class_is_refused_with_the_way_out) {
  TokenizerConfig config;
  config.tokenizer_class = "QWenTokenizer";
  const auto model = TiktokenModel::from_text("YQ== 0", config);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::unsupported);
  EXPECT_NE(model.error().message.find("not of QWenTokenizer; convert it to a tokenizer.json"), std::string::npos);
  config.tokenizer_class = "TikTokenTokenizer";
  EXPECT_TRUE(TiktokenModel::from_text(byte_lines(0), config));
}

TEST(TiktokenModel, is_found_in_a_folder_and_read_as_a_file) {
  const std::filesystem::path folder = test::source_folder() / "tests/goldens/tokenizers/tiktoken";
  const auto tokenizer = Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const TokenId first = *tokenizer->bos();
  EXPECT_EQ(tokenizer->n_vocab(), first + TiktokenModel::kReserved);
  EXPECT_EQ(tokenizer->encode("[EOS]<|im_end|>", true), (std::vector<TokenId>{first + 2, first + 4}));
  const auto alone = Tokenizer::load_file(folder / "tiktoken.model");
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->encode(fmt::format("<|reserved_token_{}|>", first), true), (std::vector<TokenId>{first}));
  EXPECT_EQ(alone->bos(), std::nullopt);
}

TEST(TiktokenModel, of_another_name_is_refused_as_what_it_is) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "tiktoken_of_another_name";
  std::filesystem::create_directories(folder);
  for (const char* name : {"tokenizer.model", "qwen.tiktoken"}) {
    const std::filesystem::path file = folder / name;
    std::ofstream(file) << "IQ== 0\r\n" + byte_lines(1);
    const auto tokenizer = Tokenizer::load_file(file);
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().code, ErrorCode::unsupported);
    EXPECT_TRUE(tokenizer.error().message.starts_with(file.string() + ": a vocabulary of tiktoken, which does not say"))
        << tokenizer.error().message;
  }
  EXPECT_FALSE(TiktokenModel::is_begin("\n\x0e\n\x05<unk>"));
  EXPECT_FALSE(TiktokenModel::is_begin("not a SentencePiece model"));
}

TEST(TiktokenModel, a_token_that_is_there_twice_is_an_error) {
  const std::string twice = "YQ== 256\n" + byte_lines(0);
  EXPECT_TRUE(TiktokenModel::from_text(twice, {}));
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "twice";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tiktoken.model") << twice;
  const auto tokenizer = Tokenizer::load(folder);
  ASSERT_FALSE(tokenizer);
  EXPECT_TRUE(tokenizer.error().message.starts_with("tiktoken.model: token 256 is there twice")) << tokenizer.error().message;
}

}  // namespace
}  // namespace baton
