/// Sums and gathers over GPUs by words that show by themselves whether they have come.
#include "kernels/cuda/ranks/one_shot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <unistd.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "ranks/rank_group.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 512;
/// At most, and a power of two: so are the numbers of blocks that are launched.
constexpr unsigned kMostBlocks = 128;
constexpr int kReadsBetweenLooks = 4096;  ///< at is_aborted, which is in host memory
/// What an inbox holds where nothing has come: as two bf16 or f16, or one f32, not a number.
constexpr std::uint32_t kAbsent = 0xffffffffU;
constexpr int kAbsentByte = 0xff;
/// What is sent in its place, not a number either.
constexpr std::uint32_t kSentForAbsent = 0xfffefffeU;

/// 16 bytes of a tensor, which one thread sends and receives. Each of its parts arrives whole.
struct alignas(16) Word {
  std::uint32_t parts[4];
};

/// The largest tensor that an inbox takes from one rank. Two H100 add 4 MiB in 14.8 us and 16 MiB in 62, NCCL in 32.6 and 75; four
/// add 1.6 MiB in 18.9, NCCL in 23.2, and 4 MiB in 43 and 40.
constexpr std::size_t most_bytes(int world_size) { return world_size == 2 ? std::size_t{16} << 20 : std::size_t{2} << 20; }
constexpr std::size_t most_words(int world_size) { return most_bytes(world_size) / sizeof(Word); }
/// Gathers of more ranks were never measured.
constexpr int kGatheringRanks = 2;

/// The word as it is sent.
__device__ __forceinline__ Word sent(Word word) {
#pragma unroll
  for (std::uint32_t& part : word.parts)
    if (part == kAbsent) part = kSentForAbsent;
  return word;
}

__device__ __forceinline__ void send_word(Word* to, const Word& word) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.parts[0]), "r"(word.parts[1]),
               "r"(word.parts[2]), "r"(word.parts[3])
               : "memory");
}

/// Reads a word until all of it has come, and leaves its place empty for the call after the next one. Returns anything if the
/// group is aborted.
__device__ __forceinline__ Word receive_word(Word* from, const int* is_aborted) {
  Word word;
  for (int i = 1;; ++i) {
    asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.parts[0]), "=r"(word.parts[1]), "=r"(word.parts[2]), "=r"(word.parts[3])
                 : "l"(from)
                 : "memory");
    if (word.parts[0] != kAbsent && word.parts[1] != kAbsent && word.parts[2] != kAbsent && word.parts[3] != kAbsent) break;
    if (i % kReadsBetweenLooks == 0 && *static_cast<const volatile int*>(is_aborted) != 0) break;
  }
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(from), "r"(kAbsent) : "memory");
  return word;
}

/// The words that `sender` writes into the inbox of another rank, `receiver`, at calls of this parity.
template <int kRanks>
__device__ __forceinline__ Word* words_from(std::byte* inbox, std::uint32_t parity, int sender, int receiver) {
  const unsigned place = parity * (kRanks - 1) + static_cast<unsigned>(sender < receiver ? sender : sender - 1);
  return reinterpret_cast<Word*>(inbox) + place * most_words(kRanks);
}

/// Sends a word to every other rank's inbox, at the place `i` of this rank.
template <int kRanks>
__device__ __forceinline__ void send_to_all(const OneShotRanks& ranks, std::uint32_t parity, std::int64_t i, const Word& word) {
#pragma unroll
  for (int peer = 0; peer < kRanks; ++peer)
    if (peer != ranks.rank) send_word(words_from<kRanks>(ranks.inboxes[peer], parity, ranks.rank, peer) + i, word);
}

/// After the last word of a block's call: turns the parity of the block, and of blocks that only a larger grid has.
__device__ __forceinline__ void end_call(const OneShotRanks& ranks, std::uint32_t parity) {
  __syncthreads();
  const unsigned turned = blockIdx.x + threadIdx.x * gridDim.x;
  if (turned < kMostBlocks) ranks.parity_of_block[turned] = parity ^ 1U;
}

template <class T, int kRanks>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(Word* x, std::int64_t n_words, const __grid_constant__ OneShotRanks ranks) {
  constexpr int kElements = sizeof(Word) / sizeof(T);
  wait_for_kernel_before();
  const std::uint32_t parity = ranks.parity_of_block[blockIdx.x];
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
#pragma unroll 4
  for (std::int64_t i = first; i < n_words; i += step) send_to_all<kRanks>(ranks, parity, i, sent(x[i]));
  let_next_kernel_start();
  std::byte* const inbox = ranks.inboxes[ranks.rank];
  for (std::int64_t i = first; i < n_words; i += step) {
    float sum[kElements] = {};
#pragma unroll
    for (int sender = 0; sender < kRanks; ++sender) {
      const Word word = sender == ranks.rank
                            ? x[i]
                            : receive_word(words_from<kRanks>(inbox, parity, sender, ranks.rank) + i, ranks.is_aborted);
      const auto part = std::bit_cast<Elements<T, kElements>>(word);
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        const float value = to_f32(part.values[j]);
        sum[j] = sender == 0 ? value : sum[j] + value;
      }
    }
    store_f32(sum, reinterpret_cast<T*>(x + i));
  }
  end_call(ranks, parity);
}

