/// Quantised checkpoints of strangers: each damaged or hostile one ends with one sentence that names the tensor or the field, the
/// value and the limit.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/one_line.h"
#include "support/changed_checkpoint.h"
#include "support/quantised_tensors.h"

namespace baton {
namespace {

using test::ChangedCheckpoint;
using test::TensorToWrite;
using Change = std::function<void(ChangedCheckpoint&)>;
using Sizes = std::vector<std::int64_t>;

/// What a change makes of a golden.
struct Hostile {
  const char* golden;
  Change change;
  const char* error;  ///< a part of it
};

/// Gives a tensor as many bytes as its shape and type need.
void fit_bytes(TensorToWrite& tensor) {
  std::size_t n = test::element_bytes(tensor.dtype);
  for (const std::int64_t size : tensor.shape) n *= static_cast<std::size_t>(size);
  tensor.bytes.resize(n, '\1');
}

Change has_type(const char* end, const char* dtype) {
  return [=](ChangedCheckpoint& checkpoint) {
    checkpoint.tensor(end).dtype = dtype;
    fit_bytes(checkpoint.tensor(end));
  };
}

Change has_shape(const char* end, const Sizes& shape) {
  return [=](ChangedCheckpoint& checkpoint) {
    checkpoint.tensor(end).shape = shape;
    fit_bytes(checkpoint.tensor(end));
  };
}

Change is_tensor(const char* end, const char* dtype, const Sizes& shape) {
  return [=](ChangedCheckpoint& checkpoint) {
    TensorToWrite made{"model.layers.0.self_attn." + std::string(end), dtype, shape, ""};
    fit_bytes(made);
    checkpoint.remove(end);
    checkpoint.tensors.push_back(made);
  };
}

Change is_absent(const char* end) {
  return [=](ChangedCheckpoint& checkpoint) { checkpoint.remove(end); };
}

/// The last element becomes `value`.
template <class T>
Change ends_with(const char* end, T value) {
  return [=](ChangedCheckpoint& checkpoint) {
    std::string& bytes = checkpoint.tensor(end).bytes;
    std::memcpy(bytes.data() + bytes.size() - sizeof(value), &value, sizeof(value));
  };
}

/// All elements become `value`.
template <class T>
Change is_filled(const char* end, T value) {
  return [=](ChangedCheckpoint& checkpoint) {
    std::string& bytes = checkpoint.tensor(end).bytes;
    for (std::size_t i = 0; i + sizeof(value) <= bytes.size(); i += sizeof(value))
      std::memcpy(bytes.data() + i, &value, sizeof(value));
  };
}

/// A field of `quantization_config`, named by a JSON pointer.
Change states(const char* pointer, const char* value) {
  return [=](ChangedCheckpoint& checkpoint) {
    checkpoint.quantization()[json::Value::json_pointer(pointer)] = json::parse(value, "the test").value();
  };
}

Change both(const Change& first, const Change& second) {
  return [=](ChangedCheckpoint& checkpoint) {
    first(checkpoint);
    second(checkpoint);
  };
}

void expect_errors(const std::vector<Hostile>& cases) {
  ChangedCheckpoint checkpoint;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    checkpoint.read(cases[i].golden);
    cases[i].change(checkpoint);
    const std::string error = checkpoint.error();
    EXPECT_NE(error.find(cases[i].error), std::string::npos) << cases[i].golden << ", case " << i << ": " << error;
    EXPECT_EQ(one_line(error, kMaxMessageBytes), error);
  }
}

constexpr std::uint16_t kBf16Nan = 0x7fc0, kBf16Infinity = 0x7f80, kF16Nan = 0x7e00, kF16Infinity = 0xfc00;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

TEST(HostileWeights, float8) {
  expect_errors({
      {"fp8_tensor", ends_with("o_proj.weight", '\x7f'), "o_proj.weight' holds NaN"},
      {"fp8_tensor", ends_with("o_proj.weight", '\xff'), "o_proj.weight' holds NaN"},
      {"ct_fp8_channel", ends_with("down_proj.weight", '\xff'), "down_proj.weight' holds NaN"},
      {"fp8_tensor", has_type("o_proj.weight", "F8_E5M2"), "o_proj.weight' has the element type F8_E5M2 and scales"},
      {"fp8_tensor", has_type("o_proj.weight", "U8"), "o_proj.weight' has the element type U8 and scales"},
      {"fp8_tensor", has_type("o_proj.weight", "I16"), "o_proj.weight' has the element type I16 and scales"},
      {"fp8_tensor", has_type("o_proj.weight", "BF16"), "o_proj.weight' has the element type BF16 and scales"},
      {"fp8_tensor", has_shape("o_proj.weight", {32, 128}), "o_proj.weight' has the shape [32, 128], not [64, 64]"},
      {"fp8_tensor", has_shape("o_proj.weight", {4096}), "o_proj.weight' has the shape [4096], not [64, 64]"},
      {"fp8_tensor", has_shape("o_proj.weight", {64, 64, 1}), "o_proj.weight' has the shape [64, 64, 1], not [64, 64]"},
      {"fp8_tensor", has_shape("o_proj.weight", {0, 64}), "o_proj.weight' has the shape [0, 64], not [64, 64]"},
      {"fp8_tensor", has_shape("o_proj.weight", {}), "o_proj.weight' has the shape [], not [64, 64]"},
      {"fp8_tensor", is_absent("o_proj.weight_scale_inv"), "lacks tensor 'model.layers.0.self_attn.o_proj.weight_scale'"},
      {"fp8_tensor", is_absent("o_proj.weight"), "lacks tensor 'model.layers.0.self_attn.o_proj.weight'"},
      {"fp8_tensor", ends_with("o_proj.weight_scale_inv", kNan), "o_proj.weight_scale_inv' holds NaN; scales must be finite"},
      {"fp8_tensor", ends_with("o_proj.weight_scale_inv", kInfinity), "o_proj.weight_scale_inv' holds infinity"},
      {"fp8_tensor", ends_with("v_proj.weight_scale_inv", -kInfinity), "v_proj.weight_scale_inv' holds infinity"},
      {"fp8_tensor", has_type("o_proj.weight_scale_inv", "F64"),
       "o_proj.weight_scale_inv' has the element type F64; scales are"},
      {"fp8_tensor", has_type("o_proj.weight_scale_inv", "I32"),
       "o_proj.weight_scale_inv' has the element type I32; scales are"},
      {"fp8_tensor", has_type("o_proj.weight_scale_inv", "BOOL"), "o_proj.weight_scale_inv' has the element type BOOL; scales"},
      {"fp8_tensor", has_type("o_proj.weight_scale_inv", "F8_E4M3"), "weight_scale_inv' has the element type F8_E4M3; scales"},
      {"fp8_tensor", has_shape("o_proj.weight_scale_inv", {0}), "o_proj.weight_scale_inv' has the shape [0]; for 64 x 64"},
      {"fp8_tensor", has_shape("o_proj.weight_scale_inv", {2}), "o_proj.weight_scale_inv' has the shape [2]; for 64 x 64"},
      {"fp8_tensor", has_shape("o_proj.weight_scale_inv", {64, 64}), "weight_scale_inv' has the shape [64, 64]; for 64 x 64"},
      {"fp8_tensor", has_shape("o_proj.weight_scale_inv", {64}), "is float8_e4m3 with a scale for each row; the configuration"},
  });
}

TEST(HostileWeights, blocks_and_rows_of_float8) {
  expect_errors({
      {"fp8_block", has_shape("q_proj.weight_scale_inv", {2, 1}),
       "q_proj.weight_scale_inv' has the shape [2, 1]; for 128 x 160"},
      {"fp8_block", has_shape("q_proj.weight_scale_inv", {1, 3}),
       "q_proj.weight_scale_inv' has the shape [1, 3]; for 128 x 160"},
      {"fp8_block", has_shape("q_proj.weight_scale_inv", {1, 2, 1}), "has the shape [1, 2, 1]; for 128 x 160 weights"},
      {"fp8_block", ends_with("o_proj.weight_scale_inv", kBf16Nan), "o_proj.weight_scale_inv' holds NaN"},
      {"fp8_block", ends_with("o_proj.weight_scale_inv", kBf16Infinity), "o_proj.weight_scale_inv' holds infinity"},
      {"fp8_block", both(has_type("o_proj.weight_scale_inv", "F8_E8M0"), is_filled("o_proj.weight_scale_inv", '\xff')),
       "o_proj.weight_scale_inv' holds NaN"},
      {"fp8_block", both(has_type("o_proj.weight_scale_inv", "U8"), is_filled("o_proj.weight_scale_inv", '\xff')),
       "o_proj.weight_scale_inv' holds NaN"},
      {"fp8_block", states("/weight_block_size", "[0, 128]"),
       "'weight_block_size' must be the rows and the columns of a block"},
      {"fp8_block", states("/weight_block_size", "[-128, 128]"), "of a block, not [-128,128]"},
      {"fp8_block", states("/weight_block_size", "[128, 1099511627776]"), "of a block, not [128,1099511627776]"},
      {"fp8_block", states("/weight_block_size", "[128, 128, 128]"), "of a block, not [128,128,128]"},
      {"fp8_block", states("/weight_block_size", "[128, 1e300]"), "weight_block_size[1]"},
      {"fp8_block", states("/weight_block_size", "\"128\""), "'weight_block_size' must be a list, not a string"},
      {"fp8_block", states("/weight_block_size", "[1, 1]"), "or [128, 160] for blocks of 1 x 1"},
      {"fp8_block", states("/weight_block_size", "[1048576, 1048576]"), "has the shape [1, 2]; for 128 x 160"},
      {"fp8_block", states("/weight_block_size", "null"),
       "the configuration ('fp8') states float8_e4m3 with a scale for the tensor"},
      {"ct_fp8_channel", has_shape("o_proj.weight_scale", {1, 64}), "o_proj.weight_scale' has the shape [1, 64]; for 64 x 64"},
      {"ct_fp8_channel", has_shape("o_proj.weight_scale", {64, 2}), "o_proj.weight_scale' has the shape [64, 2]; for 64 x 64"},
      {"ct_fp8_channel", has_shape("o_proj.weight_scale", {63, 1}), "o_proj.weight_scale' has the shape [63, 1]; for 64 x 64"},
      {"ct_fp8_channel", both(has_type("o_proj.weight_scale", "F16"), is_filled("o_proj.weight_scale", kF16Nan)),
       "o_proj.weight_scale' holds NaN"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights/num_bits", "16"), "floats of 16 bits"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights/num_bits", "-8"), "floats of -8 bits"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights/num_bits", "\"8\""), "'num_bits' must be an integer"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights/num_bits", "1e300"), "'num_bits'"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights/strategy", "\"token\""), "scales by 'token'"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights/strategy", "[7]"), "'strategy' must be a string, not a list"},
      {"ct_fp8_channel", states("/config_groups/group_0/weights", "[]"), "'num_bits' is missing"},
      {"ct_fp8_channel", states("/config_groups", "{}"), "the configuration ('compressed-tensors') states nothing of the kind"},
      {"ct_fp8_block", states("/config_groups/group_0/weights/block_structure", "null"), "'block_structure' is missing"},
      {"ct_fp8_block", states("/config_groups/group_0/weights/block_structure", "[]"), "'block_structure' must be the rows"},
  });
}

