/// Matmuls of several experts against float64, on every backend.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/matmul_reference.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_tensor;
using testing::test_backends;
using testing::TestBackend;

constexpr std::int64_t kUnused = 5;  ///< places after the last choice, as in a captured graph

/// Experts W [n, k] with some places each.
struct GroupCase {
  std::vector<std::int32_t> places_of_expert;
  std::int64_t n;
  std::int64_t k;

  std::int64_t n_experts() const { return static_cast<std::int64_t>(places_of_expert.size()); }
  std::int64_t n_places() const { return std::accumulate(places_of_expert.begin(), places_of_expert.end(), std::int64_t{0}); }
  std::string name() const {
    return std::to_string(n_places()) + " places of " + std::to_string(n_experts()) + " experts, " + std::to_string(n) + " x " +
           std::to_string(k);
  }
};

/// `per_expert` places for each of `n` experts, but none for every third.
std::vector<std::int32_t> most_have(std::int32_t n, std::int32_t per_expert) {
  std::vector<std::int32_t> counts;
  for (std::int32_t e = 0; e < n; ++e) counts.push_back(e % 3 == 1 ? 0 : per_expert);
  return counts;
}

HostTensor offsets_of(const std::vector<std::int32_t>& counts) {
  HostTensor tensor(DType::i32, {static_cast<std::int64_t>(counts.size()) + 1});
  std::vector<std::int32_t> offsets(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  std::memcpy(tensor.bytes.data(), offsets.data(), tensor.bytes.size());
  return tensor;
}

Result<std::unique_ptr<PackedExperts>> pack(Backend& backend, const HostTensor& weights) {
  return backend.pack_experts(weights.shape, weights.dtype, "w", [&](std::int64_t expert) -> Result<ConstTensorView> {
    const ConstTensorView matrix = weights.view().rows(expert, expert + 1);
    return ConstTensorView{matrix.data, matrix.dtype, {weights.shape[1], weights.shape[2]}};
  });
}

/// x, the weights, and the row of x for each place.
struct Operands {
  Operands(std::mt19937& random, DType dtype, const GroupCase& of, bool is_sorted)
      : weights(random_tensor(random, dtype, {of.n_experts(), of.n, of.k})),
        bias(random_tensor(random, DType::f32, {of.n_experts(), of.n})),
        x(random_tensor(random, dtype, {is_sorted ? of.n_places() + kUnused : of.n_places() / 2 + 1, of.k})),
        rows(DType::i32, {of.n_places() + kUnused}) {
    for (std::int64_t place = 0; place < of.n_places() + kUnused; ++place) {
      row_of.push_back(static_cast<std::int32_t>(
          is_sorted ? place : static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(x.shape[0]))));
    }
    std::memcpy(rows.bytes.data(), row_of.data(), rows.bytes.size());
  }
  HostTensor weights;
  HostTensor bias;
  HostTensor x;
  HostTensor rows;
  std::vector<std::int32_t> row_of;
};

/// [n_places, n] in float64.
std::vector<double> grouped_reference(const GroupCase& of, const Operands& in, bool has_bias = false) {
  const std::vector<double> x = testing::to_float64(in.x);
  const std::vector<double> weights = testing::to_float64(in.weights);
  std::vector<double> out;
  std::int64_t place = 0;
  for (std::int64_t e = 0; e < of.n_experts(); ++e) {
    const std::size_t first = out.size();
    std::vector<double> rows;
    for (std::int32_t i = 0; i < of.places_of_expert[static_cast<std::size_t>(e)]; ++i, ++place) {
      const auto row = x.begin() + in.row_of[static_cast<std::size_t>(place)] * of.k;
      rows.insert(rows.end(), row, row + of.k);
      for (std::int64_t column = 0; column < of.n; ++column) out.push_back(has_bias ? in.bias.at(e * of.n + column) : 0);
    }
    testing::add_matmul(
        std::span(out).subspan(first), rows,
        std::span(weights).subspan(static_cast<std::size_t>(e * of.n * of.k), static_cast<std::size_t>(of.n * of.k)), of.k);
  }
  return out;
}

