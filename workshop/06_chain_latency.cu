/// How long a chain of dependent matmuls takes, and whether mma.sync adds as wgmma does. Both bound the matmuls of
/// batch-invariant mode with few rows, whose sums are one chain over k (bench/results/invariance.md).
///
///     nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -DBATON_SM90A -I src
///         workshop/06_chain_latency.cu -o chain_latency && ./chain_latency
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/device/wgmma_shared.cuh"

namespace {

using namespace baton::cuda;

constexpr int kSteps = 64;         // of 16 numbers of k, in shared memory
constexpr int kRounds = 4;         // over the same numbers: chains of 256 steps
constexpr int kABytes = 64 * 32;   // of a step: 64 rows of 16 numbers, core matrices of 8 rows and 16 bytes
constexpr int kBBytes = 128 * 32;  // up to 128 columns
constexpr int kColumns = 8;        // that are compared
constexpr int kSharedBytes = kSteps * kABytes + 8 * kBBytes;

__device__ std::uint64_t plain_descriptor(std::uint32_t address, int leading_bytes, int stride_bytes) {
  return (static_cast<std::uint64_t>(stride_bytes >> 4) << 32) | (static_cast<std::uint64_t>(leading_bytes >> 4) << 16) |
         ((address & 0x3ffffu) >> 4);
}

/// Chains of wgmma over N columns, `kChains` of them in turn; the sums of one chain of N = 8 go to out, those of
/// others are added up there, because what nobody reads would not be computed.
template <int N, int kChains>
__global__ void by_wgmma(const std::byte* numbers, float* out, long long* cycles) {
  extern __shared__ __align__(1024) std::byte memory[];
  for (int i = threadIdx.x * 16; i < kSharedBytes; i += blockDim.x * 16)
    *reinterpret_cast<uint4*>(memory + i) = *reinterpret_cast<const uint4*>(numbers + i);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  float c[kChains][N / 8][4] = {};
  wgmma_fence();
  const long long begin = clock64();
  for (int round = 0; round < kRounds; ++round)
#pragma unroll 8
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t a = plain_descriptor(base + step * kABytes, 1024, 128);
      const std::uint64_t b = plain_descriptor(base + kSteps * kABytes + step % 8 * kBBytes, N * 16, 128);
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        if constexpr (N == 128)
          wgmma_shared<__nv_bfloat16>(c[chain], a, b, 1);
        else
          wgmma_shared<__nv_bfloat16>(c[chain], a, b);
      }
    }
  wgmma_commit();
  wgmma_wait<0>();
  const long long end = clock64();
  if (threadIdx.x == 0) *cycles = end - begin;
  float sum = 0;
  for (int chain = 0; chain < kChains; ++chain)
    for (int i = 0; i < N / 8; ++i)
      for (int j = 0; j < 4; ++j) sum += c[chain][i][j];
  for (int j = 0; j < 4; ++j) out[threadIdx.x * 4 + j] = N == 8 && kChains == 1 ? c[0][0][j] : sum;
}

/// The same sums by mma.sync, a warp for each 16 rows. Operands are loaded from shared memory once for each step.
template <bool kLoads>
__global__ void by_mma(const std::byte* numbers, float* out, long long* cycles) {
  extern __shared__ __align__(1024) std::byte memory[];
  for (int i = threadIdx.x * 16; i < kSharedBytes; i += blockDim.x * 16)
    *reinterpret_cast<uint4*>(memory + i) = *reinterpret_cast<const uint4*>(numbers + i);
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  float c[4] = {};
  std::uint32_t a[4] = {};
  std::uint32_t b[2] = {};
  const auto pair = [&](int at) { return *reinterpret_cast<const std::uint32_t*>(memory + at); };
  const long long begin = clock64();
  for (int round = 0; round < kRounds; ++round)
#pragma unroll 8
    for (int step = 0; step < kSteps; ++step) {
      if (kLoads || step == 0) {
        const int at = step * kABytes + lane % 4 * 4;
        for (int i = 0; i < 4; ++i) {
          const int r = row + i % 2 * 8;
          a[i] = pair(at + i / 2 * 1024 + r / 8 * 128 + r % 8 * 16);
        }
        for (int i = 0; i < 2; ++i)
          b[i] = pair(kSteps * kABytes + step % 8 * kBBytes + i * kColumns * 16 + lane / 4 * 16 + lane % 4 * 4);
      }
      multiply_16x8x16<__nv_bfloat16>(c, a, b[0], b[1]);
    }
  const long long end = clock64();
  if (threadIdx.x == 0) *cycles = end - begin;
  for (int j = 0; j < 4; ++j) out[threadIdx.x * 4 + j] = c[j];
}

