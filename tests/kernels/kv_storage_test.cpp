/// Keys and values compared with the canonical form on every backend: import, export, copies, high block numbers, and
/// refused shapes.
#include "kernels/kv_storage.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "support/kv_shapes.h"
#include "support/test_backends.h"

namespace baton::testing {
namespace {

std::vector<std::byte> exported(const KvStorage& kv, std::int32_t block) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kv.shape().block_bytes()));
  kv.export_block(BlockId{block}, {bytes.data(), DType::u8, {kv.shape().block_bytes()}});
  return bytes;
}

void import(KvStorage& kv, std::int32_t block, const std::vector<std::byte>& bytes) {
  kv.import_block(BlockId{block}, {bytes.data(), DType::u8, {kv.shape().block_bytes()}});
}

/// Bytes that differ between blocks and between offsets.
std::vector<std::byte> pattern(const KvShape& shape, int seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.block_bytes()));
  std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

KvShape kv_shape(int n_layers, int n_blocks, int block_len, int n_kv_heads, int head_dim, DType dtype) {
  KvShape shape;
  shape.n_layers = n_layers;
  shape.n_blocks = n_blocks;
  shape.block_len = block_len;
  shape.n_kv_heads = n_kv_heads;
  shape.head_dim = head_dim;
  shape.dtype = dtype;
  return shape;
}

/// Keys whose beginnings are values.
KvShape latent_shape(int n_layers, int n_blocks, int block_len, const LatentKeys& keys, DType dtype) {
  KvShape shape = kv_shape(n_layers, n_blocks, block_len, 1, keys.head_dim(), dtype);
  shape.latent_dim = keys.latent_dim;
  return shape;
}

std::vector<KvShape> shapes(const TestBackend& test) {
  std::vector<KvShape> all;
  for (const DType dtype : stored_dtypes(test))
    for (const int block_len : {16, 32, 256}) {
      for (const int head_dim : stored_head_dims(test, dtype)) all.push_back(kv_shape(2, 3, block_len, 2, head_dim, dtype));
      for (const LatentKeys& keys : stored_latents(test, dtype)) all.push_back(latent_shape(2, 3, block_len, keys, dtype));
    }
  return all;
}

std::string describe(const TestBackend& test, const KvShape& shape) {
  return test.name + ", " + std::string(to_string(shape.dtype)) + ", head_dim " + std::to_string(shape.head_dim) +
         (shape.has_values() ? "" : ", latent_dim " + std::to_string(shape.latent_dim)) + ", block_len " +
         std::to_string(shape.block_len);
}

std::unique_ptr<KvStorage> storage_of(const TestBackend& test, const KvShape& shape) {
  auto made = test.backend.make_kv_storage(shape);
  check(made.has_value(), [&] { return describe(test, shape) + ": " + made.error().message; });
  return std::move(*made);
}

TEST(KvStorage, gives_back_what_was_imported_bit_for_bit) {
  for (const TestBackend& test : test_backends())
    for (const KvShape& shape : shapes(test)) {
      const auto kv = storage_of(test, shape);
      kv->fill_bytes(0xff);
      for (const int block : {2, 0, 1}) import(*kv, block, pattern(shape, block));
      for (int block = 0; block < shape.n_blocks; ++block)
        ASSERT_EQ(exported(*kv, block), pattern(shape, block)) << describe(test, shape);
      import(*kv, 1, pattern(shape, 7));
      ASSERT_EQ(exported(*kv, 0), pattern(shape, 0)) << describe(test, shape);
      ASSERT_EQ(exported(*kv, 1), pattern(shape, 7)) << describe(test, shape);
      ASSERT_EQ(exported(*kv, 2), pattern(shape, 2)) << describe(test, shape);
    }
}

TEST(KvStorage, copies_blocks_in_every_layer_and_head) {
  for (const TestBackend& test : test_backends())
    for (const KvShape& shape : shapes(test)) {
      const auto kv = storage_of(test, shape);
      for (int block = 0; block < shape.n_blocks; ++block) import(*kv, block, pattern(shape, block));
      const BlockId from[] = {BlockId{2}};
      const BlockId to[] = {BlockId{0}};
      kv->copy_blocks({}, {});
      kv->copy_blocks(from, to);
      ASSERT_EQ(exported(*kv, 0), pattern(shape, 2)) << describe(test, shape);
      ASSERT_EQ(exported(*kv, 1), pattern(shape, 1)) << describe(test, shape);
      ASSERT_EQ(exported(*kv, 2), pattern(shape, 2)) << describe(test, shape);
    }
}

