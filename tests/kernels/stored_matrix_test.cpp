/// A stored matrix whose parts do not fit each other ends the program; a scheme without kernels is refused by name.
#include "kernels/stored_matrix.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/named_kernels.h"
#include "support/stored_weight.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::random_stored;

TEST(StoredMatrix, is_dense_unless_said_otherwise) {
  const std::vector<float> values(6);
  const StoredMatrix weight = view_of(std::span(values), {2, 3});
  EXPECT_EQ(weight.scheme, WeightScheme::dense);
  EXPECT_EQ(weight.shape, (Shape{2, 3}));
  check_stored(weight);
}

TEST(StoredMatrixDeathTest, parts_that_do_not_fit_end_the_program) {
  std::mt19937 random(1);
  const auto good = random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 16, .has_zeros = true}, 4, 40);
  check_stored(good.matrix);
  EXPECT_EQ(good.matrix.n_groups(), 3);
  StoredMatrix weight = good.matrix;
  weight.scale_columns = 8;
  EXPECT_DEATH(check_stored(weight), "too few columns");
  weight = good.matrix;
  weight.scales.shape = {4, 2};
  EXPECT_DEATH(check_stored(weight), "scales of another shape");
  weight = good.matrix;
  weight.scheme = WeightScheme::f8;
  EXPECT_DEATH(check_stored(weight), "values of another dtype");
  const auto f4 =
      random_stored(random, {.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3}, 4, 40);
  check_stored(f4.matrix);
  weight = f4.matrix;
  weight.scales.dtype = DType::f32;
  EXPECT_DEATH(check_stored(weight), "8 bits for f4");
  weight = f4.matrix;
  weight.row_scales.shape = {3};
  EXPECT_DEATH(check_stored(weight), "row_scales");
  weight = f4.matrix;
  weight.zeros = good.matrix.zeros;
  EXPECT_DEATH(check_stored(weight), "zeros");
}

TEST(StoredMatrix, numbers_of_4_bits_and_exponents_stand_for_what_their_standards_say) {
  EXPECT_EQ(f4_value(1), 0.5f);
  EXPECT_EQ(f4_value(7), 6);
  EXPECT_EQ(f4_value(13), -3);
  EXPECT_EQ(e8m0_value(127), 1);
  EXPECT_EQ(e8m0_value(0), 0x1p-127f);
  EXPECT_EQ(e8m0_value(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0_value(255)));
}

template <class Packed>
std::string kernels_of(const Packed& packed) {
  const auto* const named = dynamic_cast<const NamedKernels*>(packed.get());
  return named == nullptr ? "" : named->kernels;
}

TEST(StoredMatrix, a_backend_names_the_kernels_of_matrices_and_experts_in_every_scheme) {
  std::mt19937 random(2);
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4, WeightScheme::f4}) {
    const DType scale_dtype = scheme == WeightScheme::f4 ? DType::u8 : DType::f32;
    const auto weight = random_stored(random, {.scheme = scheme, .scale_columns = 32, .scale_dtype = scale_dtype}, 8, 64);
    for (const testing::TestBackend& test : testing::test_backends()) {
      SCOPED_TRACE(std::string(to_string(scheme)) + " on " + test.name);
      const auto matrix = test.backend.pack_matrix(weight.matrix, DType::f32, "model.w");
      ASSERT_TRUE(matrix) << matrix.error().message;
      EXPECT_NE(kernels_of(*matrix), "");
      const auto read = [&](std::int64_t) -> Result<StoredMatrix> { return weight.matrix; };
      const auto experts = test.backend.pack_experts({2, 8, 64}, DType::f32, "model.experts", read);
      ASSERT_TRUE(experts) << experts.error().message;
      EXPECT_NE(kernels_of(*experts), "");
    }
  }
}

TEST(StoredMatrix, is_packed_in_its_scheme) {
  std::mt19937 random(2);
  const auto weight = random_stored(random, {.scheme = WeightScheme::f8, .scale_columns = 32}, 8, 32);
  for (const testing::TestBackend& test : testing::test_backends()) {
    const auto packed = test.backend.pack_matrix(weight.matrix, DType::f32, "model.w");
    ASSERT_TRUE(packed) << test.name << ": " << packed.error().message;
    EXPECT_EQ((*packed)->scheme, WeightScheme::f8);
  }
}

}  // namespace
}  // namespace baton
