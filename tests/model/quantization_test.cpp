/// What config.json states about quantised weights, in each vendor's words, and what is refused.
#include "model/quantization.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/file.h"

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
  EXPECT_EQ(stated(R"({"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]})"),
            "float4_e2m1 with a scale for 32 columns of a row");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"FP8"})"), "float8_e4m3 with a scale for the tensor");
  EXPECT_EQ(stated(groups(R"({"num_bits":8,"type":"float","strategy":"channel"})", "float-quantized")),
            "float8_e4m3 with a scale for each row");
  EXPECT_EQ(
      stated(groups(R"({"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]})", "float-quantized")),
      "float8_e4m3 with a scale for 128 x 128 weights");
  EXPECT_EQ(stated(R"({"quant_method":"fp8","weight_block_size":[128]})"),
            "'weight_block_size' must be the rows and the columns of a block, not [128]");
  EXPECT_EQ(stated(R"({"quant_method":"fp8","fmt":"e5m2"})"),
            "'fmt' is \"e5m2\", which is not supported; supported is \"e4m3\" or \"float8_e4m3fn\"");
}

TEST(Quantization, float8_in_groups_of_a_row_is_mxfp8) {
  EXPECT_EQ(stated(groups(R"({"num_bits":8,"type":"float","strategy":"group","group_size":32})", "mxfp8-quantized")),
            "float8_e4m3 with a scale for 1 x 32 weights");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"MXFP8"})"), "float8_e4m3 with a scale for 1 x 32 weights");
}

TEST(Quantization, groups_and_layers_may_have_formats_of_their_own) {
  EXPECT_EQ(stated(R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{
                       "group_0":{"format":"float-quantized","targets":["re:.*self_attn.*"],
                                  "weights":{"num_bits":8,"type":"float","strategy":"channel"}},
                       "group_1":{"format":"pack-quantized","targets":["re:.*mlp.*"],
                                  "weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128}}}})"),
            "float8_e4m3 with a scale for each row\nint4 with a scale for 128 columns of a row");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{
                       "model.layers.0.mlp.up_proj":{"quant_algo":"FP8"},"model.layers.1.mlp.up_proj":{"quant_algo":"FP8"},
                       "model.layers.0.self_attn.q_proj":{"quant_algo":"FP8_PER_CHANNEL_PER_TOKEN"}}})"),
            "float8_e4m3 with a scale for the tensor\nfloat8_e4m3 with a scale for each row");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","config_groups":{
                       "group_0":{"targets":["a"],"weights":{"num_bits":8,"type":"float"}}}})"),
            "float8_e4m3 with a scale for the tensor");
  EXPECT_EQ(stated(R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{
                       "group_0":{"format":"nvfp4-pack-quantized","targets":["re:.*mlp.*"],
                                  "weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16}},
                       "group_1":{"format":"float-quantized","targets":["re:.*self_attn.*"],
                                  "weights":{"num_bits":8,"type":"float","strategy":"channel"}}}})"),
            "float4_e2m1 with a scale for 16 columns of a row\nfloat8_e4m3 with a scale for each row");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{
                       "a":{"quant_algo":"FP8"},"b":{"quant_algo":"NVFP4","group_size":16},
                       "c":{"quant_algo":"W4A16_NVFP4","group_size":16}}})"),
            "float8_e4m3 with a scale for the tensor\nfloat4_e2m1 with a scale for 16 columns of a row");
}

