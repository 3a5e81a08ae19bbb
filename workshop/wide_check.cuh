/// Compares the forms of the wide GEMM with float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <vector>

#include "kernels/cuda/schemes/scheme_values.cuh"
#include "measure.cuh"
#include "wide_machine.cuh"

namespace workshop {
namespace {

/// The largest error of `n` outs over its bound: the rounding of out, and 2e-6 of the sum of magnitudes. All outs are compared
/// if there are not more, otherwise random ones.
template <WeightScheme kScheme, class T>
__global__ void error_kernel(SchemeView weight, Matmul matmul, std::int64_t n, unsigned long long* largest) {
  const std::int64_t n_outs = matmul.n_rows * weight.n;
  const auto* const x = reinterpret_cast<const T*>(matmul.x);
  for (std::int64_t s = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; s < n;
       s += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t at = n == n_outs ? s : random_bits(s, 1) % n_outs;
    const std::int64_t column = at % weight.n, tile = column / kSchemeTileRows;
    const int row = static_cast<int>(column % kSchemeTileRows);
    double sum = 0, size = 0;
    for (int k = 0; k < weight.k; ++k) {
      const int chunk = k / chunk_columns(kScheme), step = k % chunk_columns(kScheme) / 16;
      const int e = k % 2, i = k % 16 / 8 * 2 + row % 16 / 8;
      const int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
      const auto* const words =
          reinterpret_cast<const std::uint32_t*>(weight.values + (tile * weight.n_chunks + chunk) * kPieceBytes + thread * 16);
      const float code =
          code_at<kScheme>(words[fragment_word(kScheme, step, i)], i, e) - zero_at<kScheme>(weight, tile, row, k);
      const float scale = scale_at(weight, tile, row, k);
      const double value = weight.scales != nullptr ? to_f32(from_f32<T>(code * scale)) : static_cast<double>(code) * scale;
      const double product = value * to_f32(x[at / weight.n * weight.k + k]);
      sum += product;
      size += std::abs(product);
    }
    double bias = 0;
    if (matmul.bias != nullptr)
      bias = matmul.out_is_f32 ? static_cast<const float*>(matmul.bias)[column]
                               : to_f32(static_cast<const T*>(matmul.bias)[column]);
    sum += bias;
    const double out =
        matmul.out_is_f32 ? static_cast<const float*>(matmul.out)[at] : to_f32(static_cast<const T*>(matmul.out)[at]);
    const double half_step = matmul.out_is_f32 ? 0 : std::is_same_v<T, __half> ? 0x1p-11 : 0x1p-8;
    const double error = std::abs(out - sum) / (2e-6 * (size + std::abs(bias)) + half_step * std::abs(sum) + 1e-6);
    // Doubles that are not negative are ordered as their bits are.
    atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(error >= 0 ? error : 1e9)));
  }
}

std::vector<std::byte> on_host(const void* from, std::size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  check_cuda(cudaMemcpy(bytes.data(), from, n_bytes, cudaMemcpyDeviceToHost), "copy");
  return bytes;
}

