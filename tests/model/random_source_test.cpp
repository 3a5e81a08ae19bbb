/// Random weights in the schemes that a config states (model/source/random.h).
#include "model/source/random.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "support/dense_values.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kColumns = 1024;

ExpectedTensor matrix_named(const char* name) {
  ExpectedTensor tensor;
  tensor.name = name;
  tensor.shape = {kRows, kColumns};
  return tensor;
}

/// A part of a matrix, with memory for what the source has of it.
struct StoredPart {
  StoredPart(WeightSource& source, const ExpectedTensor& tensor, IndexRange rows, IndexRange columns) {
    const auto form = source.form_of(tensor);
    EXPECT_TRUE(form) << form.error().message;
    const bool has_half_bytes = form->scheme == WeightScheme::i4 || form->scheme == WeightScheme::f4;
    const std::int64_t row_bytes = has_half_bytes ? columns.size() / 2 : columns.size();
    const std::int64_t scale_columns = std::min(form->scale_columns, columns.size());
    const Shape n_scales{rows.size() / form->scale_rows, columns.size() / scale_columns};
    values.resize(static_cast<std::size_t>(rows.size() * row_bytes));
    scales.resize(static_cast<std::size_t>(n_scales.n_elements()) * size_bytes(form->scale_dtype));
    row_scales.resize(static_cast<std::size_t>(rows.size()));
    StoredRows out;
    out.scheme = form->scheme;
    out.scale_rows = form->scale_rows;
    out.scale_columns = scale_columns;
    out.values = {values.data(), form->scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8, {rows.size(), row_bytes}};
    out.scales = {scales.data(), form->scale_dtype, n_scales};
    if (form->has_row_scales) out.row_scales = view_of(std::span(row_scales), {rows.size()});
    EXPECT_TRUE(source.read_stored({tensor, rows, columns, 0}, out));
    matrix.scheme = form->scheme;
    matrix.shape = {rows.size(), columns.size()};
    matrix.values = out.values;
    matrix.scale_rows = form->scale_rows;
    matrix.scale_columns = scale_columns;
    matrix.scales = out.scales;
    if (form->has_row_scales) matrix.row_scales = out.row_scales;
  }
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  std::vector<float> row_scales;
  StoredMatrix matrix;
};

QuantizationSpec stated(SchemeStatement statement) { return {.method = "compressed-tensors", .statements = {statement}}; }

TEST(RandomSource, has_the_scheme_that_the_config_states_with_the_variance_of_the_width) {
  const Parallel parallel(2);
  const std::vector<ExpectedTensor> tensors{matrix_named("a"), matrix_named("b")};
  for (const SchemeStatement& statement :
       {SchemeStatement{.scheme = WeightScheme::f8},
        {.scheme = WeightScheme::f8, .scales = ScaleKind::block, .rows = 128, .columns = 128},
        {.scheme = WeightScheme::i8},
        {.scheme = WeightScheme::i4, .scales = ScaleKind::group, .columns = 64},
        {.scheme = WeightScheme::f4, .scales = ScaleKind::group, .columns = 32},
        {.scheme = WeightScheme::f4, .scales = ScaleKind::group, .columns = 16}}) {
    SCOPED_TRACE(to_string(statement));
    RandomSource source(7, tensors, parallel, stated(statement), {});
    const StoredPart whole(source, tensors[0], {0, kRows}, {0, kColumns});
    EXPECT_EQ(whole.matrix.scheme, statement.scheme);
    EXPECT_EQ(whole.matrix.scale_columns, statement.columns == 0 ? kColumns : statement.columns);
    const std::vector<float> dense = test::dense_values(whole.matrix);
    double sum_of_squares = 0;
    for (const float value : dense) sum_of_squares += static_cast<double>(value) * value;
    const double variance = sum_of_squares / static_cast<double>(dense.size()) * kColumns;
    EXPECT_GT(variance, 0.4);  // a scale of MXFP4 is a power of two
    EXPECT_LT(variance, 2.5);
    EXPECT_NE(StoredPart(source, tensors[1], {0, kRows}, {0, kColumns}).values, whole.values);

    const StoredPart part(source, tensors[0], {128, 256}, {512, 1024});
    const std::vector<float> of_part = test::dense_values(part.matrix);
    for (std::int64_t row = 0; row < 128; ++row)
      ASSERT_EQ(std::memcmp(&of_part[static_cast<std::size_t>(row * 512)],
                            &dense[static_cast<std::size_t>((128 + row) * kColumns + 512)], 512 * sizeof(float)),
                0)
          << "row " << row;
  }
}

