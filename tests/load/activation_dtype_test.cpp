/// What --activation-dtype means (load/activation_dtype.h), and engines whose weights multiply activations in 8 bits.
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

/// The same with integers.
QuantizationSpec int8_checkpoint(bool has_int8_activations) {
  return {.method = "compressed-tensors",
          .statements = {{.scheme = WeightScheme::i8}},
          .has_int8_activations = has_int8_activations};
}

BackendCapabilities device_of(bool gains_by_f8_rows, bool gains_by_int8_x = false) {
  return {.gains_by_f8_rows = gains_by_f8_rows, .has_int8_x = true, .gains_by_int8_x = gains_by_int8_x};
}

constexpr ActivationChoice kDtype{};
constexpr ActivationChoice kFp8IfTaken{ActivationChoice::Kind::fp8, false};
constexpr ActivationChoice kFp8{ActivationChoice::Kind::fp8, true};
constexpr ActivationChoice kInt8IfTaken{ActivationChoice::Kind::int8, false};
constexpr ActivationChoice kInt8{ActivationChoice::Kind::int8, true};

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
        EXPECT_EQ(
            activations_of(with_activations("auto", batch_invariant), f8_checkpoint(is_stated), {}, device_of(device_gains))
                .value(),
            is_stated && device_gains && !batch_invariant ? kFp8IfTaken : kDtype);
  EXPECT_EQ(activations_of(with_activations("auto"), {}, {.scheme = WeightScheme::f8}, device_of(true)).value(), kDtype)
      << "weights that are rounded at load keep exact activations";
}

TEST(ActivationDtype, auto_is_int8_only_if_the_checkpoint_says_so_and_the_device_gains) {
  for (const bool is_stated : {false, true})
    for (const bool device_gains : {false, true})
      for (const bool batch_invariant : {false, true})
        EXPECT_EQ(activations_of(with_activations("auto", batch_invariant), int8_checkpoint(is_stated), {},
                                 device_of(true, device_gains))
                      .value(),
                  is_stated && device_gains ? kInt8IfTaken : kDtype);
  for (const WeightScheme scheme : {WeightScheme::i8, WeightScheme::i4})
    EXPECT_EQ(activations_of(with_activations("auto"), {}, {.scheme = scheme}, device_of(true, true)).value(), kDtype)
        << "weights that are rounded at load keep exact activations";
}

TEST(ActivationDtype, other_ranks_choose_what_rank_0_chose) {
  const ModelOptions options = with_activations("auto");
  for (const ActivationChoice& choice : {kDtype, kInt8IfTaken}) {
    const ModelOptions of_rank = with_activations(std::string(word_for_ranks(choice, options)));
    EXPECT_EQ(activations_of(of_rank, int8_checkpoint(true), {}, device_of(false, choice == kDtype)).value().kind, choice.kind);
  }
  EXPECT_EQ(word_for_ranks(kFp8IfTaken, options), "auto");
  EXPECT_EQ(word_for_ranks(kFp8, with_activations("fp8")), "fp8");
}

TEST(ActivationDtype, flags_decide_otherwise) {
  EXPECT_EQ(activations_of(with_activations("dtype"), int8_checkpoint(true), {}, device_of(true, true)).value(), kDtype);
  EXPECT_EQ(activations_of(with_activations("int8", true), int8_checkpoint(false), {}, device_of(false)).value(), kInt8);
  EXPECT_EQ(activations_of(with_activations("int8"), {}, {.scheme = WeightScheme::i4}, device_of(false)).value(), kInt8);
  EXPECT_EQ(activations_of(with_activations("dtype"), f8_checkpoint(true), {}, device_of(true)).value(), kDtype);
  EXPECT_EQ(activations_of(with_activations("fp8"), f8_checkpoint(false), {}, device_of(false)).value(), kFp8);
  EXPECT_EQ(activations_of(with_activations("fp8"), {}, {.scheme = WeightScheme::f8}, device_of(false)).value(), kFp8);
}

TEST(ActivationDtype, errors_name_what_does_not_go_together) {
  const auto message = [](const ModelOptions& options, const QuantizationSpec& stated,
                          const BackendCapabilities& device = device_of(true)) {
    const auto choice = activations_of(options, stated, {}, device);
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
  EXPECT_EQ(
      message(with_activations("int8"), f8_checkpoint(true)),
      "--activation-dtype int8: no weights are in int8 or int4; a dense checkpoint's are with --quantization int8 or int4");
  EXPECT_EQ(message(with_activations("int8"), int8_checkpoint(true), {}),
            "--activation-dtype int8: this device multiplies no activations in int8, a CPU does (--device cpu); leave the flag "
            "out");
  for (const ActivationChoice& choice : {kFp8, kInt8}) {
    EXPECT_FALSE(expect_taken(choice, false));
    EXPECT_TRUE(expect_taken(choice, true).value());
  }
  for (const ActivationChoice& choice : {kFp8IfTaken, kInt8IfTaken})
    for (const bool are_taken : {false, true}) EXPECT_EQ(expect_taken(choice, are_taken).value(), are_taken);
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
  options.activation_dtype = "int8";
  const auto integers = load_engine(find_model_files(options, {}).value(), options);
  ASSERT_TRUE(integers) << integers.error().message;
  EXPECT_EQ((*integers)->info().activation_scheme, "int8");
  options.quantization = "";
  EXPECT_FALSE(load_engine(find_model_files(options, {}).value(), options));
}

}  // namespace
}  // namespace baton
