/// The launch of the one-shot all-reduce, and how the ranks open each other's memory.
#include "kernels/cuda/one_shot_reduce.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "ranks/rank_group.h"

namespace baton::cuda {
namespace {

constexpr int kBlocks = 32;
constexpr int kThreads = 512;
constexpr std::int64_t kVectorBytes = 16;
/// 32 rows of 8192 in 16 bits. Larger sums are limited by the links, which NCCL uses better.
constexpr std::size_t kMostBytes = 512 << 10;
constexpr std::size_t kHalves = 2;
/// cudaMalloc gives allocations of this size blocks of their own, which another process can open.
constexpr std::size_t kAllocationGranule = 2 << 20;

__device__ __forceinline__ void set_flag(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ std::uint32_t read_flag(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

/// Waits until the flag has reached `call`, or all is over. Numbers of calls wrap around.
__device__ __forceinline__ void wait_for_flag(const std::uint32_t* flag, std::uint32_t call, const int* has_ended) {
  for (unsigned i = 1; static_cast<std::int32_t>(read_flag(flag) - call) < 0; ++i)
    if (i % 1024 == 0 && *reinterpret_cast<const volatile int*>(has_ended) != 0) return;
}

template <class T>
__global__ void __launch_bounds__(kThreads) one_shot_kernel(uint4* x, const OneShotPlaces places, std::int64_t n_vectors) {
  constexpr int kElements = static_cast<int>(kVectorBytes / sizeof(T));
  const int rank = places.rank;
  const int n_ranks = places.n_ranks;
  wait_for_kernel_before();
  const std::uint32_t call = places.calls[blockIdx.x] + 1;
  const std::int64_t half = static_cast<std::int64_t>(call % kHalves) * n_ranks;
  const auto slot = [&](int of, int from) {
    return reinterpret_cast<uint4*>(places.slots[of] + (half + from) * static_cast<std::int64_t>(kMostBytes));
  };
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  constexpr std::int64_t kStride = std::int64_t{kBlocks} * kThreads;
  for (std::int64_t i = first; i < n_vectors; i += kStride) {
    const uint4 own = x[i];
    for (int other = 0; other < n_ranks; ++other)
      if (other != rank) slot(other, rank)[i] = own;
  }
  __syncthreads();
  let_next_kernel_start();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < n_ranks && peer != rank) {
    __threadfence_system();
    set_flag(places.flags[peer] + rank * kBlocks + blockIdx.x, call);
    wait_for_flag(places.flags[rank] + peer * kBlocks + blockIdx.x, call, places.has_ended);
  }
  __syncthreads();
  for (std::int64_t i = first; i < n_vectors; i += kStride) {
    float sum[kElements];
    for (int from = 0; from < n_ranks; ++from) {
      const uint4 vector = from == rank ? x[i] : __ldcg(slot(rank, from) + i);
      const T* const terms = reinterpret_cast<const T*>(&vector);
#pragma unroll
      for (int j = 0; j < kElements; ++j) sum[j] = from == 0 ? to_f32(terms[j]) : sum[j] + to_f32(terms[j]);
    }
    uint4 rounded;
    T* const sums = reinterpret_cast<T*>(&rounded);
#pragma unroll
    for (int j = 0; j < kElements; ++j) sums[j] = from_f32<T>(sum[j]);
    x[i] = rounded;
  }
  if (threadIdx.x == 0) places.calls[blockIdx.x] = call;
}

/// What a rank tells the others.
struct Opening {
  std::int64_t process = 0;
  int ordinal = 0;
  bool is_open = false;
  std::byte* memory = nullptr;
  cudaIpcMemHandle_t handle{};
};

/// Number i of rank `rank`: sums of eight ranks are exact in bf16.
int known_number(std::int64_t i, int rank) { return static_cast<int>((i * 7 + rank * 13) % 17) - 8; }

std::size_t slots_bytes(int n_ranks) { return kHalves * static_cast<std::size_t>(n_ranks) * kMostBytes; }

/// Calls that may fail without harm: the error does not show up in the next launch.
bool succeeds(cudaError_t error) {
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

}  // namespace

bool OneShotReduce::can_add(const TensorView& x) {
  const std::size_t n_bytes = x.size_bytes();
  return n_bytes > 0 && n_bytes <= kMostBytes && n_bytes % kVectorBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % kVectorBytes == 0;
}

bool OneShotReduce::open_own() {
  const int n_ranks = ranks_.world_size();
  const std::size_t flag_bytes = static_cast<std::size_t>(n_ranks + 1) * kBlocks * sizeof(std::uint32_t);
  const std::size_t n_bytes =
      (slots_bytes(n_ranks) + flag_bytes + kAllocationGranule - 1) / kAllocationGranule * kAllocationGranule;
  if (!succeeds(cudaMalloc(reinterpret_cast<void**>(&memory_), n_bytes))) return false;
  if (!succeeds(cudaHostAlloc(reinterpret_cast<void**>(&has_ended_), sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable)))
    return false;
  *has_ended_ = 0;
  void* on_device = nullptr;
  if (!succeeds(cudaHostGetDevicePointer(&on_device, has_ended_, 0))) return false;
  places_.has_ended = static_cast<const int*>(on_device);
  return succeeds(cudaMemset(memory_, 0, n_bytes)) && succeeds(cudaDeviceSynchronize());
}

Result<bool> OneShotReduce::all_agree(bool is_fine) {
  const auto own = static_cast<std::byte>(is_fine);
  BATON_TRY(const std::vector<std::vector<std::byte>> all, ranks_.gather({&own, 1}));
  std::byte decision{1};
  for (const std::vector<std::byte>& one : all)
    if (one.size() != 1 || one[0] == std::byte{0}) decision = std::byte{0};
  if (!ranks_.broadcast({&decision, 1})) return fail(ErrorCode::unavailable, ranks_.fault().value_or("a rank is lost"));
  return decision != std::byte{0};
}

Result<bool> OneShotReduce::open_others(bool is_open) {
  const int n_ranks = ranks_.world_size();
  Opening own{::getpid(), device_.ordinal, is_open, memory_, {}};
  if (is_open) own.is_open = succeeds(cudaIpcGetMemHandle(&own.handle, memory_));
  BATON_TRY(const std::vector<std::vector<std::byte>> gathered,
            ranks_.gather({reinterpret_cast<const std::byte*>(&own), sizeof(own)}));
  std::vector<Opening> all(static_cast<std::size_t>(n_ranks));
  for (std::size_t rank = 0; rank < gathered.size(); ++rank)
    std::memcpy(&all[rank], gathered[rank].data(), std::min(sizeof(Opening), gathered[rank].size()));
  if (!ranks_.broadcast({reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(Opening)}))
    return fail(ErrorCode::unavailable, ranks_.fault().value_or("a rank is lost"));
  bool can_write = std::ranges::all_of(all, &Opening::is_open);
  places_.rank = ranks_.rank();
  places_.n_ranks = n_ranks;
  for (int rank = 0; can_write && rank < n_ranks; ++rank) {
    const Opening& other = all[static_cast<std::size_t>(rank)];
    std::byte* memory = other.memory;
    if (rank == ranks_.rank()) {
      // Its own.
    } else if (other.process == own.process) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(other.ordinal, 0);
      can_write = succeeds(enabled) || enabled == cudaErrorPeerAccessAlreadyEnabled;
    } else {
      can_write = succeeds(cudaIpcOpenMemHandle(&opened_[rank], other.handle, cudaIpcMemLazyEnablePeerAccess));
      memory = static_cast<std::byte*>(opened_[rank]);
    }
    places_.slots[rank] = memory;
    places_.flags[rank] = reinterpret_cast<std::uint32_t*>(memory + slots_bytes(n_ranks));
  }
  places_.calls = reinterpret_cast<std::uint32_t*>(memory_ + slots_bytes(n_ranks)) + n_ranks * kBlocks;
  return all_agree(can_write);
}

/// Adds known numbers of several sizes. A write that never arrives must not stop the start, so the wait has an end.
bool OneShotReduce::is_right() {
  constexpr std::int64_t kMost = static_cast<std::int64_t>(kMostBytes / sizeof(float));
  float* x = nullptr;
  if (!succeeds(cudaMalloc(reinterpret_cast<void**>(&x), kMostBytes))) return false;
  bool is_fine = true;
  std::vector<float> numbers(static_cast<std::size_t>(kMost));
  for (const std::int64_t n : {std::int64_t{4}, std::int64_t{20000}, kMost}) {
    for (std::int64_t i = 0; i < n; ++i)
      numbers[static_cast<std::size_t>(i)] = static_cast<float>(known_number(i, places_.rank));
    const std::size_t n_bytes = static_cast<std::size_t>(n) * sizeof(float);
    is_fine = is_fine && succeeds(cudaMemcpy(x, numbers.data(), n_bytes, cudaMemcpyHostToDevice));
    for (int call = 0; call < 3; ++call) add({reinterpret_cast<std::byte*>(x), DType::f32, {n}});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (cudaStreamQuery(device_.stream) == cudaErrorNotReady)
      if (std::chrono::steady_clock::now() > end || ranks_.is_broken()) *has_ended_ = 1;
    is_fine = is_fine && *has_ended_ == 0 && succeeds(cudaMemcpy(numbers.data(), x, n_bytes, cudaMemcpyDeviceToHost));
    for (std::int64_t i = 0; is_fine && i < n; ++i) {
      int sum = 0;
      for (int rank = 0; rank < places_.n_ranks; ++rank) sum += known_number(i, rank);
      // Each call after the first adds equal numbers.
      is_fine = numbers[static_cast<std::size_t>(i)] == static_cast<float>(sum * places_.n_ranks * places_.n_ranks);
    }
  }
  return succeeds(cudaFree(x)) && is_fine;
}

Result<std::unique_ptr<OneShotReduce>> OneShotReduce::make(const Device& device, RankGroup& ranks) {
  if (ranks.world_size() > kMostOneShotRanks || !ranks.is_on_one_host()) return std::unique_ptr<OneShotReduce>();
  check_cuda(cudaSetDevice(device.ordinal), "cudaSetDevice");
  std::unique_ptr<OneShotReduce> made(new OneShotReduce(device, ranks));
  BATON_TRY(const bool can_write, made->open_others(made->open_own()));
  if (!can_write) return std::unique_ptr<OneShotReduce>();
  BATON_TRY(const bool is_right, made->all_agree(made->is_right()));
  if (!is_right) return std::unique_ptr<OneShotReduce>();
  return made;
}

OneShotReduce::~OneShotReduce() {
  cudaSetDevice(device_.ordinal);
  cudaStreamSynchronize(device_.stream);
  for (void* const memory : opened_)
    if (memory != nullptr) cudaIpcCloseMemHandle(memory);
  cudaFree(memory_);
  cudaFreeHost(has_ended_);
}

void OneShotReduce::add(TensorView x) {
  visit_element(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_overlapped(device_, one_shot_kernel<T>, dim3(kBlocks), kThreads, 0, "all_reduce", reinterpret_cast<uint4*>(x.data),
                      places_, static_cast<std::int64_t>(x.size_bytes()) / kVectorBytes);
  });
}

void OneShotReduce::end() { *reinterpret_cast<volatile int*>(has_ended_) = 1; }

}  // namespace baton::cuda
