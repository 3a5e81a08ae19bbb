/// rope_append on every backend: rotation compared with double precision, and the places of keys and values in the
/// storage.
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "plan/attention_plan.h"
#include "support/kv_shapes.h"
#include "support/rope_run.h"
#include "support/step_builder.h"

namespace baton::testing {
namespace {

/// Half the distance between neighbouring values of a dtype, relative to the value. f8_e4m3 keeps steps of 2^-9 below
/// 2^-6, f16 of 2^-24 below 2^-14.
double eps_of(DType dtype) {
  return std::ldexp(1.0, dtype == DType::f32 ? -24 : dtype == DType::bf16 ? -8 : dtype == DType::f16 ? -11 : -4);
}
double smallest_error(DType dtype) { return dtype == DType::f8_e4m3 ? 0x1p-10 : dtype == DType::f16 ? 0x1p-25 : 0; }

/// Two f32 roundings of products of magnitude 4, with a norm its sum and two more products, all times a factor of queries of at
/// most 2; then one rounding to the stored dtype, in units of `scale`.
double bound(const RopeCase& shape, double expected, DType dtype, double scale = 1) {
  const double in_f32 = std::ldexp(shape.norm == HeadNorm::none ? 16.0 : 64.0, shape.scales_queries ? -23 : -24);
  return in_f32 + std::abs(expected) * eps_of(dtype) + scale * smallest_error(dtype);
}

void expect_rotated(const std::string& what, RopeRun& run) {
  const RopeCase& shape = run.shape;
  for (std::size_t row = 0; row < run.rows.size(); ++row)
    for (int i = 0; i < shape.head_dim; ++i) {
      for (int head = 0; head < shape.n_heads; ++head) {
        const double expected = run.rotated(row, head, i);
        ASSERT_NEAR(run.query(row, head, i), expected, bound(shape, expected, shape.q_dtype)) << what << ", row " << row;
      }
      if (run.kv_indices[row] == kNoKvIndex) continue;
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        const double key = run.rotated(row, shape.n_heads + head, i);
        ASSERT_NEAR(run.stored(false, head, run.kv_indices[row], i), key,
                    bound(shape, key, shape.kv_dtype, static_cast<double>(shape.k_scale)))
            << what << ", row " << row << ", head " << head << ", dimension " << i;
        const auto value = static_cast<float>(run.in(row, shape.n_heads + shape.n_kv_heads + head, i));
        visit_stored_float(shape.kv_dtype, [&]<class T>(T) {
          const auto got = run.stored_as<T>(true, head, run.kv_indices[row], i);
          const T expected(sizeof(T) == 1 ? value / shape.v_scale : value);
          ASSERT_EQ(std::memcmp(&got, &expected, sizeof(T)), 0)
              << what << ", row " << row << ", head " << head << ", dimension " << i << ": " << value << " kept as "
              << static_cast<float>(got);
        });
      }
    }
}

const std::vector<TokenRow> kRows = {{0, 0, 0, 1}, {0, 1, 0, 2}, {1, 17, 0, 18}, {2, 4999, 0, 5000}};
const std::vector<std::int64_t> kKvIndices = {0, 33, 127, kNoKvIndex};

TEST(RopeAppend, rotates_queries_and_keys_and_stores_them_at_their_kv_indices) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test))
      for (const int head_dim : stored_head_dims(test, kv_dtype)) {
        RopeCase shape{4, 2, head_dim, head_dim, kv_dtype, DType::f32, DType::f32};
        for (const auto& [n_heads, n_kv_heads, qkv_dtype, q_dtype] : {std::tuple{4, 2, DType::f32, DType::f32},
                                                                      {4, 1, DType::bf16, DType::bf16},
                                                                      {3, 3, DType::f16, DType::f16},
                                                                      {2, 1, DType::f32, DType::bf16},
                                                                      {2, 1, DType::bf16, DType::f32}}) {
          shape.n_heads = n_heads;
          shape.n_kv_heads = n_kv_heads;
          shape.qkv_dtype = qkv_dtype;
          shape.q_dtype = q_dtype;
          RopeRun run(test.backend, shape, kRows, kKvIndices);
          expect_rotated(describe(test, shape), run);
        }
      }
}

