/// Experiment 5: in which order cuBLASLt adds along k, and what one order for all numbers of rows costs.
///
/// Reference: our kernel below, which adds a row's products by one chain of wgmma, 16 numbers of k at a time from the
/// first to the last ("chain"), and the same for both halves of k, added afterwards ("halves"). For each weight and
/// number of rows, each of cuBLASLt's choices is timed and its bits are compared with both. The reference itself is
/// timed too: rows of x are wgmma's M and rows of the weight its N, so that narrow weights still fill the device.
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -cudart static
///         -o 05_invariance workshop/05_invariance.cu -lcublasLt
///     ./05_invariance [SECONDS [--all]]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "invariance_wgmma.cuh"
#include "measure.cuh"
#include "streaming_instructions.cuh"

namespace workshop {
namespace {

constexpr int kStageK = 128;  ///< numbers of k in a stage, as two boxes of 64
constexpr int kMaxStages = 16;
constexpr int kReadPastEnd = 8192;  ///< wgmma reads 64 rows of x, of which a box may hold fewer

struct ChainParams {
  void* out;  ///< [n_rows, n]
  bool out_is_f32;
  int n_rows, n, k_begin, k_end;
  int n_tiles;  ///< of kN weight rows; the last one is moved to end at n
  int x_rows;   ///< of a box of x: 8, 16, 32 or 64
  int n_stages;
};

__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  return (std::uint64_t{1} << 62) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 16) | ((address & 0x3ffffu) >> 4);
}

/// out[rows of blockIdx.y, all] = x W^T over k_begin to k_end. 128 threads multiply, one thread copies.
template <int kN>
__global__ void __launch_bounds__(160, 1)
    chain_kernel(const __grid_constant__ ChainParams p, const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap w_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const std::uint32_t stages = address_of(memory);
  const std::uint32_t w_box = kN * 128, x_box = p.x_rows * 128, stage = 2 * (w_box + x_box);
  const std::uint32_t full = stages + p.n_stages * stage + kReadPastEnd, empty = full + 8 * kMaxStages;
  const int thread = static_cast<int>(threadIdx.x);
  const int k_stages = (p.k_end - p.k_begin) / kStageK;
  const int first_row = static_cast<int>(blockIdx.y) * 64;
  const int n_mine = (p.n_tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int total = n_mine * k_stages;
  const std::uint64_t policy = evict_first_policy();
  const auto tile_row = [&](int i) {
    return min((static_cast<int>(blockIdx.x) + i * static_cast<int>(gridDim.x)) * kN, p.n - kN);
  };
  const auto copy_w = [&](int i, int slot) {
    expect(full + 8 * slot, stage);
#pragma unroll
    for (int box = 0; box < 2; ++box)
      copy_box(stages + slot * stage + box * w_box, &w_map, p.k_begin + i % k_stages * kStageK + box * 64,
               tile_row(i / k_stages), full + 8 * slot, true, policy);
  };
  const auto copy_rows = [&](int i, int slot) {
#pragma unroll
    for (int box = 0; box < 2; ++box)
      copy_x<1>(stages + slot * stage + 2 * w_box + box * x_box, &x_map, p.k_begin + i % k_stages * kStageK + box * 64,
                first_row, full + 8 * slot);
  };
  const int ahead = min(total, p.n_stages);
  if (thread == 128) {
    for (int i = 0; i < p.n_stages; ++i) {
      init_barrier(full + 8 * i, 1);
      init_barrier(empty + 8 * i, 4);
    }
    fence_barrier_init();
    for (int i = 0; i < ahead; ++i) copy_w(i, i);
    prefetch_map(&x_map);
  }
  __syncthreads();
  wait_for_kernel_before();
  if (thread == 128) {
    for (int i = 0; i < ahead; ++i) copy_rows(i, i);
    int slot = 0, parity = 0;
    for (int i = ahead; i < total; ++i) {
      while (!has_ended<false>(empty + 8 * slot, parity)) {
      }
      copy_w(i, slot);
      copy_rows(i, slot);
      if (++slot == p.n_stages) slot = 0, parity ^= 1;
    }
    start_dependents();
  } else if (thread < 128) {
    int slot = 0, parity = 0;
    for (int tile = 0; tile < n_mine; ++tile) {
      float c[kN / 2];
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) c[i] = 0;
      int before = -1;
      for (int i = 0; i < k_stages; ++i) {
        while (!has_ended<false>(full + 8 * slot, parity)) {
        }
        wgmma_fence();
        const std::uint32_t w = stages + slot * stage, x = w + 2 * w_box;
#pragma unroll
        for (int step = 0; step < kStageK / 16; ++step)
          WideWgmma<kN>::multiply(c, descriptor(x + step / 4 * x_box + step % 4 * 32),
                                  descriptor(w + step / 4 * w_box + step % 4 * 32));
        wgmma_commit();
        wgmma_wait<1>();  // the stage before has been read
        if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
        before = slot;
        if (++slot == p.n_stages) slot = 0, parity ^= 1;
      }
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) asm volatile("" : "+f"(c[i])::"memory");
      if (thread % 32 == 0) arrive(empty + 8 * before);
      const int row = first_row + thread / 32 * 16 + thread % 32 / 4, column = tile_row(tile) + thread % 4 * 2;
#pragma unroll
      for (int i = 0; i < kN / 4; ++i) {
        const int r = row + i % 2 * 8;
        if (r >= p.n_rows) continue;
        const std::int64_t at = std::int64_t{r} * p.n + column + i / 2 * 8;
        if (p.out_is_f32)
          *reinterpret_cast<float2*>(static_cast<float*>(p.out) + at) = make_float2(c[2 * i], c[2 * i + 1]);
        else
          *reinterpret_cast<std::uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + at) = pack_pair(c[2 * i], c[2 * i + 1]);
      }
    }
  }
}

