/// The planner's rates of CUDA devices (kernels/cuda/device/device_rates.h).
#include "kernels/cuda/device/device_rates.h"

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

constexpr DeviceFigures kH100{90, 132, 1'980'000, 2'619'000, 5120};
constexpr DeviceFigures kA100{80, 108, 1'410'000, 1'593'000, 5120};
constexpr DeviceFigures kL4{89, 58, 2'040'000, 6'251'000, 192};

TEST(DeviceRates, an_h200_has_what_was_measured_on_one_whatever_clocks_it_reports) {
  DeviceFigures figures = kH200Figures;
  for (const int clock : {1'980'000, 1'500'000, 0}) {
    figures.clock_khz = clock;
    figures.memory_clock_khz = clock == 0 ? 0 : 3'202'000;
    const DeviceRates rates = rates_of(figures);
    EXPECT_EQ(rates.memory_bytes_per_us, 4.5e6);
    EXPECT_EQ(rates.cache_bytes_per_us, 9.6e6);
    EXPECT_EQ(rates.flops_per_us, 450e6);
    EXPECT_EQ(rates.partial_bytes_per_us, 3e6);
  }
}

TEST(DeviceRates, other_devices_have_theirs) {
  // At most the peaks of the data sheets (3.35 and 2.04 TB/s and 300 GB/s; 989, 312 and 121 TFLOP/s), and at least a
  // third of them.
  const auto within = [](double rate, double peak) { return rate < peak && rate > peak / 3; };
  EXPECT_TRUE(within(rates_of(kH100).memory_bytes_per_us, 3.35e6)) << rates_of(kH100).memory_bytes_per_us;
  EXPECT_TRUE(within(rates_of(kA100).memory_bytes_per_us, 2.04e6)) << rates_of(kA100).memory_bytes_per_us;
  EXPECT_TRUE(within(rates_of(kL4).memory_bytes_per_us, 0.3e6)) << rates_of(kL4).memory_bytes_per_us;
  EXPECT_TRUE(within(rates_of(kH100).flops_per_us, 989e6)) << rates_of(kH100).flops_per_us;
  EXPECT_TRUE(within(rates_of(kA100).flops_per_us, 312e6)) << rates_of(kA100).flops_per_us;
  EXPECT_TRUE(within(rates_of(kL4).flops_per_us, 121e6)) << rates_of(kL4).flops_per_us;
  EXPECT_EQ(rates_of(kH100).cache_bytes_per_us, kH200Rates.cache_bytes_per_us) << "the same chip";
  DeviceFigures gh200 = kH200Figures;
  gh200.memory_clock_khz = 2'619'000;
  EXPECT_TRUE(within(rates_of(gh200).memory_bytes_per_us, 4.02e6)) << rates_of(gh200).memory_bytes_per_us;
  EXPECT_LT(rates_of(kA100).cache_bytes_per_us, rates_of(kH100).cache_bytes_per_us);
}

TEST(DeviceRates, what_a_device_does_not_say_follows_its_multiprocessors) {
  DeviceFigures figures = kA100;
  figures.memory_clock_khz = 0;
  const double share = 108.0 / 132 * 1'410'000 / 1'980'000;
  EXPECT_DOUBLE_EQ(rates_of(figures).memory_bytes_per_us, 4.5e6 * share);
  const DeviceRates nothing = rates_of({});
  EXPECT_GT(nothing.memory_bytes_per_us, 0);
  EXPECT_GT(nothing.flops_per_us, 0);
}

}  // namespace
}  // namespace baton::cuda
