/// Rotation in double precision, and where keys and values land in the storage.
#include "kernels/cpu/rope_append.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/kv_storage.h"

namespace baton {
namespace {

struct RopeCase {
  int n_heads = 4;
  int n_kv_heads = 2;
  int head_dim = 64;
  int rotary_dim = 64;
  DType kv_dtype = DType::bf16;
};

/// Rows at given positions and slots, the table of angles, and what came out.
template <class T>
class RopeRun {
 public:
  static constexpr int kPositions = 5000;

  RopeRun(const RopeCase& shape, std::vector<TokenRow> token_rows, std::vector<std::int64_t> kv_slots, int n_threads = 1)
      : shape(shape),
        rows(std::move(token_rows)),
        slots(std::move(kv_slots)),
        kv(cpu::CpuKvStorage::make({2, 4, 32, shape.n_kv_heads, shape.head_dim, shape.kv_dtype}).value()) {
    const int half = shape.rotary_dim / 2;
    for (int position = 0; position < kPositions; ++position)
      for (int i = 0; i < half; ++i) {
        const double angle = position * std::pow(10000.0, -2.0 * i / shape.rotary_dim);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    const auto width = static_cast<std::size_t>((shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim);
    for (std::size_t i = 0; i < rows.size() * width; ++i) qkv.push_back(T(normal(random)));
    q.resize(rows.size() * static_cast<std::size_t>(shape.n_heads * shape.head_dim), T(NAN));
    kv->fill_bytes(0xff);
    StepInput step;
    step.header().groups[0].kv_slots = step.append(std::span<const std::int64_t>(slots));
    step.finish();
    const auto n_rows = static_cast<std::int64_t>(rows.size());
    cpu::rope_append(Parallel(n_threads), {view_of(std::span<const T>(qkv), {n_rows, static_cast<std::int64_t>(width)}),
                                           view_of(std::span(q), {n_rows, shape.n_heads, shape.head_dim}),
                                           {view_of(std::span<const float>(cos), {kPositions, half}),
                                            view_of(std::span<const float>(sin), {kPositions, half})},
                                           {reinterpret_cast<const std::byte*>(rows.data()), DType::u8, {n_rows, 16}},
                                           step.view(),
                                           0,
                                           1,
                                           kv.get()});
  }

  /// Head `head` (of queries, then keys, then values) of a row as it went in.
  double in(std::size_t row, int head, int i) const {
    const auto width = static_cast<std::size_t>((shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim);
    return static_cast<double>(static_cast<float>(qkv[row * width + static_cast<std::size_t>(head * shape.head_dim + i)]));
  }
  double rotated(std::size_t row, int head, int i) const {
    const int half = shape.rotary_dim / 2;
    if (i >= shape.rotary_dim) return in(row, head, i);
    const auto angle = static_cast<std::size_t>(rows[row].position * half + i % half);
    const double c = static_cast<double>(cos[angle]);
    const double s = static_cast<double>(sin[angle]);
    return i < half ? in(row, head, i) * c - in(row, head, i + half) * s : in(row, head, i) * c + in(row, head, i - half) * s;
  }
  /// What layer 1 of the storage holds at a slot.
  double stored(bool is_value, int head, std::int64_t slot, int i) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(kv->shape().block_bytes()));
    kv->export_block(BlockId{static_cast<std::int32_t>(slot / 32)}, {bytes.data(), DType::u8, {kv->shape().block_bytes()}});
    const auto index = (((2u + is_value) * static_cast<std::size_t>(shape.n_kv_heads) + static_cast<std::size_t>(head)) * 32 +
                        static_cast<std::size_t>(slot % 32)) *
                           static_cast<std::size_t>(shape.head_dim) +
                       static_cast<std::size_t>(i);
    return visit_float(shape.kv_dtype, [&]<class K>(K) {
      return static_cast<double>(static_cast<float>(reinterpret_cast<const K*>(bytes.data())[index]));
    });
  }

  RopeCase shape;
  std::vector<TokenRow> rows;
  std::vector<std::int64_t> slots;
  std::unique_ptr<cpu::CpuKvStorage> kv;
  std::vector<float> cos, sin;
  std::vector<T> qkv, q;
};

const std::vector<TokenRow> kRows = {{0, 0, 0, 1}, {0, 1, 0, 2}, {1, 17, 0, 18}, {2, 4999, 0, 5000}};
const std::vector<std::int64_t> kSlots = {0, 33, 127, kNoKvSlot};

/// Two roundings of f32 products of numbers of about 4, then one to the type that is kept (`eps` relative).
double bound(double expected, double eps) { return std::ldexp(16.0, -24) + std::abs(expected) * eps; }

double eps_of(DType dtype) { return std::ldexp(1.0, dtype == DType::f32 ? -24 : dtype == DType::bf16 ? -8 : -11); }

template <class T>
void check_case(const RopeCase& shape) {
  const RopeRun<T> run(shape, kRows, kSlots, 2);
  for (std::size_t row = 0; row < kRows.size(); ++row)
    for (int i = 0; i < shape.head_dim; ++i) {
      for (int head = 0; head < shape.n_heads; ++head) {
        const double expected = run.rotated(row, head, i);
        const auto index = (row * static_cast<std::size_t>(shape.n_heads) + static_cast<std::size_t>(head)) *
                               static_cast<std::size_t>(shape.head_dim) +
                           static_cast<std::size_t>(i);
        ASSERT_NEAR(static_cast<double>(static_cast<float>(run.q[index])), expected,
                    bound(expected, eps_of(DTypeOf<T>::value)));
      }
      if (kSlots[row] == kNoKvSlot) continue;
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        const double key = run.rotated(row, shape.n_heads + head, i);
        const double value = run.in(row, shape.n_heads + shape.n_kv_heads + head, i);
        ASSERT_NEAR(run.stored(false, head, kSlots[row], i), key, bound(key, eps_of(shape.kv_dtype)));
        ASSERT_NEAR(run.stored(true, head, kSlots[row], i), value, std::abs(value) * eps_of(shape.kv_dtype));
      }
    }
}

TEST(RopeAppend, rotates_queries_and_keys_and_stores_them_at_their_slots) {
  for (const DType kv_dtype : {DType::f32, DType::bf16})
    for (const int head_dim : {8, 64, 80, 128}) {
      check_case<float>({4, 2, head_dim, head_dim, kv_dtype});
      check_case<BFloat16>({4, 1, head_dim, head_dim, kv_dtype});
      check_case<Float16>({3, 3, head_dim, head_dim, kv_dtype});
    }
}

TEST(RopeAppend, copies_the_dimensions_beyond_the_rotated_ones) {
  check_case<float>({2, 2, 80, 32, DType::f32});
  check_case<BFloat16>({2, 2, 80, 32, DType::bf16});
}

TEST(RopeAppend, stores_nothing_for_a_row_without_a_slot) {
  const RopeRun<float> run({}, {{0, 5, 0, 6}}, {kNoKvSlot});
  for (int slot = 0; slot < 128; slot += 7)
    for (const bool is_value : {false, true}) ASSERT_TRUE(std::isnan(run.stored(is_value, 1, slot, 3)));
}

TEST(RopeAppend, gives_the_same_bits_for_any_number_of_threads) {
  std::vector<TokenRow> rows;
  std::vector<std::int64_t> slots;
  for (int i = 0; i < 50; ++i) {
    rows.push_back({0, i, 0, i + 1});
    slots.push_back(i + 3);
  }
  const RopeRun<float> one({}, rows, slots, 1);
  for (const int n_threads : {2, 3}) {
    const RopeRun<float> many({}, rows, slots, n_threads);
    EXPECT_EQ(one.q, many.q);
    for (const std::int64_t slot : slots) ASSERT_EQ(one.stored(false, 1, slot, 9), many.stored(false, 1, slot, 9));
  }
}

}  // namespace
}  // namespace baton
