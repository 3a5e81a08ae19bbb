/// Grouped matmuls by experts in 8 and 4 bits on every backend, by every kernel that a number of places chooses: they equal
/// those by the weights that they stand for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/stored_weight.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_stored;
using testing::random_tensor;
using testing::StoredForm;
using testing::StoredWeight;
using testing::test_backends;
using testing::TestBackend;

constexpr std::int64_t kUnusedPlaces = 3;  ///< after the last choice, as in a captured graph

using Counts = std::vector<std::int32_t>;  ///< places of each expert

HostTensor as_offsets(const Counts& counts) {
  HostTensor tensor(DType::i32, {static_cast<std::int64_t>(counts.size()) + 1});
  Counts offsets(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  std::memcpy(tensor.bytes.data(), offsets.data(), tensor.bytes.size());
  return tensor;
}

std::int64_t n_places_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

/// Experts of one form.
struct Experts {
  Experts(std::mt19937& random, const StoredForm& form, std::int64_t n_experts, std::int64_t n, std::int64_t k)
      : shape{n_experts, n, k}, bias(random_tensor(random, DType::f32, {n_experts, n})) {
    for (std::int64_t e = 0; e < n_experts; ++e) weights.push_back(random_stored(random, form, n, k));
  }
  Result<std::unique_ptr<PackedExperts>> pack(Backend& backend, DType dtype) const {
    return backend.pack_experts(
        shape, dtype, "w", [&](std::int64_t e) -> Result<StoredMatrix> { return weights[static_cast<std::size_t>(e)].matrix; });
  }
  Shape shape;
  HostTensor bias;
  std::vector<StoredWeight> weights;
};

/// Rows of x, and which of them each place multiplies; without `rows` the places are the rows.
struct Places {
  Places(std::mt19937& random, std::int64_t n_places, std::int64_t k, bool is_sorted)
      : x(random_tensor(random, DType::bf16, {is_sorted ? n_places + kUnusedPlaces : n_places / 2 + 1, k})),
        rows(DType::i32, {n_places + kUnusedPlaces}) {
    for (std::int64_t place = 0; place < n_places + kUnusedPlaces; ++place)
      row_of.push_back(static_cast<std::int32_t>(is_sorted ? place : random() % static_cast<std::uint32_t>(x.shape[0])));
    std::memcpy(rows.bytes.data(), row_of.data(), rows.bytes.size());
  }
  /// The same numbers in another dtype.
  HostTensor x_in(DType dtype) const {
    HostTensor made(dtype, x.shape);
    for (std::int64_t i = 0; i < made.shape.n_elements(); ++i) made.set(i, static_cast<float>(x.at(i)));
    return made;
  }
  HostTensor x;
  HostTensor rows;
  std::vector<std::int32_t> row_of;
};

std::vector<double> reference(const Experts& experts, const Counts& counts, const Places& places, bool has_bias = false) {
  const std::int64_t n = experts.shape[1];
  const std::int64_t k = experts.shape[2];
  std::vector<double> out;
  std::size_t place = 0;
  for (std::size_t e = 0; e < counts.size(); ++e)
    for (std::int32_t i = 0; i < counts[e]; ++i, ++place)
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = has_bias ? experts.bias.at(static_cast<std::int64_t>(e) * n + column) : 0;
        for (std::int64_t j = 0; j < k; ++j)
          sum += places.x.at(places.row_of[place] * k + j) * experts.weights[e].dense.at(column * k + j);
        out.push_back(sum);
      }
  return out;
}

/// All places, the last of which nothing writes.
HostTensor run(Backend& backend, const PackedExperts& experts, const Counts& counts, const Places& places, bool is_sorted,
               DType out_dtype, const HostTensor* bias = nullptr) {
  const OnDevice x(backend, places.x_in(experts.dtype));
  const OnDevice rows(backend, places.rows);
  const OnDevice offsets(backend, as_offsets(counts));
  const OnDevice out(backend, HostTensor(out_dtype, {n_places_of(counts) + kUnusedPlaces, experts.n}));
  const OnDevice of_experts(backend, bias == nullptr ? HostTensor(DType::f32, {1, 1}) : *bias);
  grouped_matmul(backend, {x.view(), is_sorted ? ConstTensorView{} : ConstTensorView(rows.view()), offsets.view(), &experts,
                           out.view(), bias == nullptr ? ConstTensorView{} : ConstTensorView(of_experts.view())});
  return out.to_host();
}