HostTensor run(Backend& backend, const GroupCase& of, const Operands& in, const PackedExperts& experts, bool is_sorted,
               DType out_dtype, bool has_bias = false) {
  const OnDevice x(backend, in.x);
  const OnDevice rows(backend, in.rows);
  const OnDevice offsets(backend, offsets_of(of.places_of_expert));
  const OnDevice bias(backend, in.bias);
  const OnDevice out(backend, HostTensor(out_dtype, {of.n_places() + kUnused, of.n}));
  grouped_matmul(backend, {x.view(), is_sorted ? ConstTensorView{} : ConstTensorView(rows.view()), offsets.view(), &experts,
                           out.view(), has_bias ? ConstTensorView(bias.view()) : ConstTensorView{}});
  return out.to_host();
}

std::vector<DType> grouped_dtypes(const TestBackend& test) {
  if (test.is_cuda()) return {DType::f32, DType::bf16, DType::f16};
  if (test.backend.capabilities().has_bf16_matmul) return {DType::f32, DType::bf16};
  return {DType::f32};
}

void expect_the_products(const TestBackend& test, DType dtype, const GroupCase& of) {
  for (const bool is_sorted : {false, true}) {
    std::mt19937 random(1);
    const Operands in(random, dtype, of, is_sorted);
    const auto experts = pack(test.backend, in.weights);
    ASSERT_TRUE(experts) << experts.error().message;
    const bool has_bias = is_sorted;
    const std::vector<double> expected = grouped_reference(of, in, has_bias);
    for (const DType out_dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (!test.is_cuda() && out_dtype != DType::f32) continue;  // oneDNN has no fast code for others
      SCOPED_TRACE(test.name + ' ' + std::string(to_string(dtype)) + " to " + std::string(to_string(out_dtype)) + ", " +
                   of.name() + (is_sorted ? ", sorted, with a bias" : ""));
      const HostTensor got = run(test.backend, of, in, **experts, is_sorted, out_dtype, has_bias);
      // Sums of k exact products in f32: c = 4, growth = sqrt(k), and one rounding.
      EXPECT_LE(testing::relative_error(got, expected),
                4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(of.k)) +
                    (out_dtype == DType::f32 ? 0 : testing::epsilon(out_dtype)));
      const std::size_t used = static_cast<std::size_t>(of.n_places() * of.n) * size_bytes(out_dtype);
      EXPECT_TRUE(std::all_of(got.bytes.begin() + static_cast<std::ptrdiff_t>(used), got.bytes.end(), [](std::byte byte) {
        return byte == std::byte{0xff};
      })) << "places after the last are written";
    }
  }
}

// On CUDA: sizes that the matrix units do not take; few places per expert, in units of one tile of 8 and of two, with fewer and
// more stages than warps that share them; many, more and less than a tile of 64; fewer and more columns than a unit has.
TEST(GroupedMatmul, equals_float64_for_every_number_of_places) {
  for (const TestBackend& test : test_backends())
    for (const DType dtype : grouped_dtypes(test))
      for (const GroupCase& of : {GroupCase{{0}, 8, 32},
                                  {{1}, 1, 1},
                                  {{2, 0, 9, 1}, 17, 33},
                                  {{0, 1, 0, 1, 0, 0, 1, 0}, 48, 64},
                                  {{8, 0, 7, 1}, 80, 96},
                                  {{20, 0, 9, 8}, 72, 328},
                                  {{9, 17, 0, 33, 31, 16}, 96, 352},
                                  {most_have(128, 3), 34, 32},
                                  {most_have(192, 3), 340, 200},
                                  {most_have(96, 9), 136, 72},
                                  {most_have(96, 9), 400, 72},
                                  {{3, 0, 1, 0, 0, 20, 1, 1}, 136, 1096},
                                  {{100, 0, 0, 65, 1}, 130, 64},
                                  {{0, 64, 200, 63}, 256, 192},
                                  {{300}, 72, 80}})
        expect_the_products(test, dtype, of);
}

