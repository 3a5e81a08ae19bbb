/// Tests of SentencePiece models, on Llama 2's.
#include "text/tokenizer/sentencepiece_model.h"

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace baton {
namespace {

TEST(SentencePieceModel, refuses_what_is_no_model) {
  // The pieces "<unk>" and one that begins with a zero byte, at which the library throws.
  const std::string zero_byte("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02\x0a\x04\x0a\x02\0x", 22);
  for (const std::string& bytes : {std::string(), std::string("no protobuf"), std::string(1000, '\xff'), zero_byte}) {
    const auto model = SentencePieceModel::from_bytes(bytes, "x.model", {});
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::invalid_data);
    EXPECT_NE(model.error().message.find("x.model"), std::string::npos);
  }
  // Two pieces "a", the first one ordinary, the second one the unknown token: the library keeps both.
  const std::string twice(
      "\x0a\x03\x0a\x01"
      "a\x0a\x05\x0a\x01"
      "a\x18\x02",
      12);
  const auto model = SentencePieceModel::from_bytes(twice, "x.model", {});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message, "x.model: pieces 0 and 1 have the same text");
  EXPECT_EQ(SentencePieceModel::load("/nowhere/x.model", {}).error().code, ErrorCode::not_found);
}

TEST(SentencePieceModel, knows_llama_2s_pieces) {
  const auto folder = test::tokenizer_data();
  if (folder.empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const auto model = SentencePieceModel::load(folder / "llama2/tokenizer.model", {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->vocabulary().n_ids(), 32000);
  EXPECT_EQ(model->bos(), 1);
  EXPECT_EQ(model->eos(), 2);
  EXPECT_TRUE(model->is_special(0) && model->is_special(1) && model->is_special(2));
  EXPECT_FALSE(model->is_special(3));
  EXPECT_TRUE(model->adds_space());
  std::vector<TokenId> ids;
  model->encode("Hello world", /*begins_input=*/true, ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{15043, 3186}));
}

}  // namespace
}  // namespace baton
