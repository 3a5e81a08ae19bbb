/// Sampling fields of a request (server/request/generation_fields.h).
#include "server/request/generation_fields.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr RequestBounds kSamplingLimits = {.n_vocab = 1000, .max_logprobs = 20};

Result<GenerationRequest> read_fields(std::string_view fields) {
  auto body = json::parse("{" + std::string(fields) + "}", "the body");
  EXPECT_TRUE(body) << fields;
  GenerationRequest request;
  BATON_TRY_VOID(parse_sampling_fields(*body, {}, kSamplingLimits, request));
  return request;
}
GenerationRequest read(std::string_view fields) {
  auto request = read_fields(fields);
  EXPECT_TRUE(request) << fields << (request ? "" : request.error().message);
  return request ? *request : GenerationRequest{};
}

TEST(OpenaiSampling, reads_how_tokens_are_weighed_and_which_may_come) {
  const GenerationRequest request =
      read(R"("min_p": 0.05, "presence_penalty": -2, "frequency_penalty": 0.5, "repetition_penalty": 1.2,
                    "logit_bias": {"7": -100, "999": 2.5}, "bad_words": ["a b", " c"], "allowed_token_ids": [5, 3])");
  EXPECT_EQ(request.sampling.min_p, 0.05f);
  EXPECT_EQ(request.sampling.presence_penalty, -2.0f);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.2f);
  EXPECT_EQ(request.sampling.logit_bias, (std::vector<TokenBias>{{7, -100}, {999, 2.5f}}));
  EXPECT_EQ(request.bad_words, (std::vector<std::string>{"a b", " c"}));
  EXPECT_EQ(request.sampling.allowed_ids, (std::vector<TokenId>{3, 5}));
  const GenerationRequest neutral =
      read(R"("min_p": null, "presence_penalty": null, "logit_bias": null, "bad_words": [], "allowed_token_ids": null)");
  EXPECT_EQ(neutral.sampling.min_p, 0);
  EXPECT_EQ(neutral.sampling.repetition_penalty, 1);
  EXPECT_TRUE(neutral.sampling.logit_bias.empty() && neutral.bad_words.empty() && neutral.sampling.allowed_ids.empty());
}

TEST(OpenaiSampling, names_the_field_of_a_wrong_type_or_an_absurd_value) {
  struct BadField {
    std::string_view fields;
    std::string_view param;
    std::string_view message;  ///< empty: any
  };
  const BadField cases[] = {
      {R"("temperature": "hot")", "temperature", "'temperature' must be a number, not a string"},
      {R"("temperature": -0.1)", "temperature", "'temperature' must be from 0 to 100, not -0.1"},
      {R"("temperature": 1e300)", "temperature", ""},
      {R"("top_p": 0)", "top_p", "'top_p' must be above 0 and at most 1, not 0"},
      {R"("top_p": 1.5)", "top_p", ""},
      {R"("top_k": -2)", "top_k", ""},
      {R"("top_k": 1.5)", "top_k", ""},
      {R"("seed": 1.5)", "seed", ""},
      {R"("min_p": 1.1)", "min_p", "'min_p' must be from 0 to 1, not 1.1"},
      {R"("presence_penalty": 2.5)", "presence_penalty", "'presence_penalty' must be from -2 to 2, not 2.5"},
      {R"("frequency_penalty": "0")", "frequency_penalty", ""},
      {R"("repetition_penalty": 0)", "repetition_penalty", "'repetition_penalty' must be above 0, not 0"},
      {R"("repetition_penalty": -1)", "repetition_penalty", ""},
      {R"("logit_bias": [1])", "logit_bias", "'logit_bias' must be an object of token ids and numbers, not a list"},
      {R"("logit_bias": {"1000": 1})", "logit_bias", "'logit_bias' must name token ids from 0 to 999, not '1000'"},
      {R"("logit_bias": {"cat": 1})", "logit_bias", ""},
      {R"("logit_bias": {"-1": 1})", "logit_bias", ""},
      {R"("logit_bias": {"5": 101})", "logit_bias", "'logit_bias' must hold numbers from -100 to 100, not 101"},
      {R"("logit_bias": {"5": "x"})", "logit_bias", ""},
      {R"("logit_bias": {"5": 1, "05": 2})", "logit_bias", "'logit_bias' names token 5 twice"},
      {R"("bad_words": "x")", "bad_words", "'bad_words' must be a list of strings, not a string"},
      {R"("bad_words": [" "])", "bad_words", "'bad_words' must hold words of 1 to 256 bytes"},
      {R"("bad_words": [1])", "bad_words[0]", ""},
      {R"("allowed_token_ids": [])", "allowed_token_ids", "'allowed_token_ids' must hold at least one token id"},
      {R"("allowed_token_ids": [1000])", "allowed_token_ids", ""},
      {R"("allowed_token_ids": {})", "allowed_token_ids", ""},
  };
  for (const BadField& bad : cases) {
    const auto request = read_fields(bad.fields);
    ASSERT_FALSE(request) << bad.fields;
    EXPECT_EQ(request.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(request.error().param, bad.param) << bad.fields << ": " << request.error().message;
    if (!bad.message.empty()) {
      EXPECT_EQ(request.error().message, bad.message);
    }
  }
}

TEST(OpenaiSampling, bounds_the_length_of_lists) {
  const auto many = [](std::string_view element, std::size_t n) {
    std::string list;
    for (std::size_t i = 0; i < n; ++i) list += std::string(i > 0 ? "," : "") + std::string(element);
    return list;
  };
  EXPECT_TRUE(read_fields(R"("bad_words": [)" + many(R"("a")", kMaxBadWords / 2) + "]"));
  EXPECT_EQ(read_fields(R"("bad_words": [)" + many(R"("a")", kMaxBadWords / 2 + 1) + "]").error().message,
            "'bad_words' has 513 entries; this server accepts 512");
  EXPECT_EQ(read_fields(R"("allowed_token_ids": [)" + many("1", kMaxAllowedIds + 1) + "]").error().param, "allowed_token_ids");
}

}  // namespace
}  // namespace baton