struct Run {
  std::vector<float> out;
  double cycles_a_step;
};

template <class Kernel>
Run run(Kernel kernel, const std::byte* numbers) {
  float* out = nullptr;
  long long* cycles = nullptr;
  cudaMalloc(&out, 512 * sizeof(float));
  cudaMalloc(&cycles, sizeof(long long));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  for (int i = 0; i < 3; ++i) kernel<<<1, 128, kSharedBytes>>>(numbers, out, cycles);
  Run made{std::vector<float>(512), 0};
  long long n = 0;
  cudaMemcpy(made.out.data(), out, 512 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(&n, cycles, sizeof(n), cudaMemcpyDeviceToHost);
  if (cudaGetLastError() != cudaSuccess) std::puts("CUDA error");
  made.cycles_a_step = static_cast<double>(n) / (kSteps * kRounds);
  return made;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> host(kSharedBytes / 2);
  for (auto& x : host) x = __float2bfloat16(normal(random));
  std::byte* numbers = nullptr;
  cudaMalloc(&numbers, kSharedBytes);
  cudaMemcpy(numbers, host.data(), kSharedBytes, cudaMemcpyHostToDevice);
  std::puts("chains of 256 dependent steps of k = 16, cycles a step, one block on one multiprocessor");
  const Run wgmma = run(by_wgmma<8, 1>, numbers);
  std::printf("wgmma m64n8:   1 chain %.1f, 2 chains %.1f, 4 chains %.1f\n", wgmma.cycles_a_step,
              run(by_wgmma<8, 2>, numbers).cycles_a_step, run(by_wgmma<8, 4>, numbers).cycles_a_step);
  std::printf("wgmma m64n16:  1 chain %.1f, 2 chains %.1f\n", run(by_wgmma<16, 1>, numbers).cycles_a_step,
              run(by_wgmma<16, 2>, numbers).cycles_a_step);
  std::printf("wgmma m64n32:  1 chain %.1f, 2 chains %.1f\n", run(by_wgmma<32, 1>, numbers).cycles_a_step,
              run(by_wgmma<32, 2>, numbers).cycles_a_step);
  std::printf("wgmma m64n56:  1 chain %.1f\n", run(by_wgmma<56, 1>, numbers).cycles_a_step);
  std::printf("wgmma m64n96:  1 chain %.1f\n", run(by_wgmma<96, 1>, numbers).cycles_a_step);
  std::printf("wgmma m64n128: 1 chain %.1f\n", run(by_wgmma<128, 1>, numbers).cycles_a_step);
  const Run mma = run(by_mma<true>, numbers);
  std::printf("mma.sync m16n8: 1 chain %.1f with its loads, %.1f without\n", mma.cycles_a_step,
              run(by_mma<false>, numbers).cycles_a_step);
  int n_other = 0;
  double largest = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    n_other += std::memcmp(&wgmma.out[i], &mma.out[i], 4) != 0;
    largest = std::max(largest, std::abs(static_cast<double>(wgmma.out[i]) - mma.out[i]));
  }
  std::printf("mma.sync and wgmma: %d of 512 sums have other bits, the largest difference is %g (a sum: %g, %g)\n", n_other,
              largest, wgmma.out[0], mma.out[0]);
}
