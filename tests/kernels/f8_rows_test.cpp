/// Rows in 8 bits on every backend: what makes them rounds them as kernels/ops.h says, and matmuls by them equal float64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/cuda/device/f8_rows.h"
#include "support/host_tensor.h"
#include "support/matmul_reference.h"
#include "support/on_device.h"
#include "support/stored_weight.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_tensor;
using testing::StoredForm;
using testing::test_backends;
using testing::TestBackend;

/// Rows in 8 bits in a backend's memory.
struct F8OnDevice {
  F8OnDevice(Backend& backend, std::int64_t n_rows, std::int64_t n)
      : values(backend, HostTensor(DType::f8_e4m3, {n_rows, n})), scales(backend, HostTensor(DType::f32, {n_rows})) {}
  OnDevice values;
  OnDevice scales;
};

/// The codes of rows [n_rows, n] in the order of their columns.
std::vector<std::uint8_t> codes_in_order(const TestBackend& test, const F8OnDevice& rows) {
  const HostTensor host = rows.values.to_host();
  std::vector<std::uint8_t> codes(host.bytes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t place = test.is_cuda()
                                  ? i / cuda::kF8Block * cuda::kF8Block +
                                        static_cast<std::size_t>(cuda::f8_place(static_cast<int>(i % cuda::kF8Block)))
                                  : i;
    codes[i] = static_cast<std::uint8_t>(host.bytes[place]);
  }
  return codes;
}

/// Codes and scales are those of `rows`, f32 that the same backend computed.
void expect_rounded(const TestBackend& test, const F8OnDevice& got, const HostTensor& rows) {
  const std::int64_t n = rows.shape[1];
  const std::vector<std::uint8_t> codes = codes_in_order(test, got);
  const HostTensor scales = got.scales.to_host();
  for (std::int64_t r = 0; r < rows.shape[0]; ++r) {
    float most = 0;
    for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(static_cast<float>(rows.at(r * n + i))));
    const float scale = std::max(most / 448, 0x1p-126f);
    EXPECT_EQ(static_cast<float>(scales.at(r)), scale) << "row " << r;
    const float factor = 1 / scale;
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(codes[static_cast<std::size_t>(r * n + i)], Float8E4M3(static_cast<float>(rows.at(r * n + i)) * factor).bits)
          << "row " << r << ", column " << i;
  }
}

/// Whether a backend has rows of so many columns in 8 bits.
bool has_f8_rows_of(const TestBackend& test, std::int64_t n) { return !test.is_cuda() || n % cuda::kF8Block == 0; }

/// Backends whose matmuls may take rows in 8 bits; the others need not make them.
std::vector<TestBackend> backends_with_f8_rows() {
  std::vector<TestBackend> backends;
  for (const TestBackend& test : test_backends())
    if (!test.is_cuda() || test.backend.info().features == "sm_90") backends.push_back(test);
  return backends;
}

TEST(F8Rows, of_norms_are_those_of_f32_rounded) {
  for (const TestBackend& test : backends_with_f8_rows()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(3);
    for (const std::int64_t d : {16, 64, 176, 192, 4096, 5120, 12288}) {
      if (!has_f8_rows_of(test, d)) continue;
      HostTensor x = random_tensor(random, DType::f32, {3, d});
      for (std::int64_t i = 0; i < d; ++i) x.set(d + i, 0);  // the second row
      const HostTensor weight = random_tensor(random, DType::f32, {d});
      const OnDevice weights(test.backend, weight);
      for (const int kind : {0, 1, 2}) {  // a norm, none, one with a norm of the delta before it
        SCOPED_TRACE(std::to_string(d) + " columns, kind " + std::to_string(kind));
        HostTensor delta = random_tensor(random, DType::bf16, {3, d});
        for (std::int64_t i = 0; i < d; ++i) delta.set(d + i, 0);
        const OnDevice deltas(test.backend, delta);
        Deltas added;
        if (kind == 2) added = {deltas.view(), {}, 0.5f, weights.view()};
        const ConstTensorView by = kind == 1 ? ConstTensorView{} : weights.view();
        const OnDevice first(test.backend, x);
        const OnDevice wide(test.backend, HostTensor(DType::f32, {3, d}));
        rms_norm(test.backend, {first.view(), added, by, wide.view(), 1e-5f});
        const OnDevice second(test.backend, x);
        const F8OnDevice got(test.backend, 3, d);
        rms_norm(test.backend, {second.view(), added, by, got.values.view(), 1e-5f, got.scales.view()});
        expect_rounded(test, got, wide.to_host());
        EXPECT_EQ(second.to_host().bytes, first.to_host().bytes) << "the residual stream";
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {  // both forms of the rows
          const OnDevice third(test.backend, x);
          const OnDevice alone(test.backend, HostTensor(dtype, {3, d}));
          rms_norm(test.backend, {third.view(), added, by, alone.view(), 1e-5f});
          const OnDevice fourth(test.backend, x);
          const F8OnDevice again(test.backend, 3, d);
          const OnDevice beside(test.backend, HostTensor(dtype, {3, d}));
          rms_norm(test.backend, {fourth.view(), added, by, again.values.view(), 1e-5f, again.scales.view(), beside.view()});
          EXPECT_EQ(beside.to_host().bytes, alone.to_host().bytes) << to_string(dtype);
          EXPECT_EQ(again.values.to_host().bytes, got.values.to_host().bytes);
          EXPECT_EQ(again.scales.to_host().bytes, got.scales.to_host().bytes);
          EXPECT_EQ(fourth.to_host().bytes, first.to_host().bytes) << "the residual stream";
        }
      }
    }
  }
}

