/// What --activation-dtype means (load/activation_dtype.h), and engines whose weights multiply activations in FP8.
#include "load/activation_dtype.h"

#include <string>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "load/load_engine.h"

namespace baton {
namespace {

/// A checkpoint whose weights and, if it says so, activations are in FP8.
QuantizationSpec f8_checkpoint(bool has_f8_activations) {
  return {.method = "fp8", .statements = {{.scheme = WeightScheme::f8}}, .has_f8_activations = has_f8_activations};
}

ModelOptions with_activations(const std::string& dtype, bool batch_invariant = false) {
  ModelOptions options;
  options.activation_dtype = dtype;
  options.batch_invariant = batch_invariant;
  return options;
}

TEST(ActivationDtype, auto_is_fp8_only_if_the_checkpoint_says_so_and_the_device_gains) {
  for (const bool is_stated : {false, true})
    for (const bool device_gains : {false, true})
      for (const bool batch_invariant : {false, true})
        EXPECT_EQ(activations_of(with_activations("auto", batch_invariant), f8_checkpoint(is_stated), {}, device_gains).value(),
                  is_stated && device_gains && !batch_invariant ? ActivationChoice::if_taken : ActivationChoice::dtype);
  EXPECT_EQ(activations_of(with_activations("auto"), {}, {.scheme = WeightScheme::f8}, true).value(), ActivationChoice::dtype)
      << "weights that are rounded at load keep exact activations";
}

TEST(ActivationDtype, flags_decide_otherwise) {
  EXPECT_EQ(activations_of(with_activations("dtype"), f8_checkpoint(true), {}, true).value(), ActivationChoice::dtype);
  EXPECT_EQ(activations_of(with_activations("fp8"), f8_checkpoint(false), {}, false).value(), ActivationChoice::required);
  EXPECT_EQ(activations_of(with_activations("fp8"), {}, {.scheme = WeightScheme::f8}, false).value(),
            ActivationChoice::required);
}

TEST(ActivationDtype, errors_name_what_does_not_go_together) {
  const auto message = [](const ModelOptions& options, const QuantizationSpec& stated) {
    const auto choice = activations_of(options, stated, {}, true);
    EXPECT_FALSE(choice);
    EXPECT_EQ(choice.error().param, "activation_dtype");
    return choice ? "" : choice.error().message;
  };
  EXPECT_EQ(
      message(with_activations("fp8", true), f8_checkpoint(true)),
      "--activation-dtype fp8: --batch-invariant has one arithmetic for steps of all lengths, with activations in the dtype "
      "of the model; leave one of the two flags out");
  EXPECT_EQ(message(with_activations("fp8"), {.method = "gptq", .statements = {{.scheme = WeightScheme::i4}}}),
            "--activation-dtype fp8: no weights are in FP8; a dense checkpoint's are with --quantization fp8");
  EXPECT_FALSE(rows_in_8_bits(ActivationChoice::required, false));
  EXPECT_TRUE(rows_in_8_bits(ActivationChoice::required, true).value());
  EXPECT_TRUE(rows_in_8_bits(ActivationChoice::if_taken, true).value());
  EXPECT_FALSE(rows_in_8_bits(ActivationChoice::if_taken, false).value());
  EXPECT_FALSE(rows_in_8_bits(ActivationChoice::dtype, true).value());
}

TEST(ActivationDtype, of_an_engine_is_said) {
  ModelOptions options = with_activations("auto");
  options.model = "demo";
  options.quantization = "fp8";
  options.dtype = "float32";
  options.kv_cache_bytes = 64 << 20;
  const auto plain = load_engine(find_model_files(options, {}).value(), options);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ((*plain)->info().activation_scheme, "float32");
  options.activation_dtype = "fp8";
  const auto rounded = load_engine(find_model_files(options, {}).value(), options);
  ASSERT_TRUE(rounded) << rounded.error().message;
  EXPECT_EQ((*rounded)->info().activation_scheme, "float8_e4m3");
  options.quantization = "int8";
  EXPECT_FALSE(load_engine(find_model_files(options, {}).value(), options));
}

}  // namespace
}  // namespace baton