__global__ void fill_random(std::uint16_t* data, std::uint64_t n, std::uint32_t seed) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9E3779B1u + static_cast<std::uint32_t>(i >> 32) * 0x7FEB352Du + seed;
    h ^= h >> 16, h *= 0x85EBCA6Bu, h ^= h >> 13, h *= 0xC2B2AE35u, h ^= h >> 16;
    data[i] = static_cast<std::uint16_t>(((0x7bu + (h >> 9 & 3u)) << 7) | (h & 0x7fu) | ((h >> 8 & 1u) << 15));
  }
}
__global__ void add(const float* a, const float* b, float* out, std::uint64_t n) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x)
    out[i] = a[i] + b[i];
}
/// counts[0]: numbers of a that differ from b in a bit; counts[1], in float bits: the largest difference.
__global__ void compare(const float* a, const float* b, std::uint64_t n, unsigned* counts) {
  unsigned different = 0;
  float largest = 0;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    different += __float_as_uint(a[i]) != __float_as_uint(b[i]);
    const float apart = fabsf(a[i] - b[i]);
    largest = apart <= largest ? largest : apart;
  }
  atomicAdd(counts, different);
  atomicMax(counts + 1, __float_as_uint(largest));
}
/// A hash of row 0's bits.
__global__ void hash_row(const float* row, int n, unsigned* hash) {
  unsigned h = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 256) h += (__float_as_uint(row[i]) ^ 0x9E3779B1u) * (2u * i + 1u);
  atomicAdd(hash, h);
}
/// Of some columns of row 0 by float64: the largest relative error of `out`.
__global__ void check_row(const __nv_bfloat16* x, const __nv_bfloat16* w, const float* out, int k, unsigned* worst) {
  const int column = static_cast<int>(blockIdx.x) * 8;
  double sum = 0, size = 0;
  for (int i = static_cast<int>(threadIdx.x); i < k; i += 32) {
    const double v = double(__bfloat162float(x[i])) * double(__bfloat162float(w[std::int64_t{column} * k + i]));
    sum += v, size += fabs(v);
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_down_sync(~0u, sum, i), size += __shfl_down_sync(~0u, size, i);
  if (threadIdx.x == 0) atomicMax(worst, __float_as_uint(static_cast<float>(fabs(out[column] - sum) / size)));
}

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, cublasLtGetStatusString(status));
  std::exit(1);
}

