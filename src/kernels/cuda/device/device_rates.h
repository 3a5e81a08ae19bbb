/// The planner's rates of reading and multiplying in attention for a CUDA device: measured for an H200, scaled from it
/// for other devices. Host code without CUDA's headers. Rates are looked up, not measured when a model is loaded,
/// because a plan determines the order of sums: two starts on one device must make the same plans.
#pragma once

#include <cstdint>

namespace baton::cuda {

/// Properties that a device reports (cudaDeviceGetAttribute). 0: not reported.
struct DeviceFigures {
  int compute_capability = 0;  ///< 10 * major + minor
  int n_multiprocessors = 0;
  int clock_khz = 0;         ///< peak clock of the multiprocessors
  int memory_clock_khz = 0;  ///< peak; two transfers in each cycle
  int memory_bus_bits = 0;
};

/// In bytes and floating-point operations per microsecond.
struct DeviceRates {
  double memory_bytes_per_us = 0;   ///< reading keys and values from memory
  double cache_bytes_per_us = 0;    ///< reading them again from the L2
  double flops_per_us = 0;          ///< of the matmuls of attention
  double partial_bytes_per_us = 0;  ///< writing and merging partial states
};

/// Measured on an H200 (141 GB): bench/results/h200.md.
inline constexpr DeviceFigures kH200Figures{90, 132, 1'980'000, 3'201'000, 6144};
inline constexpr DeviceRates kH200Rates{4.5e6, 9.6e6, 450e6, 3e6};

/// Dense bfloat16 operations per multiprocessor and cycle with float32 sums, from NVIDIA's architecture papers, for
/// the instructions that this backend uses: wgmma on 9.0, mma.sync on others.
constexpr double matmul_flops_a_cycle(int compute_capability) {
  if (compute_capability == 90) return 4096;
  if (compute_capability == 80 || compute_capability >= 100) return compute_capability >= 120 ? 1024 : 2048;
  return 1024;  // 8.6, 8.7, 8.9
}

/// Whether the device is an H200, by compute capability and memory; small differences in reported clocks do not
/// matter.
constexpr bool is_h200(const DeviceFigures& device) {
  constexpr DeviceFigures h200 = kH200Figures;
  const std::int64_t clock_difference = device.memory_clock_khz - h200.memory_clock_khz;
  return device.compute_capability == h200.compute_capability && device.n_multiprocessors == h200.n_multiprocessors &&
         device.memory_bus_bits == h200.memory_bus_bits &&
         (device.memory_clock_khz == 0 || (clock_difference < 100'000 && clock_difference > -100'000));
}

/// An H200's rates, scaled by the device's memory, clocks, and number and kind of multiprocessors.
constexpr DeviceRates rates_of(const DeviceFigures& device) {
  constexpr DeviceFigures h200 = kH200Figures;
  if (is_h200(device)) return kH200Rates;
  const auto ratio = [](double of, double to) { return of > 0 ? of / to : 1; };
  const double cycles = ratio(device.n_multiprocessors, h200.n_multiprocessors) * ratio(device.clock_khz, h200.clock_khz);
  const double memory =
      device.memory_clock_khz > 0 && device.memory_bus_bits > 0
          ? ratio(device.memory_clock_khz, h200.memory_clock_khz) * ratio(device.memory_bus_bits, h200.memory_bus_bits)
          : cycles;
  const double matmul =
      cycles * matmul_flops_a_cycle(device.compute_capability) / matmul_flops_a_cycle(h200.compute_capability);
  return {kH200Rates.memory_bytes_per_us * memory, kH200Rates.cache_bytes_per_us * cycles, kH200Rates.flops_per_us * matmul,
          kH200Rates.partial_bytes_per_us * cycles};
}

}  // namespace baton::cuda