TEST(Quantization, floats_of_4_bits_have_groups_of_16_or_32_columns) {
  EXPECT_EQ(
      stated(groups(R"({"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16})", "nvfp4-pack-quantized")),
      "float4_e2m1 with a scale for 16 columns of a row");
  EXPECT_EQ(stated(groups(R"({"num_bits":4,"type":"float","strategy":"group","group_size":32})", "mxfp4-pack-quantized")),
            "float4_e2m1 with a scale for 32 columns of a row");
  EXPECT_EQ(stated(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"), "float4_e2m1 with a scale for 16 columns of a row");
}

TEST(Quantization, activations_in_float8_are_stated_for_all_weights_in_float8_or_not_at_all) {
  const auto states = [](const std::string& quantization) {
    const auto spec = read(quantization);
    EXPECT_TRUE(spec) << quantization;
    return spec && spec->has_f8_activations;
  };
  const auto group = [](const std::string& activations) {
    return R"({"weights":{"num_bits":8,"type":"float","strategy":"channel"},"input_activations":)" + activations + "}";
  };
  const auto compressed = [](const std::string& all) {
    return R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":)" + all + "}";
  };
  const std::string by_token = group(R"({"num_bits":8,"type":"float","strategy":"token","dynamic":true})");
  const std::string by_tensor = group(R"({"num_bits":8,"type":"float","strategy":"tensor","dynamic":false})");
  EXPECT_TRUE(states(compressed("{\"a\":" + by_token + "}")));
  EXPECT_TRUE(states(compressed("{\"a\":" + by_token + ",\"b\":" + by_tensor + "}")));
  EXPECT_FALSE(states(compressed("{\"a\":" + by_token + ",\"b\":" + group("null") + "}")));
  EXPECT_FALSE(states(compressed("{\"a\":" + group(R"({"num_bits":8,"type":"float","strategy":"group"})") + "}")));
  EXPECT_FALSE(states(compressed("{\"a\":" + group(R"({"num_bits":8,"type":"int","strategy":"token"})") + "}")));
  EXPECT_FALSE(states(compressed(R"({"a":{"weights":{"num_bits":8,"type":"int","strategy":"channel"},
                                     "input_activations":{"num_bits":8,"type":"int","strategy":"token"}}})")));
  EXPECT_TRUE(states(R"({"quant_method":"fp8","activation_scheme":"dynamic"})"));
  EXPECT_TRUE(states(R"({"quant_method":"fp8","activation_scheme":"static"})"));
  EXPECT_FALSE(states(R"({"quant_method":"fp8"})"));
  EXPECT_FALSE(states(R"({"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"dynamic"})"))
      << "a scale for 128 columns of a token";
  EXPECT_TRUE(states(R"({"quant_method":"fbgemm_fp8"})"));
  EXPECT_TRUE(states(R"({"quant_method":"modelopt","quant_algo":"FP8"})"));
  EXPECT_FALSE(states(R"({"quant_method":"modelopt","quant_algo":"MXFP8"})"));
  EXPECT_FALSE(states(R"({"quant_method":"gptq","bits":4})"));
}

TEST(Quantization, activations_in_int8_are_stated_for_all_weights_in_integers_or_not_at_all) {
  const auto group = [](const std::string& activations, int bits = 8) {
    return R"({"weights":{"num_bits":)" + std::to_string(bits) + R"(,"type":"int","strategy":"channel"},"input_activations":)" +
           activations + "}";
  };
  const auto states = [](const std::string& groups) {
    const auto spec =
        read(R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{)" + groups + "}}");
    EXPECT_TRUE(spec) << groups;
    EXPECT_FALSE(spec && spec->has_f8_activations);
    return spec && spec->has_int8_activations;
  };
  const std::string by_token = R"({"num_bits":8,"type":"int","strategy":"token","dynamic":true,"symmetric":true})";
  EXPECT_TRUE(states("\"a\":" + group(by_token)));
  EXPECT_TRUE(states("\"a\":" + group(by_token) + ",\"b\":" + group(by_token, 4)));
  EXPECT_FALSE(states("\"a\":" + group(by_token) + ",\"b\":" + group("null")));
  for (const char* other : {R"({"num_bits":8,"type":"int","strategy":"token","dynamic":false})",
                            R"({"num_bits":8,"type":"int","strategy":"token"})",
                            R"({"num_bits":8,"type":"int","strategy":"token","dynamic":"local"})",
                            R"({"num_bits":8,"type":"int","strategy":"token","dynamic":true,"symmetric":false})",
                            R"({"num_bits":8,"type":"int","strategy":"tensor","dynamic":true})",
                            R"({"num_bits":4,"type":"int","strategy":"token","dynamic":true})",
                            R"({"num_bits":8,"type":"float","strategy":"token","dynamic":true})"})
    EXPECT_FALSE(states("\"a\":" + group(other))) << other;
}

/// The method and the schemes that a file beside config.json states, or the error.
std::string stated_by_file(const std::string& name, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "baton_quantization_test";
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(write_file(folder / name, text));
  const auto spec = read_quantization_file(folder);
  std::filesystem::remove_all(folder);
  if (!spec) return spec.error().message.substr(folder.string().size() + 1);
  std::string all = spec->method;
  for (const SchemeStatement& statement : spec->statements) all += ": " + to_string(statement);
  return all;
}

TEST(Quantization, files_beside_the_configuration_state_it_too) {
  EXPECT_EQ(stated_by_file("hf_quant_config.json", R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"FP8",
                           "kv_cache_quant_algo":"FP8","exclude_modules":["lm_head"]}})"),
            "modelopt: float8_e4m3 with a scale for the tensor");
  EXPECT_EQ(stated_by_file("hf_quant_config.json", R"({"quantization":{"quant_algo":null,"kv_cache_quant_algo":"FP8"}})"), "");
  EXPECT_EQ(
      stated_by_file("quantize_config.json", R"({"bits":4,"group_size":128,"damp_percent":0.1,"desc_act":false,"sym":true})"),
      "gptq: int4 with a scale for 128 columns of a row");
  EXPECT_EQ(stated_by_file("quantize_config.json", R"({"zero_point":true,"q_group_size":128,"w_bit":4,"version":"GEMM"})"),
            "awq: int4 with a scale and a zero for 128 columns of a row");
  EXPECT_EQ(stated_by_file("quant_config.json", R"({"zero_point":true,"q_group_size":64,"w_bit":4})"),
            "awq: int4 with a scale and a zero for 64 columns of a row");
  EXPECT_EQ(stated_by_file("quantize_config.json", R"({"quant_method":"gptq","bits":8,"group_size":-1})"),
            "gptq: int8 with a scale for each row");
  EXPECT_EQ(stated_by_file("hf_quant_config.json", R"({"quantization":{"quant_algo":"NVFP4","group_size":16}})"),
            "modelopt: float4_e2m1 with a scale for 16 columns of a row");
  EXPECT_EQ(
      stated_by_file("hf_quant_config.json", R"({"quantization":{"quant_algo":"NVFP4_AWQ","group_size":16}})").substr(0, 75),
      "hf_quant_config.json: the weights are quantised with modelopt's NVFP4_AWQ (");
  EXPECT_EQ(stated_by_file("hf_quant_config.json", "[]"), "hf_quant_config.json: 'quantization' is missing");
  EXPECT_EQ(stated_by_file("quantize_config.json", "{}"), "quantize_config.json: 'bits' is missing");
  EXPECT_EQ(stated_by_file("quant_config.json", std::string(100'000, '[')).substr(0, 17), "quant_config.json");
  EXPECT_EQ(stated_by_file("config.json", "{}"), "");
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
      " is not supported; supported are float32, bfloat16 and float16; fp8, fbgemm_fp8, mxfp4 (gpt-oss), compressed-tensors "
      "(float-quantized, "
      "mxfp8-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, int-quantized and pack-quantized), gptq and awq (gemm) in "
      "8 "
      "or 4 bits, and modelopt's FP8, MXFP8, NVFP4 and W4A16_NVFP4";
  EXPECT_EQ(stated(R"({"quant_method":"bitsandbytes","load_in_4bit":true})"),
            "the weights are quantised with 'bitsandbytes' ('quantization_config'), which" + served);
  for (const char* method : {"hqq", "aqlm", "exl2", "exl3", "quip", "torchao", "quark", "auto-round"})
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
  for (const std::string algorithm : {"NVFP4_AWQ", "NVFP4_SVD", "W4A8_NVFP4_FP8", "W4A8_MXFP4_FP8"})
    refused("{\"quant_method\":\"modelopt\",\"quant_algo\":\"" + algorithm + "\"}", "modelopt's " + algorithm);
  refused(R"({"quant_method":"modelopt","quant_algo":"NVFP4","group_size":32})",
          "modelopt's NVFP4 with a scale for 32 columns");
  refused(groups(R"({"num_bits":6,"type":"float"})", "mxfp6-pack-quantized"),
          "compressed-tensors in the format 'mxfp6-pack-quantized'");
  refused(groups(R"({"num_bits":4,"type":"int"})", "marlin-24"), "compressed-tensors in the format 'marlin-24'");
  refused(groups(R"({"num_bits":4,"type":"float"})"), "floats of 4 bits without groups");
  refused(groups(R"({"num_bits":4,"type":"float","group_size":64})"), "floats of 4 bits with a scale for 64 columns");
  refused(groups(R"({"num_bits":4,"type":"float","symmetric":false,"group_size":16})"), "floats of 4 bits with zeros");
  refused(groups(R"({"num_bits":2,"type":"int"})"), "integers of 2 bits");
  refused(groups(R"({"num_bits":8,"type":"float","strategy":"tensor_group"})"), "scales by 'tensor_group'");
  refused(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{"a":{"quant_algo":"FP8"},)"
          R"("b":{"quant_algo":"W4A16_AWQ"}}})",
          "modelopt's W4A16_AWQ");
  refused(R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"},"config_groups":{}})",
          "the sparse format 'sparse-24-bitmask'");
  refused(R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{"u":{}}},"config_groups":{}})",
          "transforms");
}

TEST(Quantization, damaged_fields_are_named) {
  EXPECT_EQ(
      stated("7"),
      "the weights are quantised with '7' ('quantization_config'), which is not supported; supported are float32, "
      "bfloat16 and float16; fp8, fbgemm_fp8, mxfp4 (gpt-oss), compressed-tensors (float-quantized, mxfp8-quantized, "
      "nvfp4-pack-quantized, mxfp4-pack-quantized, int-quantized and pack-quantized), gptq and awq (gemm) in 8 or 4 bits, "
      "and modelopt's FP8, MXFP8, NVFP4 and W4A16_NVFP4");
  EXPECT_EQ(stated(R"({"quant_method":"gptq"})"), "'bits' is missing");
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":4,"group_size":0})"),
            "'group_size' must be -1 or from 1 to 1048576, not 0");
  EXPECT_EQ(stated(R"({"quant_method":"compressed-tensors"})"), "'config_groups' is missing");
  EXPECT_EQ(stated(R"({"quant_method":"gptq","bits":4,"dynamic":[]})"), "'dynamic' must be an object, not a list");
}

}  // namespace
}  // namespace baton
