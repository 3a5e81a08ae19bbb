/// The CPU's tiles against the canonical form: import, export, token writes, copies, and what is refused.
#include "kernels/cpu/kv_storage.h"

#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace baton::cpu {
namespace {

std::vector<std::byte> exported(const KvStorage& kv, std::int32_t block) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kv.shape().block_bytes()));
  kv.export_block(BlockId{block}, {bytes.data(), DType::u8, {kv.shape().block_bytes()}});
  return bytes;
}

void import(KvStorage& kv, std::int32_t block, const std::vector<std::byte>& bytes) {
  kv.import_block(BlockId{block}, {bytes.data(), DType::u8, {kv.shape().block_bytes()}});
}

/// Bytes that differ from block to block and place to place.
std::vector<std::byte> pattern(const KvShape& shape, int seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.block_bytes()));
  std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

std::vector<KvShape> shapes() {
  std::vector<KvShape> all;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int head_dim : {2, 8, 64, 80, 96, 128, 256})
      for (const int block_len : {16, 32, 256}) all.push_back({2, 3, block_len, 2, head_dim, dtype});
  return all;
}

TEST(CpuKvStorage, gives_back_what_was_imported) {
  for (const KvShape& shape : shapes()) {
    const auto kv = CpuKvStorage::make(shape).value();
    for (int block = 0; block < shape.n_blocks; ++block) import(*kv, block, pattern(shape, block));
    for (int block = 0; block < shape.n_blocks; ++block)
      ASSERT_EQ(exported(*kv, block), pattern(shape, block))
          << "head_dim " << shape.head_dim << ", block_len " << shape.block_len;
  }
}

TEST(CpuKvStorage, a_written_token_stands_where_the_canonical_form_says) {
  for (const KvShape& shape : shapes()) {
    const auto kv = CpuKvStorage::make(shape).value();
    kv->fill_bytes(0xff);
    const auto dim = static_cast<std::size_t>(shape.head_dim);
    std::vector<float> key(dim), value(dim);
    std::iota(key.begin(), key.end(), 1.0f);
    std::iota(value.begin(), value.end(), -200.0f);
    const int layer = 1, head = 1, block = 2, offset = shape.block_len - 3;
    kv->write_token(layer, head, block * shape.block_len + offset, key.data(), value.data());
    auto expected = std::vector<std::byte>(static_cast<std::size_t>(shape.block_bytes()), std::byte{0xff});
    visit_float(shape.dtype, [&]<class T>(T) {
      for (const std::size_t is_value : {0, 1})
        for (std::size_t i = 0; i < dim; ++i) {
          const std::size_t index = (((layer * 2 + is_value) * 2 + head) * static_cast<std::size_t>(shape.block_len) +
                                     static_cast<std::size_t>(offset)) *
                                        dim +
                                    i;
          reinterpret_cast<T*>(expected.data())[index] = T(is_value == 1 ? value[i] : key[i]);
        }
    });
    ASSERT_EQ(exported(*kv, block), expected) << "head_dim " << shape.head_dim << ", block_len " << shape.block_len;
    for (const std::byte byte : exported(*kv, 0)) ASSERT_EQ(byte, std::byte{0xff});
  }
}

TEST(CpuKvStorage, rounds_to_nearest_even_when_a_token_is_written) {
  const auto kv = CpuKvStorage::make({1, 1, 16, 1, 2, DType::bf16}).value();
  const float key[] = {1.00390625f, 1.01171875f};  // halfway between two bf16 numbers: to the even one, down and up
  const float value[] = {-1.00390625f, 3.0f};
  kv->write_token(0, 0, 0, key, value);
  const auto bytes = exported(*kv, 0);
  const auto* numbers = reinterpret_cast<const BFloat16*>(bytes.data());
  EXPECT_EQ(static_cast<float>(numbers[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(numbers[1]), 1.015625f);
  EXPECT_EQ(static_cast<float>(numbers[32]), -1.0f);
}

TEST(CpuKvStorage, copies_blocks_in_every_layer_and_head) {
  for (const KvShape& shape : shapes()) {
    const auto kv = CpuKvStorage::make(shape).value();
    for (int block = 0; block < shape.n_blocks; ++block) import(*kv, block, pattern(shape, block));
    const BlockId from[] = {BlockId{2}};
    const BlockId to[] = {BlockId{0}};
    kv->copy_blocks(from, to);
    ASSERT_EQ(exported(*kv, 0), pattern(shape, 2));
    ASSERT_EQ(exported(*kv, 1), pattern(shape, 1));
    ASSERT_EQ(exported(*kv, 2), pattern(shape, 2));
  }
}

TEST(CpuKvStorage, filled_with_ones_it_holds_only_nan) {
  const KvShape shape{1, 2, 16, 1, 64, DType::bf16};
  const auto kv = CpuKvStorage::make(shape).value();
  kv->fill_bytes(0xff);
  const auto bytes = exported(*kv, 1);
  for (std::size_t i = 0; i < bytes.size() / 2; ++i)
    ASSERT_TRUE(static_cast<float>(reinterpret_cast<const BFloat16*>(bytes.data())[i]) !=
                static_cast<float>(reinterpret_cast<const BFloat16*>(bytes.data())[i]));
}

TEST(CpuKvStorage, refuses_what_it_cannot_keep_by_name) {
  const auto half = CpuKvStorage::make({1, 1, 16, 1, 64, DType::f16});
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().code, ErrorCode::unsupported);
  EXPECT_NE(half.error().message.find("float16"), std::string::npos);
  EXPECT_NE(CpuKvStorage::make({1, 1, 16, 1, 64, DType::f8_e4m3}).error().message.find("float8_e4m3"), std::string::npos);
  EXPECT_NE(CpuKvStorage::make({1, 1, 16, 1, 63, DType::f32}).error().message.find("63"), std::string::npos);
  EXPECT_NE(CpuKvStorage::make({1, 1, 16, 1, 512, DType::f32}).error().message.find("512"), std::string::npos);
  const auto huge = CpuKvStorage::make({1 << 10, 1 << 30, 256, 1 << 10, 256, DType::f32});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace baton::cpu
