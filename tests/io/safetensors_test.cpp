/// Well-formed and hostile checkpoints for io/safetensors.h.
#include "io/safetensors.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/checkpoint_writer.h"

namespace baton {
namespace {

using test::f32_tensor;
using test::safetensors_file;
using test::safetensors_with_header;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(std::string_view name, std::string_view bytes) const { ASSERT_TRUE(write_file(folder_ / name, bytes)); }
  std::string error_of_open() const {
    const auto checkpoint = Checkpoint::open(folder_);
    return checkpoint ? "no error" : checkpoint.error().message;
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "baton_safetensors_test";
};

std::vector<float> values_of(const ConstTensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.n_elements()));
  std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
  return values;
}

std::string header_error(std::string_view header, std::size_t n_data_bytes) {
  const std::string file = safetensors_with_header(header, std::string(n_data_bytes, 'x'));
  const auto tensors = parse_safetensors(std::as_bytes(std::span(file)), "it");
  return tensors ? "no error" : tensors.error().message;
}

TEST_F(Safetensors, reads_the_tensors_of_a_single_file) {
  write("model.safetensors", safetensors_file({f32_tensor("b", {2, 3}, {1, 2, 3, 4, 5, 6}), f32_tensor("a", {}, {7}),
                                               f32_tensor("empty", {0, 4}, {})}));
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string>{"a", "b", "empty"}));
  EXPECT_EQ(checkpoint->total_bytes(), 28u);
  EXPECT_EQ(values_of(checkpoint->load("b", {2, 3}).value()), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of(checkpoint->load("a").value()), std::vector<float>{7});
  EXPECT_EQ(checkpoint->load("empty").value().shape, (Shape{0, 4}));
  checkpoint->drop_pages(checkpoint->load("b").value());
  EXPECT_EQ(values_of(checkpoint->load("b").value())[5], 6);
}

TEST_F(Safetensors, names_the_tensor_that_is_missing_or_has_another_shape_or_type) {
  write("model.safetensors", safetensors_file({f32_tensor("w", {2, 3}, std::vector<float>(6)),
                                               {"h", "F64", {1}, std::string(8, 'x')},
                                               {"tiny", "F4", {3}, "xx"},
                                               f32_tensor("deep", {1, 1, 1, 1, 1}, {0})}));
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->load("w", {3, 2}).error().message,
            "tensor 'w' has the shape [2, 3]; the configuration asks for [3, 2]");
  EXPECT_EQ(checkpoint->load("absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(checkpoint->load("absent").error().message, "the checkpoint has no tensor 'absent'");
  EXPECT_EQ(checkpoint->load("h").error().message, "tensor 'h' has the element type F64, which is not supported");
  EXPECT_EQ(checkpoint->load("tiny").error().code, ErrorCode::unsupported);
  EXPECT_EQ(checkpoint->load("deep").error().message,
            "tensor 'deep' has the shape [1, 1, 1, 1, 1]; at most 4 dimensions are supported");
}

TEST_F(Safetensors, reads_the_shards_of_an_index) {
  write("one.safetensors", safetensors_file({f32_tensor("a", {1}, {1}), f32_tensor("unlisted", {1}, {9})}));
  write("two.safetensors", safetensors_file({f32_tensor("b", {2}, {2, 3})}));
  write("model.safetensors.index.json",
        R"({"metadata":{"total_size":12},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values_of(checkpoint->load("b").value()), (std::vector<float>{2, 3}));
}

TEST_F(Safetensors, an_index_may_name_tensors_that_no_shard_has) {
  write("one.safetensors", safetensors_file({f32_tensor("a", {1}, {1})}));
  write("model.safetensors.index.json", R"({"weight_map":{"b":"one.safetensors","a":"one.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), std::vector<std::string>{"a"});
  EXPECT_EQ(checkpoint->load("b").error().message, "the checkpoint has no tensor 'b'");
}

TEST_F(Safetensors, says_what_is_wrong_with_an_index) {
  write("one.safetensors", safetensors_file({f32_tensor("a", {1}, {1})}));
  const std::string index = "model.safetensors.index.json";
  write(index, R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_EQ(error_of_open(), path("gone.safetensors") + " does not exist");
  write(index, R"({"weight_map":[]})");
  EXPECT_EQ(error_of_open(), path(index) + " has no object 'weight_map'");
  for (const char* name : {"\"../one.safetensors\"", "\"/etc/passwd\"", "\"..\"", "\"\"", "3", "\"a\\u0000b\""}) {
    write(index, std::string(R"({"weight_map":{"a":)") + name + "}}");
    EXPECT_EQ(error_of_open(), path(index) + ": the shard of 'a' must be a file name in the same folder") << name;
  }
}

TEST_F(Safetensors, says_when_there_are_no_weights) {
  EXPECT_EQ(error_of_open(),
            folder_.string() + " has no weights: neither model.safetensors nor model.safetensors.index.json is there");
  EXPECT_EQ(Checkpoint::open(folder_ / "absent").error().message, path("absent") + " is not a folder");
  write("pytorch_model.bin", "x");
  EXPECT_TRUE(error_of_open().starts_with(folder_.string() +
                                          " has no weights: neither model.safetensors nor model.safetensors.index.json is "
                                          "there; pytorch_model.bin is a pickle of PyTorch, and Baton reads"))
      << error_of_open();
}

TEST_F(Safetensors, every_truncation_of_a_file_is_an_error) {
  const std::string whole = safetensors_file({f32_tensor("a", {2}, {1, 2}), f32_tensor("b", {1, 2}, {3, 4})});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write("model.safetensors", std::string_view(whole).substr(0, length));
    const auto checkpoint = Checkpoint::open(folder_);
    ASSERT_FALSE(checkpoint) << length;
    EXPECT_EQ(checkpoint.error().code, ErrorCode::invalid_data);
    EXPECT_TRUE(checkpoint.error().message.starts_with(path("model.safetensors"))) << checkpoint.error().message;
  }
  EXPECT_EQ(error_of_open(),
            path("model.safetensors") +
                ": tensor 'b': its data ends at byte 16, but the file has only 15 bytes of tensor data; is it truncated?");
}

TEST_F(Safetensors, refuses_headers_that_lie) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
            "it: tensor 'a': its shape [2] of F32 needs 8 bytes, but data_offsets give it 4");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
            "it: tensor 'a': its shape [4294967296, 4294967296] is too large");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
            "it: tensor 'a': its shape [-1] has a negative size");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
            "it: tensor 'a': its data_offsets [4, 0] are not a begin and an end");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4),
            "it: tensor 'a': its data ends at byte 18446744073709551615, but the file has only 4 bytes of tensor data; is it "
            "truncated?");
  EXPECT_EQ(
      header_error(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
      "it is damaged: tensor 'b' begins at byte 1 of the data, but the tensor before it ends at 2");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
            "it is damaged: tensor 'a' begins at byte 1 of the data, but the tensor before it ends at 0");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3),
            "it is damaged: it has 3 bytes of tensor data, but its tensors need 2");
  EXPECT_EQ(header_error("[]", 0), "the header of it is not a JSON object");
  EXPECT_EQ(header_error(R"({"a":1})", 0), "it: tensor 'a': 'dtype' is missing");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":"x","data_offsets":[0,0]}})", 0),
            "it: tensor 'a': 'shape' must be a list, not a string");
  EXPECT_EQ(header_error(R"({})", 0), "no error");
}