TEST(HostileWeights, integers_of_compressed_tensors) {
  expect_errors({
      {"ct_int8", is_absent("o_proj.weight_scale"), "lacks tensor 'model.layers.0.self_attn.o_proj.weight_scale'"},
      {"ct_int8", is_tensor("o_proj.weight_zero_point", "I8", {64, 1}), "o_proj.weight_zero_point': signed bytes with zeros"},
      {"ct_int8", has_shape("o_proj.weight", {64, 63}), "o_proj.weight' has the shape [64, 63], not [64, 64]"},
      {"ct_int8_packed", has_shape("o_proj.weight_packed", {64, 15}), "o_proj.weight_packed' has 15 words for 64 values"},
      {"ct_int4", has_type("o_proj.weight_packed", "I64"), "o_proj.weight_packed' has the element type I64; I32 is read"},
      {"ct_int4", has_type("o_proj.weight_packed", "U8"), "o_proj.weight_packed' has the shape [64, 8], not [64, 32]"},
      {"ct_int4", has_shape("o_proj.weight_packed", {32, 16}), "o_proj.weight_packed' has the shape [32, 16]; it must have 64"},
      {"ct_int4", has_shape("o_proj.weight_packed", {64, 7}), "o_proj.weight_packed' has 7 words for 64 values"},
      {"ct_int4", has_shape("o_proj.weight_packed", {64, 0}), "o_proj.weight_packed' has 0 words for 64 values"},
      {"ct_int4", has_shape("o_proj.weight_packed", {512}), "o_proj.weight_packed' has the shape [512]; it must have 64 rows"},
      {"ct_int4", is_filled("o_proj.weight_shape", std::int64_t{-1}), "o_proj.weight_shape' says -1 x -1 weights; the"},
      {"ct_int4", ends_with("o_proj.weight_shape", std::int64_t{1} << 62), "says 64 x 4611686018427387904 weights; the"},
      {"ct_int4", ends_with("o_proj.weight_shape", std::numeric_limits<std::int64_t>::min()), "asks for 64 x 64"},
      {"ct_int4", has_shape("o_proj.weight_shape", {3}), "o_proj.weight_shape' has the element type I64 and the shape [3]"},
      {"ct_int4", has_shape("o_proj.weight_shape", {}), "o_proj.weight_shape' has the element type I64 and the shape []"},
      {"ct_int4", has_type("o_proj.weight_shape", "F32"), "o_proj.weight_shape' has the element type F32 and the shape [2]"},
      {"ct_int4", has_type("o_proj.weight_shape", "I32"), "o_proj.weight_shape' says 64 x 0 weights"},
      {"ct_int4", is_absent("o_proj.weight_scale"), "lacks tensor 'model.layers.0.self_attn.o_proj.weight_scale'"},
      {"ct_int4", has_shape("o_proj.weight_scale", {2, 64}),
       "o_proj.weight_scale' has the shape [2, 64]; it must have 64 rows"},
      {"ct_int4", has_shape("o_proj.weight_scale", {64, 0}), "o_proj.weight_scale' has 0 scales for a row of 64 weights"},
      {"ct_int4", has_shape("o_proj.weight_scale", {64, 3}), "o_proj.weight_scale' has 3 scales for a row of 64 weights"},
      {"ct_int4", has_shape("o_proj.weight_scale", {64, 65}), "o_proj.weight_scale' has 65 scales for a row of 64 weights"},
      {"ct_int4", has_shape("o_proj.weight_scale", {64, 2, 1}), "o_proj.weight_scale' has the shape [64, 2, 1]; it must have"},
      {"ct_int4", has_shape("o_proj.weight_scale", {}), "o_proj.weight_scale' has the shape []; it must have 64 rows"},
      {"ct_int4", has_type("o_proj.weight_scale", "I32"), "o_proj.weight_scale' has the element type I32; scales are"},
      {"ct_int4", ends_with("o_proj.weight_scale", kBf16Infinity), "o_proj.weight_scale' holds infinity"},
      {"ct_int4", states("/config_groups/group_0/weights/group_size", "0"),
       "'group_size' must be -1 or from 1 to 1048576, not 0"},
      {"ct_int4", states("/config_groups/group_0/weights/group_size", "-7"), "'group_size' must be -1 or from 1 to 1048576"},
      {"ct_int4", states("/config_groups/group_0/weights/group_size", "9223372036854775807"), "not 9223372036854775807"},
      {"ct_int4", states("/config_groups/group_0/weights/group_size", "3.5"), "'group_size' must be an integer"},
      {"ct_int4", states("/config_groups/group_0/weights/group_size", "null"), "'group_size' is missing"},
      {"ct_int4", states("/config_groups/group_0/weights/group_size", "1"), "states int4 with a scale for 1 columns of a row"},
      {"ct_int4", states("/config_groups/group_0/weights/num_bits", "0"), "integers of 0 bits"},
      {"ct_int4", states("/config_groups/group_0/weights/symmetric", "7"), "'symmetric' must be true or false, not an integer"},
      {"ct_int4", states("/config_groups", "[]"), "'config_groups' is missing"},
      {"ct_int4", states("/format", "{}"), "'format' must be a string, not an object"},
      {"ct_int4_zeros", has_shape("o_proj.weight_zero_point", {8, 3}), "weight_zero_point' has the shape [8, 3], not [8, 2]"},
      {"ct_int4_zeros", has_shape("o_proj.weight_zero_point", {64, 2}), "weight_zero_point' has the shape [64, 2], not [8, 2]"},
      {"ct_int4_zeros", has_type("o_proj.weight_zero_point", "I8"), "weight_zero_point' has the element type I8; I32 is read"},
      {"ct_int4_zeros", is_absent("o_proj.weight_zero_point"),
       "is int4 with a scale for 32 columns of a row; the configuration"},
      {"ct_int4", is_tensor("o_proj.weight_g_idx", "I32", {64}), "weight_g_idx' has the group 16843009 of 2"},
  });
}