TEST(KvStorage, copies_hundreds_of_blocks_in_any_order) {
  constexpr int kPairs = 600;
  for (const TestBackend& test : test_backends()) {
    const KvShape shape = kv_shape(2, 2 * kPairs + 1, 16, 1, 8, DType::bf16);
    const auto kv = storage_of(test, shape);
    std::vector<BlockId> blocks;
    for (int block = 0; block < shape.n_blocks; ++block) {
      import(*kv, block, pattern(shape, block));
      blocks.push_back(BlockId{block});
    }
    std::mt19937 random(5);
    std::shuffle(blocks.begin(), blocks.end(), random);
    const auto from = std::span<const BlockId>(blocks).first(kPairs);
    const auto to = std::span<const BlockId>(blocks).subspan(kPairs, kPairs);
    kv->copy_blocks(from, to);
    std::vector<int> holds(static_cast<std::size_t>(shape.n_blocks));
    std::iota(holds.begin(), holds.end(), 0);
    for (std::size_t i = 0; i < kPairs; ++i) holds[static_cast<std::size_t>(to[i].value)] = from[i].value;
    for (int block = 0; block < shape.n_blocks; ++block)
      ASSERT_EQ(exported(*kv, block), pattern(shape, holds[static_cast<std::size_t>(block)])) << test.name;
  }
}

TEST(KvStorage, loads_into_another_block_what_was_saved_of_one) {
  for (const TestBackend& test : test_backends())
    for (const KvShape& shape : shapes(test)) {
      const auto kv = storage_of(test, shape);
      for (int block = 0; block < shape.n_blocks; ++block) import(*kv, block, pattern(shape, block));
      const auto n_bytes = static_cast<std::size_t>(test.backend.kv_block_bytes(shape));
      auto host = test.backend.allocate_host(3 * n_bytes);
      ASSERT_TRUE(host) << host.error().message;
      std::fill_n(host->data(), 3 * n_bytes, std::byte{0x5a});
      kv->save_block(BlockId{2}, host->data() + n_bytes);
      test.backend.synchronize();
      for (const std::size_t outside : {n_bytes - 1, 2 * n_bytes})
        ASSERT_EQ(host->data()[outside], std::byte{0x5a}) << describe(test, shape) << ": it wrote beside its bytes";
      // Saved before it is overwritten, and loaded before it is read: the order of the calls counts.
      kv->save_block(BlockId{1}, host->data());
      kv->load_block(BlockId{1}, host->data() + n_bytes);
      kv->load_block(BlockId{0}, host->data());
      ASSERT_EQ(exported(*kv, 0), pattern(shape, 1)) << describe(test, shape);
      ASSERT_EQ(exported(*kv, 1), pattern(shape, 2)) << describe(test, shape);
      ASSERT_EQ(exported(*kv, 2), pattern(shape, 2)) << describe(test, shape);
    }
}

TEST(KvStorage, filled_with_ones_it_holds_only_nan) {
  for (const TestBackend& test : test_backends())
    for (const DType dtype : stored_dtypes(test)) {
      const auto kv = storage_of(test, kv_shape(1, 2, 16, 1, 64, dtype));
      kv->fill_bytes(0xff);
      const auto bytes = exported(*kv, 1);
      visit_stored_float(dtype, [&]<class T>(T) {
        for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
          const auto number = static_cast<float>(reinterpret_cast<const T*>(bytes.data())[i]);
          ASSERT_TRUE(number != number) << test.name;
        }
      });
    }
}

TEST(KvStorage, counts_the_padding_of_heads_in_the_bytes_of_a_block) {
  for (const TestBackend& test : test_backends()) {
    const KvShape whole = kv_shape(3, 1, 32, 2, 64, DType::bf16);
    EXPECT_EQ(test.backend.kv_block_bytes(whole), whole.block_bytes()) << test.name;
    const KvShape padded = kv_shape(3, 1, 32, 2, 72, DType::bf16);  // the CPU pads values to 80, CUDA both to 96
    EXPECT_EQ(test.backend.kv_block_bytes(padded), padded.block_bytes() / 144 * (test.is_cuda() ? 192 : 152)) << test.name;
  }
}

