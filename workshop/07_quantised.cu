/// Experiment 7: how fast can a GEMM stream 8-bit floats and 4-bit integers at 1 to 32 rows of x?
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr -cudart static -Isrc
///         -Iworkshop -o 07_quantised workshop/07_quantised.cu
///     ./07_quantised check    each form against float64
///     ./07_quantised time     microseconds a call in a replayed graph, beside a kernel that only reads the same bytes
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "measure.cuh"
#include "quantised_kernel.cuh"

namespace workshop {
namespace {

using EncodeMap = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                               const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

CUtensorMap x_map_of(void* x, int n_rows, int k, int width) {
  static EncodeMap encode = nullptr;
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", reinterpret_cast<void**>(&encode), 12000,
                                                cudaEnableDefault, &found),
               "encode");
  }
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(n_rows)};
  const cuuint64_t row_bytes = sizes[0] * 2;
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(width)};
  const cuuint32_t strides[] = {1, 1};
  if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x, sizes, &row_bytes, box, strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::fprintf(stderr, "the driver refuses x\n");
    std::exit(1);
  }
  return map;
}

/// Packs codes [n, k], a byte each, to stages; one thread a 16 bytes.
template <class F, Format kFormat>
__global__ void pack_kernel(const std::uint8_t* codes, std::byte* packed, int n, int k, int stage_bytes) {
  const int k_stages = k / F::kStageK;
  const std::int64_t units = static_cast<std::int64_t>(n / F::kTileRows) * k_stages * (kStageWeightBytes / 16);
  for (std::int64_t u = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; u < units;
       u += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t stage = u / (kStageWeightBytes / 16);
    const int in = static_cast<int>(u % (kStageWeightBytes / 16));
    const int lane = in % 32, warp = in / 32 % 4, chunk = in / 128 % F::kChunks, part = in / 128 / F::kChunks;
    const std::int64_t tile = stage / k_stages;
    const int s = static_cast<int>(stage % k_stages);
    std::uint32_t words[4] = {0, 0, 0, 0};
    for (int step = 0; step < F::kSteps; ++step)
      for (int i = 0; i < 4; ++i)
        for (int e = 0; e < 2; ++e) {
          const std::int64_t row = tile * F::kTileRows + part * 64 + warp * 16 + lane / 4 + i % 2 * 8;
          const std::int64_t column =
              static_cast<std::int64_t>(s) * F::kStageK + chunk * F::kChunkK + step * 16 + lane % 4 * 2 + i / 2 * 8 + e;
          const std::uint32_t code = codes[row * k + column];
          if (kFormat == Format::e4m3)
            words[step * 2 + i / 2] |= code << (8 * (2 * e + i % 2));
          else
            words[step] |= code << (4 * (i + 4 * e));
        }
    *reinterpret_cast<uint4*>(packed + stage * stage_bytes + in * 16) = {words[0], words[1], words[2], words[3]};
  }
}
/// 16-bit scales [n, k / 128] after each stage's weights.
template <class F>
__global__ void pack_scales_kernel(const std::uint16_t* scales, std::byte* packed, int n, int k, int stage_bytes) {
  const int k_stages = k / F::kStageK, groups = k / kGroupK;
  const std::int64_t all = static_cast<std::int64_t>(n) * groups;
  for (std::int64_t u = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; u < all;
       u += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = u / groups;
    const int group = static_cast<int>(u % groups);
    const std::int64_t stage = row / F::kTileRows * k_stages + group / F::kGroups;
    *reinterpret_cast<std::uint16_t*>(packed + stage * stage_bytes + kStageWeightBytes +
                                      (group % F::kGroups * F::kTileRows + row % F::kTileRows) * 2) = scales[u];
  }
}
__global__ void fill_kernel(std::uint8_t* at, std::int64_t n, std::uint32_t seed, int kind) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    std::uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    const std::uint32_t r = static_cast<std::uint32_t>(z >> 33);
    at[i] = kind == 0 ? ((r & 0x7f) == 0x7f ? 0x11 : r & 0xff) : r & 15;
  }
}