// The offsets of a captured graph may change between replays.
TEST(GroupedMatmul, a_captured_product_reads_rows_and_offsets_when_it_runs) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(2);
    GroupCase of{{3, 0, 4, 5}, 48, 64};
    const Operands in(random, grouped_dtypes(test).back(), of, false);
    const auto experts = pack(test.backend, in.weights);
    ASSERT_TRUE(experts) << experts.error().message;
    const OnDevice x(test.backend, in.x);
    const OnDevice rows(test.backend, in.rows);
    const OnDevice offsets(test.backend, offsets_of(of.places_of_expert));
    const OnDevice out(test.backend, HostTensor(DType::f32, {of.n_places() + kUnused, of.n}));
    const auto graph = test.backend.capture([&] {
      grouped_matmul(test.backend, {x.view(), rows.view(), offsets.view(), experts->get(), out.view()});
    });
    ASSERT_TRUE(graph) << graph.error().message;
    for (const auto& counts : {std::vector<std::int32_t>{3, 0, 4, 5}, {0, 12, 0, 0}, {1, 1, 1, 1}, {0, 0, 0, 0}}) {
      of.places_of_expert = counts;
      test.backend.copy_from_host(offsets.view(), offsets_of(counts).view());
      (*graph)->replay();
      EXPECT_LE(testing::relative_error(out.to_host(), grouped_reference(of, in)), 32 * testing::epsilon(DType::f32));
    }
  }
}

TEST(GroupedMatmul, batch_invariant_places_are_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    auto backend = test.make({.n_threads = 2, .batch_invariant = true});
    ASSERT_TRUE(backend) << backend.error().message;
    for (const DType dtype : grouped_dtypes(test)) {
      SCOPED_TRACE(test.name + ' ' + std::string(to_string(dtype)));
      std::mt19937 random(3);
      const GroupCase together{{200, 0, 1, 150}, 96, 192};  // otherwise in tiles on CUDA
      const Operands in(random, dtype, together, false);
      const auto experts = pack(**backend, in.weights);
      ASSERT_TRUE(experts) << experts.error().message;
      const HostTensor all = run(**backend, together, in, **experts, false, DType::f32);
      for (const std::int32_t place : {0, 7, 199, 200, 201, 350}) {
        GroupCase alone{{0, 0, 0, 0}, 96, 192};
        alone.places_of_expert[place < 200 ? 0 : place == 200 ? 2 : 3] = 1;
        Operands one = in;
        std::memcpy(one.rows.bytes.data(), &in.row_of[static_cast<std::size_t>(place)], sizeof(std::int32_t));
        one.rows.shape = {1 + kUnused};
        one.rows.bytes.resize((1 + kUnused) * sizeof(std::int32_t));
        const HostTensor got = run(**backend, alone, one, **experts, false, DType::f32);
        EXPECT_EQ(std::memcmp(got.bytes.data(), all.bytes.data() + static_cast<std::size_t>(place * together.n) * 4,
                              static_cast<std::size_t>(together.n) * 4),
                  0)
            << "place " << place;
      }
    }
  }
}

// An error of reading an expert is the error of packing.
TEST(GroupedMatmul, packing_passes_on_the_error_of_a_read) {
  for (const TestBackend& test : test_backends()) {
    const HostTensor weight(DType::f32, {4, 8});
    const auto experts = test.backend.pack_experts({3, 4, 8}, DType::f32, "w", [&](std::int64_t e) -> Result<ConstTensorView> {
      if (e == 1) return fail(ErrorCode::invalid_data, "the second is damaged");
      return weight.view();
    });
    ASSERT_FALSE(experts) << test.name;
    EXPECT_EQ(experts.error().message, "the second is damaged");
  }
}

}  // namespace
}  // namespace baton