std::vector<DType> dtypes_of_places(const TestBackend& test) {
  std::vector<DType> dtypes{DType::f32};
  if (test.backend.capabilities().has_bf16_matmul) dtypes.push_back(DType::bf16);
  if (test.is_cuda()) dtypes.push_back(DType::f16);
  return dtypes;
}

/// `cuda_only`: for what depends on CUDA's kernels alone.
void expect_sums(const StoredForm& form, std::int64_t n, std::int64_t k, const std::vector<Counts>& cases,
                 bool cuda_only = false) {
  for (const Counts& counts : cases) {
    std::mt19937 random(4);
    const Experts experts(random, form, static_cast<std::int64_t>(counts.size()), n, k);
    const bool is_sorted = n_places_of(counts) % 2 == 0;
    const Places places(random, n_places_of(counts), k, is_sorted);
    std::vector<double> expected;
    for (const TestBackend& test : test_backends()) {
      if (cuda_only && !test.is_cuda()) continue;
      if (expected.empty()) expected = reference(experts, counts, places, is_sorted);
      for (const DType dtype : dtypes_of_places(test)) {
        const auto packed = experts.pack(test.backend, dtype);
        ASSERT_TRUE(packed) << packed.error().message;
        EXPECT_EQ((*packed)->scheme, form.scheme);
        for (const DType out_dtype : {DType::f32, DType::bf16, DType::f16}) {
          if (!test.is_cuda() && out_dtype != DType::f32) continue;  // a CPU rounds outside its kernels
          SCOPED_TRACE(test.name + ' ' + std::string(to_string(form.scheme)) + ", a scale for " +
                       std::to_string(form.scale_rows) + " x " + std::to_string(form.scale_columns) + ", " + std::to_string(n) +
                       " x " + std::to_string(k) + ", " + std::to_string(n_places_of(counts)) +
                       (is_sorted ? " places with a bias, " : " places, ") + std::string(to_string(dtype)) + " to " +
                       std::string(to_string(out_dtype)));
          const HostTensor got =
              run(test.backend, **packed, counts, places, is_sorted, out_dtype, is_sorted ? &experts.bias : nullptr);
          // Sums of k exact products in f32 and a product by the scale: c = 4, growth = sqrt(k), and one rounding.
          EXPECT_LE(testing::relative_error(got, expected),
                    4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)) +
                        (out_dtype == DType::f32 ? 0 : testing::epsilon(out_dtype)));
          const std::size_t used = expected.size() * size_bytes(out_dtype);
          EXPECT_TRUE(std::all_of(got.bytes.begin() + static_cast<std::ptrdiff_t>(used), got.bytes.end(), [](std::byte byte) {
            return byte == std::byte{0xff};
          })) << "places after the last are written";
        }
      }
    }
  }
}

const std::vector<Counts> kFew{{0}, {1}, {2, 0, 9, 1}};

TEST(GroupedScheme, equals_float64_for_f8_with_scales_of_rows_and_blocks) {
  expect_sums({.scheme = WeightScheme::f8, .scale_columns = 160}, 72, 160, kFew);
  expect_sums({.scheme = WeightScheme::f8, .scale_rows = 70, .scale_columns = 96}, 70, 96, kFew);
  expect_sums({.scheme = WeightScheme::f8, .scale_columns = 33, .scale_dtype = DType::bf16}, 1, 33, kFew);
  expect_sums({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128}, 200, 264, kFew);
  expect_sums({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128, .scale_dtype = DType::bf16}, 192, 320,
              kFew);
  expect_sums({.scheme = WeightScheme::f8, .scale_rows = 48, .scale_columns = 64, .scale_dtype = DType::f16}, 96, 96, kFew);
}

TEST(GroupedScheme, equals_float64_for_integers_with_and_without_zeros) {
  for (const WeightScheme scheme : {WeightScheme::i4, WeightScheme::i8})
    for (const bool has_zeros : {false, true}) {
      expect_sums({.scheme = scheme, .scale_columns = 200, .has_zeros = has_zeros}, 65, 200, kFew);
      expect_sums({.scheme = scheme, .scale_columns = 32, .has_zeros = has_zeros, .scale_dtype = DType::bf16}, 96, 352, kFew);
      expect_sums({.scheme = scheme, .scale_columns = 128, .has_zeros = has_zeros, .scale_dtype = DType::f16}, 72, 264, kFew);
      expect_sums({.scheme = scheme, .scale_columns = 128, .has_zeros = has_zeros}, 34, 141, kFew);
      expect_sums({.scheme = scheme, .scale_columns = 16, .has_zeros = has_zeros, .scale_dtype = DType::bf16}, 33, 64, kFew);
    }
}

