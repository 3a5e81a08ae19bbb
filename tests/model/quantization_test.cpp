/// What config.json states about quantised weights, in each vendor's words, and what is refused.
#include "model/quantization.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

Result<QuantizationSpec> read(const std::string& quantization) {
  return read_quantization(json::parse("{\"quantization_config\":" + quantization + "}", "the test").value());
}

/// The schemes that are stated, one a line, or the error.
std::string stated(const std::string& quantization) {
  const auto spec = read(quantization);
  if (!spec) return spec.error().message;
  std::string text;
  for (const SchemeStatement& statement : spec->statements) text += (text.empty() ? "" : "\n") + to_string(statement);
  return text;
}

std::string groups(const std::string& weights, const std::string& format = "pack-quantized") {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],)" + R"("weights":)" + weights + "}},\"ignore\":[\"lm_head\"]}";
}

TEST(Quantization, nothing_is_stated_without_a_field) {
  EXPECT_EQ(read("null")->method, "");
  EXPECT_TRUE(read("null")->statements.empty());
}

TEST(Quantization, float8_has_one_scale_or_blocks) {
  EXPECT_EQ(stated(R"({"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"dynamic"})"),
            "float8_e4m3 with a scale for 128 x 128 weights");
  EXPECT_EQ(stated(R"({"quant_method":"fp8","weight_block_size":null})"), "float8_e4m3 with a scale for the tensor");
  EXPECT_EQ(stated(R"({"quant_method":"fbgemm_fp8"})"), "float8_e4m3 with a scale for each row");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"FP8"})"), "float8_e4m3 with a scale for the tensor");
  EXPECT_EQ(stated(groups(R"({"num_bits":8,"type":"float","strategy":"channel"})", "float-quantized")),
            "float8_e4m3 with a scale for each row");
  EXPECT_EQ(
      stated(groups(R"({"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]})", "float-quantized")),
      "float8_e4m3 with a scale for 128 x 128 weights");
  EXPECT_EQ(stated(R"({"quant_method":"fp8","weight_block_size":[128]})"),
            "'weight_block_size' must be the rows and the columns of a block, not [128]");
  EXPECT_EQ(stated(R"({"quant_method":"fp8","fmt":"e5m2"})"),
            "'fmt' is \"e5m2\", which is not supported; supported is \"e4m3\"");
}

TEST(Quantization, integers_have_groups_and_zeros) {
  EXPECT_EQ(stated(groups(R"({"num_bits":4,"type":"int","strategy":"group","group_size":128,"symmetric":false})")),
            "int4 with a scale and a zero for 128 columns of a row");
  EXPECT_EQ(stated(groups(R"({"num_bits":8,"type":"int","strategy":"channel"})", "int-quantized")),
            "int8 with a scale for each row");
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true})"),
            "int4 with a scale for 128 columns of a row");
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":8,"group_size":-1,"sym":false})"),
            "int8 with a scale and a zero for each row");
  EXPECT_EQ(stated(R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm"})"),
            "int4 with a scale and a zero for 128 columns of a row");
  EXPECT_EQ(stated(R"({"quant_method":"awq","w_bit":4,"q_group_size":64,"zero_point":true})"),
            "int4 with a scale and a zero for 64 columns of a row");
}

TEST(Quantization, gptq_s_first_format_stores_zeros_less_one_and_modules_may_differ) {
  EXPECT_TRUE(read(R"({"quant_method":"gptq","bits":4})")->adds_one_to_zeros);
  EXPECT_TRUE(read(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"gptq"})")->adds_one_to_zeros);
  EXPECT_FALSE(read(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"gptq_v2"})")->adds_one_to_zeros);
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":4,"group_size":128,
                       "dynamic":{"-:.*attn.*":{},"+:.*down.*":{"bits":8},".*up.*":{"group_size":32}}})"),
            "int4 with a scale for 128 columns of a row\nint8 with a scale for 128 columns of a row\n"
            "int4 with a scale for 32 columns of a row");
}

TEST(Quantization, what_is_not_read_is_refused_by_name) {
  const std::string served =
      " is not supported; supported are float32, bfloat16 and float16; fp8, fbgemm_fp8, compressed-tensors (float-quantized, "
      "int-quantized and pack-quantized), gptq and awq (gemm) in 8 or 4 bits, and modelopt's FP8";
  EXPECT_EQ(stated(R"({"quant_method":"bitsandbytes","load_in_4bit":true})"),
            "the weights are quantised with 'bitsandbytes' ('quantization_config'), which" + served);
  for (const char* method : {"hqq", "aqlm", "exl2", "exl3", "mxfp4", "quip", "torchao", "quark", "auto-round"})
    EXPECT_NE(
        stated("{\"quant_method\":\"" + std::string(method) + "\"}").find("quantised with '" + std::string(method) + "' ("),
        std::string::npos);
  const auto refused = [&](const std::string& config, const std::string& what) {
    EXPECT_EQ(stated(config).substr(0, 32 + what.size()), "the weights are quantised with " + what + " ") << stated(config);
  };
  refused(R"({"load_in_8bit":true})", "'bitsandbytes'");
  refused(R"({"quant_method":"gptq","bits":3})", "integers of 3 bits");
  refused(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})", "gptq in the format 'marlin'");
  refused(R"({"quant_method":"awq","bits":4,"version":"gemv"})", "awq in the layout 'gemv'");
  refused(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})", "modelopt's NVFP4");
  refused(groups(R"({"num_bits":4,"type":"float"})", "nvfp4-pack-quantized"),
          "compressed-tensors in the format 'nvfp4-pack-quantized'");
  refused(groups(R"({"num_bits":4,"type":"int"})", "marlin-24"), "compressed-tensors in the format 'marlin-24'");
  refused(groups(R"({"num_bits":4,"type":"float"})"), "floats of 4 bits");
  refused(groups(R"({"num_bits":2,"type":"int"})"), "integers of 2 bits");
  refused(groups(R"({"num_bits":8,"type":"float","strategy":"group","group_size":32})"), "scales by 'group'");
  refused(R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"},"config_groups":{}})",
          "the sparse format 'sparse-24-bitmask'");
  refused(R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{"u":{}}},"config_groups":{}})",
          "transforms");
}

TEST(Quantization, damaged_fields_are_named) {
  EXPECT_EQ(stated("7"),
            "the weights are quantised with '7' ('quantization_config'), which is not supported; supported are float32, "
            "bfloat16 and float16; fp8, fbgemm_fp8, compressed-tensors (float-quantized, int-quantized and "
            "pack-quantized), gptq and awq (gemm) in 8 or 4 bits, and modelopt's FP8");
  EXPECT_EQ(stated(R"({"quant_method":"gptq"})"), "'bits' is missing");
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":4,"group_size":0})"),
            "'group_size' must be -1 or from 1 to 1048576, not 0");
  EXPECT_EQ(stated(R"({"quant_method":"compressed-tensors"})"), "'config_groups' is missing");
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":4,"dynamic":[]})"), "'dynamic' must be an object, not a list");
}

}  // namespace
}  // namespace baton
