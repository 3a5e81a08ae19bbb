/// The forms of the streaming GEMM that are tried, for each number of rows.
#pragma once

#include <vector>

#include "streaming_kernel.cuh"

namespace workshop {

struct Variant {
  int n, t, c, u, chains;  ///< Form's kN, kT, kC, kU, kChains
  bool cluster;
  int share;  ///< kShare
  int end;    ///< of End
  const void* kernel;
  int threads;
  int stage_bytes, sum_bytes, way_bytes;
};

template <int kN, int kT, int kC, int kU, int kChains, bool kCluster, int kShare = 1, End kEnd = End::plain>
Variant variant() {
  using F = Form<kN, kT, kC, kU, kChains, kCluster, kShare, kEnd>;
  return {F::kN,
          kT,
          kC,
          kU,
          kChains,
          kCluster,
          kShare,
          static_cast<int>(kEnd),
          reinterpret_cast<const void*>(&streaming_gemm<F>),
          F::kThreads,
          F::kStageBytes,
          F::kSumBytes,
          F::kWayBytes};
}

template <int kN>
std::vector<Variant> variants_of() {
  // Accumulators in turn where a chain on one would wait for itself.
  [[maybe_unused]] constexpr int kMany = kN <= 16 ? 4 : 2;
  // Row tiles, ways of k, blocks of 64 k, chains, cluster.
  if constexpr (kN <= 32) {
    return {
        variant<kN, 2, 1, 1, 1, false>(),
        variant<kN, 2, 1, 1, kMany, false>(),
        variant<kN, 2, 1, 2, kMany, false>(),
        variant<kN, 1, 1, 2, kMany, false>(),
        variant<kN, 1, 2, 2, kMany, false>(),
        variant<kN, 4, 1, 1, 1, false>(),
        variant<kN, 2, 1, 1, kMany, true>(),
        variant<kN, 1, 1, 2, kMany, true>(),
        variant<kN, 1, 2, 2, kMany, true>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::residual>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::silu>(),
    };
  } else if constexpr (kN == 64) {
    return {
        variant<kN, 2, 1, 1, 1, false>(),
        variant<kN, 2, 1, 2, 1, false>(),
        variant<kN, 1, 2, 2, 2, false>(),
        variant<kN, 4, 1, 1, 1, false>(),
        variant<kN, 2, 1, 1, 1, false, 2>(),
        variant<kN, 2, 1, 1, 1, true>(),
        variant<kN, 1, 1, 2, 2, true>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::residual>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::silu>(),
    };
  } else if constexpr (kN == 128) {
    return {
        variant<kN, 2, 1, 1, 1, false>(),
        variant<kN, 3, 1, 1, 1, false>(),
        variant<kN, 4, 1, 1, 1, false>(),
        variant<kN, 2, 1, 1, 1, false, 2>(),
        variant<kN, 1, 1, 1, 1, true>(),
        variant<kN, 2, 1, 1, 1, true>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::residual>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::silu>(),
    };
  } else {
    return {
        variant<kN, 2, 1, 1, 1, false>(),
        variant<kN, 2, 1, 1, 1, false, 2>(),
        variant<kN, 1, 1, 1, 1, true>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::residual>(),
        variant<kN, 2, 1, 1, 1, false, 1, End::silu>(),
    };
  }
}

inline std::vector<Variant> variants_of_width(int width) {
  switch (width) {
    case 8: return variants_of<8>();
    case 16: return variants_of<16>();
    case 32: return variants_of<32>();
    case 64: return variants_of<64>();
    case 128: return variants_of<128>();
    default: return variants_of<256>();
  }
}
constexpr int kWidths[] = {8, 16, 32, 64, 128, 256};
inline int width_of(int m) {
  for (const int width : kWidths)
    if (m <= width) return width;
  return 0;
}

}  // namespace workshop