/// A kernel that only reads: each block its run of 16 KB pieces.
__global__ void __launch_bounds__(512) read_kernel(const uint4* from, std::int64_t n_pieces, unsigned* sink) {
  let_next_kernel_start();
  unsigned sum = 0;
  const std::int64_t begin = n_pieces * blockIdx.x / gridDim.x, end = n_pieces * (blockIdx.x + 1) / gridDim.x;
  std::int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __ldcs(from + i * 1024 + j * 512 + threadIdx.x);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < end; ++i)
    for (int j = 0; j < 2; ++j) sum ^= __ldcs(from + i * 1024 + j * 512 + threadIdx.x).x;
  wait_for_kernel_before();
  if (sum == 0x12345678u) *sink = sum;
}

int ring_limit = 1 << 20;

int n_multiprocessors() {
  int n = 0;
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0);
  return n;
}
int max_shared() {
  int n = 0;
  cudaDeviceGetAttribute(&n, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  return n;
}

template <Format kFormat, Scales kScales, int kParts, int kSets, int kWidth>
void enqueue(cudaStream_t stream, QuantParams p, CUtensorMap map) {
  using F = Form<kFormat, kParts, kSets>;
  constexpr int stage = stage_weight_bytes<F, kScales>() + stage_x_bytes<F>(kWidth);
  constexpr int rest = kBarrierBytes + scratch_bytes<F>(kWidth);
  p.n_stages = std::min(kMaxStages, (std::min(max_shared(), ring_limit) - rest) / stage);
  launch(stream, quant_gemm_kernel<kFormat, kScales, kWidth, kParts, kSets>, p.schedule.n_blocks, F::kThreads,
         static_cast<std::size_t>(p.n_stages) * stage + rest, true, p, map);
}
template <Format kFormat, Scales kScales, int kParts, int kSets>
void enqueue_rows(cudaStream_t stream, const QuantParams& p, void* x, int k) {
  const int rows = p.n_rows;
  const int width = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  const CUtensorMap map = x_map_of(x, rows, k, width);
  if (width == 8) enqueue<kFormat, kScales, kParts, kSets, 8>(stream, p, map);
  if (width == 16) enqueue<kFormat, kScales, kParts, kSets, 16>(stream, p, map);
  if (width == 32) enqueue<kFormat, kScales, kParts, kSets, 32>(stream, p, map);
}

template <class T>
T* device(std::int64_t n) {
  void* p = nullptr;
  check_cuda(cudaMalloc(&p, n * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(p);
}

double value_of(Format format, int code) {
  if (format == Format::int4) return code - 8;
  const int e = code >> 3 & 15, m = code & 7;
  const double v = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
  return code & 0x80 ? -v : v;
}
double bf16_value(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float f = 0;
  std::memcpy(&f, &word, 4);
  return f;
}
std::uint16_t bf16_of(float f) {
  std::uint32_t word = 0;
  std::memcpy(&word, &f, 4);
  return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/// One weight on the device, packed.
template <Format kFormat, Scales kScales, int kParts, int kSets>
struct Packed {
  using F = Form<kFormat, kParts, kSets>;
  int n, k;
  std::int64_t bytes = 0;
  std::vector<std::byte*> copies;
  float* scales = nullptr;
  std::uint8_t* codes = nullptr;
  std::vector<float> host_scales;
  std::vector<std::uint16_t> host_groups;

  Packed(int n, int k, int n_copies, bool keep_codes) : n(n), k(k) {
    constexpr int stage = stage_weight_bytes<F, kScales>();
    const std::int64_t stages = static_cast<std::int64_t>(n / F::kTileRows) * (k / F::kStageK);
    bytes = stages * stage;
    codes = device<std::uint8_t>(static_cast<std::int64_t>(n) * k);
    fill_kernel<<<1024, 256>>>(codes, static_cast<std::int64_t>(n) * k, 7, kFormat == Format::e4m3 ? 0 : 1);
    std::mt19937 random(3);
    std::uniform_real_distribution<float> drawn(0.5f, 2.0f);
    const std::int64_t n_scales = kScales == Scales::rows     ? n
                                  : kScales == Scales::blocks ? static_cast<std::int64_t>(n / 128) * (k / 128)
                                                              : static_cast<std::int64_t>(n) * (k / kGroupK);
    for (std::int64_t i = 0; i < n_scales; ++i) host_scales.push_back(drawn(random) * 0.01f);
    std::uint16_t* groups = nullptr;
    if (kScales == Scales::groups) {
      for (float& s : host_scales) {
        host_groups.push_back(bf16_of(s));
        s = static_cast<float>(bf16_value(host_groups.back()));
      }
      groups = device<std::uint16_t>(n_scales);
      check_cuda(cudaMemcpy(groups, host_groups.data(), n_scales * 2, cudaMemcpyHostToDevice), "scales");
    }
    scales = device<float>(n_scales);
    check_cuda(cudaMemcpy(scales, host_scales.data(), n_scales * 4, cudaMemcpyHostToDevice), "scales");
    for (int i = 0; i < n_copies; ++i) {
      copies.push_back(device<std::byte>(bytes));
      pack_kernel<F, kFormat><<<1024, 256>>>(codes, copies.back(), n, k, stage);
      if (kScales == Scales::groups) pack_scales_kernel<F><<<1024, 256>>>(groups, copies.back(), n, k, stage);
    }
    check_cuda(cudaDeviceSynchronize(), "pack");
    if (groups != nullptr) cudaFree(groups);
    if (!keep_codes) {
      cudaFree(codes);
      codes = nullptr;
    }
  }
  ~Packed() {
    for (auto* c : copies) cudaFree(c);
    cudaFree(scales);
    if (codes != nullptr) cudaFree(codes);
  }
  double scale(std::int64_t row, int column) const {
    if (kScales == Scales::rows) return host_scales[row];
    if (kScales == Scales::blocks) return host_scales[row / 128 * (k / 128) + column / 128];
    return host_scales[row * (k / kGroupK) + column / kGroupK];
  }
  QuantParams params(int copy, int rows, void* out, uint4* partials) const {
    return {copies[copy], scales, out, partials, {n / F::kTileRows, k / F::kStageK, n_multiprocessors()}, rows, n, 0, true};
  }
};

uint4* partials() {
  const std::int64_t bytes = static_cast<std::int64_t>(n_multiprocessors()) * 128 * 64 * 4;
  auto* p = device<std::byte>(bytes);
  check_cuda(cudaMemset(p, 0xff, bytes), "partials");
  return reinterpret_cast<uint4*>(p);
}

template <Format kFormat, Scales kScales, int kParts, int kSets>
void check_form(const char* name, int n, int k) {
  const Packed<kFormat, kScales, kParts, kSets> weight(n, k, 1, true);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n) * k);
  check_cuda(cudaMemcpy(codes.data(), weight.codes, codes.size(), cudaMemcpyDeviceToHost), "codes");
  uint4* const sums = partials();
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "stream");
  for (const int rows : {5, 32}) {
    std::mt19937 random(rows);
    std::normal_distribution<float> drawn(0, 1);
    std::vector<std::uint16_t> x(static_cast<std::size_t>(rows) * k);
    for (auto& v : x) v = bf16_of(drawn(random));
    auto* dx = device<std::uint16_t>(x.size());
    auto* out = device<std::uint16_t>(static_cast<std::int64_t>(rows) * n);
    check_cuda(cudaMemcpy(dx, x.data(), x.size() * 2, cudaMemcpyHostToDevice), "x");
    std::vector<std::uint16_t> y(static_cast<std::size_t>(rows) * n), again(y.size());
    for (auto* to : {&y, &again}) {
      check_cuda(cudaMemset(out, 0xee, y.size() * 2), "out");
      enqueue_rows<kFormat, kScales, kParts, kSets>(stream, weight.params(0, rows, out, sums), dx, k);
      check_cuda(cudaStreamSynchronize(stream), "kernel");
      check_cuda(cudaMemcpy(to->data(), out, y.size() * 2, cudaMemcpyDeviceToHost), "y");
    }
    double worst = 0;
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < n; i += 13) {
        double sum = 0, size = 0;
        for (int c = 0; c < k; ++c) {
          const double t = bf16_value(x[static_cast<std::size_t>(r) * k + c]) *
                           value_of(kFormat, codes[static_cast<std::size_t>(i) * k + c]) * weight.scale(i, c);
          sum += t;
          size += std::abs(t);
        }
        worst = std::max(worst, std::abs(bf16_value(y[static_cast<std::size_t>(r) * n + i]) - sum) /
                                    (std::abs(sum) / 256 + size * 1e-6 + 1e-9));
      }
    std::printf("%s %d x %d, %d rows: worst error %.3f of its bound, %s%s\n", name, n, k, rows, worst,
                y == again ? "same bits" : "OTHER BITS", worst > 1 || y != again ? "  WRONG" : "");
    cudaFree(dx);
    cudaFree(out);
  }
  cudaStreamDestroy(stream);
  cudaFree(sums);
}