TEST_F(Safetensors, refuses_a_header_length_beyond_the_file_or_the_limit) {
  std::string file(16, '\0');
  file[0] = 9;
  EXPECT_EQ(parse_safetensors(std::as_bytes(std::span(file)), "it").error().message,
            "it is truncated: its header has 9 bytes, but only 8 are there");
  for (std::size_t i = 0; i < 8; ++i) file[i] = '\xff';
  EXPECT_EQ(parse_safetensors(std::as_bytes(std::span(file)), "it").error().message,
            "it is not a safetensors file: it would have a header of 18446744073709551615 bytes; the limit is 100000000");
}

TEST_F(Safetensors, a_file_with_flipped_bits_gives_an_error_or_tensors_inside_the_file) {
  const std::string whole = safetensors_file({f32_tensor("a", {2}, {1, 2}), f32_tensor("b", {1, 2}, {3, 4})});
  std::mt19937 random(7);
  int n_errors = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = whole;
    for (unsigned i = 0; i <= random() % 3; ++i) file[random() % file.size()] ^= static_cast<char>(1u << random() % 8);
    const auto bytes = std::as_bytes(std::span(file));
    const auto tensors = parse_safetensors(bytes, "it");
    if (!tensors) {
      ++n_errors;
      continue;
    }
    for (const auto& [name, tensor] : *tensors) {
      ASSERT_TRUE(tensor.bytes.empty() || (tensor.bytes.data() >= bytes.data() &&
                                           tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size()));
    }
  }
  EXPECT_GT(n_errors, 5'000);
}

TEST_F(Safetensors, opens_a_real_model) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const auto checkpoint = Checkpoint::open(std::filesystem::path(data) / "model-stories260K" / "hf");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->load("model.layers.4.self_attn.k_proj.weight", {32, 64}).value().dtype, DType::f32);
}

}  // namespace
}  // namespace baton
