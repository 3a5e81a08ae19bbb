/// The ends of GEMMs with a gate: activations of sums in registers. A tile of the weight has rows of gate and of up in turn
/// (gated_map.h). The sums are rounded first, as a matmul's out, so that the bits are those of gated_activation.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/device/activations.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/gated_map.h"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Copies the box of a gated_map that begins at this column and at the gates of run `run`.
__device__ __forceinline__ void copy_gated_box(std::uint32_t to, const CUtensorMap* map, int column, int run,
                                               std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %3, "
      "%4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(column), "r"(0), "r"(run), "r"(barrier), "l"(policy)
      : "memory");
}

/// Two outputs of rounded pairs of gate and of up.
template <FusedGate kGate, class T>
__device__ __forceinline__ std::uint32_t gated_pair(std::uint32_t gate_pair, std::uint32_t up_pair) {
  const auto gate = std::bit_cast<Elements<T, 2>>(gate_pair);
  const auto up = std::bit_cast<Elements<T, 2>>(up_pair);
  const auto gated = [](float x, float y) { return (kGate == FusedGate::silu ? silu<T>(x) : gelu_tanh<T>(x)) * y; };
  return pack_pair<T>(gated(to_f32(gate.values[0]), to_f32(up.values[0])), gated(to_f32(gate.values[1]), to_f32(up.values[1])));
}

/// Where a thread writes its outputs.
struct GatedPlace {
  int row;     ///< of x, that of the thread's first sums
  int n_rows;  ///< of x
  int n_left;  ///< columns of out from `out` on
  int n;       ///< of out's rows
};

/// Writes activations of sums [64, 8 kGroups], the weight's rows as wgmma's N: a group of eight columns is kGatedRunOfN gates and
/// their ups. `out`: the first row of x, the first column of the tile. A lane's two rows have two gates or two ups of each group;
/// lanes 0 and 1 of four take the first row, 2 and 3 the other.
template <FusedGate kGate, class T, int kGroups>
__device__ __forceinline__ void store_gated_columns(const float (&sums)[kGroups][4], T* out, const GatedPlace& place) {
  const auto lane = static_cast<int>(threadIdx.x) % 4;
  const bool has_up = lane >= 2;
  const bool is_odd = lane % 2 != 0;
  const int row = place.row + (has_up ? 8 : 0);
  T* const to = out + static_cast<std::int64_t>(row) * place.n;
  const auto of_group = [&](int group) {
    const std::uint32_t first = pack_pair<T>(sums[group][0], sums[group][1]);
    const std::uint32_t second = pack_pair<T>(sums[group][2], sums[group][3]);
    const std::uint32_t kept = has_up ? second : first;
    const std::uint32_t other = __shfl_xor_sync(~0u, has_up ? first : second, 2);
    return gated_pair<kGate, T>(has_up ? other : kept, has_up ? kept : other);
  };
#pragma unroll
  for (int group = 0; group + 1 < kGroups; group += 2) {
    const std::uint32_t a = of_group(group);
    const std::uint32_t b = of_group(group + 1);
    const std::uint32_t other = __shfl_xor_sync(~0u, is_odd ? a : b, 1);
    const int column = (group + (is_odd ? 1 : 0)) * kGatedRunOfN;
    if (row < place.n_rows && column < place.n_left)
      *reinterpret_cast<uint2*>(to + column) = is_odd ? make_uint2(other, b) : make_uint2(a, other);
  }
  if constexpr (kGroups % 2 != 0) {
    const std::uint32_t pair = of_group(kGroups - 1);
    const int column = (kGroups - 1) * kGatedRunOfN + lane % 2 * 2;
    if (row < place.n_rows && column < place.n_left) *reinterpret_cast<std::uint32_t*>(to + column) = pair;
  }
}

/// The same with the gate that is asked for.
template <class T, int kGroups>
__device__ __forceinline__ void store_gated_columns(FusedGate gate, const float (&sums)[kGroups][4], T* out,
                                                    const GatedPlace& place) {
  if (gate == FusedGate::silu)
    store_gated_columns<FusedGate::silu>(sums, out, place);
  else
    store_gated_columns<FusedGate::gelu_tanh>(sums, out, place);
}

}  // namespace baton::cuda

#endif  // BATON_SM90A