TEST(F8Rows, of_norms_of_columns_are_those_of_f32_rounded) {
  for (const TestBackend& test : backends_with_f8_rows()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(5);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const auto& [first, n] :
           {std::pair<std::int64_t, std::int64_t>{0, 16}, {3, 176}, {3, 192}, {0, 768}, {64, 1536}, {8, 2112}}) {
        if (!has_f8_rows_of(test, n)) continue;
        SCOPED_TRACE(std::string(to_string(dtype)) + ", columns from " + std::to_string(first) + ", " + std::to_string(n));
        const OnDevice x(test.backend, random_tensor(random, dtype, {3, first + n + 72}));
        const OnDevice weights(test.backend, random_tensor(random, DType::f32, {n}));
        const OnDevice wide(test.backend, HostTensor(DType::f32, {3, n}));
        norm_columns(test.backend, {x.view(), first, weights.view(), wide.view(), 1e-5f});
        const F8OnDevice got(test.backend, 3, n);
        norm_columns(test.backend, {x.view(), first, weights.view(), got.values.view(), 1e-5f, got.scales.view()});
        expect_rounded(test, got, wide.to_host());
      }
  }
}

TEST(F8Rows, of_gated_activations_are_those_of_f32_rounded) {
  for (const TestBackend& test : backends_with_f8_rows()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(4);
    for (const GateKind kind : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const std::int64_t n : {16, 160, 192, 14336, 24576}) {
          if (!has_f8_rows_of(test, n)) continue;
          SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(n) + " columns");
          const OnDevice gate_up(test.backend, random_tensor(random, dtype, {2, 2 * n}));
          const OnDevice wide(test.backend, HostTensor(DType::f32, {2, n}));
          gated_activation(test.backend, {gate_up.view(), wide.view(), kind});
          const F8OnDevice got(test.backend, 2, n);
          gated_activation(test.backend, {gate_up.view(), got.values.view(), kind, got.scales.view()});
          expect_rounded(test, got, wide.to_host());
        }
  }
}

TEST(F8Rows, of_gated_norms_are_those_of_f32_rounded) {
  for (const TestBackend& test : backends_with_f8_rows()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(9);
    for (const GatedNormOrder order : {GatedNormOrder::norm_first, GatedNormOrder::gate_first})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const auto& [n_heads, d, first] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 16, 0},
                                                {16, 20, 3},
                                                {3, 128, 64},
                                                {48, 128, 8},
                                                {67, 64, 0},
                                                {130, 128, 0},
                                                {8, 512, 1},
                                                {1, 13312, 0}})
          for (const bool are_of_heads : {false, true}) {
            const std::int64_t n = n_heads * d;
            if (!has_f8_rows_of(test, n)) continue;
            SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(n_heads) + " x " + std::to_string(d) +
                         (order == GatedNormOrder::gate_first ? ", gate first" : ""));
            HostTensor x = random_tensor(random, dtype, {3, n_heads, d});
            for (std::int64_t i = 0; i < n; ++i) x.set(n + i, 0);  // the second row
            const OnDevice in(test.backend, x);
            const OnDevice gate(test.backend, random_tensor(random, dtype, {3, first + n + 8}));
            const OnDevice weights(test.backend, random_tensor(random, DType::f32, {are_of_heads ? n : d}));
            const OnDevice wide(test.backend, HostTensor(DType::f32, x.shape));
            GatedNormArgs args{in.view(), gate.view(), first, weights.view(), wide.view(), 1e-5f, order};
            gated_norm(test.backend, args);
            const F8OnDevice got(test.backend, 3, n);
            args.out = got.values.view();
            args.out_scales = got.scales.view();
            gated_norm(test.backend, args);
            HostTensor rows = wide.to_host();
            rows.shape = {3, n};
            expect_rounded(test, got, rows);
          }
  }
}

