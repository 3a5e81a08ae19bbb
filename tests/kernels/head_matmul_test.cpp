/// Matrices for each head on every backend: outputs compared with float64, strides of x and of the output, and bits that do not
/// depend on other rows.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton::testing {
namespace {

/// One shape of a model.
struct HeadsCase {
  std::int64_t n_heads, n, k;
  std::int64_t x_stride;
  std::int64_t out_stride;
};

/// Distinct rows of x; the others repeat them, so that few sums are computed in float64.
constexpr std::int64_t kDistinctRows = 7;
/// Columns of x after the last head's.
constexpr std::int64_t kFurther = 24;

std::vector<DType> head_dtypes(const TestBackend& test) {
  if (test.is_cuda()) return {DType::bf16, DType::f16};
  if (test.backend.capabilities().has_bf16_matmul) return {DType::f32, DType::bf16};
  return {DType::f32};
}

std::string text_of(const TestBackend& test, const HeadsCase& of, DType dtype) {
  return test.name + ' ' + std::string(to_string(dtype)) + ", " + std::to_string(of.n_heads) + " heads, " +
         std::to_string(of.n) + " x " + std::to_string(of.k) + ", strides " + std::to_string(of.x_stride) + " and " +
         std::to_string(of.out_stride);
}

/// x [n_rows, n_heads * x_stride + kFurther] of which only each head's first k columns are numbers.
HostTensor strided_x(const HeadsCase& of, const HostTensor& rows, std::int64_t n_rows) {
  const std::int64_t width = of.n_heads * of.x_stride + kFurther;
  HostTensor x(rows.dtype, {n_rows, width});
  for (std::int64_t r = 0; r < n_rows; ++r)
    for (std::int64_t h = 0; h < of.n_heads; ++h)
      for (std::int64_t i = 0; i < of.k; ++i)
        x.set(r * width + h * of.x_stride + i, static_cast<float>(rows.at(((r % rows.shape[0]) * of.n_heads + h) * of.k + i)));
  return x;
}

/// The outputs [rows, n_heads, n] of rows [rows, n_heads, k].
std::vector<double> head_products(const HeadsCase& of, const HostTensor& rows, const HostTensor& weights) {
  const auto doubles = [](const HostTensor& tensor) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < tensor.shape.n_elements(); ++i) numbers.push_back(tensor.at(i));
    return numbers;
  };
  const std::vector<double> x = doubles(rows);
  const std::vector<double> w = doubles(weights);
  std::vector<double> out;
  for (std::int64_t r = 0; r < rows.shape[0]; ++r)
    for (std::int64_t h = 0; h < of.n_heads; ++h)
      for (std::int64_t j = 0; j < of.n; ++j) {
        double sum = 0;
        for (std::int64_t i = 0; i < of.k; ++i)
          sum += x[static_cast<std::size_t>((r * of.n_heads + h) * of.k + i)] *
                 w[static_cast<std::size_t>((h * of.n + j) * of.k + i)];
        out.push_back(sum);
      }
  return out;
}

/// The output's first n elements of each head, [rows, n_heads, n]. The others must be untouched.
HostTensor products_of(const HeadsCase& of, const HostTensor& out) {
  HostTensor got(out.dtype, {out.shape[0], of.n_heads, of.n});
  for (std::int64_t head = 0; head < out.shape[0] * of.n_heads; ++head) {
    for (std::int64_t j = 0; j < of.n; ++j) got.set(head * of.n + j, static_cast<float>(out.at(head * of.out_stride + j)));
    const auto* bytes = out.bytes.data() + static_cast<std::size_t>(head * of.out_stride) * size_bytes(out.dtype);
    for (auto i = static_cast<std::size_t>(of.n) * size_bytes(out.dtype);
         i < static_cast<std::size_t>(of.out_stride) * size_bytes(out.dtype); ++i)
      EXPECT_EQ(bytes[i], std::byte{0xff}) << "written after the elements of head " << head;
  }
  return got;
}

void expect_head_products(const TestBackend& test, const HeadsCase& of, DType dtype, const std::vector<std::int64_t>& n_rows) {
  SCOPED_TRACE(text_of(test, of, dtype));
  std::mt19937 random(3);
  const HostTensor weights = random_tensor(random, dtype, {of.n_heads, of.n, of.k});
  const HostTensor rows = random_tensor(random, dtype, {kDistinctRows, of.n_heads, of.k});
  const std::vector<double> products = head_products(of, rows, weights);
  const auto packed = test.backend.pack_heads(weights.view(), "heads");
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ((*packed)->n_heads, of.n_heads);
  EXPECT_EQ((*packed)->n, of.n);
  EXPECT_EQ((*packed)->k, of.k);
  EXPECT_EQ((*packed)->dtype, dtype);
  EXPECT_GE((*packed)->size_bytes, weights.bytes.size());
  const auto row_size = static_cast<std::size_t>(of.n_heads * of.n);
  for (const std::int64_t n : n_rows) {
    const OnDevice x(test.backend, strided_x(of, rows, n));
    std::vector<double> expected;
    for (std::int64_t r = 0; r < n; ++r) {
      const auto from = products.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r % kDistinctRows) * row_size);
      expected.insert(expected.end(), from, from + static_cast<std::ptrdiff_t>(row_size));
    }
    for (const DType out_dtype : dtype == DType::f32 ? std::vector{DType::f32} : std::vector{dtype, DType::f32}) {
      const OnDevice out(test.backend, HostTensor(out_dtype, {n + 1, of.n_heads, of.out_stride}));
      head_matmul(test.backend, {x.view(), of.x_stride, packed->get(), out.view().rows(0, n)});
      const HostTensor whole = out.to_host();
      for (std::int64_t i = 0; i < of.n_heads * of.out_stride; ++i)
        ASSERT_TRUE(std::isnan(whole.at(n * of.n_heads * of.out_stride + i))) << "written after the last row";
      HostTensor own(out_dtype, {n, of.n_heads, of.out_stride});
      if (n > 0) std::memcpy(own.bytes.data(), whole.bytes.data(), own.bytes.size());
      // Sums of k exact products in f32: c = 4, growth = sqrt(k); then one rounding.
      EXPECT_LE(relative_error(products_of(of, own), expected), 4 * epsilon(DType::f32) * std::sqrt(static_cast<double>(of.k)) +
                                                                    (out_dtype == DType::f32 ? 0 : epsilon(out_dtype)))
          << n << " rows, out in " << to_string(out_dtype);
    }
  }
}

