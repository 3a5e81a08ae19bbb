/// Random weights in the schemes that a config states (model/source/random.h).
#include "model/source/random.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "support/dense_values.h"

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