TEST(F8Rows, of_gated_outputs_are_those_of_f32_rounded) {
  for (const TestBackend& test : backends_with_f8_rows()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(10);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t n : {16, 160, 192, 6144, 24576}) {
        if (!has_f8_rows_of(test, n)) continue;
        SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(n) + " columns");
        const OnDevice x(test.backend, random_tensor(random, dtype, {3, n}));
        const OnDevice gate(test.backend, random_tensor(random, DType::bf16, {3, n}));
        const OnDevice wide(test.backend, HostTensor(DType::f32, {3, n}));
        sigmoid_gate(test.backend, {x.view(), gate.view(), wide.view()});
        const F8OnDevice got(test.backend, 3, n);
        sigmoid_gate(test.backend, {x.view(), gate.view(), got.values.view(), got.scales.view()});
        expect_rounded(test, got, wide.to_host());
      }
  }
}

TEST(F8Rows, keep_what_is_not_a_number) {
  for (const TestBackend& test : backends_with_f8_rows()) {
    SCOPED_TRACE(test.name);
    HostTensor x(DType::f32, {1, 64});
    for (std::int64_t i = 0; i < 64; ++i) x.set(i, static_cast<float>(i));
    x.set(5, NAN);
    const F8OnDevice got(test.backend, 1, 64);
    rms_norm(test.backend, {OnDevice(test.backend, x).view(), {}, {}, got.values.view(), 1e-5f, got.scales.view()});
    const std::vector<std::uint8_t> codes = codes_in_order(test, got);
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ((codes[i] & 0x7f) == 0x7f, i == 5) << i;
  }
}

/// What a weight [n, k] of this form makes of rows in 8 bits, as many as the backend needs for them and `more`, in each dtype that it
/// can be packed for.
void expect_f8_products(const StoredForm& form, std::int64_t n, std::int64_t k, std::int64_t more) {
  std::mt19937 random(7);
  const testing::StoredWeight weight = testing::random_stored(random, form, n, k);
  const std::vector<double> dense = testing::to_float64(weight.dense);
  for (const TestBackend& test : backends_with_f8_rows())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const BackendCapabilities can = test.backend.capabilities();
      if ((dtype == DType::bf16 && !can.has_bf16_matmul) || (dtype == DType::f16 && !can.has_f16_matmul)) continue;
      if (test.is_cuda() && dtype == DType::f32) continue;
      SCOPED_TRACE(test.name + ' ' + std::string(to_string(dtype)) + ", " + std::to_string(n) + " x " + std::to_string(k));
      const auto packed = test.backend.pack_matrix(weight.matrix, dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      if (!has_f8_rows_of(test, k)) {
        EXPECT_EQ((*packed)->fewest_f8_rows, kNoF8Rows);
        continue;
      }
      ASSERT_LT((*packed)->fewest_f8_rows, kNoF8Rows);
      const std::int64_t n_rows = (*packed)->fewest_f8_rows + more;
      const OnDevice residual(test.backend, random_tensor(random, DType::f32, {n_rows, k}));
      const F8OnDevice rows(test.backend, n_rows, k);
      rms_norm(test.backend, {residual.view(), {}, {}, rows.values.view(), 1e-5f, rows.scales.view()});
      const HostTensor scales = rows.scales.to_host();
      std::vector<double> x;
      for (const std::uint8_t code : codes_in_order(test, rows)) {
        Float8E4M3 value;
        value.bits = code;
        x.push_back(static_cast<double>(static_cast<float>(value)) * scales.at(static_cast<std::int64_t>(x.size()) / k));
      }
      for (const bool in_f32 : {true, false}) {
        const DType out_dtype = in_f32 ? DType::f32 : dtype;
        const HostTensor bias = random_tensor(random, out_dtype, {n});
        const OnDevice biases(test.backend, bias);
        const OnDevice out(test.backend, HostTensor(out_dtype, {n_rows + 1, n}));
        matmul(test.backend,
               {rows.values.view(), packed->get(), out.view().rows(0, n_rows), biases.view(), rows.scales.view()});
        const HostTensor got = out.to_host();
        std::vector<double> expected;
        for (std::int64_t r = 0; r < n_rows; ++r)
          for (std::int64_t c = 0; c < n; ++c) expected.push_back(bias.at(c));
        testing::add_matmul(expected, x, dense, k);
        // Sums of k exact products in f32; on CUDA matrix units keep 14 bits of 128 of them. The result is rounded once.
        const double of_sums = test.is_cuda() ? 0x1p-11 : 4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k));
        EXPECT_LE(testing::relative_error(got, expected), of_sums + (in_f32 ? 0 : testing::epsilon(out_dtype)))
            << n_rows << " rows, out in " << to_string(out_dtype);
        const ConstTensorView after = got.view().rows(n_rows, n_rows + 1);
        EXPECT_TRUE(std::all_of(after.data, after.data + after.size_bytes(), [](std::byte b) { return b == std::byte{0xff}; }))
            << "written after the last row";
      }
    }
}