const std::vector<std::int64_t> kHeadRowCounts = {0, 1, 3, 17, 64, 130, 300};

/// Queries without their rotated elements become latent vectors, which the elements that attention adds follow.
const std::vector<HeadsCase> kToLatents = {
    {1, 512, 192, 256, 576}, {20, 512, 192, 256, 576}, {16, 512, 128, 192, 576}, {1, 512, 64, 64, 512}, {16, 256, 64, 96, 320}};
/// Latent vectors become a head's values.
const std::vector<HeadsCase> kToValues = {{1, 128, 512, 512, 128},
                                          {16, 128, 512, 512, 128},
                                          {20, 256, 512, 512, 256},
                                          {16, 192, 512, 576, 256},
                                          {5, 64, 256, 256, 64}};

TEST(HeadMatmul, equals_float64_for_every_number_of_rows) {
  for (const TestBackend& test : test_backends())
    for (const DType dtype : head_dtypes(test))
      for (const auto& cases : {kToLatents, kToValues})
        for (const HeadsCase& of : cases) {
          if (of.n_heads > 1 && !test.is_cuda()) {
            expect_head_products(test, of, dtype, {1, 3, 17});
          } else {
            expect_head_products(test, of, dtype, kHeadRowCounts);
          }
          if (HasFailure()) return;
        }
}

TEST(HeadMatmul, takes_any_size_on_a_cpu) {
  for (const TestBackend& test : test_backends())
    for (const DType dtype : head_dtypes(test)) {
      if (test.is_cuda()) continue;
      expect_head_products(test, {3, 17, 33, 40, 19}, dtype, {1, 2, 9, 33});
      expect_head_products(test, {2, 1, 1, 1, 1}, dtype, {1, 5});
    }
}

/// With out in the backend's fastest dtype, in parts of any size.
TEST(HeadMatmul, batch_invariant_rows_are_the_same_bits_for_every_number_of_rows) {
  for (const TestBackend& test : test_backends()) {
    const auto backend = test.make({.n_threads = 2, .batch_invariant = true});
    ASSERT_TRUE(backend) << backend.error().message;
    for (const DType dtype : head_dtypes(test))
      for (const HeadsCase& of : {HeadsCase{4, 512, 192, 256, 576}, HeadsCase{4, 128, 512, 512, 128}}) {
        SCOPED_TRACE(text_of(test, of, dtype));
        std::mt19937 random(4);
        const HostTensor weights = random_tensor(random, dtype, {of.n_heads, of.n, of.k});
        const auto packed = (*backend)->pack_heads(weights.view(), "heads");
        ASSERT_TRUE(packed) << packed.error().message;
        const OnDevice x(**backend, random_tensor(random, dtype, {300, of.n_heads * of.x_stride}));
        const OnDevice all(**backend, HostTensor(dtype, {300, of.n_heads, of.out_stride}));
        head_matmul(**backend, {x.view(), of.x_stride, packed->get(), all.view()});
        const HostTensor expected = all.to_host();
        for (const std::int64_t n : {1, 3, 17, 64, 130})
          for (const std::int64_t first : {0, 41, 300 - 130}) {
            const OnDevice out(**backend, HostTensor(dtype, {n, of.n_heads, of.out_stride}));
            head_matmul(**backend, {x.view().rows(first, first + n), of.x_stride, packed->get(), out.view()});
            const ConstTensorView together = expected.view().rows(first, first + n);
            EXPECT_EQ(std::memcmp(out.to_host().bytes.data(), together.data, together.size_bytes()), 0)
                << n << " rows from " << first;
          }
      }
  }
}

TEST(HeadMatmul, a_captured_product_is_the_product) {
  const HeadsCase of{4, 256, 128, 192, 320};
  for (const TestBackend& test : test_backends()) {
    const DType dtype = head_dtypes(test).front();
    std::mt19937 random(5);
    const auto packed = test.backend.pack_heads(random_tensor(random, dtype, {of.n_heads, of.n, of.k}).view(), "heads");
    ASSERT_TRUE(packed) << packed.error().message;
    const OnDevice x(test.backend, random_tensor(random, dtype, {37, of.n_heads * of.x_stride}));
    const OnDevice out(test.backend, HostTensor(dtype, {37, of.n_heads, of.out_stride})),
        again(test.backend, HostTensor(dtype, {37, of.n_heads, of.out_stride}));
    const auto graph = test.backend.capture([&] {
      head_matmul(test.backend, {x.view(), of.x_stride, packed->get(), out.view()});
    });
    ASSERT_TRUE(graph) << graph.error().message;
    (*graph)->replay();
    head_matmul(test.backend, {x.view(), of.x_stride, packed->get(), again.view()});
    EXPECT_EQ(out.to_host().bytes, again.to_host().bytes) << test.name;
  }
}

}  // namespace
}  // namespace baton::testing
