/// Rows of the weight are wgmma's M, and rows of x N; both operands come from shared memory, where one thread copies them as they
/// lie. A block has 128 rows of the weight and up to 256 of x. Two warpgroups multiply 64 rows of the weight each: while one adds
/// its sums in f32, the matrix units work for the other. Where there are few tiles, the blocks of a cluster divide the columns of
/// one, and each adds a part of all sums. Where there are many, two blocks share x.
#include "kernels/cuda/schemes/f8_gemm.h"

#include <algorithm>
#include <cstdint>

#include <cuda.h>

#include "core/check.h"
#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch_clusters.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/f8_multiplier.cuh"

namespace baton::cuda {
namespace {

#ifdef BATON_SM90A

/// One thread's copies. Weights do not depend on the kernel before.
class F8Copier {
 public:
  __device__ __forceinline__ F8Copier(const F8GemmParams& p, const F8Memory& memory, const F8Block& block,
                                      const CUtensorMap& x_map)
      : p_(p), memory_(memory), block_(block), x_map_(x_map) {}

  __device__ __forceinline__ void run() {
    const int n_first = min(p_.n_stages, block_.stages.end - block_.stages.begin);
    if (p_.n_x_tiles == 1)
      policy_ = read_once_policy();
    else
      asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy_));
    if (block_.first_item < p_.n_items) {
      const F8Item item(p_, block_.first_item, block_.rank);
      for (int i = 0; i < n_first; ++i) copy_weight(item, block_.stages.begin + i, i);
      wait_for_kernel_before();
      let_next_kernel_start();
      for (int i = 0; i < n_first; ++i) copy_x(item, block_.stages.begin + i, i);
    }
    RingPlace place;
    int n_copied = 0;
#pragma unroll 1
    for (int i = block_.first_item; i < p_.n_items; i += block_.item_step) {
      const F8Item item(p_, i, block_.rank);
#pragma unroll 1
      for (int k = block_.stages.begin; k < block_.stages.end; ++k, ++n_copied) {
        if (n_copied >= n_first) {
          if (n_copied >= p_.n_stages) barrier_wait(memory_.empty(place.slot), place.parity ^ 1);
          copy_weight(item, k, place.slot);
          copy_x(item, k, place.slot);
        }
        place.advance(p_.n_stages);
      }
    }
  }

 private:
  __device__ __forceinline__ void copy_weight(const F8Item& item, int k, int slot) {
    const std::uint32_t barrier = memory_.full(slot);
    barrier_expect(barrier, kF8WeightBytes + item.n_boxes * kF8BoxBytes);
#pragma unroll
    for (int group = 0; group < kF8Groups; ++group) {
      // A tile that does not exist is the last again; its sums are not stored.
      const std::int64_t tile = min(item.first_tile + group, p_.weight.n_tiles - 1);
      const std::uint32_t to = memory_.weight(p_, slot) + group * kF8TileBytes;
      const std::byte* const from = p_.weight.values + (tile * p_.weight.n_chunks + k * kF8Chunks) * kPieceBytes;
      copy_bytes(to, from, kF8TileBytes, barrier, policy_);
    }
  }
  __device__ __forceinline__ void copy_x(const F8Item& item, int k, int slot) {
    const std::uint32_t barrier = memory_.full(slot);
    const std::uint32_t to = memory_.x(p_, slot);
#pragma unroll 1
    for (int box = 0; box < item.n_boxes; ++box) {
      const int row = item.first_x + box * kF8BoxRows;
      if (!p_.plan.shares_x)
        copy_box(to + box * kF8BoxBytes, &x_map_, k * kF8Columns, row, barrier);
      else if (box % 2 == block_.rank)
        copy_box_to_all(to + box * kF8BoxBytes, &x_map_, k * kF8Columns, row, barrier, 3);
    }
  }

  const F8GemmParams& p_;
  const F8Memory& memory_;
  const F8Block& block_;
  const CUtensorMap& x_map_;
  std::uint64_t policy_ = 0;
};

#endif  // BATON_SM90A

template <bool kHasGroups>
__global__ void __launch_bounds__(kF8Threads, 1) f8_gemm_kernel([[maybe_unused]] const __grid_constant__ F8GemmParams p,
                                                                [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                                                                [[maybe_unused]] const __grid_constant__ CUtensorMap out_map) {
#ifdef BATON_SM90A
  extern __shared__ __align__(1024) std::byte shared[];
  const F8Memory memory{shared_address(shared)};
  const F8Block block(p);
  const auto thread = static_cast<int>(threadIdx.x);
  const bool divides = p.plan.cluster > 1 && !p.plan.shares_x;
  if (thread == 0) {
    for (int i = 0; i < p.n_stages; ++i) {
      barrier_init(memory.full(i), 1);
      barrier_init(memory.empty(i), kF8Groups * 4 * (p.plan.shares_x ? 2 : 1));
    }
    show_barriers_to_copies();
  }
  if (p.plan.shares_x)
    cluster_barrier();
  else
    __syncthreads();
  if (thread >= kF8Multipliers) {
    give_registers<24>();
    if (thread == kF8Multipliers) F8Copier(p, memory, block, x_map).run();
    __syncwarp();
    if (divides) cluster_barrier();  // that of store_share
  } else {
    take_registers<240>();
    wait_for_kernel_before();
    F8Multiplier<kHasGroups>(p, memory, block, out_map).run();
    __syncwarp();
  }
  if (p.plan.cluster > 1) cluster_barrier();  // a block's memory is the others' until all are done
#endif
}

}  // namespace

void multiply_f8(const Device& device, const F8GemmParams& params, void* encode_map, const ConstTensorView& x) {
  F8GemmParams p = params;
  const SchemeView& weight = p.weight;
  const F8Plan& plan = p.plan;
  const int tiles_of_item = kF8Groups * (plan.shares_x ? 2 : 1);
  p.n_boxes = std::min(kMostF8Boxes, (p.n_rows + kF8BoxRows - 1) / kF8BoxRows);
  p.n_stages = std::min(
      kF8MostStages, (static_cast<int>(device.max_shared_bytes) - kF8FixedBytes) / (kF8WeightBytes + p.n_boxes * kF8BoxBytes));
  p.n_stages_of_k = static_cast<int>((weight.k + kF8Columns - 1) / kF8Columns);
  p.n_x_tiles = (p.n_rows + kF8XRows - 1) / kF8XRows;
  p.n_items = (weight.n_tiles + tiles_of_item - 1) / tiles_of_item * p.n_x_tiles;
  const int n_clusters = std::min(p.n_items, device.n_multiprocessors / plan.cluster);
  check(plan.cluster == 1 || plan.shares_x || n_clusters == p.n_items, "multiply_f8: a cluster divides one item");
  const int shared_bytes = p.n_stages * (kF8WeightBytes + p.n_boxes * kF8BoxBytes) + kF8FixedBytes;
  // The most, not this launch's: launches that were captured before need theirs.
  auto* const kernel = weight.scales == nullptr ? f8_gemm_kernel<false> : f8_gemm_kernel<true>;
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(device.max_shared_bytes)),
      "multiply_f8");
  const ConstTensorView out{static_cast<const std::byte*>(p.out), p.out_dtype, {p.n_rows, weight.n}};
  launch_clusters(device, kernel, dim3(static_cast<unsigned>(n_clusters * plan.cluster)), plan.cluster, kF8Threads,
                  shared_bytes, "multiply_f8", p, matrix_map(encode_map, x, kF8BoxRows),
                  p.stores_boxes ? matrix_map(encode_map, out, kF8SlabRows) : CUtensorMap{});
}

}  // namespace baton::cuda