TEST(HostileWeights, gptq_and_awq) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min(), kMost = std::numeric_limits<std::int32_t>::max();
  expect_errors({
      {"gptq", has_type("o_proj.qweight", "I64"), "o_proj.qweight' has the element type I64; I32 is read"},
      {"gptq", has_shape("o_proj.qweight", {64, 8}), "which is neither GPTQ's nor AWQ's (gemm) for 64 x 64"},
      {"gptq", has_shape("o_proj.qweight", {7, 64}), "o_proj.qweight' has 7 words for 64 values"},
      {"gptq", has_shape("o_proj.qweight", {512}), "o_proj.qweight' has the shape [512]"},
      {"gptq", is_absent("o_proj.scales"), "lacks tensor 'model.layers.0.self_attn.o_proj.scales'"},
      {"gptq", has_shape("o_proj.scales", {2, 63}), "o_proj.scales' has the shape [2, 63]; it must have 64 columns"},
      {"gptq", has_shape("o_proj.scales", {128}), "o_proj.scales' has the shape [128]; it must have 64 columns"},
      {"gptq", has_shape("o_proj.scales", {0, 64}), "o_proj.scales' has 0 scales for a row of 64 weights"},
      {"gptq", has_shape("o_proj.scales", {3, 64}), "o_proj.scales' has 3 scales for a row of 64 weights"},
      {"gptq", ends_with("o_proj.scales", kF16Nan), "o_proj.scales' holds NaN"},
      {"gptq", ends_with("o_proj.scales", kF16Infinity), "o_proj.scales' holds infinity"},
      {"gptq", has_shape("o_proj.qzeros", {2, 7}), "o_proj.qzeros' has the shape [2, 7], not [2, 8]"},
      {"gptq", has_shape("o_proj.qzeros", {3, 8}), "o_proj.qzeros' has the shape [3, 8], not [2, 8]"},
      {"gptq", has_type("o_proj.qzeros", "F32"), "o_proj.qzeros' has the element type F32; I32 is read"},
      {"gptq", is_filled("o_proj.qzeros", '\0'), "o_proj.qzeros' begins with 0x00000000; the configuration says"},
      {"gptq_zeros", is_absent("o_proj.qzeros"), "is int4 with a scale for 32 columns of a row; the configuration ('gptq')"},
      {"gptq_int8", has_shape("o_proj.qzeros", {2, 8}), "o_proj.qzeros' has the shape [2, 8], not [2, 16]"},
      {"gptq", ends_with("o_proj.g_idx", std::int32_t{-1}), "o_proj.g_idx' has the group -1 of 2"},
      {"gptq_desc_act", ends_with("o_proj.g_idx", std::int32_t{2}), "o_proj.g_idx' has the group 2 of 2"},
      {"gptq_desc_act", ends_with("o_proj.g_idx", kLeast), "o_proj.g_idx' has the group -2147483648 of 2"},
      {"gptq_desc_act", ends_with("o_proj.g_idx", kMost), "o_proj.g_idx' has the group 2147483647 of 2"},
      {"gptq_desc_act", is_filled("o_proj.g_idx", std::int32_t{1}), "o_proj.g_idx' has 0 columns in group 0, not 32"},
      {"gptq_desc_act", has_shape("o_proj.g_idx", {63}), "o_proj.g_idx' has the shape [63], not [64]"},
      {"gptq_desc_act", has_shape("o_proj.g_idx", {64, 1}), "o_proj.g_idx' has the shape [64, 1], not [64]"},
      {"gptq_desc_act", has_type("o_proj.g_idx", "I64"), "o_proj.g_idx' has the element type I64; I32 is read"},
      {"gptq", states("/bits", "3"), "integers of 3 bits"},
      {"gptq", states("/bits", "4000000000"), "integers of 4000000000 bits"},
      {"gptq", states("/group_size", "0"), "'group_size' must be -1 or from 1 to 1048576, not 0"},
      {"gptq", states("/group_size", "-7"), "'group_size' must be -1 or from 1 to 1048576, not -7"},
      {"gptq", states("/group_size", "1099511627776"), "'group_size' must be -1 or from 1 to 1048576, not 1099511627776"},
      {"gptq", states("/group_size", "16"), "is int4 with a scale for 32 columns of a row; the configuration ('gptq') states"},
      {"gptq", states("/sym", "\"yes\""), "'sym' must be true or false, not a string"},
      {"gptq", states("/dynamic", "{\"+:x\": 7}"), "'dynamic' must be an object of objects, not an integer"},
      {"gptq", states("/dynamic", "{\"+:x\": {\"bits\": 5}}"), "integers of 5 bits"},
      {"gptq", states("/dynamic", "{\"+:x\": {\"group_size\": -2}}"), "'group_size' must be -1 or from 1 to 1048576, not -2"},
      {"awq", has_type("o_proj.qweight", "I16"), "o_proj.qweight' has the element type I16; I32 is read"},
      {"awq", has_shape("o_proj.qweight", {64, 7}), "o_proj.qweight' has the shape [64, 7], which is neither"},
      {"awq", has_shape("o_proj.scales", {2, 56}), "o_proj.scales' has the shape [2, 56]; it must have 64 columns"},
      {"awq", has_shape("o_proj.qzeros", {2, 64}), "o_proj.qzeros' has the shape [2, 64], not [2, 8]"},
      {"awq", is_absent("o_proj.qzeros"), "is int4 with a scale for 32 columns of a row; the configuration ('awq') states"},
      {"awq", ends_with("o_proj.scales", kF16Infinity), "o_proj.scales' holds infinity"},
      {"awq", states("/bits", "8"), "awq in 8 bits"},
  });
}