struct Check {
  WeightForm weight;
  DType dtype;  ///< of x
  bool out_is_f32;
  bool has_bias;
};
struct Checked {
  int n = 0;
  int n_wrong = 0;
  double largest = 0;
};
void check_one(const Machine& machine, const Check& form, std::int64_t n_rows, int width, int blocks_of_tile, Checked& all) {
  constexpr std::int64_t kMostOuts = 1 << 18;
  const Weight weight(form.weight);
  const DType out_dtype = form.out_is_f32 ? DType::f32 : form.dtype;
  const std::int64_t n = form.weight.n, n_outs = n_rows * n;
  const std::size_t n_bytes = static_cast<std::size_t>(n_outs) * size_bytes(out_dtype), row_bytes = n_bytes / n_rows;
  std::byte* const x = random_floats(form.dtype, n_rows * form.weight.k, 0, 1);
  std::byte* const bias = random_floats(out_dtype, n, 0, 1);
  auto* const out = allocate<std::byte>(static_cast<std::int64_t>(n_bytes + row_bytes));
  auto* const largest = allocate<unsigned long long>(1);
  const Matmul matmul{form.dtype, x, n_rows, form.has_bias ? bias : nullptr, out, form.out_is_f32, width, blocks_of_tile};
  std::vector<std::byte> first, second;
  for (auto* const bytes : {&first, &second}) {
    check_cuda(cudaMemset(out, 0x7b, n_bytes + row_bytes), "out");
    check_cuda(cudaDeviceSynchronize(), "out");
    enqueue(machine, weight, matmul);
    check_cuda(cudaStreamSynchronize(machine.device.stream), "kernel");
    *bytes = on_host(out, n_bytes + row_bytes);
  }
  check_cuda(cudaMemset(largest, 0, sizeof *largest), "largest");
  visit_wide(weight.scheme, [&](auto scheme) {
    const auto compare = [&](auto zero) {
      error_kernel<decltype(scheme)::value, decltype(zero)>
          <<<512, 128>>>(weight.view, matmul, std::min(n_outs, n_outs > kMostOuts ? 20000 : n_outs), largest);
    };
    form.dtype == DType::f16 ? compare(__half{}) : compare(__nv_bfloat16{});
  });
  double error = 0;
  check_cuda(cudaMemcpy(&error, largest, sizeof error, cudaMemcpyDeviceToHost), "largest");
  const bool is_inside = std::all_of(first.begin() + static_cast<std::ptrdiff_t>(n_bytes), first.end(),
                                     [](std::byte b) { return b == std::byte{0x7b}; });
  ++all.n;
  all.largest = std::max(all.largest, error);
  if (error > 1 || !is_inside || first != second) {
    ++all.n_wrong;
    std::printf("WRONG: %s %ld x %ld, groups of %d, %ld rows, width %d, blocks %d: error %.3g of its bound%s%s\n",
                to_string(weight.scheme).data(), static_cast<long>(n), static_cast<long>(form.weight.k),
                form.weight.group_columns, static_cast<long>(n_rows), width, blocks_of_tile, error,
                is_inside ? "" : ", writes after out", first == second ? "" : ", other bits in the second call");
  }
  for (void* const memory :
       {static_cast<void*>(x), static_cast<void*>(bias), static_cast<void*>(out), static_cast<void*>(largest)})
    cudaFree(memory);
}

/// Whether all results are right.
bool check_all(const Machine& machine) {
  using enum WeightScheme;
  const Check small[] = {
      {{f8, 70, 304, 0, false, DType::f32}, DType::bf16, false, false},
      {{f8, 192, 320, 128, false, DType::f32}, DType::bf16, false, true},
      {{f8, 200, 1024, 64, false, DType::bf16}, DType::f16, false, false},
      {{i8, 200, 1024, 32, true, DType::bf16}, DType::bf16, false, false},
      {{i8, 200, 1024, 0, true, DType::f32}, DType::f16, true, false},
      {{i4, 136, 704, 128, true, DType::bf16}, DType::bf16, false, true},
      {{i4, 72, 464, 32, false, DType::f16}, DType::bf16, true, true},
      {{i4, 65, 296, 64, true, DType::f32}, DType::bf16, false, false},
      {{i4, 65, 296, 0, true, DType::f32}, DType::bf16, false, false},
      {{i4, 200, 1024, 128, true, DType::f16}, DType::f16, true, false},
  };
  const Check large[] = {
      {{f8, 4096, 14336, 0, false, DType::f32}, DType::bf16, false, false},
      {{f8, 28672, 4096, 0, false, DType::f32}, DType::bf16, false, false},
      {{i4, 6144, 4096, 128, true, DType::bf16}, DType::bf16, false, false},
  };
  Checked all;
  for (const int width : kWideWidths) {
    for (const int blocks_of_tile : {0, 1, 2, 3, 4})
      for (const Check& form : small)
        for (const std::int64_t n_rows : {129, 150, 300}) check_one(machine, form, n_rows, width, blocks_of_tile, all);
    for (const Check& form : large)
      for (const std::int64_t n_rows : {width, 2500}) check_one(machine, form, n_rows, width, 0, all);
  }
  std::printf("%d of %d combinations are wrong; largest error %.3f of its bound\n", all.n_wrong, all.n, all.largest);
  return all.n_wrong == 0;
}

}  // namespace
}  // namespace workshop