TEST(RopeAppend, norms_queries_and_keys_over_a_head_or_all_heads_before_it_rotates) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test))
      for (const int head_dim : stored_head_dims(test, kv_dtype))
        for (const HeadNorm norm : {HeadNorm::head, HeadNorm::width}) {
          RopeCase shape{4, 2, head_dim, head_dim, kv_dtype, DType::f32, DType::f32};
          shape.norm = norm;
          for (const auto& [n_heads, n_kv_heads, rotary_dim, in, out] : {std::tuple{4, 2, head_dim, DType::f32, DType::f32},
                                                                         {9, 1, head_dim / 2 / 2 * 2, DType::bf16, DType::bf16},
                                                                         {3, 3, head_dim, DType::f16, DType::f16},
                                                                         {1, 1, head_dim, DType::bf16, DType::f32}}) {
            shape.n_heads = n_heads;
            shape.n_kv_heads = n_kv_heads;
            shape.rotary_dim = std::max(2, rotary_dim);
            shape.qkv_dtype = in;
            shape.q_dtype = out;
            RopeRun run(test.backend, shape, kRows, kKvIndices);
            expect_rotated(describe(test, shape), run);
          }
        }
}

TEST(RopeAppend, norms_what_it_has_rotated_and_scales_queries_by_their_positions) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test))
      for (const int head_dim : stored_head_dims(test, kv_dtype))
        for (const auto& [norm, norms_rotated, scales_queries] : {std::tuple{HeadNorm::head, true, false},
                                                                  {HeadNorm::head, true, true},
                                                                  {HeadNorm::head, false, true},
                                                                  {HeadNorm::width, false, true},
                                                                  {HeadNorm::none, false, true}})
          for (const auto& [n_heads, n_kv_heads, rotary_dim, dtype] : {std::tuple{4, 2, head_dim, DType::f32},
                                                                       {9, 1, head_dim / 2 / 2 * 2, DType::bf16},
                                                                       {3, 3, head_dim, DType::f16}}) {
            RopeCase shape{n_heads, n_kv_heads, head_dim, std::max(2, rotary_dim), kv_dtype, dtype, dtype};
            shape.norm = norm;
            shape.norms_rotated = norms_rotated;
            shape.scales_queries = scales_queries;
            RopeRun run(test.backend, shape, kRows, kKvIndices);
            expect_rotated(describe(test, shape), run);
          }
}

TEST(RopeAppend, rotates_nothing_without_a_table) {
  for (const TestBackend& test : test_backends())
    for (const HeadNorm norm : {HeadNorm::none, HeadNorm::head, HeadNorm::width})
      for (const int head_dim : {64, 80}) {
        RopeCase shape{6, 2, head_dim, head_dim, DType::bf16, DType::bf16, DType::bf16};
        shape.norm = norm;
        shape.has_rope = false;
        RopeRun run(test.backend, shape, {{0, 0, 0, 1}, {0, 1, 0, 2}, {1, kPositions, 0, 1}, {2, 4999, 0, 5000}}, kKvIndices);
        expect_rotated(describe(test, shape), run);
      }
}

TEST(RopeAppend, a_row_with_norms_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends())
    for (const HeadNorm norm : {HeadNorm::head, HeadNorm::width}) {
      RopeCase shape{8, 2, 80, 80, DType::bf16, DType::bf16, DType::bf16};
      shape.norm = norm;
      const HostTensor qkv = random_qkv(shape, 4);
      RopeRun together(test.backend, shape, kRows, {0, 33, 64, 127}, qkv);
      for (std::size_t row = 0; row < 4; ++row) {
        HostTensor own(qkv.dtype, {1, shape.width()});
        const auto begin = static_cast<std::int64_t>(row);
        std::memcpy(own.bytes.data(), qkv.view().rows(begin, begin + 1).data, own.bytes.size());
        RopeRun alone(test.backend, shape, {kRows[row]}, {together.kv_indices[row]}, own);
        EXPECT_EQ(std::memcmp(alone.q.bytes.data(), together.q.view().rows(begin, begin + 1).data, alone.q.bytes.size()), 0);
        for (int head = 0; head < 2; ++head)
          for (int i = 0; i < shape.head_dim; ++i)
            ASSERT_EQ(alone.stored(false, head, alone.kv_indices[0], i), together.stored(false, head, alone.kv_indices[0], i))
                << describe(test, shape);
      }
    }
}

