/// Measures how long this device takes to read bytes from memory once, without other work: the upper limit for
/// attention.
///
/// An entry point of the module for benchmarks only (`baton_cuda_read_us`), because no step has such an operation.
/// Reads run in a captured graph over buffers that rotate past the L2, as in the attention benchmark; sums are
/// checked. Several block sizes are tried, because few bytes need many blocks and many bytes need many loads in
/// flight; the fastest counts.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/cuda/device/device.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kRotatedBytes = 256LL << 20;
constexpr int kFewestCalls = 16;
constexpr int kReplays = 21;
constexpr int kWarmUp = 3;

__device__ std::uint32_t word_at(std::uint64_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B1u + static_cast<std::uint32_t>(i >> 32);
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  return x ^ (x >> 13);
}

__global__ void fill_words(std::uint32_t* words, std::int64_t n) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    words[i] = word_at(i);
}

/// The sum of the words [begin, end) that fill_words wrote, computed without reading memory.
__global__ void expected_sum(std::int64_t begin, std::int64_t end, std::uint32_t* sum) {
  std::uint32_t of_thread = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = begin + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += step)
    of_thread += word_at(i);
  atomicAdd(sum, of_thread);
}

/// Each block reads kLoads * kThreads * 16 neighbouring bytes and stores its sum.
template <int kLoads>
__global__ void __launch_bounds__(kThreads, 2) read_once(const uint4* in, std::int64_t n, std::uint32_t* sums) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kLoads) + threadIdx.x;
  uint4 loaded[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i)
    loaded[i] = first + i * kThreads < n ? __ldcs(in + first + i * kThreads) : make_uint4(0, 0, 0, 0);
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) sum += loaded[i].x + loaded[i].y + loaded[i].z + loaded[i].w;
  sum = __reduce_add_sync(0xffffffffu, sum);
  __shared__ std::uint32_t of_warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) sum += of_warps[warp];
    sums[blockIdx.x] = sum;
  }
}

/// Device memory for the duration of one measurement.
class Memory {
 public:
  explicit Memory(std::int64_t size_bytes) {
    if (cudaMalloc(&data_, static_cast<std::size_t>(size_bytes)) != cudaSuccess) {
      cudaGetLastError();  // clears the error of the failed allocation, so that the next launch does not report it
      data_ = nullptr;
    }
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::uint32_t* words() const { return static_cast<std::uint32_t*>(data_); }
  bool is_there() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
};

/// Reads of `n_bytes` each at successive offsets of a buffer.
struct Reads {
  const std::uint32_t* data = nullptr;
  std::uint32_t* sums = nullptr;  ///< [n_calls, n_blocks]
  std::int64_t n_bytes = 0;
  int n_regions = 0;
  int n_calls = 0;
  int n_loads = 0;  ///< 16-byte loads of a thread: 2, 4 or 8

  int n_blocks() const { return static_cast<int>((n_bytes / 16 + kThreads * n_loads - 1) / (kThreads * n_loads)); }
  std::int64_t first_word(int call) const { return call % n_regions * (n_bytes / 4); }
  void enqueue(cudaStream_t stream, int call) const {
    auto* const kernel = n_loads == 2 ? &read_once<2> : n_loads == 4 ? &read_once<4> : &read_once<8>;
    kernel<<<n_blocks(), kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(data + first_word(call)), n_bytes / 16,
                                                sums + static_cast<std::int64_t>(call) * n_blocks());
    check_launch("read_once");
  }
};

