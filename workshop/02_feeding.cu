/// Experiment 2: which way of bringing scattered 4 KB pieces through shared memory reaches the read-only kernel.
///
/// Experiment 1 found bulk copies 2 to 3 us behind plain loads at 64 MiB, and about 300 ns a stage whatever its size.
/// Here the same bytes go by bulk copies of one or more issuing warps, by 16-byte asynchronous copies, through one
/// ring a block or one a warp.
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo -cudart static -o 02_feeding workshop/02_feeding.cu
///     ./02_feeding         5 s; $OUT/feeding.json if OUT is set
#include "feeding_kernels.cuh"
#include "measure.cuh"

namespace workshop {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kDataBytes = 2048 * kMiB;
constexpr std::uint32_t kScatter = 0x9E3779B1u;

struct Way {
  std::string label;
  void (*kernel)(Feed);
  int blocks_per_sm, threads;
  std::uint32_t ring;
  std::size_t shared_bytes;
};

template <int kStagePieces, int kProducers>
Way bulk_block(int blocks, std::uint32_t in_flight) {
  const std::uint32_t ring = in_flight / (kStagePieces * kPieceBytes);
  char label[96];
  std::snprintf(label, sizeof label, "bulk, block ring %d x %uK, stage %dK, %d issuing", blocks, in_flight >> 10,
                kStagePieces * 4, kProducers);
  return {label, bulk_block_ring<kStagePieces, kProducers>, blocks, 256 + 32 * kProducers, ring, in_flight + 16 * ring};
}
template <int kStagePieces, int kProducers>
Way copy_block(int blocks, std::uint32_t in_flight) {
  const std::uint32_t ring = in_flight / (kStagePieces * kPieceBytes);
  char label[96];
  std::snprintf(label, sizeof label, "cp.async, block ring %d x %uK, stage %dK, %d warps", blocks, in_flight >> 10,
                kStagePieces * 4, kProducers);
  return {label, copy_block_ring<kStagePieces, kProducers>, blocks, 256 + 32 * kProducers, ring, in_flight + 16 * ring};
}
template <int kStagePieces>
Way bulk_warps(int blocks, int warps, std::uint32_t in_flight) {
  const std::uint32_t ring = in_flight / (warps * kStagePieces * kPieceBytes);
  char label[96];
  std::snprintf(label, sizeof label, "bulk, warp rings %d x %uK, %d warps, stage %dK", blocks, in_flight >> 10, warps,
                kStagePieces * 4);
  return {label, bulk_warp_rings<kStagePieces>, blocks, 32 * warps, ring, in_flight + 8 * ring * warps};
}
template <int kStagePieces, int kDepth>
Way copy_warps(int blocks, int warps) {
  const std::size_t bytes = std::size_t(warps) * kDepth * kStagePieces * kPieceBytes;
  char label[96];
  std::snprintf(label, sizeof label, "cp.async, warp rings %d x %zuK, %d warps, stage %dK", blocks, bytes >> 10, warps,
                kStagePieces * 4);
  return {label, copy_warp_rings<kStagePieces, kDepth>, blocks, 32 * warps, kDepth, bytes};
}

std::vector<Way> all_ways() {
  constexpr std::uint32_t K = 1024;
  return {
      {"plain loads, 2 blocks/SM", plain_pieces, 2, 512, 0, 0},
      {"plain loads, a block 16 pieces", plain_pieces, 0, 512, 0, 0},
      bulk_block<1, 1>(1, 192 * K),
      bulk_block<2, 1>(1, 192 * K),
      bulk_block<4, 1>(1, 192 * K),
      bulk_block<8, 1>(1, 192 * K),
      bulk_block<4, 1>(1, 128 * K),
      bulk_block<4, 1>(1, 96 * K),
      bulk_block<2, 2>(1, 192 * K),
      bulk_block<4, 2>(1, 192 * K),
      bulk_block<4, 4>(1, 192 * K),
      bulk_block<2, 4>(1, 192 * K),
      bulk_block<4, 1>(2, 96 * K),
      bulk_block<2, 2>(2, 96 * K),
      copy_block<2, 4>(1, 192 * K),
      copy_block<4, 4>(1, 192 * K),
      copy_block<8, 4>(1, 192 * K),
      copy_block<8, 4>(1, 160 * K),
      copy_block<8, 2>(1, 192 * K),
      copy_block<8, 8>(1, 192 * K),
      copy_block<4, 8>(1, 192 * K),
      copy_block<4, 4>(2, 96 * K),
      bulk_warps<1>(1, 8, 192 * K),
      bulk_warps<2>(1, 8, 192 * K),
      bulk_warps<1>(1, 12, 192 * K),
      bulk_warps<1>(1, 16, 192 * K),
      bulk_warps<1>(2, 8, 96 * K),
      bulk_warps<1>(1, 16, 128 * K),
      copy_warps<1, 6>(1, 8),
      copy_warps<2, 3>(1, 8),
      copy_warps<1, 3>(1, 16),
      copy_warps<1, 2>(1, 16),
      copy_warps<1, 3>(2, 8),
      copy_warps<1, 4>(1, 12),
  };
}

std::uint32_t reference(cudaStream_t stream, const char* data, std::uint64_t bytes, std::uint32_t* scratch) {
  check_cuda(cudaMemsetAsync(scratch, 0, 4, stream), "memset");
  launch(stream, reference_sum, 1024, 256, 0, false, reinterpret_cast<const std::uint32_t*>(data), bytes / 4, scratch);
  std::uint32_t sum = 0;
  check_cuda(cudaMemcpyAsync(&sum, scratch, 4, cudaMemcpyDeviceToHost, stream), "copy");
  check_cuda(cudaStreamSynchronize(stream), "reference");
  return sum;
}

int run() {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s\n", properties.name);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  char* data = nullptr;
  std::uint32_t* sums = nullptr;
  check_cuda(cudaMalloc(&data, kDataBytes), "cudaMalloc");
  check_cuda(cudaMalloc(&sums, 1 << 24), "cudaMalloc");
  launch(stream, fill_random, 1024, 256, 0, false, reinterpret_cast<std::uint32_t*>(data), kDataBytes / 4);
  Table table("feeding", "scattered pieces of 4 KB through shared memory, us (rotated; sums checked)",
              {"8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB"});
  Table cached("feeding_l2", "the same, one buffer again and again", {"8MiB", "32MiB"});
  for (const Way& way : all_ways()) {
    const auto time = [&](std::uint64_t mib, bool rotate) -> Table::Cell {
      const std::uint64_t bytes = mib * kMiB;
      const auto n_pieces = static_cast<std::uint32_t>(bytes / kPieceBytes);
      const int grid =
          way.blocks_per_sm > 0 ? properties.multiProcessorCount * way.blocks_per_sm : static_cast<int>(n_pieces / 16);
      const int n_calls = static_cast<int>(std::clamp<std::uint64_t>(2048 / mib, 8, 32));
      const Timing timing = time_graph(stream, n_calls, [&](cudaStream_t s, int call) {
        const Feed feed{data + (rotate ? call * bytes : 0), n_pieces, kScatter, way.ring, sums + std::size_t(call) * grid};
        launch(s, way.kernel, grid, way.threads, way.shared_bytes, false, feed);
      });
      std::vector<std::uint32_t> found(static_cast<std::size_t>(grid));
      check_cuda(cudaMemcpy(found.data(), sums + std::size_t(n_calls - 1) * grid, found.size() * 4, cudaMemcpyDeviceToHost),
                 "copy");
      std::uint32_t sum = 0;
      for (const std::uint32_t value : found) sum += value;
      check_equal(sum, reference(stream, data + (rotate ? (n_calls - 1) * bytes : 0), bytes, sums), way.label);
      return {timing, double(bytes) / timing.us / 1e6};
    };
    table.add(way.label, {time(8, true), time(16, true), time(32, true), time(64, true), time(128, true), time(256, true)});
    cached.add(way.label, {time(8, false), time(32, false)});
  }
  table.print(false, "%.2f");
  for (std::size_t i = 0; i < table.n_columns(); ++i) std::printf("  %s\n", table.best(i).c_str());
  cached.print(true, "%.2f TB");
  if (const char* folder = std::getenv("OUT")) {
    std::FILE* file = std::fopen((std::string(folder) + "/feeding.json").c_str(), "w");
    if (file == nullptr) return 1;
    std::fprintf(file, "[\n  %s,\n  %s\n]\n", table.json().c_str(), cached.json().c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace workshop

int main() { return workshop::run(); }