template <Format kFormat, Scales kScales, int kParts, int kSets>
void time_form(const char* name, const char* weight_name, int n, int k) {
  const std::int64_t about = static_cast<std::int64_t>(n) * k * (kFormat == Format::e4m3 ? 8 : 4) / 8;
  const int n_copies = static_cast<int>(std::max<std::int64_t>(3, (200ll << 20) / about + 1));
  const Packed<kFormat, kScales, kParts, kSets> weight(n, k, n_copies, false);
  uint4* const sums = partials();
  auto* x = device<std::uint16_t>(64ll * k);
  check_cuda(cudaMemset(x, 0, 64ll * k * 2), "x");
  auto* out = device<std::uint16_t>(64ll * n);
  auto* sink = device<unsigned>(1);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "stream");
  const int n_calls = 48;
  const Timing read = time_graph(stream, n_calls, [&](cudaStream_t s, int i) {
    launch(s, read_kernel, n_multiprocessors() * 2, 512, 0, true, reinterpret_cast<const uint4*>(weight.copies[i % n_copies]),
           weight.bytes / 16384, sink);
  });
  std::printf("%-12s %-8s %6d x %-6d %7.2f MB read %6.2f us (%.2f TB/s)", name, weight_name, n, k, weight.bytes / 1e6, read.us,
              weight.bytes / read.us / 1e6);
  for (const int rows : {1, 8, 32}) {
    const Timing t = time_graph(stream, n_calls, [&](cudaStream_t s, int i) {
      enqueue_rows<kFormat, kScales, kParts, kSets>(s, weight.params(i % n_copies, rows, out, sums), x, k);
    });
    std::printf(" | %2d: %6.2f %4.2f", rows, t.us, read.us / t.us);
  }
  std::printf("\n");
  std::fflush(stdout);
  cudaStreamDestroy(stream);
  cudaFree(sums);
  cudaFree(x);
  cudaFree(out);
  cudaFree(sink);
}