TEST(RandomSource, a_backend_that_draws_has_the_same_numbers) {
  const Parallel parallel(2);
  const std::vector<ExpectedTensor> tensors{matrix_named("a"), matrix_named("b")};
  RandomSource source(7, tensors, parallel, {}, {});
  // A rank's columns, which are fewer than, as many as and more than what the host draws at a time.
  for (const std::int64_t k : {24, 64, 200}) {
    std::vector<TensorPart> parts{{tensors[0], {5, 40}, {64, 64 + k}, 3}, {tensors[1], {0, 96}, {64, 64 + k}, 0}};
    std::vector<RandomRows> rows;
    for (const TensorPart& part : parts) rows.push_back(source.rows_of(part).value());
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      testing::HostTensor expected(dtype, {35 + 3 + 96, k});
      for (std::int64_t i = 0; i < 3 * k; ++i) expected.set(35 * k + i, 0);
      ASSERT_TRUE(source.read(parts[0], expected.view().rows(0, 35)));
      ASSERT_TRUE(source.read(parts[1], expected.view().rows(38, 134)));
      testing::HostTensor one(dtype, {1});
      for (const auto& [row, of, at] : {std::tuple{0, 0, 0}, {34, 0, 34}, {38, 1, 0}, {133, 1, 95}})
        for (std::int64_t column = 0; column < k; ++column) {
          const RandomRows& drawn = rows[static_cast<std::size_t>(of)];
          const auto place = static_cast<std::uint64_t>(drawn.first + at * drawn.row_stride + column);
          one.set(0, random_element(drawn.key, place, drawn.half_width));
          ASSERT_EQ(expected.at(row * k + column), one.at(0)) << row << ", " << column;
        }
      // Rows of the unit matrix bring the matrix back: all terms but one of each sum are 0.
      testing::HostTensor unit(dtype, {k, k});
      for (std::int64_t i = 0; i < k * k; ++i) unit.set(i, i % (k + 1) == 0 ? 1 : 0);
      for (const testing::TestBackend& test : testing::test_backends()) {
        auto* const packing = dynamic_cast<RandomPacking*>(&test.backend);
        EXPECT_EQ(packing != nullptr, test.is_cuda()) << test.name;
        if (packing == nullptr) continue;
        const auto packed = packing->pack_random(rows, k, dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        const testing::OnDevice out(test.backend, testing::HostTensor(DType::f32, {k, 134}));
        matmul(test.backend, {testing::OnDevice(test.backend, unit).view(), packed->get(), out.view()});
        const testing::HostTensor got = out.to_host();
        for (std::int64_t i = 0; i < 134 * k; ++i)
          ASSERT_EQ(got.at(i % k * 134 + i / k), expected.at(i)) << test.name << ", " << to_string(dtype) << ", element " << i;
      }
    }
  }
  ExpectedTensor of_heads = tensors[0];
  of_heads.interleaved_dim = 16;
  EXPECT_FALSE(source.rows_of({of_heads, {0, 16}, {0, kColumns}, 0})) << "loading moves rows of these afterwards";
}

TEST(RandomSource, keeps_what_is_never_quantised_dense) {
  const Parallel parallel(1);
  ExpectedTensor experts = matrix_named("experts");
  experts.n_experts = 4;
  const std::vector<ExpectedTensor> tensors{matrix_named("a"), matrix_named("lm_head"), experts};
  const SchemeStatement mxfp4{.scheme = WeightScheme::f4, .scales = ScaleKind::group, .columns = 32};
  const RandomSource source(7, tensors, parallel, stated(mxfp4), {"lm_head"});
  EXPECT_EQ(source.form_of(tensors[0])->scheme, WeightScheme::f4);
  EXPECT_EQ(source.form_of(tensors[1])->scheme, WeightScheme::dense);
  const RandomSource gpt_oss(7, tensors, parallel, {.method = "mxfp4", .statements = {mxfp4}}, {});
  EXPECT_EQ(gpt_oss.form_of(tensors[0])->scheme, WeightScheme::dense);
  EXPECT_EQ(gpt_oss.form_of(tensors[2])->scheme, WeightScheme::f4);
  const RandomSource mixed(7, tensors, parallel,
                           {.method = "compressed-tensors", .statements = {mxfp4, {.scheme = WeightScheme::f8}}}, {});
  ASSERT_FALSE(mixed.form_of(tensors[0]));
  EXPECT_EQ(mixed.form_of(tensors[0]).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace baton