constexpr StoredForm kNvfp4Experts{.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3};
constexpr StoredForm kMxfp4Experts{.scheme = WeightScheme::f4, .scale_columns = 32, .scale_dtype = DType::u8};

TEST(GroupedScheme, equals_float64_for_f4_with_scales_of_8_bits) {
  for (const StoredForm& form : {kNvfp4Experts, kMxfp4Experts}) {
    expect_sums(form, 96, 352, kFew);
    expect_sums(form, 70, 96, kFew);
    expect_sums(form, 33, 136, kFew);
    expect_sums(form, 34, 141, kFew);  // no multiple of 8: without matrix units
  }
  StoredForm one = kMxfp4Experts;  // a scale for the row
  one.scale_columns = 24;
  expect_sums(one, 65, 24, kFew);
}

// Units of 8, 32 and 64 places: experts without places, with a few and with several units; more and fewer rows of a weight
// than units have.
TEST(GroupedScheme, equals_float64_for_every_number_of_places) {
  const std::vector<Counts> cases{{0, 1, 0, 8, 0, 0, 3, 0}, {9, 17, 0, 33, 7, 16}, {40, 0, 8, 1},
                                  {100, 0, 0, 65, 1},       {0, 64, 200, 63},      {300}};
  expect_sums({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128, .scale_dtype = DType::bf16}, 136, 768,
              cases, true);
  expect_sums({.scheme = WeightScheme::f8, .scale_columns = 512}, 70, 512, cases, true);
  expect_sums({.scheme = WeightScheme::i8, .scale_columns = 128, .has_zeros = true, .scale_dtype = DType::f16}, 96, 320, cases,
              true);
  expect_sums({.scheme = WeightScheme::i4, .scale_columns = 32, .scale_dtype = DType::bf16}, 131, 328, cases, true);
  expect_sums({.scheme = WeightScheme::i4, .scale_columns = 128, .has_zeros = true, .scale_dtype = DType::bf16}, 258, 896,
              cases, true);
  expect_sums({.scheme = WeightScheme::i4, .scale_columns = 96, .has_zeros = true}, 64, 288, cases, true);
  expect_sums(kNvfp4Experts, 131, 328, cases, true);
  expect_sums(kMxfp4Experts, 258, 896, cases, true);
  expect_sums(kMxfp4Experts, 64, 288, cases, true);
}

// On a device with 132 multiprocessors: units that warps share, and units of one warp.
TEST(GroupedScheme, equals_float64_for_many_experts_with_a_few_places) {
  Counts counts(64, 1);
  counts[3] = 0;
  counts[5] = 9;
  for (const std::int64_t n : {192, 576}) {
    expect_sums({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128, .scale_dtype = DType::bf16}, n, 328,
                {counts}, true);
    expect_sums({.scheme = WeightScheme::i8, .scale_columns = 32, .has_zeros = true, .scale_dtype = DType::f16}, n, 64,
                {counts}, true);
    expect_sums({.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true}, n, 128, {counts}, true);
    expect_sums(kNvfp4Experts, n, 192, {counts}, true);
    expect_sums(kMxfp4Experts, n - 56, 288, {counts}, true);
  }
}

TEST(GroupedScheme, takes_the_columns_of_x_in_the_order_of_each_expert) {
  const std::vector<Counts> cases{{2, 0, 9, 1}, {70, 3}};
  expect_sums({.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true, .is_permuted = true}, 40, 128, cases);
  expect_sums({.scheme = WeightScheme::i8, .scale_columns = 64, .is_permuted = true}, 33, 127, cases);
}

// The offsets of a captured graph may change between replays.
TEST(GroupedScheme, a_captured_matmul_reads_rows_and_offsets_when_it_runs) {
  for (const TestBackend& test : test_backends())
    for (const std::int32_t scale : {1, 10, 60}) {
      SCOPED_TRACE(test.name + ' ' + std::to_string(scale));
      std::mt19937 random(2);
      const Experts experts(random, {.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true}, 4, 48, 128);
      const Places places(random, 12 * scale, 128, false);
      const auto packed = experts.pack(test.backend, dtypes_of_places(test).back());
      ASSERT_TRUE(packed) << packed.error().message;
      const OnDevice x(test.backend, places.x_in((*packed)->dtype));
      const OnDevice rows(test.backend, places.rows);
      const OnDevice offsets(test.backend, as_offsets({12 * scale, 0, 0, 0}));
      const OnDevice out(test.backend, HostTensor(DType::f32, {12 * scale, 48}));
      const auto graph = test.backend.capture([&] {
        grouped_matmul(test.backend, {x.view(), rows.view().rows(0, 12 * scale), offsets.view(), packed->get(), out.view()});
      });
      ASSERT_TRUE(graph) << graph.error().message;
      for (const Counts& counts :
           {Counts{3 * scale, 0, 4 * scale, 5 * scale}, {0, 12 * scale, 0, 0}, {1, 1, 1, 1}, {0, 0, 0, 0}}) {
        test.backend.copy_from_host(offsets.view(), as_offsets(counts).view());
        (*graph)->replay();
        EXPECT_LE(testing::relative_error(out.to_host(), reference(experts, counts, places)),
                  64 * testing::epsilon(DType::f32));
      }
    }
}