TEST(RopeAppend, copies_the_dimensions_beyond_the_rotated_ones) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test))
      for (const auto& [head_dim, rotary_dim] : {std::pair{112, 32}, {112, 20}, {64, 6}, {128, 64}, {40, 22}})
        for (const DType in : {DType::f32, DType::bf16}) {
          const RopeCase shape{2, 2, head_dim, rotary_dim, kv_dtype, in, in};
          RopeRun run(test.backend, shape, kRows, kKvIndices);
          expect_rotated(describe(test, shape), run);
        }
}

TEST(RopeAppend, stores_hundreds_of_rows_in_any_order_and_touches_nothing_else) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test)) {
      RopeCase shape{2, 2, 112, 112, kv_dtype, DType::bf16, DType::bf16};
      shape.n_blocks = 12;
      std::mt19937 random(11);
      std::vector<std::int64_t> kv_indices;
      for (int kv_index = 0; kv_index < shape.n_blocks * shape.block_len; ++kv_index) kv_indices.push_back(kv_index);
      std::shuffle(kv_indices.begin(), kv_indices.end(), random);
      kv_indices.resize(301);
      for (const std::size_t row : {5u, 77u, 300u}) kv_indices[row] = kNoKvIndex;
      std::vector<TokenRow> rows;
      for (int row = 0; row < 301; ++row) rows.push_back({0, (row * 37) % kPositions, 0, 1});
      RopeRun run(test.backend, shape, rows, kv_indices);
      expect_rotated(describe(test, shape), run);
      // After the rows' positions are set back to ones, the whole storage is ones.
      std::map<std::int32_t, std::vector<std::byte>> left;
      for (int block = 0; block < shape.n_blocks; ++block) left[block] = run.block(block);
      const std::size_t element = size_bytes(kv_dtype);
      for (const std::int64_t kv_index : kv_indices)
        for (int head = 0; kv_index != kNoKvIndex && head < shape.n_kv_heads; ++head)
          for (const bool is_value : {false, true})
            std::memset(left[static_cast<std::int32_t>(kv_index / shape.block_len)].data() +
                            run.index(is_value, head, kv_index, 0) * element,
                        0xff, static_cast<std::size_t>(shape.head_dim) * element);
      for (const auto& [block, bytes] : left)
        for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte{0xff}) << describe(test, shape) << ", block " << block;
    }
}

TEST(RopeAppend, stores_nothing_for_a_row_without_a_kv_index) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test)) {
      RopeCase shape;
      shape.kv_dtype = kv_dtype;
      RopeRun run(test.backend, shape, {{0, 5, 0, 6}}, {kNoKvIndex});
      for (int block = 0; block < shape.n_blocks; ++block)
        for (const std::byte byte : run.block(block)) ASSERT_EQ(byte, std::byte{0xff}) << describe(test, shape);
      expect_rotated(describe(test, shape), run);
    }
}

TEST(RopeAppend, takes_a_step_without_rows) {
  for (const TestBackend& test : test_backends()) {
    RopeRun run(test.backend, {}, {}, {});
    for (const std::byte byte : run.block(0)) ASSERT_EQ(byte, std::byte{0xff}) << test.name;
  }
}

TEST(RopeAppend, divides_by_the_scales_of_an_f8_storage) {
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test)) {
      if (kv_dtype != DType::f8_e4m3) continue;
      for (const int head_dim : stored_head_dims(test, kv_dtype)) {
        RopeCase shape{4, 2, head_dim, head_dim, kv_dtype, DType::bf16, DType::bf16, 0.013f, 3.7f};
        RopeRun run(test.backend, shape, kRows, kKvIndices);
        expect_rotated(describe(test, shape), run);
      }
    }
}