TEST(KvStorage, counts_keys_alone_where_values_are_their_beginnings) {
  const KvShape shape = latent_shape(3, 1, 32, {512, 64}, DType::bf16);
  EXPECT_EQ(shape.v_dim(), 512);
  EXPECT_EQ(shape.token_bytes(), 576 * 2);
  EXPECT_EQ(shape.block_bytes(), 576 * 2 * 32 * 3);
  // The CPU keeps the beginnings twice, in the orders of both matmuls.
  for (const TestBackend& test : test_backends())
    EXPECT_EQ(test.backend.kv_block_bytes(shape), shape.block_bytes() / 576 * (test.is_cuda() ? 576 : 576 + 512)) << test.name;
}

TEST(KvStorage, reaches_blocks_beyond_the_32_bit_element) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda() && &test != &test_backends().front()) continue;  // the instruction set does not matter here
    for (const DType dtype : stored_dtypes(test)) {
      const KvShape shape = kv_shape(2, 2200, 256, 8, 128, dtype);  // 2.3e9 elements, of which a few are touched
      const std::int64_t needed = shape.block_bytes() * shape.n_blocks + (std::int64_t{1} << 30);
      if (test.backend.free_memory_bytes() < needed) {
        say_once(test.name + ": far blocks skipped: " + std::to_string(needed >> 20) + " MiB are not free");
        continue;
      }
      const auto kv = storage_of(test, shape);
      for (const int block : {0, 1099, 1100, 2199}) import(*kv, block, pattern(shape, block));
      const BlockId from[] = {BlockId{2199}, BlockId{0}};
      const BlockId to[] = {BlockId{1}, BlockId{2198}};
      kv->copy_blocks(from, to);
      for (const auto& [block, holds] : {std::pair{0, 0}, {1, 2199}, {1099, 1099}, {1100, 1100}, {2198, 0}, {2199, 2199}})
        ASSERT_TRUE(exported(*kv, block) == pattern(shape, holds)) << describe(test, shape) << ", block " << block;
    }
  }
}

TEST(KvStorage, refuses_what_it_cannot_keep_by_name) {
  for (const TestBackend& test : test_backends()) {
    const auto refused = [&](const KvShape& shape, ErrorCode code, std::string_view named) {
      const auto made = test.backend.make_kv_storage(shape);
      ASSERT_FALSE(made) << describe(test, shape);
      EXPECT_EQ(made.error().code, code) << made.error().message;
      EXPECT_NE(made.error().message.find(named), std::string::npos) << made.error().message;
    };
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3}) {
      const auto kept = stored_dtypes(test);
      if (std::find(kept.begin(), kept.end(), dtype) == kept.end())
        refused(kv_shape(1, 1, 16, 1, 64, dtype), ErrorCode::unsupported, to_string(dtype));
    }
    refused(kv_shape(1, 1, 16, 1, 63, DType::bf16), ErrorCode::unsupported, "63");
    refused(kv_shape(1, 1, 16, 1, 512, DType::bf16), ErrorCode::unsupported, "512");
    refused(latent_shape(1, 1, 16, {514, 64}, DType::bf16), ErrorCode::unsupported, test.is_cuda() ? "514" : "578");
    refused(kv_shape(1 << 10, 1 << 30, 256, 1 << 10, 256, DType::bf16), ErrorCode::out_of_memory, "MiB");
    if (test.is_cuda()) {
      refused(kv_shape(1, 1, 16, 1, 66, DType::bf16), ErrorCode::unsupported, "66");
      refused(latent_shape(1, 1, 16, {128, 64}, DType::bf16), ErrorCode::unsupported, "128 and 64");
      refused(latent_shape(1, 1, 16, {512, 32}, DType::bf16), ErrorCode::unsupported, "512 and 32");
      refused(latent_shape(1, 1, 16, {512, 64}, DType::f8_e4m3), ErrorCode::unsupported, "float8_e4m3");
      refused(kv_shape(1, 1, 16, 1, 96, DType::f8_e4m3), ErrorCode::unsupported, "96");
      refused(kv_shape(1 << 10, 1 << 12, 256, 8, 128, DType::bf16), ErrorCode::out_of_memory, "free");  // 4 TiB
      KvShape unscaled = kv_shape(1, 1, 16, 1, 64, DType::f8_e4m3);
      unscaled.v_scales = {0};
      refused(unscaled, ErrorCode::unsupported, "scale");
      KvShape half_scaled = kv_shape(2, 1, 16, 1, 64, DType::f8_e4m3);
      half_scaled.k_scales = {0.5F, INFINITY};
      refused(half_scaled, ErrorCode::unsupported, "layer 1");
    }
    storage_of(test, kv_shape(1, 1, 16, 1, 64, DType::bf16))->fill_bytes(0);  // still works after a refusal
    test.backend.synchronize();
  }
}

}  // namespace
}  // namespace baton::testing