TEST(HostileWeights, floats_of_4_bits) {
  expect_errors({
      {"ct_nvfp4", has_type("o_proj.weight_packed", "I32"), "o_proj.weight_packed' has 32 words for 64 values"},
      {"ct_nvfp4", has_type("o_proj.weight_packed", "I8"), "o_proj.weight_packed' has 32 words for 64 values"},
      {"ct_nvfp4", has_shape("o_proj.weight_packed", {64, 31}), "o_proj.weight_packed' has the shape [64, 31], not [64, 32]"},
      {"ct_nvfp4", has_shape("o_proj.weight_packed", {64, 64}), "o_proj.weight_packed' has the shape [64, 64], not [64, 32]"},
      {"ct_nvfp4", has_shape("o_proj.weight_packed", {2048}), "o_proj.weight_packed' has the shape [2048], not [64, 32]"},
      {"ct_nvfp4", has_shape("o_proj.weight_packed", {}), "o_proj.weight_packed' has the shape [], not [64, 32]"},
      {"ct_nvfp4", is_absent("o_proj.weight_scale"), "lacks tensor 'model.layers.0.self_attn.o_proj.weight_scale'"},
      {"ct_nvfp4", has_shape("o_proj.weight_scale", {64, 5}), "o_proj.weight_scale' has the shape [64, 5], not [64, 4]"},
      {"ct_nvfp4", has_shape("o_proj.weight_scale", {4, 64}), "o_proj.weight_scale' has the shape [4, 64], not [64, 4]"},
      {"ct_nvfp4", has_shape("o_proj.weight_scale", {256}), "o_proj.weight_scale' has the shape [256], not [64, 4]"},
      {"ct_nvfp4", has_type("o_proj.weight_scale", "BF16"), "o_proj.weight_scale' has the element type BF16; scales of floats"},
      {"ct_nvfp4", has_type("o_proj.weight_scale", "U8"), "o_proj.weight_scale' has the shape [64, 4], not [64, 2]"},
      {"ct_nvfp4", ends_with("o_proj.weight_scale", '\x7f'), "o_proj.weight_scale' holds NaN; scales must be finite"},
      {"ct_nvfp4", ends_with("o_proj.weight_scale", '\xff'), "o_proj.weight_scale' holds NaN; scales must be finite"},
      {"ct_nvfp4", is_absent("o_proj.weight_global_scale"),
       "lacks tensor 'model.layers.0.self_attn.o_proj.weight_global_scale'"},
      {"ct_nvfp4", is_filled("o_proj.weight_global_scale", 0.0f),
       "o_proj.weight_global_scale' holds 0; it must be finite and not"},
      {"ct_nvfp4", is_filled("o_proj.weight_global_scale", 1e-39f),
       "o_proj.weight_global_scale' holds 1e-39; it must be finite"},
      {"ct_nvfp4", is_filled("o_proj.weight_global_scale", kNan), "o_proj.weight_global_scale' holds nan; it must be finite"},
      {"ct_nvfp4", is_filled("o_proj.weight_global_scale", kInfinity),
       "o_proj.weight_global_scale' holds inf; it must be finite"},
      {"ct_nvfp4", has_shape("o_proj.weight_global_scale", {2}),
       "has the element type F32 and the shape [2]; it must be F32 [1]"},
      {"ct_nvfp4", has_shape("o_proj.weight_global_scale", {0}),
       "has the element type F32 and the shape [0]; it must be F32 [1]"},
      {"ct_nvfp4", has_type("o_proj.weight_global_scale", "BF16"),
       "has the element type BF16 and the shape [1]; it must be F32"},
      {"ct_nvfp4", is_tensor("o_proj.weight_zero_point", "I8", {64, 4}),
       "o_proj.weight_zero_point': floats of 4 bits with zeros"},
      {"ct_nvfp4", states("/config_groups/group_0/weights/group_size", "32"),
       "is float4_e2m1 with a scale for 16 columns of a row; the configuration ('compressed-tensors') states float4_e2m1"},
      {"ct_nvfp4", states("/config_groups/group_0/weights/group_size", "64"), "floats of 4 bits with a scale for 64 columns"},
      {"ct_nvfp4", states("/config_groups/group_0/weights/group_size", "null"), "floats of 4 bits without groups"},
      {"ct_nvfp4", states("/config_groups/group_0/weights/group_size", "-1"), "floats of 4 bits without groups"},
      {"ct_nvfp4", states("/config_groups/group_0/weights/symmetric", "false"), "floats of 4 bits with zeros"},
      {"ct_mxfp4", ends_with("o_proj.weight_scale", '\xff'), "o_proj.weight_scale' holds NaN; scales must be finite"},
      {"ct_mxfp4", has_shape("o_proj.weight_scale", {160, 1}), "o_proj.weight_scale' has the shape"},
      {"ct_mxfp4", has_type("o_proj.weight_scale", "F32"), "o_proj.weight_scale' has the element type F32; scales of floats"},
      {"modelopt_nvfp4", is_absent("o_proj.weight_scale_2"), "o_proj.weight' has the element type U8 and scales: of schemes"},
      {"modelopt_nvfp4", is_filled("o_proj.weight_scale_2", kNan), "o_proj.weight_scale_2' holds nan; it must be finite"},
      {"modelopt_nvfp4", has_shape("o_proj.weight_scale_2", {64}),
       "o_proj.weight_scale_2' has the element type F32 and the shape"},
      {"modelopt_nvfp4", has_shape("o_proj.weight", {64, 64}), "o_proj.weight' has the shape [64, 64], not [64, 32]"},
      {"modelopt_nvfp4", states("/quant_algo", "\"NVFP4_AWQ\""), "modelopt's NVFP4_AWQ"},
      {"modelopt_mixed", states("/quantized_layers/x", "{\"quant_algo\": \"W4A8_NVFP4_FP8\"}"), "modelopt's W4A8_NVFP4_FP8"},
      {"modelopt_mixed", states("/quantized_layers", "{\"x\": {\"quant_algo\": \"FP8\"}}"),
       "is float4_e2m1 with a scale for 16 columns of a row; the configuration ('modelopt') states float8_e4m3"},
  });
}

