/// Sums over GPUs by words that carry their call's number, so that data and flag arrive together.
#include "kernels/cuda/one_shot_sum.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "kernels/cuda/alignment.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "ranks/rank_group.h"

namespace baton::cuda {
namespace {

constexpr int kSumThreads = 512;
/// The number is fixed, because each block counts its calls.
constexpr int kSumBlocks = 64;
constexpr std::size_t kWordBytes = 8;  ///< of a tensor in one word
/// Two H200 add 1 MiB in 9.6 us, NCCL in 13.4. Above it, NCCL sends half as much.
constexpr std::size_t kMostSumBytes = std::size_t{1} << 20;
constexpr std::int64_t kMostWords = kMostSumBytes / kWordBytes;
constexpr int kReadsBetweenLooks = 4096;  ///< at is_aborted, which is in host memory
/// Words carry 32 bits of a call's number, and inboxes keep words that later, smaller tensors do not reach. So that none is
/// ever 2^32 calls old, two calls in so many write the whole inbox.
constexpr std::uint32_t kRefreshPeriod = std::uint32_t{1} << 30;
/// The first number, so that every group meets a refresh soon.
constexpr std::uint32_t kCallsBefore = kRefreshPeriod - 3;

/// 8 bytes of a tensor, in two halves with the call's number in the upper half of each.
struct alignas(16) Word {
  std::uint64_t low;
  std::uint64_t high;
};

__device__ __forceinline__ void send_word(Word* to, std::uint64_t payload, std::uint64_t call) {
  const std::uint64_t low = (call << 32) | (payload & 0xffffffffu);
  const std::uint64_t high = (call << 32) | (payload >> 32);
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(low), "l"(high) : "memory");
}

/// Reads a word until it is of this call; returns what it holds, or anything if the group is aborted.
__device__ __forceinline__ std::uint64_t receive_word(const Word* from, std::uint64_t call, const int* is_aborted) {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (int i = 1;; ++i) {
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
    if (low >> 32 == call && high >> 32 == call) break;
    if (i % kReadsBetweenLooks == 0 && *static_cast<const volatile int*>(is_aborted) != 0) break;
  }
  return (high << 32) | (low & 0xffffffffu);
}

/// The words that `sender` writes into an inbox at calls of this parity.
__device__ __forceinline__ Word* words_from(std::byte* inbox, std::uint64_t call, int world_size, int sender) {
  return reinterpret_cast<Word*>(inbox) + ((call & 1) * world_size + sender) * kMostWords;
}

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    one_shot_sum_kernel(std::uint64_t* x, std::int64_t n_words, const __grid_constant__ SummedRanks ranks) {
  constexpr int kElements = kWordBytes / sizeof(T);
  union Payload {
    std::uint64_t bits;
    Elements<T, kElements> elements;
  };
  wait_for_kernel_before();
  const std::uint64_t call = ranks.n_calls[blockIdx.x] + 1U;
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(kSumThreads) + threadIdx.x;
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kSumBlocks) * kSumThreads;
  const std::int64_t n_sent = call % kRefreshPeriod < 2 ? kMostWords : n_words;
  for (std::int64_t i = first; i < n_sent; i += kStep) {
    const std::uint64_t own = i < n_words ? x[i] : 0;
    for (int peer = 0; peer < ranks.world_size; ++peer)
      if (peer != ranks.rank) send_word(words_from(ranks.inboxes[peer], call, ranks.world_size, ranks.rank) + i, own, call);
  }
  let_next_kernel_start();
  std::byte* const inbox = ranks.inboxes[ranks.rank];
  for (std::int64_t i = first; i < n_words; i += kStep) {
    float sum[kElements] = {};
    for (int sender = 0; sender < ranks.world_size; ++sender) {
      Payload part;
      part.bits = sender == ranks.rank
                      ? x[i]
                      : receive_word(words_from(inbox, call, ranks.world_size, sender) + i, call, ranks.is_aborted);
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        const float value = to_f32(part.elements.values[j]);
        sum[j] = sender == 0 ? value : sum[j] + value;
      }
    }
    store_f32(sum, reinterpret_cast<T*>(x + i));
  }
  __syncthreads();
  if (threadIdx.x == 0) ranks.n_calls[blockIdx.x] = static_cast<std::uint32_t>(call);
}

/// Where a rank's inbox is.
struct InboxAddress {
  std::int64_t process = 0;
  std::uint64_t pointer = 0;
  char bus_id[32] = {};
  cudaIpcMemHandle_t handle = {};
};

std::size_t inbox_bytes(int world_size) { return 2 * static_cast<std::size_t>(world_size) * kMostWords * sizeof(Word); }

bool succeeds(cudaError_t error) {
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

/// What all ranks say, on all ranks: parts[rank]. False if the group is broken.
template <class Part>
bool exchange(RankGroup& ranks, const Part& own, std::vector<Part>& parts) {
  parts.resize(static_cast<std::size_t>(ranks.world_size()));
  const auto gathered = ranks.gather({reinterpret_cast<const std::byte*>(&own), sizeof(Part)});
  if (!gathered) return false;
  for (std::size_t rank = 0; rank < gathered->size(); ++rank) {
    check((*gathered)[rank].size() == sizeof(Part), "OneShotSum: ranks of another version");
    std::memcpy(&parts[rank], (*gathered)[rank].data(), sizeof(Part));
  }
  return ranks.broadcast({reinterpret_cast<std::byte*>(parts.data()), parts.size() * sizeof(Part)});
}

/// Whether all ranks say yes.
bool all_agree(RankGroup& ranks, bool own) {
  std::vector<std::uint8_t> answers;
  if (!exchange(ranks, static_cast<std::uint8_t>(own), answers)) return false;
  for (const std::uint8_t answer : answers)
    if (answer == 0) return false;
  return true;
}

}  // namespace

