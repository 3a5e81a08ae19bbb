/// Experiment 1: what an H200 can do at most, and by which pattern: reads from memory and from L2 by plain loads and
/// by bulk copies, launches with and without overlap, dependent loads, products from shared memory, contended atomics.
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo -cudart static -o 01_ceilings
///     workshop/01_ceilings.cu
///     ./01_ceilings                      all of it, in less than 40 s; $OUT/ceilings.json if OUT is set
///     ./01_ceilings --only bulk64        three launches over 64 MiB by bulk copies (read64: by plain loads), to calibrate
///     counters:
///     ncu --clock-control none -k 'regex:plain_read|bulk_read' --metrics lts__t_sectors_srcunit_tex_op_read.sum,\
///         lts__t_sectors_op_read.sum,dram__bytes_read.sum,gpu__time_duration.sum ./01_ceilings --only bulk64
#include <cstring>
#include <random>

#include "ceilings_kernels.cuh"
#include "measure.cuh"

namespace workshop {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kDataBytes = 4096 * kMiB;
constexpr int kMaxGrid = 1 << 16;
constexpr std::uint32_t kScatter = 0x9E3779B1u;

struct Machine {
  cudaStream_t stream = nullptr;
  int n_multiprocessors = 0;
  char* data = nullptr;              // kDataBytes of random words
  std::uint32_t* sums = nullptr;     // [calls][kMaxGrid]
  std::uint32_t* one_sum = nullptr;  // of reference_sum
};

template <typename T>
T* device_array(std::size_t n) {
  T* pointer = nullptr;
  check_cuda(cudaMalloc(&pointer, n * sizeof(T)), "cudaMalloc");
  return pointer;
}

template <typename T>
T* to_device(const std::vector<T>& values) {
  T* pointer = device_array<T>(values.size());
  check_cuda(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return pointer;
}

std::uint32_t reference(const Machine& machine, std::uint64_t offset, std::uint64_t bytes) {
  check_cuda(cudaMemsetAsync(machine.one_sum, 0, 4, machine.stream), "memset");
  launch(machine.stream, reference_sum, 1024, 256, 0, false, reinterpret_cast<const std::uint32_t*>(machine.data + offset),
         bytes / 4, machine.one_sum);
  std::uint32_t sum = 0;
  check_cuda(cudaMemcpyAsync(&sum, machine.one_sum, 4, cudaMemcpyDeviceToHost, machine.stream), "copy");
  check_cuda(cudaStreamSynchronize(machine.stream), "reference");
  return sum;
}

// ---- Reads ---------------------------------------------------------------------------------------------------------------

/// A way to read: plain loads or bulk copies, with its knobs.
struct Pattern {
  std::string label;
  bool bulk = false;
  int blocks_per_sm = 0;  // 0: as many blocks as chunks
  int threads = 256;
  int unroll = 8;
  bool prefetch = false;
  std::uint32_t piece = 4096, stage = 16384, in_flight = 0;
  bool scatter = false;
  bool overlap = false;
  int share = 1;
};

int grid_of(const Machine& machine, const Pattern& pattern, std::uint64_t bytes) {
  if (pattern.blocks_per_sm > 0) return machine.n_multiprocessors * pattern.blocks_per_sm;
  return static_cast<int>(bytes / (16ull * pattern.unroll * pattern.threads));
}

void enqueue_read(const Machine& machine, const Pattern& pattern, cudaStream_t stream, std::uint64_t offset,
                  std::uint64_t bytes, std::uint32_t* sums) {
  const int grid = grid_of(machine, pattern, bytes);
  if (pattern.bulk) {
    const BulkRead args{machine.data + offset,
                        static_cast<std::uint32_t>(bytes / pattern.stage),
                        pattern.stage,
                        pattern.piece,
                        pattern.in_flight / pattern.stage,
                        pattern.scatter ? kScatter : 1,
                        pattern.share,
                        pattern.overlap,
                        sums};
    launch(stream, bulk_read, grid, kBulkThreads, pattern.in_flight, pattern.overlap, args);
    return;
  }
  const auto n_chunks = static_cast<std::uint32_t>(bytes / (16ull * pattern.unroll * pattern.threads));
  auto* const kernel = pattern.prefetch                                ? &plain_read<8, 512, 2, true>
                       : pattern.unroll == 4 && pattern.threads == 256 ? &plain_read<4, 256, 8, false>
                       : pattern.threads == 1024
                           ? (pattern.unroll == 4 ? &plain_read<4, 1024, 2, false> : &plain_read<8, 1024, 1, false>)
                       : pattern.threads == 256 ? &plain_read<16, 256, 2, false>
                                                : &plain_read<8, 512, 2, false>;
  launch(stream, kernel, grid, pattern.threads, 0, pattern.overlap, reinterpret_cast<const uint4*>(machine.data + offset),
         n_chunks, pattern.share, pattern.overlap, sums);
}

/// Time of reading `bytes` by a pattern: `n_calls` in a graph, rotated over the data or all over the same bytes.
Table::Cell time_read(const Machine& machine, const Pattern& pattern, std::uint64_t bytes, int n_calls, bool rotate) {
  const int grid = grid_of(machine, pattern, bytes);
  const auto offset = [&](int call) { return rotate ? call * bytes : 0; };
  check_cuda(cudaMemset(machine.sums, 0xff, sizeof(std::uint32_t) * grid * n_calls), "memset");
  const Timing timing = time_graph(machine.stream, n_calls, [&](cudaStream_t stream, int call) {
    enqueue_read(machine, pattern, stream, offset(call), bytes, machine.sums + std::size_t(call) * grid);
  });
  std::vector<std::uint32_t> sums(std::size_t(grid) * n_calls);
  check_cuda(cudaMemcpy(sums.data(), machine.sums, sums.size() * 4, cudaMemcpyDeviceToHost), "copy");
  for (const int call : {0, n_calls - 1}) {
    std::uint32_t sum = 0;
    for (int i = 0; i < grid; ++i) sum += sums[std::size_t(call) * grid + i];
    check_equal(sum, reference(machine, offset(call), bytes) * std::uint32_t(pattern.share), pattern.label);
  }
  return {timing, double(bytes) * pattern.share / timing.us / 1e6};
}

std::vector<Pattern> read_patterns() {
  std::vector<Pattern> patterns;
  const auto plain = [&](const char* label, int blocks, int threads, int unroll, bool prefetch = false, bool overlap = false) {
    Pattern p{label};
    p.blocks_per_sm = blocks, p.threads = threads, p.unroll = unroll, p.prefetch = prefetch, p.overlap = overlap;
    patterns.push_back(p);
  };
  plain("plain, a block a chunk, 512 thr x 8", 0, 512, 8);
  plain("plain, a block a chunk, 256 thr x 16", 0, 256, 16);
  plain("plain, a block a chunk, 1024 thr x 4", 0, 1024, 4);
  plain("plain, a block a chunk, 256 thr x 4", 0, 256, 4);
  plain("plain, a block a chunk, 512 x 8, L2::256B", 0, 512, 8, true);
  plain("plain, 1 block/SM, 1024 thr x 8", 1, 1024, 8);
  plain("plain, 2 blocks/SM, 1024 thr x 4", 2, 1024, 4);
  plain("plain, 2 blocks/SM, 512 thr x 8", 2, 512, 8);
  plain("plain, 2 blocks/SM, 512 x 8, overlapped", 2, 512, 8, false, true);
  const auto bulk = [&](int blocks, std::uint32_t piece, std::uint32_t stage, std::uint32_t in_flight, bool scatter,
                        bool overlap) {
    Pattern p;
    char label[96];
    std::snprintf(label, sizeof label, "bulk, %d x %uK, stage %uK, piece %uK%s%s", blocks, in_flight >> 10, stage >> 10,
                  piece >> 10, scatter ? ", scattered" : "", overlap ? ", ovl" : "");
    p.label = label, p.bulk = true, p.blocks_per_sm = blocks, p.piece = piece, p.stage = stage, p.in_flight = in_flight;
    p.scatter = scatter, p.overlap = overlap;
    patterns.push_back(p);
  };
  constexpr std::uint32_t K = 1024;
  for (const std::uint32_t in_flight : {64 * K, 128 * K, 192 * K})
    for (const std::uint32_t piece : {2 * K, 4 * K}) bulk(1, piece, 16 * K, in_flight, true, false);
  bulk(1, 4 * K, 16 * K, 192 * K, false, false);
  bulk(1, 16 * K, 16 * K, 192 * K, false, false);
  bulk(1, 4 * K, 8 * K, 192 * K, true, false);
  bulk(1, 4 * K, 32 * K, 192 * K, true, false);
  bulk(1, 4 * K, 4 * K, 192 * K, true, false);
  bulk(2, 4 * K, 16 * K, 64 * K, true, false);
  bulk(2, 4 * K, 16 * K, 96 * K, true, false);
  bulk(3, 4 * K, 8 * K, 64 * K, true, false);
  bulk(1, 4 * K, 16 * K, 96 * K, true, true);
  bulk(1, 4 * K, 16 * K, 192 * K, true, true);
  bulk(2, 4 * K, 16 * K, 96 * K, true, true);
  return patterns;
}

Table reads(const Machine& machine) {
  Table table("read", "read-only, us (rotated; sums checked; `ovl`: programmatic dependent launch)",
              {"16MiB", "32MiB", "64MiB", "128MiB", "256MiB"});
  for (const Pattern& pattern : read_patterns()) {
    std::vector<Table::Cell> cells;
    for (const std::uint64_t mib : {16, 32, 64, 128, 256})
      cells.push_back(time_read(machine, pattern, mib * kMiB, int(std::clamp<std::uint64_t>(2048 / mib, 12, 64)), true));
    table.add(pattern.label, std::move(cells));
  }
  table.print(false, "%.2f");
  std::printf("fastest, TB/s:\n");
  for (std::size_t i = 0; i < table.n_columns(); ++i) std::printf("  %s\n", table.best(i).c_str());
  return table;
}

Table l2_reads(const Machine& machine) {
  Table table("l2", "the same buffer again and again, TB/s asked for", {"8MB", "20MB", "40MB", "54MB"});
  for (const bool bulk : {false, true})
    for (const int share : {1, 4, 12, 33, 132}) {
      Pattern p;
      char label[96];
      std::snprintf(label, sizeof label, "%s, %d block%s read%s each line", bulk ? "bulk 1 x 192K" : "plain 8 x 256 thr x 4",
                    share, share > 1 ? "s" : "", share > 1 ? "" : "s");
      p.label = label, p.share = share, p.bulk = bulk;
      p.blocks_per_sm = bulk ? 1 : 8, p.threads = 256, p.unroll = 4, p.in_flight = 192 * 1024;
      std::vector<Table::Cell> cells;
      for (const std::uint64_t mb : {8, 20, 40, 54})
        cells.push_back(time_read(machine, p, mb * 1000000 / 65536 * 65536, share > 12 ? 2 : 12, false));
      table.add(label, std::move(cells));
    }
  table.print(true, "%.2f");
  return table;
}

// ---- Launches ------------------------------------------------------------------------------------------------------------

Table launches(const Machine& machine) {
  Table table("launch", "empty kernels in a graph one after the other, us each", {"plain", "overlap"});
  struct Form {
    const char* label;
    int grid_per_sm, threads, shared;
  };
  for (const Form& form : {Form{"1 x 32 threads a multiprocessor", 1, 32, 0}, Form{"1 x 288 threads", 1, 288, 0},
                           Form{"1 x 288 threads, 200 KB shared", 1, 288, 200 << 10},
                           Form{"2 x 288 threads, 100 KB shared", 2, 288, 100 << 10}, Form{"8 x 256 threads", 8, 256, 0}}) {
    std::vector<Table::Cell> cells;
    for (const bool overlap : {false, true})
      cells.push_back({time_graph(machine.stream, 200, [&](cudaStream_t stream, int) {
        launch(stream, empty_kernel, machine.n_multiprocessors * form.grid_per_sm, form.threads, form.shared, overlap, overlap);
      })});
    table.add(form.label, std::move(cells));
  }
  table.print(false, "%.2f");
  return table;
}

Table chains(const Machine& machine) {
  constexpr int kCalls = 32;
  const int grid = machine.n_multiprocessors;
  Table table("chain", "one 4 KB bulk copy a block behind n dependent loads, us a kernel", {"0", "1", "2", "3"});
  std::mt19937 random(1);
  std::vector<std::uint32_t> items, permutation(grid);
  for (int i = 0; i < grid; ++i) permutation[i] = i;
  for (int i = 0; i < kCalls * 2; ++i) {
    std::shuffle(permutation.begin(), permutation.end(), random);
    for (const std::uint32_t value : permutation) {
      items.push_back(value);
      items.insert(items.end(), 31, 0);
    }
  }
  const std::uint32_t* headers = to_device(std::vector<std::uint32_t>(kCalls * 32, 0));
  const std::uint32_t* tables = to_device(items);
  const auto piece_bytes = std::uint64_t(grid) * 4096;
  struct Form {
    const char* label;
    bool cold, overlap, chain_first;
  };
  for (const Form& form :
       {Form{"tables and data in L2", false, false, false}, Form{"tables and data in memory", true, false, false},
        Form{"in L2, overlapped launch", false, true, false},
        Form{"in L2, overlapped, chain before the wait", false, true, true},
        Form{"in memory, overlapped, chain before it", true, true, true}}) {
    std::vector<Table::Cell> cells;
    for (int depth = 0; depth <= 3; ++depth) {
      check_cuda(cudaMemset(machine.sums, 0xff, 4ull * grid * kCalls), "memset");
      const auto flush = [&](cudaStream_t stream) {
        Pattern p;
        p.threads = 512;
        if (form.cold) enqueue_read(machine, p, stream, 1024 * kMiB, 512 * kMiB, machine.sums + 1000000);
      };
      const Timing timing = time_graph(
          machine.stream, kCalls,
          [&](cudaStream_t stream, int call) {
            const ChainRead args{headers + call * 32,
                                 tables + std::size_t(2 * call) * grid * 32,
                                 tables + std::size_t(2 * call + 1) * grid * 32,
                                 machine.data + call * piece_bytes,
                                 depth,
                                 form.overlap,
                                 form.chain_first,
                                 machine.sums + std::size_t(call) * grid};
            launch(stream, chain_read, grid, kBulkThreads, 4096, form.overlap, args);
          },
          flush);
      std::vector<std::uint32_t> sums(grid);
      check_cuda(
          cudaMemcpy(sums.data(), machine.sums + std::size_t(kCalls - 1) * grid, sums.size() * 4, cudaMemcpyDeviceToHost),
          "copy");
      std::uint32_t sum = 0;
      for (const std::uint32_t value : sums) sum += value;
      check_equal(sum, reference(machine, (kCalls - 1) * piece_bytes, piece_bytes), form.label);
      cells.push_back({timing});
    }
    table.add(form.label, std::move(cells));
  }
  table.print(false, "%.2f");
  return table;
}

Table atomics(const Machine& machine) {
  constexpr int kTimes = 64;
  Table table("atomics", "ns an operation, each block waiting for its answer", {"1", "16", "256"});
  unsigned* counters = device_array<unsigned>(256 * 32);
  for (const int per_sm : {1, 2})
    for (const bool acq_rel : {false, true}) {
      std::vector<Table::Cell> cells;
      const int grid = machine.n_multiprocessors * per_sm;
      for (const int n : {1, 16, 256}) {
        check_cuda(cudaMemset(counters, 0, 256 * 32 * sizeof(unsigned)), "memset");
        const Timing timing = time_graph(machine.stream, 4, [&](cudaStream_t stream, int) {
          launch(stream, count_up, grid, 32, 0, false, counters, n, kTimes, acq_rel, machine.sums);
        });
        std::vector<unsigned> counted(256 * 32);
        check_cuda(cudaMemcpy(counted.data(), counters, counted.size() * 4, cudaMemcpyDeviceToHost), "copy");
        double total = 0;
        for (const unsigned value : counted) total += value;
        check_equal(total, double(grid) * kTimes * 4 * 28, "atomics");
        cells.push_back({timing, timing.us * 1e3 / kTimes});
      }
      table.add(std::to_string(grid) + (acq_rel ? " blocks, atom.add.acq_rel.gpu" : " blocks, __threadfence + atomicInc"),
                std::move(cells));
    }
  table.print(true, "%.0f");
  return table;
}

// ---- Products ------------------------------------------------------------------------------------------------------------

/// Multiples of 1/8 in [-2, 2): every product and sum of a short run is exact in f32.
std::vector<__nv_bfloat16> random_eighths(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<__nv_bfloat16> values(n);
  for (__nv_bfloat16& value : values) value = __float2bfloat16((int(random() % 32) - 16) / 8.0f);
  return values;
}

Table products(const Machine& machine) {
  Table table("products", "bf16 products, B from shared memory, A in registers, one block a multiprocessor, TFLOP/s",
              {"TFLOP/s"});
  constexpr int kMaxRows = 256, kMaxTokens = 128 * kProductTiles;
  const auto a = random_eighths(kMaxRows * kProductDim, 1), b = random_eighths(kMaxTokens * kProductDim, 2);
  const __nv_bfloat16 *a_device = to_device(a), *b_device = to_device(b);
  double* total = device_array<double>(1);
  struct Form {
    const char* label;
    void (*kernel)(const __nv_bfloat16*, const __nv_bfloat16*, int, double*);
    int threads, rows, tokens;
  };
  for (const Form& form : {Form{"mma.sync m16n8k16, 8 warps x 16 rows", mma_sync<1>, 256, 128, 64},
                           Form{"mma.sync m16n8k16, 8 warps x 32 rows", mma_sync<2>, 256, 256, 64},
                           Form{"wgmma m64n64k16, 1 warpgroup", wgmma_registers<64>, 128, 64, 64},
                           Form{"wgmma m64n64k16, 2 warpgroups", wgmma_registers<64>, 256, 128, 64},
                           Form{"wgmma m64n64k16, 3 warpgroups", wgmma_registers<64>, 384, 192, 64},
                           Form{"wgmma m64n128k16, 1 warpgroup", wgmma_registers<128>, 128, 64, 128},
                           Form{"wgmma m64n128k16, 2 warpgroups", wgmma_registers<128>, 256, 128, 128},
                           Form{"wgmma m64n128k16, 3 warpgroups", wgmma_registers<128>, 384, 192, 128}}) {
    const std::size_t shared = std::size_t(form.tokens) * kProductTiles * 256;
    check_cuda(cudaMemset(total, 0, sizeof(double)), "memset");
    launch(machine.stream, form.kernel, 1, form.threads, shared, false, a_device, b_device, kProductTiles, total);
    check_cuda(cudaStreamSynchronize(machine.stream), form.label);
    double found = 0, expected = 0;
    check_cuda(cudaMemcpy(&found, total, sizeof found, cudaMemcpyDeviceToHost), "copy");
    for (int k = 0; k < kProductDim; ++k) {
      double of_a = 0, of_b = 0;
      for (int row = 0; row < form.rows; ++row) of_a += __bfloat162float(a[row * kProductDim + k]);
      for (int token = 0; token < form.tokens * kProductTiles; ++token) of_b += __bfloat162float(b[token * kProductDim + k]);
      expected += of_a * of_b;
    }
    check_equal(found, expected, form.label);
    constexpr int kTiles = 1024;
    const Timing timing = time_graph(machine.stream, 4, [&](cudaStream_t stream, int) {
      launch(stream, form.kernel, machine.n_multiprocessors, form.threads, shared, false, a_device, b_device, kTiles, total);
    });
    const double flops = 2.0 * form.rows * form.tokens * kProductDim * kTiles * machine.n_multiprocessors;
    table.add(form.label, {{timing, flops / timing.us / 1e6}});
  }
  table.print(true, "%.0f");
  return table;
}

// ---- The program ---------------------------------------------------------------------------------------------------------

/// Three launches over rotated buffers, for a profiler: `read64`, `bulk128`. Prints how many bytes each reads.
int run_only(const Machine& machine, const std::string& what) {
  const bool bulk = what.starts_with("bulk");
  const std::uint64_t mib = std::strtoull(what.c_str() + 4, nullptr, 10);
  if ((!bulk && !what.starts_with("read")) || mib == 0 || mib > 1024 || (mib & (mib - 1)) != 0) {
    std::fprintf(stderr, "--only %s: readN or bulkN, N MiB, a power of two up to 1024\n", what.c_str());
    return 2;
  }
  Pattern p;
  p.bulk = bulk, p.blocks_per_sm = bulk ? 1 : 0, p.threads = 512, p.in_flight = 192 * 1024, p.scatter = bulk;
  for (int call = 0; call < 3; ++call) enqueue_read(machine, p, machine.stream, call * mib * kMiB, mib * kMiB, machine.sums);
  check_cuda(cudaStreamSynchronize(machine.stream), "read");
  std::printf("%s: each launch reads %llu bytes = %llu sectors of 32 bytes\n", what.c_str(), (unsigned long long)(mib * kMiB),
              (unsigned long long)(mib * kMiB / 32));
  return 0;
}

Machine make_machine() {
  Machine machine;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, %d multiprocessors, %.1f MB L2, %zu KB shared memory a block\n", properties.name,
              properties.multiProcessorCount, properties.l2CacheSize / 1e6, properties.sharedMemPerBlockOptin / 1024);
  machine.n_multiprocessors = properties.multiProcessorCount;
  check_cuda(cudaStreamCreateWithFlags(&machine.stream, cudaStreamNonBlocking), "stream");
  machine.data = device_array<char>(kDataBytes);
  machine.sums = device_array<std::uint32_t>(64 * kMaxGrid);
  machine.one_sum = device_array<std::uint32_t>(1);
  launch(machine.stream, fill_random, machine.n_multiprocessors * 8, 256, 0, false,
         reinterpret_cast<std::uint32_t*>(machine.data), kDataBytes / 4);
  check_cuda(cudaStreamSynchronize(machine.stream), "fill");
  return machine;
}

int run_all(const Machine& machine) {
  std::string lines;
  for (Table (*part)(const Machine&) : {reads, l2_reads, launches, chains, products, atomics}) {
    const std::string json = part(machine).json();
    lines += (lines.empty() ? "" : ",\n  ") + json;
  }
  if (const char* folder = std::getenv("OUT")) {
    std::FILE* file = std::fopen((std::string(folder) + "/ceilings.json").c_str(), "w");
    if (file == nullptr) return 1;
    std::fprintf(file, "[\n  %s\n]\n", lines.c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) {
  const workshop::Machine machine = workshop::make_machine();
  if (argc == 3 && std::strcmp(argv[1], "--only") == 0) return workshop::run_only(machine, argv[2]);
  if (argc != 1) {
    std::fprintf(stderr, "usage: 01_ceilings [--only readN|bulkN]\n");
    return 2;
  }
  return workshop::run_all(machine);
}