TEST(HostileWeights, experts_in_one_tensor) {
  expect_errors({
      {"gpt_oss_mxfp4", has_type("layers.0.mlp.experts.gate_up_proj_blocks", "I8"),
       "gate_up_proj_blocks' has the element type I8; U8 is read"},
      {"gpt_oss_mxfp4", has_type("layers.0.mlp.experts.gate_up_proj_blocks", "F8_E4M3"),
       "gate_up_proj_blocks' has the element type F8_E4M3; U8 is read"},
      {"gpt_oss_mxfp4", has_type("layers.0.mlp.experts.gate_up_proj_blocks", "I32"),
       "gate_up_proj_blocks' has the element type I32; U8 is read"},
      {"gpt_oss_mxfp4", has_type("layers.0.mlp.experts.gate_up_proj_blocks", "BF16"),
       "gate_up_proj_blocks' has the element type BF16; U8 is read"},
      {"gpt_oss_mxfp4", has_type("layers.1.mlp.experts.down_proj_scales", "F8_E8M0"),
       "down_proj_scales' has the element type F8_E8M0; U8 is read"},
      {"gpt_oss_mxfp4", has_type("layers.1.mlp.experts.down_proj_scales", "F32"),
       "down_proj_scales' has the element type F32; U8 is read"},
      {"gpt_oss_mxfp4", has_type("layers.1.mlp.experts.down_proj_scales", "I8"),
       "down_proj_scales' has the element type I8; U8 is read"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {4, 128, 32}),
       "gate_up_proj_blocks' has the shape [4, 128, 32], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {4, 128, 2, 8}),
       "gate_up_proj_blocks' has the shape [4, 128, 2, 8], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {4, 128, 1, 16}),
       "gate_up_proj_blocks' has the shape [4, 128, 1, 16], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {3, 128, 2, 16}),
       "gate_up_proj_blocks' has the shape [3, 128, 2, 16], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {5, 128, 2, 16}),
       "gate_up_proj_blocks' has the shape [5, 128, 2, 16], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {4, 2, 128, 16}),
       "gate_up_proj_blocks' has the shape [4, 2, 128, 16], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {512, 2, 16}),
       "gate_up_proj_blocks' has the shape [512, 2, 16], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_blocks", {16384}),
       "gate_up_proj_blocks' has the shape [16384], not [4, 128, 2, 16]"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_scales", {4, 64}),
       "down_proj_scales' has the shape [4, 64], not [4, 64, 2]"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_scales", {4, 64, 1}),
       "down_proj_scales' has the shape [4, 64, 1], not [4, 64, 2]"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_scales", {4, 2, 64}),
       "down_proj_scales' has the shape [4, 2, 64], not [4, 64, 2]"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_scales", {4, 64, 2, 1}),
       "down_proj_scales' has the shape [4, 64, 2, 1], not [4, 64, 2]"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_scales", {1, 64, 2}),
       "down_proj_scales' has the shape [1, 64, 2], not [4, 64, 2]"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_scales", {512}),
       "down_proj_scales' has the shape [512], not [4, 64, 2]"},
      {"gpt_oss_mxfp4", is_absent("layers.1.mlp.experts.down_proj_scales"),
       "lacks tensor 'model.layers.1.mlp.experts.down_proj_scales'"},
      {"gpt_oss_mxfp4", is_absent("layers.0.mlp.experts.gate_up_proj_blocks"),
       "lacks tensor 'model.layers.0.mlp.experts.gate_up_proj"},
      {"gpt_oss_mxfp4", is_absent("layers.0.mlp.experts.gate_up_proj_bias"),
       "lacks tensor 'model.layers.0.mlp.experts.gate_up_proj_bias'"},
      {"gpt_oss_mxfp4", ends_with("layers.1.mlp.experts.down_proj_scales", '\xff'),
       "down_proj_scales' holds NaN; scales must be finite"},
      {"gpt_oss_mxfp4", is_filled("layers.0.mlp.experts.gate_up_proj_scales", '\xff'),
       "gate_up_proj_scales' holds NaN; scales must be finite"},
      {"gpt_oss_mxfp4", has_shape("layers.0.mlp.experts.gate_up_proj_bias", {4, 64}), "gate_up_proj_bias'"},
      {"gpt_oss_mxfp4", has_shape("layers.1.mlp.experts.down_proj_bias", {256}), "down_proj_bias'"},
  });
}