/// A gather of some rows, in words: each rank's part has `n` a row, `out` has `n_out`.
struct GatheredWords {
  const Word* own;
  Word* out;
  std::uint32_t n_words;  ///< of a part
  std::uint32_t n;
  std::uint32_t n_out;
};

/// Where the word `i` of a part of `sender` goes; null if `out` does not have its column.
__device__ __forceinline__ Word* place_of(const GatheredWords& x, std::uint32_t i, int sender) {
  const std::uint32_t row = i / x.n;
  const std::uint32_t column = static_cast<std::uint32_t>(sender) * x.n + (i - row * x.n);
  return column < x.n_out ? x.out + static_cast<std::size_t>(row) * x.n_out + column : nullptr;
}

template <int kRanks>
__global__ void __launch_bounds__(kThreads) gather_kernel(GatheredWords x, const __grid_constant__ OneShotRanks ranks) {
  wait_for_kernel_before();
  const std::uint32_t parity = ranks.parity_of_block[blockIdx.x];
  const std::uint32_t first = blockIdx.x * kThreads + threadIdx.x;
  const std::uint32_t step = gridDim.x * kThreads;
#pragma unroll 4
  for (std::uint32_t i = first; i < x.n_words; i += step) {
    const Word own = sent(x.own[i]);  // the same bits here as elsewhere
    send_to_all<kRanks>(ranks, parity, i, own);
    if (Word* const to = place_of(x, i, ranks.rank); to != nullptr) *to = own;
  }
  let_next_kernel_start();
  std::byte* const inbox = ranks.inboxes[ranks.rank];
  for (std::uint32_t i = first; i < x.n_words; i += step) {
#pragma unroll
    for (int sender = 0; sender < kRanks; ++sender) {
      if (sender == ranks.rank) continue;
      const Word word = receive_word(words_from<kRanks>(inbox, parity, sender, ranks.rank) + i, ranks.is_aborted);
      if (Word* const to = place_of(x, i, sender); to != nullptr) *to = word;
    }
  }
  end_call(ranks, parity);
}

/// Where a rank's inbox is.
struct InboxAddress {
  std::int64_t process = 0;
  std::uint64_t pointer = 0;
  char bus_id[32] = {};
  cudaIpcMemHandle_t handle = {};
};

std::size_t inbox_bytes(int world_size) { return 2 * static_cast<std::size_t>(world_size - 1) * most_bytes(world_size); }

/// As many blocks as give every thread one word.
unsigned n_blocks_of(std::size_t n_words) {
  return std::min(std::bit_ceil(static_cast<unsigned>((n_words + kThreads - 1) / kThreads)), kMostBlocks);
}

/// Calls `body` with the number of ranks as a constant.
template <class Body>
void visit_ranks(int world_size, Body&& body) {
  switch (world_size) {
    case 2: return body(std::integral_constant<int, 2>{});
    case 3: return body(std::integral_constant<int, 3>{});
    case 4: return body(std::integral_constant<int, 4>{});
    default: check_failed("OneShot: more ranks than its kernels are made for");
  }
}
static_assert(kMostRanks == 4);

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
    check((*gathered)[rank].size() == sizeof(Part), "OneShot: ranks of another version");
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

OneShot::OneShot(const Device& device, const RankGroup& group) : device_(device), group_(group) {
  ranks_.rank = group.rank();
  ranks_.world_size = group.world_size();
}

std::unique_ptr<OneShot> OneShot::make(const Device& device, RankGroup& ranks) {
  if (!ranks.is_on_one_host() || ranks.world_size() > kMostRanks) return nullptr;
  std::unique_ptr<OneShot> made(new OneShot(device, ranks));
  if (!all_agree(ranks, made->allocate())) return nullptr;
  return all_agree(ranks, made->connect(ranks)) ? std::move(made) : nullptr;
}

