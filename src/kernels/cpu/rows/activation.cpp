/// Activations on the CPU: computed in f32, rows in parallel.
#include "kernels/cpu/backend.h"

#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/f8_rows.h"
#include "kernels/cpu/rows/row_math.h"

namespace baton::cpu {

void CpuBackend::activation(const ActivationArgs& args) {
  const std::int64_t n = args.out.shape[1];
  parallel_.for_ranges(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(n));
    for (std::int64_t r = begin; r < end; ++r) {
      load_f32(args.in, r * n, n, row.data());
      switch (args.kind) {
        case ActivationKind::gelu: gelu_of(row.data(), n); break;
        case ActivationKind::gelu_tanh: gelu_tanh_of(row.data(), n); break;
        case ActivationKind::relu_squared:
          for (float& x : row) x = x < 0 ? 0 : x * x;
          break;
      }
      store_f32(row.data(), n, args.out, r * n);
    }
  });
}

void CpuBackend::sigmoid_gate(const SigmoidGateArgs& args) {
  const std::int64_t n = args.out.shape[1];
  parallel_.for_ranges(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> x(static_cast<std::size_t>(n));
    std::vector<float> gate(static_cast<std::size_t>(n));
    for (std::int64_t r = begin; r < end; ++r) {
      load_f32(args.x, r * n, n, x.data());
      load_f32(args.gate, r * n, n, gate.data());
      sigmoid_times(gate.data(), x.data(), n, x.data());
      if (args.out.dtype == DType::f8_e4m3)
        store_f8_row(x.data(), n, args.out, args.out_scales, r);
      else
        store_f32(x.data(), n, args.out, r * n);
    }
  });
}

void CpuBackend::gated_activation(const GatedActivationArgs& args) {
  const std::int64_t n = args.out.shape[1];
  parallel_.for_ranges(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> gate_up(static_cast<std::size_t>(2 * n));
    std::vector<float> out(static_cast<std::size_t>(n));
    float* const gate = gate_up.data();
    const float* const up = gate + n;
    for (std::int64_t r = begin; r < end; ++r) {
      load_f32(args.gate_up, r * 2 * n, 2 * n, gate);
      switch (args.kind) {
        case GateKind::silu: silu_times(gate, up, n, out.data()); break;
        case GateKind::gelu:
          gelu_of(gate, n);
          scale_by_weight(gate, 1, up, n, out.data());
          break;
        case GateKind::gelu_tanh:
          gelu_tanh_of(gate, n);
          scale_by_weight(gate, 1, up, n, out.data());
          break;
        case GateKind::clamped_silu: clamped_silu_times(gate, up, args.alpha, args.limit, n, out.data()); break;
      }
      if (args.out.dtype == DType::f8_e4m3)
        store_f8_row(out.data(), n, args.out, args.out_scales, r);
      else
        store_f32(out.data(), n, args.out, r * n);
    }
  });
}

}  // namespace baton::cpu