/// All values that matter for f8 codes: each value, each tie and its neighbours, beyond the largest, infinity and NaN.
TEST(RopeAppend, rounds_to_f8_as_the_host_does) {
  std::vector<float> numbers = {449, 464, 1e6f, 3e38f, INFINITY, NAN, 0x1p-10f, 0x1p-11f, 1e-30f};
  for (int code = 0; code < 0x7e; ++code) {
    const auto low = static_cast<float>(std::bit_cast<Float8E4M3>(static_cast<std::uint8_t>(code)));
    const auto high = static_cast<float>(std::bit_cast<Float8E4M3>(static_cast<std::uint8_t>(code + 1)));
    const float tie = (low + high) / 2;
    numbers.insert(numbers.end(), {low, high, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)});
  }
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test)) {
      if (kv_dtype != DType::f8_e4m3) continue;
      const RopeCase shape{2, 2, 64, 64, kv_dtype, DType::f32, DType::f32};
      std::vector<TokenRow> rows;
      std::vector<std::int64_t> kv_indices;
      for (int row = 0; row < 12; ++row) {
        rows.push_back({0, 0, 0, 1});
        kv_indices.push_back(row);
      }
      HostTensor qkv(DType::f32, {12, shape.width()});
      for (std::int64_t i = 0; i < qkv.shape.n_elements(); ++i) {
        const float number = numbers[static_cast<std::size_t>(i / 2) % numbers.size()];
        qkv.set(i, i % 2 == 0 ? number : -number);
      }
      RopeRun run(test.backend, shape, rows, kv_indices, qkv);
      std::size_t n = 0;
      for (std::size_t row = 0; row < rows.size(); ++row)
        for (int head = 0; head < 2; ++head)
          for (int i = 0; i < shape.head_dim; ++i, ++n) {
            const auto value = static_cast<float>(run.in(row, 4 + head, i));
            ASSERT_EQ(run.stored_as<Float8E4M3>(true, head, kv_indices[row], i).bits, Float8E4M3(value).bits) << value;
          }
      ASSERT_GE(n, 2 * numbers.size()) << "each number must be among the values";
    }
}

TEST(RopeAppend, reaches_kv_indices_beyond_the_32_bit_element) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;  // filling all of it with NaN would take the host's memory
    for (const DType kv_dtype : {DType::bf16, DType::f8_e4m3}) {
      RopeCase shape{8, 8, 128, 128, kv_dtype, DType::bf16, DType::bf16};
      shape.block_len = 256;
      shape.n_blocks = 4400;  // 2.3e9 elements in each layer
      const KvShape kv = shape.kv_shape();
      const std::int64_t needed = kv.block_bytes() * kv.n_blocks + (std::int64_t{1} << 30);
      if (test.backend.free_memory_bytes() < needed) {
        say_once(test.name + ": far positions skipped: " + std::to_string(needed >> 20) + " MiB are not free");
        continue;
      }
      RopeRun run(test.backend, shape, kRows, {4399 * 256 + 255, 0, 4096 * 256 + 1, 2048 * 256});
      expect_rotated(describe(test, shape), run);
    }
  }
}

TEST(RopeAppend, gives_the_same_bits_for_any_number_of_threads) {
  std::vector<TokenRow> rows;
  std::vector<std::int64_t> kv_indices;
  for (int i = 0; i < 50; ++i) {
    rows.push_back({0, i, 0, i + 1});
    kv_indices.push_back(i + 3);
  }
  for (const TestBackend& test : test_backends()) {
    RopeRun first(test.backend, {}, rows, kv_indices);
    for (const int n_threads : {1, 2, 3}) {
      BackendOptions options;
      options.n_threads = n_threads;
      const auto backend = test.make(options).value();
      RopeRun other(*backend, {}, rows, kv_indices);
      EXPECT_EQ(first.q.bytes, other.q.bytes) << test.name;
      for (int block = 0; block < first.shape.n_blocks; ++block) ASSERT_EQ(first.block(block), other.block(block)) << test.name;
    }
  }
}