TEST(GroupedScheme, batch_invariant_places_are_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    auto backend = test.make({.n_threads = 2, .batch_invariant = true});
    ASSERT_TRUE(backend) << backend.error().message;
    for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i4, WeightScheme::f4}) {
      std::mt19937 random(3);
      const StoredForm form = scheme == WeightScheme::f4 ? kMxfp4Experts : StoredForm{.scheme = scheme, .scale_columns = 32};
      const Experts experts(random, form, 2, 48, 160);
      const Places places(random, 201, 160, true);
      for (const DType dtype : dtypes_of_places(test)) {
        const auto packed = experts.pack(**backend, dtype);
        ASSERT_TRUE(packed) << packed.error().message;
        const HostTensor all = run(**backend, **packed, {200, 1}, places, true, DType::f32);
        const auto expect_same = [&](const HostTensor& got, std::int32_t at, std::int32_t place) {
          EXPECT_EQ(std::memcmp(got.view().rows(at, at + 1).data, all.view().rows(place, place + 1).data, 48 * 4), 0)
              << test.name << ' ' << to_string(scheme) << ' ' << to_string(dtype) << ", place " << place;
        };
        // Alone, and with fewer than fill a tile of 64.
        const auto first_at = [&](std::int32_t place, std::int32_t n) {
          Places some(random, n, 160, true);
          std::memcpy(some.x.bytes.data(), places.x.view().rows(place, place + n).data, static_cast<std::size_t>(n) * 160 * 2);
          return some;
        };
        for (const std::int32_t place : {0, 39, 199, 200})
          expect_same(run(**backend, **packed, place < 200 ? Counts{1, 0} : Counts{0, 1}, first_at(place, 1), true, DType::f32),
                      0, place);
        const HostTensor some = run(**backend, **packed, {40, 0}, first_at(0, 40), true, DType::f32);
        for (const std::int32_t place : {0, 17, 39}) expect_same(some, place, place);
      }
    }
  }
}

TEST(GroupedScheme, experts_must_be_stored_alike) {
  std::mt19937 random(6);
  const StoredWeight f8 = random_stored(random, {.scheme = WeightScheme::f8, .scale_columns = 64}, 8, 64);
  const StoredWeight i4 = random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 32}, 8, 64);
  const StoredWeight zeros = random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true}, 8, 64);
  for (const TestBackend& test : test_backends()) {
    const auto error_of = [&](const StoredWeight& first, const StoredWeight& second) -> std::string {
      const auto packed = test.backend.pack_experts({2, 8, 64}, DType::f32, "w", [&](std::int64_t e) -> Result<StoredMatrix> {
        return (e == 0 ? first : second).matrix;
      });
      return packed ? "no error" : packed.error().message;
    };
    EXPECT_EQ(error_of(f8, i4), "w: its experts are stored as float8_e4m3 and int4, and must be stored alike") << test.name;
    EXPECT_EQ(error_of(i4, zeros), test.is_cuda()
                                       ? "w: its experts are all stored as int4, but their scales, zeros or orders of "
                                         "columns are of different kinds; the CPU serves them (--device cpu)"
                                       : "no error");
  }
}

TEST(GroupedScheme, holds_what_the_file_held) {
  constexpr StoredForm kInt4{.scheme = WeightScheme::i4, .scale_columns = 128, .scale_dtype = DType::bf16};
  for (const TestBackend& test : test_backends())
    for (const auto& [form, scale_bytes] : {std::pair(kInt4, 6 * 2), std::pair(kMxfp4Experts, 24)}) {
      std::mt19937 random(7);
      const Experts experts(random, form, 2, 768, 768);
      const auto packed = experts.pack(test.backend, DType::f32);
      ASSERT_TRUE(packed) << packed.error().message;
      EXPECT_LE(static_cast<double>((*packed)->size_bytes), 1.05 * 2 * 768 * (384 + scale_bytes)) << test.name;
    }
}

}  // namespace
}  // namespace baton