TEST(F8Rows, matmuls_equal_float64_with_scales_of_rows_and_of_the_tensor) {
  expect_f8_products({.scale_columns = 144}, 200, 144, 0);
  expect_f8_products({.scale_columns = 272, .scale_dtype = DType::bf16}, 130, 272, 3);
  expect_f8_products({.scale_rows = 67, .scale_columns = 528}, 67, 528, 130);
  expect_f8_products({.scale_columns = 1040}, 260, 1040, 257);
  expect_f8_products({.scale_columns = 64}, 65, 64, 0);
  expect_f8_products({.scale_columns = 192}, 200, 192, 0);
  expect_f8_products({.scale_columns = 320, .scale_dtype = DType::bf16}, 130, 320, 3);
  expect_f8_products({.scale_rows = 67, .scale_columns = 576}, 67, 576, 130);
  expect_f8_products({.scale_columns = 1088}, 260, 1088, 257);
}

// Blocks of the CUDA backend divide the columns of a tile by 4 to 2, or two of them share x. They multiply 64 to 256 rows at once.
TEST(F8Rows, matmuls_of_few_and_of_many_tiles_equal_float64) {
  expect_f8_products({.scale_columns = 1024}, 264, 1024, 0);
  expect_f8_products({.scale_columns = 384}, 4480, 384, 0);
  expect_f8_products({.scale_columns = 256}, 6402, 256, 0);
  expect_f8_products({.scale_columns = 128}, 8976, 128, 0);
  expect_f8_products({.scale_columns = 128}, 4480, 128, 300);
  expect_f8_products({.scale_rows = 128, .scale_columns = 128}, 8960, 128, 31);
}
TEST(F8Rows, matmuls_of_any_number_of_rows_equal_float64) {
  for (const std::int64_t more : {31, 95, 127, 200, 223, 480, 1100}) {
    expect_f8_products({.scale_columns = 512}, 136, 512, more);
    expect_f8_products({.scale_rows = 128, .scale_columns = 128}, 136, 512, more);
  }
}

TEST(F8Rows, matmuls_equal_float64_with_scales_of_blocks) {
  expect_f8_products({.scale_rows = 128, .scale_columns = 128}, 200, 320, 1);
  expect_f8_products({.scale_rows = 64, .scale_columns = 256, .scale_dtype = DType::f16}, 192, 528, 130);
  expect_f8_products({.scale_rows = 16, .scale_columns = 128, .scale_dtype = DType::bf16}, 130, 656, 9);
  expect_f8_products({.scale_rows = 64, .scale_columns = 256, .scale_dtype = DType::f16}, 192, 576, 130);
  expect_f8_products({.scale_rows = 16, .scale_columns = 128, .scale_dtype = DType::bf16}, 130, 704, 9);
}

// A row of 44 columns is not a row in 8 bits; zeros of another scheme have no kernel.
TEST(F8Rows, are_not_taken_by_other_weights) {
  std::mt19937 random(8);
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    for (const auto& [form, k] : {std::pair<StoredForm, std::int64_t>{{.scale_columns = 44}, 44},
                                  {{.scheme = WeightScheme::i8, .scale_columns = 64}, 64}}) {
      const testing::StoredWeight weight = testing::random_stored(random, form, 64, k);
      EXPECT_EQ(test.backend.pack_matrix(weight.matrix, DType::f32, "w").value()->fewest_f8_rows, kNoF8Rows);
    }
    const HostTensor dense = random_tensor(random, DType::f32, {16, 16});
    EXPECT_EQ(test.backend.pack_matrix(dense.view(), DType::f32, "w").value()->fewest_f8_rows, kNoF8Rows);
  }
}

}  // namespace
}  // namespace baton