/// The layout pads a token's dimensions, and attention reads the padding: NaN that was there before must not affect a
/// score. The first row sees only itself, so its output is its value.
TEST(RopeAppend, leaves_no_poison_where_attention_reads) {
  constexpr int kLen = 5;
  for (const TestBackend& test : test_backends())
    for (const DType kv_dtype : stored_dtypes(test))
      for (const int head_dim : stored_head_dims(test, kv_dtype)) {
        const DType float_dtype = kv_dtype == DType::f8_e4m3 ? DType::bf16 : kv_dtype;
        const RopeCase shape{4, 2, head_dim, head_dim, kv_dtype, float_dtype, float_dtype};
        const std::string what = describe(test, shape);
        const std::vector<BlockId> blocks = {BlockId{3}};
        const StepSequence sequence{{SlotId{0}, blocks, kLen, kLen}, std::vector<TokenId>(kLen, 1), false, {}};
        const AttentionShape plan_shape{4, 2, head_dim, static_cast<std::int32_t>(size_bytes(kv_dtype)), 0, shape.block_len};
        AttentionPlanOptions options;
        options.costs = test.backend.tuning().attention_costs;
        options.deals_pairs = test.backend.capabilities().deals_pairs;
        StepInput step = pack_step(std::span(&sequence, 1), plan_shape, options);
        const auto planned = step.view().span<TokenRow>(SectionKind::rows);
        const auto kv_indices = step.view().span<std::int64_t>(SectionKind::kv_indices);
        RopeRun run(test.backend, shape, {planned.begin(), planned.end()}, {kv_indices.begin(), kv_indices.end()});
        const std::int64_t n = std::max(1, step.group(0).n_partials);
        const OnDevice q(test.backend, run.q), out(test.backend, HostTensor(DType::f32, run.q.shape)),
            rows(test.backend, rows_tensor(run.rows)), o(test.backend, HostTensor(DType::f32, {n, 4, head_dim})),
            m(test.backend, HostTensor(DType::f32, {n, 4})), l(test.backend, HostTensor(DType::f32, {n, 4}));
        AttentionArgs args;
        args.q = q.view();
        args.out = out.view();
        args.partials = {o.view(), m.view(), l.view()};
        args.rows = rows.view();
        args.step = test.backend.upload_step(step);
        args.layer = kLayer;
        args.kv = run.kv.get();
        args.scale = 0.125f;
        args.merge = true;
        attention(test.backend, args);
        const HostTensor got = out.to_host();
        for (std::int64_t i = 0; i < got.shape.n_elements(); ++i)
          ASSERT_TRUE(std::isfinite(got.at(i))) << what << ", number " << i;
        for (int head = 0; head < 4; ++head)
          for (int i = 0; i < head_dim; ++i)
            ASSERT_NEAR(got.at(head * head_dim + i), run.stored(true, head / 2, run.kv_indices[0], i),
                        1e-5 * std::abs(run.stored(true, head / 2, run.kv_indices[0], i)))
                << what << ", head " << head;
      }
}

TEST(RopeAppend, a_captured_graph_reads_slots_and_rows_of_the_step_that_is_there) {
  const RopeCase shape{2, 1, 64, 64, DType::bf16, DType::bf16, DType::bf16};
  for (const TestBackend& test : test_backends()) {
    const auto kv = test.backend.make_kv_storage(shape.kv_shape()).value().release();
    const std::unique_ptr<KvStorage> owner(kv);
    kv->fill_bytes(0xff);
    const OnDevice qkv(test.backend, random_qkv(shape, 4)), q(test.backend, HostTensor(DType::bf16, {4, 2, 64})),
        device_cos(test.backend, angles(64, false)), device_sin(test.backend, angles(64, true)),
        rows(test.backend, rows_tensor(kRows));
    const StepInput first = kv_step({0, 1, 2, 3});
    // A captured launch keeps its number of rows; the step may have fewer. The CPU's calls keep their captured shapes.
    StepInput second = kv_step({70, kNoKvIndex, 65, 80}, 11);
    if (test.is_cuda()) second.header().n_rows = 3;
    second.finish();
    StepView view = test.backend.upload_step(first);
    auto graph = test.backend.capture([&] {
      rope_append(test.backend,
                  {qkv.view(), q.view(), {device_cos.view(), device_sin.view()}, rows.view(), view, 0, kLayer, kv});
    });
    ASSERT_TRUE(graph) << graph.error().message;
    view = test.backend.upload_step(second);
    (*graph)->replay();
    test.backend.synchronize();
    const auto is_written = [&](std::int64_t kv_index) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(kv->shape().block_bytes()));
      kv->export_block(BlockId{static_cast<std::int32_t>(kv_index / 32)},
                       {bytes.data(), DType::u8, {kv->shape().block_bytes()}});
      const std::size_t at = (static_cast<std::size_t>(kLayer) * 2 * 32 + static_cast<std::size_t>(kv_index % 32)) * 64 * 2;
      return bytes[at] != std::byte{0xff} || bytes[at + 1] != std::byte{0xff};
    };
    for (const std::int64_t kv_index : {0, 1, 2, 3, 66, 81})
      EXPECT_FALSE(is_written(kv_index)) << test.name << ", " << kv_index;
    EXPECT_TRUE(is_written(70)) << test.name;
    EXPECT_TRUE(is_written(65)) << test.name;
    EXPECT_EQ(is_written(80), !test.is_cuda()) << test.name;
  }
}

}  // namespace
}  // namespace baton::testing
