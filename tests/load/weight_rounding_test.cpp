/// What --quantization means for a checkpoint (load/weight_rounding.h), and engines with rounded weights.
#include "load/weight_rounding.h"

#include <string>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "load/load_engine.h"
#include "model/config.h"
#include "support/source_folder.h"

namespace baton {
namespace {

QuantizationSpec stated(const std::string& method) { return {.method = method}; }

Result<WeightRounding> rounding(const std::string& name, const std::string& method, bool with_head = false) {
  ModelOptions options;
  options.quantization = name;
  options.quantize_lm_head = with_head;
  return rounding_of(options, stated(method));
}

TEST(WeightRounding, of_a_dense_checkpoint_is_what_the_flag_says) {
  EXPECT_FALSE(rounding("", "")->is_on());
  EXPECT_EQ(rounding("fp8", "")->scheme, WeightScheme::f8);
  EXPECT_EQ(rounding("int8", "")->scheme, WeightScheme::i8);
  EXPECT_EQ(rounding("int4", "")->scheme, WeightScheme::i4);
  EXPECT_EQ(rounding("int4", "")->group, 128);
  EXPECT_FALSE(rounding("int4", "")->rounds_lm_head);
  EXPECT_TRUE(rounding("int4", "", true)->rounds_lm_head);
}

TEST(WeightRounding, of_a_quantised_checkpoint_is_nothing_and_its_name_may_be_said) {
  for (const auto& [name, method] : {std::pair("", "awq"),
                                     {"fp8", "fp8"},
                                     {"gptq", "gptq"},
                                     {"gptq_marlin", "gptq"},
                                     {"awq", "awq"},
                                     {"awq_marlin", "awq"},
                                     {"compressed-tensors", "compressed-tensors"},
                                     {"fbgemm_fp8", "fbgemm_fp8"},
                                     {"modelopt", "modelopt"},
                                     {"modelopt_fp4", "modelopt"}}) {
    const auto made = rounding(name, method);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_FALSE(made->is_on()) << name;
  }
}

TEST(WeightRounding, errors_name_what_is_asked_for_and_what_is_there) {
  const auto message = [](const std::string& name, const std::string& method, bool with_head = false) {
    const auto made = rounding(name, method, with_head);
    EXPECT_FALSE(made) << name << " " << method;
    EXPECT_EQ(made.error().param, name.empty() ? "quantize_lm_head" : "quantization");
    return made.error().message;
  };
  EXPECT_EQ(message("awq", "gptq"), "--quantization awq: the checkpoint is quantised with gptq; leave the flag out");
  EXPECT_EQ(message("int4", "compressed-tensors"),
            "--quantization int4: the checkpoint is quantised with compressed-tensors; leave the flag out");
  EXPECT_EQ(
      message("gptq", ""),
      "--quantization gptq: the checkpoint's configuration names no method; leave the flag out, or give fp8, int8 or int4 "
      "to quantise dense weights at load");
  const std::string head = "--quantize-lm-head needs --quantization fp8, int8 or int4, and a checkpoint that is not quantised";
  EXPECT_EQ(message("", "", true), head);
  EXPECT_EQ(message("", "gptq", true), head);
}

TEST(WeightRounding, an_engine_answers_with_rounded_weights_and_one_line_says_so) {
  ModelOptions options;
  options.threads = 2;
  options.max_num_seqs = 2;
  options.max_model_len = 64;
  options.kv_cache_bytes = 1 << 20;
  for (const char* scheme : {"fp8", "int8", "int4"}) {
    options.quantization = scheme;
    options.quantize_lm_head = !options.quantize_lm_head;
    ::testing::internal::CaptureStderr();
    const auto engine = load_engine(find_model_files(options, {}).value(), options);
    const std::string logged = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(engine) << engine.error().message;
    const std::size_t line = logged.find("event=weights_quantized scheme=");
    ASSERT_NE(line, std::string::npos) << logged;
    EXPECT_EQ(logged.find("event=weights_quantized", line + 1), std::string::npos);
    EXPECT_EQ(logged.find("kept=\"embeddings, output layer\"") == std::string::npos, options.quantize_lm_head) << logged;
    Request request;
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = 4;
    request.sampling.ignore_eos = true;
    ASSERT_TRUE((*engine)->submit(std::move(request)));
    std::size_t n_tokens = 0;
    while ((*engine)->step())
      for (const Event& event : (*engine)->wait_events(std::chrono::milliseconds(0))) n_tokens += event.tokens.size();
    EXPECT_EQ(n_tokens, 4u);
  }
  options.quantization = "gptq";
  options.quantize_lm_head = false;
  EXPECT_EQ(load_engine(find_model_files(options, {}).value(), options).error().param, "quantization");
}

TEST(WeightRounding, the_line_says_that_gates_of_recurrent_layers_stay_dense) {
  ::testing::internal::CaptureStderr();
  log_rounding(*rounding("int8", ""), read_model_spec(test::source_folder() / "tests/goldens/qwen3_next_tiny_heads").value());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "kept=\"embeddings, output layer, 2 routers, gates of 1 recurrent layers\""),
            std::string::npos);
}

}  // namespace
}  // namespace baton