TEST(HostileWeights, what_other_formats_have_is_refused_by_name) {
  expect_errors({
      {"fp8_tensor", is_tensor("o_proj.pre_quant_scale", "F32", {64}), "o_proj.pre_quant_scale' scales the inputs of a matrix"},
      {"fp8_tensor", states("/expert_dtype", "\"fp4\""),
       "'expert_dtype' is \"fp4\", which is not supported; supported is \"fp8\""},
      {"ct_fp8_channel", states("/format", "\"mxfp6-pack-quantized\""),
       "compressed-tensors in the format 'mxfp6-pack-quantized'"},
      {"ct_fp8_channel", states("/config_groups/group_0/format", "\"marlin-24\""),
       "compressed-tensors in the format 'marlin-24'"},
  });
}

TEST(HostileWeights, matrices_that_are_not_quantised) {
  const auto names_qweight = [](ChangedCheckpoint& checkpoint) {
    checkpoint.tensor("embed_tokens.weight").name = "model.embed_tokens.qweight";
  };
  expect_errors({
      {"fp8_tensor", has_type("embed_tokens.weight", "F8_E4M3"), "lacks tensor 'model.embed_tokens.weight_scale'"},
      {"gptq", names_qweight, "lacks tensor 'model.embed_tokens.scales'"},
      {"fp8_tensor", has_type("input_layernorm.weight", "F8_E4M3"),
       "layernorm.weight' is float8_e4m3; weights must be float32"},
      {"ct_int8", has_type("lm_head.weight", "U8"), "lm_head.weight' has the element type U8"},
  });
}

