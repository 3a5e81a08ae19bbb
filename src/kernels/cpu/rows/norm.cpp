/// Norms on the CPU: computed in f32, rows in parallel.
#include "kernels/cpu/backend.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/f8_rows.h"
#include "kernels/cpu/rows/head_math.h"
#include "kernels/cpu/rows/row_math.h"

namespace baton::cpu {
namespace {

/// Least number of rows for one thread.
constexpr std::int64_t kGrain = 4;

/// Adds row `r` of the deltas that have data to `x`, [d]. `row` and `second` have room for one row.
void add_deltas(const Deltas& deltas, std::int64_t d, std::int64_t r, float* x, std::vector<float>& row,
                std::vector<float>& second) {
  if (deltas.first.data == nullptr) return;
  load_f32(deltas.first, r * d, d, row.data());
  if (deltas.second.data != nullptr) {
    second.resize(row.size());
    load_f32(deltas.second, r * d, d, second.data());
    add_to(row.data(), second.data(), d);
  }
  if (deltas.norm_weight.data != nullptr) {
    const float mean = sum_of_squares(row.data(), d) / static_cast<float>(d);
    scale_by_weight(row.data(), deltas.scale / std::sqrt(mean + deltas.norm_eps), deltas.norm_weight.elements<float>().data(),
                    d, row.data());
  } else if (deltas.scale != 1) {
    scale_and_cap(row.data(), deltas.scale, 0, d);
  }
  add_to(x, row.data(), d);
}

/// Elements [begin, begin + n) of a vector in f32.
ConstTensorView part_of(const ConstTensorView& vector, std::int64_t begin, std::int64_t n) {
  return {vector.data + static_cast<std::size_t>(begin) * sizeof(float), DType::f32, {n}};
}

}  // namespace

void CpuBackend::rms_norm(const RmsNormArgs& args) {
  const std::int64_t d = args.x.shape[1];
  parallel_.for_ranges(args.x.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(d));
    std::vector<float> second;
    const auto store = [&](const float* from, std::int64_t r) {
      if (args.out.dtype != DType::f8_e4m3) return store_f32(from, d, args.out, r * d);
      store_f8_row(from, d, args.out, args.out_scales, r);
      if (args.wide_out.data != nullptr) store_f32(from, d, args.wide_out, r * d);
    };
    for (std::int64_t r = begin; r < end; ++r) {
      float* x = args.x.elements<float>().data() + r * d;
      add_deltas(args.deltas, d, r, x, row, second);
      if (args.weight.data == nullptr) {
        store(x, r);
        continue;
      }
      const float mean = sum_of_squares(x, d) / static_cast<float>(d);
      scale_by_weight(x, 1.0f / std::sqrt(mean + args.eps), args.weight.elements<float>().data(), d, row.data());
      store(row.data(), r);
    }
  });
}

void CpuBackend::norm_columns(const NormColumnsArgs& args) {
  const std::int64_t n = args.out.shape[1];
  parallel_.for_ranges(args.x.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(n));
    for (std::int64_t r = begin; r < end; ++r) {
      load_f32(args.x, r * args.x.shape[1] + args.first, n, row.data());
      normalize(row.data(), n, n, args.weight, args.eps);
      if (args.out.dtype == DType::f8_e4m3)
        store_f8_row(row.data(), n, args.out, args.out_scales, r);
      else
        store_f32(row.data(), n, args.out, r * n);
    }
  });
}

void CpuBackend::gated_norm(const GatedNormArgs& args) {
  const std::int64_t d = args.x.shape[2];
  const std::int64_t n = args.x.shape[1] * d;
  parallel_.for_ranges(args.x.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(n));
    std::vector<float> gate(static_cast<std::size_t>(n));
    for (std::int64_t r = begin; r < end; ++r) {
      load_f32(args.x, r * n, n, row.data());
      load_f32(args.gate, r * args.gate.shape[1] + args.first, n, gate.data());
      if (args.order == GatedNormOrder::gate_first) silu_times(gate.data(), row.data(), n, row.data());
      if (args.weight.shape[0] == n)  // each head has its own
        for (std::int64_t i = 0; i < n; i += d) normalize(row.data() + i, d, d, part_of(args.weight, i, d), args.eps);
      else
        normalize(row.data(), n, d, args.weight, args.eps);
      if (args.order == GatedNormOrder::norm_first) silu_times(gate.data(), row.data(), n, row.data());
      if (args.out.dtype == DType::f8_e4m3)
        store_f8_row(row.data(), n, args.out, args.out_scales, r);
      else
        store_f32(row.data(), n, args.out, r * n);
    }
  });
}

void CpuBackend::layer_norm(const LayerNormArgs& args) {
  const std::int64_t d = args.x.shape[1];
  parallel_.for_ranges(args.x.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(d));
    std::vector<float> second;
    for (std::int64_t r = begin; r < end; ++r) {
      float* x = args.x.elements<float>().data() + r * d;
      add_deltas(args.deltas, d, r, x, row, second);
      const float mean = sum_of(x, d) / static_cast<float>(d);
      subtract(x, mean, d, row.data());
      const float variance = sum_of_squares(row.data(), d) / static_cast<float>(d);
      scale_by_weight(row.data(), 1.0f / std::sqrt(variance + args.eps), args.weight.elements<float>().data(), d, row.data());
      if (args.bias.data != nullptr) add_to(row.data(), args.bias.elements<float>().data(), d);
      store_f32(row.data(), d, args.out, r * d);
    }
  });
}

}  // namespace baton::cpu