template <class T>
T* allocate(std::uint64_t n) {
  T* pointer = nullptr;
  check_cuda(cudaMalloc(&pointer, n * sizeof(T)), "cudaMalloc");
  return pointer;
}

struct Weight {
  const char* name;
  int n, k;
  std::int64_t bytes() const { return std::int64_t{n} * k * 2; }
};
constexpr Weight kWeights[] = {{"8b o", 4096, 4096},
                               {"8b down", 4096, 14336},
                               {"8b qkv", 6144, 4096},
                               {"8b gate_up", 28672, 4096},
                               {"7b down", 4096, 11008}};
constexpr int kRows[] = {1, 8, 16, 32, 64, 128, 256, 2048};
constexpr int kMostRows = 2048, kMostK = 14336, kMostN = 28672;
constexpr std::size_t kWorkspaceBytes = 32 << 20;
constexpr std::int64_t kWeightRoom = 512LL << 20;

class Experiment {
 public:
  explicit Experiment(double seconds, bool prints_all) : seconds_(seconds), prints_all_(prints_all) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check_cublas(cublasLtCreate(&cublas_), "cublasLtCreate");
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
               "entry");
    encode_ = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
    int n_sms = 0, max_shared = 0;
    check_cuda(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, 0), "device");
    check_cuda(cudaDeviceGetAttribute(&max_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "device");
    n_sms_ = n_sms, max_shared_ = max_shared;
    weights_ = allocate<__nv_bfloat16>(kWeightRoom / 2);
    x_ = allocate<__nv_bfloat16>(std::uint64_t{kMostRows} * kMostK);
    for (float** out : {&chain_, &halves_, &out_}) *out = allocate<float>(std::uint64_t{kMostRows} * kMostN);
    workspace_ = allocate<unsigned char>(kWorkspaceBytes);
    counts_ = allocate<unsigned>(4);
    fill_random<<<1024, 256, 0, stream_>>>(reinterpret_cast<std::uint16_t*>(weights_), kWeightRoom / 2, 1);
    fill_random<<<1024, 256, 0, stream_>>>(reinterpret_cast<std::uint16_t*>(x_), std::uint64_t{kMostRows} * kMostK, 2);
    check_cuda(cudaStreamSynchronize(stream_), "fill");
  }

  void run() {
    std::printf(
        "us per call; 'any': cuBLASLt's fastest choice; 'chain': its fastest with the bits of one chain (numbers of such\n"
        "choices / choices with splitK 1 / all); 'classes': kinds of bits of row 0 among all choices; 'ours': chain by our "
        "kernel\n");
    std::printf("%-11s %5s %8s %8s %-12s %7s %8s  %s\n", "weight", "rows", "any", "chain", "chain/1/all", "classes", "ours",
                "ours is");
    for (const Weight& weight : kWeights) measure(weight);
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

  CUtensorMap map_of(const __nv_bfloat16* data, int n_rows, int k, int box_rows) const {
    CUtensorMap map;
    const cuuint64_t dims[2] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(n_rows)};
    const cuuint64_t strides[1] = {static_cast<cuuint64_t>(k) * 2};
    const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t steps[2] = {1, 1};
    if (encode_(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(data), dims, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
      std::fprintf(stderr, "cuTensorMapEncodeTiled failed\n");
      std::exit(1);
    }
    return map;
  }

  template <int kN>
  void enqueue_chain_of(cudaStream_t stream, const Weight& weight, const __nv_bfloat16* w, int n_rows, void* out, bool f32,
                        int k_begin, int k_end) {
    ChainParams p{out, f32, n_rows, weight.n, k_begin, k_end, (weight.n + kN - 1) / kN, 8, 0};
    while (p.x_rows < 64 && p.x_rows < n_rows) p.x_rows *= 2;
    const int stage = 2 * (kN + p.x_rows) * 128, other = kReadPastEnd + 16 * kMaxStages;
    p.n_stages = std::min(kMaxStages, (max_shared_ - other) / stage);
    const int shared = p.n_stages * stage + other;
    check_cuda(cudaFuncSetAttribute(chain_kernel<kN>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(std::min(n_sms_, p.n_tiles)), static_cast<unsigned>((n_rows + 63) / 64));
    config.blockDim = dim3(160);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check_cuda(cudaLaunchKernelEx(&config, chain_kernel<kN>, p, map_of(x_, n_rows, weight.k, p.x_rows),
                                  map_of(w, weight.n, weight.k, kN)),
               "chain");
  }
  void enqueue_chain(cudaStream_t stream, int width, const Weight& weight, const __nv_bfloat16* w, int n_rows, void* out,
                     bool f32, int k_begin, int k_end) {
    if (width == 32) return enqueue_chain_of<32>(stream, weight, w, n_rows, out, f32, k_begin, k_end);
    if (width == 48) return enqueue_chain_of<48>(stream, weight, w, n_rows, out, f32, k_begin, k_end);
    if (width == 56) return enqueue_chain_of<56>(stream, weight, w, n_rows, out, f32, k_begin, k_end);
    if (width == 96) return enqueue_chain_of<96>(stream, weight, w, n_rows, out, f32, k_begin, k_end);
    enqueue_chain_of<256>(stream, weight, w, n_rows, out, f32, k_begin, k_end);
  }

  unsigned n_different(const float* a, const float* b, std::uint64_t n) {
    check_cuda(cudaMemsetAsync(counts_, 0, 16, stream_), "memset");
    compare<<<512, 256, 0, stream_>>>(a, b, n, counts_);
    unsigned counts[2];
    check_cuda(cudaMemcpyAsync(counts, counts_, sizeof counts, cudaMemcpyDeviceToHost, stream_), "counts");
    check_cuda(cudaStreamSynchronize(stream_), "compare");
    return counts[0];
  }
  unsigned hash_of_row(const float* out, int n) {
    check_cuda(cudaMemsetAsync(counts_, 0, 16, stream_), "memset");
    hash_row<<<1, 256, 0, stream_>>>(out, n, counts_);
    unsigned hash = 0;
    check_cuda(cudaMemcpyAsync(&hash, counts_, sizeof hash, cudaMemcpyDeviceToHost, stream_), "hash");
    check_cuda(cudaStreamSynchronize(stream_), "hash");
    return hash;
  }

  void measure(const Weight& weight) {
    const std::uint64_t n_all = std::uint64_t{kMostRows} * weight.n;
    enqueue_chain(stream_, 256, weight, weights_, kMostRows, chain_, true, 0, weight.k);
    const int half = weight.k / 2 / kStageK * kStageK;
    enqueue_chain(stream_, 256, weight, weights_, kMostRows, halves_, true, 0, half);
    enqueue_chain(stream_, 256, weight, weights_, kMostRows, out_, true, half, weight.k);
    add<<<1024, 256, 0, stream_>>>(halves_, out_, halves_, n_all);
    check_cuda(cudaMemsetAsync(counts_, 0, 16, stream_), "memset");
    check_row<<<weight.n / 8, 32, 0, stream_>>>(x_, weights_, chain_, weight.k, counts_);
    unsigned worst = 0;
    check_cuda(cudaMemcpyAsync(&worst, counts_, sizeof worst, cudaMemcpyDeviceToHost, stream_), "worst");
    check_cuda(cudaStreamSynchronize(stream_), "reference");
    float error = 0;
    std::memcpy(&error, &worst, 4);
    std::printf("%s: one chain: relative error by float64 %.2g; halves differ from it in %.1f%%; row 0: %08x, halves %08x\n",
                weight.name, error, 100.0 * n_different(chain_, halves_, n_all) / double(n_all), hash_of_row(chain_, weight.n),
                hash_of_row(halves_, weight.n));
    // Rows of the reference alone and in company, and its other widths.
    for (const int width : {32, 48, 56, 96, 256})
      for (const int n_rows : {1, 5, 33, 2048}) {
        check_cuda(cudaMemsetAsync(out_, 0xff, n_all * 4, stream_), "memset");
        enqueue_chain(stream_, width, weight, weights_, n_rows, out_, true, 0, weight.k);
        if (const unsigned n = n_different(out_, chain_, std::uint64_t(n_rows) * weight.n); n != 0)
          std::printf("  width %d, %d rows: %u numbers have other bits\n", width, n_rows, n);
      }
    for (const int n_rows : kRows) measure_rows(weight, n_rows);
  }

  void measure_rows(const Weight& weight, int n_rows) {
    if (elapsed() > seconds_) return;
    const int n_copies = static_cast<int>(std::clamp<std::int64_t>(kWeightRoom / weight.bytes(), 2, 12));
    const int n_calls = n_rows > 256 ? 2 : std::max(8, n_copies);
    const auto copy = [&](int call) { return weights_ + call % n_copies * (weight.bytes() / 2); };
    cublasLtMatmulDescOpaque_t operation;
    check_cublas(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                 "desc");
    cublasLtMatrixLayoutOpaque_t w, x, y16, y32;
    const auto n = static_cast<std::uint64_t>(weight.n), k = static_cast<std::uint64_t>(weight.k);
    const auto m = static_cast<std::uint64_t>(n_rows);
    check_cublas(cublasLtMatrixLayoutInit(&w, CUDA_R_16BF, k, n, weight.k), "layout");
    check_cublas(cublasLtMatrixLayoutInit(&x, CUDA_R_16BF, k, m, weight.k), "layout");
    check_cublas(cublasLtMatrixLayoutInit(&y16, CUDA_R_16BF, n, m, weight.n), "layout");
    check_cublas(cublasLtMatrixLayoutInit(&y32, CUDA_R_32F, n, m, weight.n), "layout");
    cublasLtMatmulPreferenceOpaque_t preference;
    check_cublas(cublasLtMatmulPreferenceInit(&preference), "preference");
    const std::size_t room = kWorkspaceBytes;
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room),
        "preference");
    constexpr int kMost = 40;
    cublasLtMatmulHeuristicResult_t found[kMost];
    int n_found = 0, n_tried = 0, n_single = 0, n_chain = 0, n_halves = 0, n_mixed = 0;
    // Bits are compared as f32, times are of bf16 outputs; the choices of both may differ, so both are asked for bits.
    check_cublas(cublasLtMatmulAlgoGetHeuristic(cublas_, &operation, &w, &x, &y16, &y16, &preference, kMost, found, &n_found),
                 "heuristic");
    double any = 1e30, chain = 1e30;
    std::map<unsigned, int> classes;
    std::string others;
    int n_one = 0;
    const float one = 1, zero = 0;
    for (int i = 0; i < n_found && n_one < 16; ++i) {
      auto& algo = found[i];
      if (algo.state != CUBLAS_STATUS_SUCCESS) continue;
      int split = 0, id = 0, tile = 0, stages = 0, custom = 0, cluster = 0, inner = 0;
      unsigned reduction = 0;
      std::size_t got = 0;
      const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t what, auto& value) {
        cublasLtMatmulAlgoConfigGetAttribute(&algo.algo, what, &value, sizeof value, &got);
      };
      get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, split), get(CUBLASLT_ALGO_CONFIG_ID, id), get(CUBLASLT_ALGO_CONFIG_TILE_ID, tile);
      get(CUBLASLT_ALGO_CONFIG_STAGES_ID, stages), get(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, custom);
      get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction);
      std::uint16_t shape = 0;
      get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, shape), get(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, inner);
      cluster = shape;
      const bool single = split <= 1 && reduction == 0;
      ++n_tried, n_single += single, n_one += single;
      if (i >= 8 && !single) continue;
      // bf16 outputs: rounded from the chain's f32 sums they must equal it, so f32 outputs by the same algorithm are asked first.
      cublasLtMatmulHeuristicResult_t checked{};
      const bool f32 =
          cublasLtMatmulAlgoCheck(cublas_, &operation, &w, &x, &y32, &y32, &algo.algo, &checked) == CUBLAS_STATUS_SUCCESS &&
          checked.workspaceSize <= kWorkspaceBytes;
      check_cuda(cudaMemsetAsync(out_, 0xff, m * n * 4, stream_), "memset");
      const auto status = cublasLtMatmul(cublas_, &operation, &one, weights_, &w, x_, &x, &zero, out_, f32 ? &y32 : &y16, out_,
                                         f32 ? &y32 : &y16, &algo.algo, workspace_, kWorkspaceBytes, stream_);
      if (status != CUBLAS_STATUS_SUCCESS) continue;
      const unsigned from_chain = f32 ? n_different(out_, chain_, m * n) : n_different_rounded(chain_, m * n);
      const bool is_chain = from_chain == 0;
      const bool is_halves = !is_chain && f32 && n_different(out_, halves_, m * n) == 0;
      const unsigned row = f32 ? hash_of_row(out_, weight.n) : 0;
      n_chain += is_chain, n_halves += is_halves, n_mixed += !f32;
      if (f32) ++classes[row];
      const Timing timing = time_graph(
          stream_, n_calls,
          [&](cudaStream_t stream, int call) {
            check_cublas(cublasLtMatmul(cublas_, &operation, &one, copy(call), &w, x_, &x, &zero, out_, &y16, out_, &y16,
                                        &algo.algo, workspace_, kWorkspaceBytes, stream),
                         "matmul");
          },
          {}, 5);
      any = std::min(any, timing.us);
      if (is_chain && single) chain = std::min(chain, timing.us);
      if (prints_all_)
        std::printf(
            "    %d: %.2f us, %s%s%s row %08x, id %d tile %d stages %d custom %d cluster %d inner %d splitK %d reduction %u, "
            "differs in %.2f%%\n",
            i, timing.us,
            is_chain    ? "chain"
            : is_halves ? "halves"
                        : "other",
            f32 ? "" : " (bf16)", single ? "" : " split", row, id, tile, stages, custom, cluster, inner, split, reduction,
            100.0 * from_chain / double(m * n));
    }
    double ours = 1e30;
    int best = 0;
    if (n_rows <= 256)
      for (const int width : {32, 48, 56, 96, 256}) {
        const Timing timing = time_graph(
            stream_, n_calls,
            [&](cudaStream_t stream, int call) {
              enqueue_chain(stream, width, weight, copy(call), n_rows, out_, false, 0, weight.k);
            },
            {}, 7);
        if (timing.us < ours) ours = timing.us, best = width;
      }
    char numbers[40];
    std::snprintf(numbers, sizeof numbers, "%d/%d/%d", n_chain, n_single, n_tried);
    std::printf("%-11s %5d %8.2f %8.2f %-12s %7zu %8.2f  width %d; halves %d, seen as bf16 only %d\n", weight.name, n_rows, any,
                chain > 1e29 ? 0 : chain, numbers, classes.size(), ours > 1e29 ? 0 : ours, best, n_halves, n_mixed);
    std::fflush(stdout);
  }

  unsigned n_different_rounded(const float* exact, std::uint64_t n);

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double seconds_;
  bool prints_all_;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublas_ = nullptr;
  PFN_cuTensorMapEncodeTiled_v12000 encode_ = nullptr;
  int n_sms_ = 0, max_shared_ = 0;
  __nv_bfloat16 *weights_ = nullptr, *x_ = nullptr;
  float *chain_ = nullptr, *halves_ = nullptr, *out_ = nullptr;
  unsigned char* workspace_ = nullptr;
  unsigned* counts_ = nullptr;
};

__global__ void compare_rounded(const __nv_bfloat16* a, const float* exact, std::uint64_t n, unsigned* counts) {
  unsigned different = 0;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x)
    different += __bfloat16_as_ushort(a[i]) != __bfloat16_as_ushort(__float2bfloat16(exact[i]));
  atomicAdd(counts, different);
}
unsigned Experiment::n_different_rounded(const float* exact, std::uint64_t n) {
  check_cuda(cudaMemsetAsync(counts_, 0, 16, stream_), "memset");
  compare_rounded<<<512, 256, 0, stream_>>>(reinterpret_cast<const __nv_bfloat16*>(out_), exact, n, counts_);
  unsigned different = 0;
  check_cuda(cudaMemcpyAsync(&different, counts_, sizeof different, cudaMemcpyDeviceToHost, stream_), "counts");
  check_cuda(cudaStreamSynchronize(stream_), "compare");
  return different;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) {
  workshop::Experiment(argc > 1 ? std::atof(argv[1]) : 60, argc > 2 && std::strcmp(argv[2], "--all") == 0).run();
}