// Names of modules are patterns. No pattern of a file is ever matched: the tensors say which modules are quantised.
TEST(HostileWeights, patterns_cost_nothing) {
  ChangedCheckpoint checkpoint;
  for (const std::string bomb : {"re:(a+)+$", "re:((((a{1,9999}){1,9999}){1,9999}){1,9999})", "re:(", "re:(.*a){30}b"}) {
    checkpoint.read("ct_int4");
    checkpoint.quantization()["ignore"] = std::vector<std::string>(100, bomb);
    checkpoint.quantization()["config_groups"]["group_0"]["targets"] = std::vector<std::string>(100, bomb);
    EXPECT_EQ(checkpoint.error(), "no error");
    checkpoint.read("gptq");
    checkpoint.quantization()["dynamic"] = {{"+:" + bomb, {{"bits", 8}}}, {"-:" + bomb, json::Value::object()}};
    EXPECT_EQ(checkpoint.error(), "no error");
  }
}

TEST(HostileWeights, many_schemes_are_refused_and_many_groups_of_one_scheme_are_not) {
  ChangedCheckpoint checkpoint;
  checkpoint.read("ct_int4");
  json::Value& groups = checkpoint.quantization()["config_groups"];
  std::string same = "{", different = "{";
  for (int i = 0; i < 100'000; ++i)
    same += "\"g" + std::to_string(i) + "\":{\"weights\":{\"num_bits\":4,\"strategy\":\"group\",\"group_size\":32}},";
  for (int i = 65; i < 130; ++i)
    different += "\"g" + std::to_string(i) + "\":{\"weights\":{\"num_bits\":4,\"group_size\":" + std::to_string(i) + "}},";
  groups = json::parse(same + "\"last\":{}}", "the test").value();
  EXPECT_EQ(checkpoint.error(), "no error");
  groups = json::parse(different + "\"last\":{}}", "the test").value();
  EXPECT_NE(checkpoint.error().find("'config_groups' states more than 64 schemes"), std::string::npos) << checkpoint.error();
  groups.erase("g129");
  EXPECT_NE(checkpoint.error().find("states int4 with a scale for 65 columns of a row, or"), std::string::npos);
  EXPECT_NE(checkpoint.error().find("or 60 more"), std::string::npos) << checkpoint.error();
}

}  // namespace
}  // namespace baton
