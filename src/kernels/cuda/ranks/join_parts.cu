/// Puts the parts of all ranks beside each other; each thread of a row's blocks copies 16 bytes at a time where it can.
#include "kernels/cuda/ranks/collectives.h"

#include <algorithm>
#include <cstdint>

namespace baton::cuda {
namespace {

constexpr int kJoinThreads = 256;

/// out[row][rank * n + i] = parts[rank][row][i] for columns that out has. The grid is [columns, rows, ranks].
template <class Unit>
__global__ void __launch_bounds__(kJoinThreads)
    join_parts_kernel(Unit* out, const Unit* parts, std::int64_t n, std::int64_t n_out) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t n_rows = gridDim.y;
  const std::int64_t first = blockIdx.z * n;
  const std::int64_t end = n < n_out - first ? n : n_out - first;
  const Unit* const part = parts + (blockIdx.z * n_rows + row) * n;
  Unit* const to = out + row * n_out + first;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kJoinThreads) + threadIdx.x; i < end;
       i += static_cast<std::int64_t>(gridDim.x) * kJoinThreads)
    to[i] = part[i];
}

}  // namespace

void join_parts(const Device& device, const AllGatherArgs& args) {
  const std::int64_t n_ranks = args.parts.shape[0];
  const std::int64_t n_rows = args.out.shape[0];
  const std::int64_t element = static_cast<std::int64_t>(size_bytes(args.out.dtype));
  const std::int64_t part_bytes = args.parts.shape[2] * element;
  const std::int64_t out_bytes = args.out.shape[1] * element;
  if (n_rows == 0 || out_bytes == 0) return;
  constexpr std::int64_t kMostRows = 65535;  // of a grid's second dimension; a step has fewer
  check(n_rows <= kMostRows, "all_gather: too many rows");
  const auto run = [&]<class Unit>(Unit) {
    const auto width = static_cast<std::int64_t>(sizeof(Unit));
    const auto n_blocks = std::min<std::int64_t>((part_bytes / width + kJoinThreads - 1) / kJoinThreads, 64);
    const dim3 grid(static_cast<unsigned>(n_blocks), static_cast<unsigned>(n_rows), static_cast<unsigned>(n_ranks));
    join_parts_kernel<Unit><<<grid, kJoinThreads, 0, device.stream>>>(reinterpret_cast<Unit*>(args.out.data),
                                                                      reinterpret_cast<const Unit*>(args.parts.data),
                                                                      part_bytes / width, out_bytes / width);
  };
  const auto places = reinterpret_cast<std::uintptr_t>(args.out.data) | reinterpret_cast<std::uintptr_t>(args.parts.data);
  if (part_bytes % 16 == 0 && out_bytes % 16 == 0 && places % 16 == 0)
    run(uint4{});
  else
    run(std::uint16_t{});
  check_launch("all_gather");
}

}  // namespace baton::cuda