OneShotSum::OneShotSum(const Device& device, const RankGroup& group) : device_(device), group_(group) {
  ranks_.rank = group.rank();
  ranks_.world_size = group.world_size();
}

std::unique_ptr<OneShotSum> OneShotSum::make(const Device& device, RankGroup& ranks) {
  if (!ranks.is_on_one_host() || ranks.world_size() > kMostSummedRanks) return nullptr;
  std::unique_ptr<OneShotSum> made(new OneShotSum(device, ranks));
  if (!all_agree(ranks, made->allocate())) return nullptr;
  return all_agree(ranks, made->connect(ranks)) ? std::move(made) : nullptr;
}

/// The inbox and the flag, zero, and the counts of calls.
bool OneShotSum::allocate() {
  const std::size_t n_bytes = inbox_bytes(ranks_.world_size);
  auto& inbox = ranks_.inboxes[static_cast<std::size_t>(ranks_.rank)];
  if (!succeeds(cudaMalloc(reinterpret_cast<void**>(&inbox), n_bytes))) return false;
  if (!succeeds(cudaMalloc(reinterpret_cast<void**>(&ranks_.n_calls), kSumBlocks * sizeof(std::uint32_t)))) return false;
  if (!succeeds(
          cudaHostAlloc(reinterpret_cast<void**>(&is_aborted_), sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable)))
    return false;
  *is_aborted_ = 0;
  void* on_device = nullptr;
  if (!succeeds(cudaHostGetDevicePointer(&on_device, is_aborted_, 0))) return false;
  ranks_.is_aborted = static_cast<const int*>(on_device);
  const std::vector<std::uint32_t> n_calls(kSumBlocks, kCallsBefore);
  return succeeds(cudaMemset(inbox, 0, n_bytes)) &&
         succeeds(cudaMemcpy(ranks_.n_calls, n_calls.data(), kSumBlocks * sizeof(std::uint32_t), cudaMemcpyHostToDevice)) &&
         succeeds(cudaDeviceSynchronize());
}

bool OneShotSum::connect(RankGroup& ranks) {
  InboxAddress own;
  own.process = getpid();
  std::byte* const inbox = ranks_.inboxes[static_cast<std::size_t>(ranks_.rank)];
  own.pointer = reinterpret_cast<std::uint64_t>(inbox);
  check_cuda(cudaDeviceGetPCIBusId(own.bus_id, sizeof(own.bus_id), device_.ordinal), "cudaDeviceGetPCIBusId");
  bool is_connected = succeeds(cudaIpcGetMemHandle(&own.handle, inbox));
  std::vector<InboxAddress> addresses;
  if (!exchange(ranks, own, addresses)) return false;
  for (int rank = 0; rank < ranks_.world_size && is_connected; ++rank) {
    if (rank == ranks_.rank) continue;
    const InboxAddress& address = addresses[static_cast<std::size_t>(rank)];
    auto& theirs = ranks_.inboxes[static_cast<std::size_t>(rank)];
    int peer = -1;
    int has_link = 0;  // atomics of one GPU in another's memory: over NVLink, and not over PCIe
    is_connected = succeeds(cudaDeviceGetByPCIBusId(&peer, address.bus_id)) && peer != device_.ordinal &&
                   succeeds(cudaDeviceGetP2PAttribute(&has_link, cudaDevP2PAttrNativeAtomicSupported, device_.ordinal, peer)) &&
                   has_link != 0;
    if (!is_connected) break;
    if (address.process == own.process) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
      is_connected = enabled == cudaErrorPeerAccessAlreadyEnabled || enabled == cudaSuccess;
      cudaGetLastError();
      theirs = reinterpret_cast<std::byte*>(address.pointer);
    } else {
      void* opened = nullptr;
      is_connected = succeeds(cudaIpcOpenMemHandle(&opened, address.handle, cudaIpcMemLazyEnablePeerAccess));
      is_opened_[static_cast<std::size_t>(rank)] = is_connected;
      theirs = static_cast<std::byte*>(opened);
    }
  }
  return is_connected;
}

OneShotSum::~OneShotSum() {
  // A rank of a broken group may still write into this inbox: its process is about to end, and so is this one.
  if (group_.is_broken()) return;
  for (std::size_t rank = 0; rank < ranks_.inboxes.size(); ++rank)
    if (is_opened_[rank]) cudaIpcCloseMemHandle(ranks_.inboxes[rank]);
  cudaFree(ranks_.inboxes[static_cast<std::size_t>(ranks_.rank)]);
  cudaFree(ranks_.n_calls);
  cudaFreeHost(is_aborted_);
}

bool OneShotSum::takes(const TensorView& x) const {
  return x.size_bytes() <= kMostSumBytes && x.size_bytes() % kWordBytes == 0 && is_aligned(x.data, kWordBytes);
}

void OneShotSum::all_reduce(const TensorView& x) {
  const auto n_words = static_cast<std::int64_t>(x.size_bytes() / kWordBytes);
  visit_element(x.dtype, [&](auto element) {
    launch_overlapped(device_, one_shot_sum_kernel<decltype(element)>, dim3(kSumBlocks), kSumThreads, 0, "all_reduce",
                      reinterpret_cast<std::uint64_t*>(x.data), n_words, ranks_);
  });
}

void OneShotSum::abort() { *static_cast<volatile int*>(is_aborted_) = 1; }

}  // namespace baton::cuda