/// The inbox, empty, the flag and the parities.
bool OneShot::allocate() {
  const std::size_t n_bytes = inbox_bytes(ranks_.world_size);
  auto& inbox = ranks_.inboxes[static_cast<std::size_t>(ranks_.rank)];
  if (!succeeds(cudaMalloc(reinterpret_cast<void**>(&inbox), n_bytes))) return false;
  constexpr std::size_t kParityBytes = kMostBlocks * sizeof(std::uint32_t);
  if (!succeeds(cudaMalloc(reinterpret_cast<void**>(&ranks_.parity_of_block), kParityBytes))) return false;
  if (!succeeds(
          cudaHostAlloc(reinterpret_cast<void**>(&is_aborted_), sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable)))
    return false;
  *is_aborted_ = 0;
  void* on_device = nullptr;
  if (!succeeds(cudaHostGetDevicePointer(&on_device, is_aborted_, 0))) return false;
  ranks_.is_aborted = static_cast<const int*>(on_device);
  return succeeds(cudaMemset(inbox, kAbsentByte, n_bytes)) && succeeds(cudaMemset(ranks_.parity_of_block, 0, kParityBytes)) &&
         succeeds(cudaDeviceSynchronize());
}

bool OneShot::connect(RankGroup& ranks) {
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

OneShot::~OneShot() {
  // A rank of a broken group may still write into this inbox: its process is about to end, and so is this one.
  if (group_.is_broken()) return;
  for (std::size_t rank = 0; rank < ranks_.inboxes.size(); ++rank)
    if (is_opened_[rank]) cudaIpcCloseMemHandle(ranks_.inboxes[rank]);
  cudaFree(ranks_.inboxes[static_cast<std::size_t>(ranks_.rank)]);
  cudaFree(ranks_.parity_of_block);
  cudaFreeHost(is_aborted_);
}

bool OneShot::adds(const TensorView& x) const { return x.size_bytes() % sizeof(Word) == 0 && is_aligned(x.data, sizeof(Word)); }

bool OneShot::fits(const TensorView& x) const { return x.size_bytes() <= most_bytes(ranks_.world_size); }

void OneShot::all_reduce(const TensorView& x) {
  const std::size_t most = most_words(ranks_.world_size);
  const std::size_t n_all = x.size_bytes() / sizeof(Word);
  auto* const words = reinterpret_cast<Word*>(x.data);
  visit_ranks(ranks_.world_size, [&](auto n_ranks) {
    visit_element(x.dtype, [&](auto element) {
      for (std::size_t begin = 0; begin < n_all; begin += most) {
        const std::size_t n_words = std::min(most, n_all - begin);
        launch_overlapped(device_, sum_kernel<decltype(element), n_ranks()>, dim3(n_blocks_of(n_words)), kThreads, 0,
                          "all_reduce", words + begin, static_cast<std::int64_t>(n_words), ranks_);
      }
    });
  });
}

bool OneShot::gathers(const AllGatherArgs& args) const {
  const auto is_of_words = [](const TensorView& x, int row_dimension) {
    return static_cast<std::size_t>(x.shape[row_dimension]) * size_bytes(x.dtype) % sizeof(Word) == 0 &&
           is_aligned(x.data, sizeof(Word));
  };
  const std::size_t row_bytes = static_cast<std::size_t>(args.parts.shape[2]) * size_bytes(args.parts.dtype);
  return ranks_.world_size == kGatheringRanks && is_of_words(args.parts, 2) && is_of_words(args.out, 1) &&
         row_bytes <= most_bytes(kGatheringRanks);
}

void OneShot::all_gather(const AllGatherArgs& args) {
  const std::size_t elements_of_word = sizeof(Word) / size_bytes(args.out.dtype);
  const std::size_t n = static_cast<std::size_t>(args.parts.shape[2]) / elements_of_word;
  const std::size_t n_out = static_cast<std::size_t>(args.out.shape[1]) / elements_of_word;
  const auto n_rows = static_cast<std::size_t>(args.out.shape[0]);
  const std::size_t most_rows = most_words(kGatheringRanks) / n;
  const auto* const own = reinterpret_cast<const Word*>(args.parts.data) + static_cast<std::size_t>(ranks_.rank) * n_rows * n;
  auto* const out = reinterpret_cast<Word*>(args.out.data);
  for (std::size_t row = 0; row < n_rows; row += most_rows) {
    const std::size_t n_words = std::min(most_rows, n_rows - row) * n;
    const GatheredWords words{own + row * n, out + row * n_out, static_cast<std::uint32_t>(n_words),
                              static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n_out)};
    launch_overlapped(device_, gather_kernel<kGatheringRanks>, dim3(n_blocks_of(n_words)), kThreads, 0, "all_gather", words,
                      ranks_);
  }
}

void OneShot::abort() { *static_cast<volatile int*>(is_aborted_) = 1; }

}  // namespace baton::cuda
