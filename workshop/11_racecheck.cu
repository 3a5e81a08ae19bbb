/// Experiment 11: which hand-over of shared memory through mbarriers does racecheck follow?
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo -cudart static -Isrc -o 11_racecheck
///     workshop/11_racecheck.cu
///     for form in 0 1 2 3 4 5 6 7 8 9; do compute-sanitizer --tool racecheck ./11_racecheck $form; done
///
/// A warp fills a slot of 512 bytes, another one adds it up and gives it back, 20 times. Forms 0 to 4 fill it with plain stores,
/// 5 to 9 with a bulk copy; each five differ in how the slot is given back (Return).
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#include "kernels/cuda/device/mma.cuh"

namespace workshop {
namespace {

constexpr int kRounds = 20;
constexpr int kNumbers = 128;  // of the slot

/// Every lane arrives; or lane 0 alone, after __syncwarp or bar.sync, by its own address or by that in the cluster.
enum class Return { every_lane, syncwarp, syncwarp_cluster, bar_sync, bar_sync_cluster };
constexpr const char* kNames[] = {"every lane arrives", "__syncwarp, lane 0 arrives", "__syncwarp, lane 0 arrives (mapa)",
                                  "bar.sync, lane 0 arrives", "bar.sync, lane 0 arrives (mapa)"};

#ifdef BATON_SM90A
__device__ void arrive_in_cluster(std::uint32_t barrier) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, 0;\n\tmbarrier.arrive.shared::cluster.b64 _, "
      "[there];\n\t}" ::"r"(barrier)
      : "memory");
}
__device__ void copy_bulk(std::uint32_t to, const void* from, int n_bytes, std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(n_bytes), "r"(barrier)
               : "memory");
}
#endif

template <bool kBulk, Return kReturn>
__global__ void ring([[maybe_unused]] const int* from, [[maybe_unused]] int* sums) {
#ifdef BATON_SM90A
  using namespace baton::cuda;
  __shared__ alignas(16) int slot[kNumbers];
  __shared__ std::uint64_t barriers[2];
  const std::uint32_t full = shared_address(barriers), empty = full + 8;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    barrier_init(full, kBulk ? 1 : 32);
    barrier_init(empty, kReturn == Return::every_lane ? 32 : 1);
    wgmma_see_copies();
  }
  __syncthreads();
  int sum = 0;
  for (int round = 0; round < kRounds; ++round, from += kNumbers) {
    if (threadIdx.x < 32) {
      barrier_wait(empty, (round & 1) ^ 1);
      if (kBulk) {
        if (lane == 0) copy_bulk(shared_address(slot), from, sizeof(slot), full);
        __syncwarp();
      } else {
        for (int i = lane; i < kNumbers; i += 32) slot[i] = from[i];
        barrier_arrive(full);
      }
    } else {
      barrier_wait(full, round & 1);
      for (int i = 0; i < 4; ++i) sum += slot[(lane + 7) % 32 * 4 + i];
      if (kReturn == Return::syncwarp || kReturn == Return::syncwarp_cluster) __syncwarp();
      if (kReturn == Return::bar_sync || kReturn == Return::bar_sync_cluster) named_barrier(3, 32);
      if (kReturn == Return::syncwarp_cluster || kReturn == Return::bar_sync_cluster) {
        if (lane == 0) arrive_in_cluster(empty);
      } else if (kReturn == Return::every_lane || lane == 0) {
        barrier_arrive(empty);
      }
    }
  }
  if (threadIdx.x >= 32) sums[lane] = sum;
#endif
}

template <bool kBulk>
void launch(Return how, const int* from, int* sums) {
  switch (how) {
    case Return::every_lane: ring<kBulk, Return::every_lane><<<1, 64>>>(from, sums); break;
    case Return::syncwarp: ring<kBulk, Return::syncwarp><<<1, 64>>>(from, sums); break;
    case Return::syncwarp_cluster: ring<kBulk, Return::syncwarp_cluster><<<1, 64>>>(from, sums); break;
    case Return::bar_sync: ring<kBulk, Return::bar_sync><<<1, 64>>>(from, sums); break;
    case Return::bar_sync_cluster: ring<kBulk, Return::bar_sync_cluster><<<1, 64>>>(from, sums); break;
  }
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) {
  const int form = argc > 1 ? std::atoi(argv[1]) : 0;
  constexpr std::size_t kBytes = workshop::kRounds * workshop::kNumbers * sizeof(int);
  int* from = nullptr;
  int* sums = nullptr;
  cudaMalloc(&from, kBytes);
  cudaMalloc(&sums, 32 * sizeof(int));
  cudaMemset(from, 1, kBytes);
  const auto how = static_cast<workshop::Return>(form % 5);
  form < 5 ? workshop::launch<false>(how, from, sums) : workshop::launch<true>(how, from, sums);
  int got[32];
  const cudaError_t error = cudaMemcpy(got, sums, sizeof(got), cudaMemcpyDeviceToHost);
  bool is_right = error == cudaSuccess;
  for (const int sum : got) is_right = is_right && sum == 4 * workshop::kRounds * 0x01010101;
  std::printf("%s, %s: %s\n", form < 5 ? "stores" : "bulk copies", workshop::kNames[form % 5],
              is_right ? "right" : cudaGetErrorString(error));
  return is_right ? 0 : 1;
}