template <int kParts, int kSets>
void check_all() {
  std::printf("parts %d sets %d\n", kParts, kSets);
  check_form<Format::e4m3, Scales::rows, kParts, kSets>("e4m3 rows", 6144, 2048);
  check_form<Format::e4m3, Scales::blocks, kParts, kSets>("e4m3 blocks", 4096, 1536);
  check_form<Format::int4, Scales::groups, kParts, kSets>("int4 groups", 2048, 3584);
}
template <int kParts, int kSets>
void time_all() {
  std::printf("parts %d sets %d\n", kParts, kSets);
  const struct {
    const char* name;
    int n, k;
  } shapes[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};
  for (const auto& s : shapes) time_form<Format::e4m3, Scales::rows, kParts, kSets>("e4m3 rows", s.name, s.n, s.k);
  for (const auto& s : shapes) time_form<Format::int4, Scales::groups, kParts, kSets>("int4 groups", s.name, s.n, s.k);
}
}  // namespace
}  // namespace workshop

int main(int argc, char** argv) {
  using namespace workshop;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "check") {
    check_all<1, 2>();
    check_all<1, 3>();
  } else if (mode == "time") {
    for (const int limit : {1 << 20, 113 << 10, 75 << 10}) {
      ring_limit = limit;
      std::printf("ring %d\n", limit);
      time_all<1, 2>();
      time_all<1, 3>();
    }
  } else {
    std::fprintf(stderr, "07_quantised check | time\n");
    return 2;
  }
  return 0;
}