void check_sums(cudaStream_t stream, const Reads& reads) {
  const int call = reads.n_calls - 1;
  std::vector<std::uint32_t> sums(static_cast<std::size_t>(reads.n_blocks()));
  check_cuda(cudaMemcpy(sums.data(), reads.sums + static_cast<std::int64_t>(call) * reads.n_blocks(), sums.size() * 4,
                        cudaMemcpyDeviceToHost),
             "read_bandwidth");
  std::uint32_t read = 0;
  for (const std::uint32_t sum : sums) read += sum;
  check_cuda(cudaMemsetAsync(reads.sums, 0, 4, stream), "read_bandwidth");
  expected_sum<<<1024, 256, 0, stream>>>(reads.first_word(call), reads.first_word(call) + reads.n_bytes / 4, reads.sums);
  check_launch("expected_sum");
  std::uint32_t expected = 0;
  check_cuda(cudaMemcpyAsync(&expected, reads.sums, 4, cudaMemcpyDeviceToHost, stream), "read_bandwidth");
  check_cuda(cudaStreamSynchronize(stream), "read_bandwidth");
  check(read == expected, "read_bandwidth: a sum is wrong");
}

/// Median microseconds of one read, over replays of a graph of all calls.
double time_graph(cudaStream_t stream, const Reads& reads) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "read_bandwidth");
  for (int call = 0; call < reads.n_calls; ++call) reads.enqueue(stream, call);
  check_cuda(cudaStreamEndCapture(stream, &graph), "read_bandwidth");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "read_bandwidth");
  check_cuda(cudaGraphDestroy(graph), "read_bandwidth");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaEventCreate(&begin), "read_bandwidth");
  check_cuda(cudaEventCreate(&end), "read_bandwidth");
  std::vector<double> times;
  for (int i = 0; i < kReplays + kWarmUp; ++i) {
    check_cuda(cudaEventRecord(begin, stream), "read_bandwidth");
    check_cuda(cudaGraphLaunch(executable, stream), "read_bandwidth");
    check_cuda(cudaEventRecord(end, stream), "read_bandwidth");
    check_cuda(cudaEventSynchronize(end), "read_bandwidth");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "read_bandwidth");
    if (i >= kWarmUp) times.push_back(1e3 * static_cast<double>(milliseconds) / reads.n_calls);
  }
  check_cuda(cudaEventDestroy(begin), "read_bandwidth");
  check_cuda(cudaEventDestroy(end), "read_bandwidth");
  check_cuda(cudaGraphExecDestroy(executable), "read_bandwidth");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double read_us(int ordinal, std::int64_t n_bytes) {
  n_bytes = std::max<std::int64_t>(16, n_bytes / 16 * 16);
  check_cuda(cudaSetDevice(ordinal), "read_bandwidth");
  Reads reads;
  reads.n_bytes = n_bytes;
  reads.n_regions = static_cast<int>(std::max<std::int64_t>(2, (kRotatedBytes + n_bytes - 1) / n_bytes));
  reads.n_calls = (kFewestCalls + reads.n_regions - 1) / reads.n_regions * reads.n_regions;
  reads.n_loads = 2;
  const Memory data(reads.n_regions * n_bytes);
  const Memory sums(static_cast<std::int64_t>(reads.n_calls) * reads.n_blocks() * 4);
  if (!data.is_there() || !sums.is_there()) return 0;
  reads.data = data.words();
  reads.sums = sums.words();
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "read_bandwidth");
  fill_words<<<1024, 256, 0, stream>>>(data.words(), reads.n_regions * (n_bytes / 4));
  check_launch("fill_words");
  double us = std::numeric_limits<double>::infinity();
  for (const int n_loads : {2, 4, 8}) {
    reads.n_loads = n_loads;
    us = std::min(us, time_graph(stream, reads));
    check_sums(stream, reads);
  }
  check_cuda(cudaStreamDestroy(stream), "read_bandwidth");
  return us;
}

}  // namespace
}  // namespace baton::cuda

/// Median microseconds of a read-only kernel over `n_bytes` on device `ordinal`, launch included; 0 if there is too
/// little memory.
extern "C" double baton_cuda_read_us(int ordinal, std::int64_t n_bytes) { return baton::cuda::read_us(ordinal, n_bytes); }
