/// Sums and gathers over a few GPUs of one host, by kernels that write to the other GPUs' memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton {
class RankGroup;
}

namespace baton::cuda {

/// More ranks were never measured: every rank sends its tensor to every other.
inline constexpr int kMostRanks = 4;

/// What the kernel knows of the ranks.
struct OneShotRanks {
  std::array<std::byte*, kMostRanks> inboxes = {};  ///< of each rank, as this GPU addresses them
  std::uint32_t* parity_of_block = nullptr;         ///< [blocks] in this GPU's memory: of the calls before this one
  const int* is_aborted = nullptr;                  ///< in host memory
  int rank = 0;
  int world_size = 1;
};

/// One rank of a group whose GPUs reach each other's memory.
///
/// Every rank writes its tensor into an inbox on every other GPU, in words of 16 bytes. An empty inbox holds one pattern,
/// which is not a number and is never sent: a rank reads a word again until nothing of it is that pattern, and empties its
/// place. So data need no flag beside them, and no thread waits for more than the words of a sum.
///
/// Inboxes of two calls alternate. A rank sends the words of call n + 2 only after it has all words of call n + 1; the other
/// ranks send those after their call n has ended, with every place of its inbox emptied in that GPU's own memory. The parts
/// are added in f32 in rank order, rounded once.
///
/// Thread: the backend's. All ranks must make the same calls in the same order.
class OneShot {
 public:
  /// All ranks must call it. Null on every rank if a GPU cannot write to another's memory, if the ranks run on several
  /// hosts, if there are more than kMostRanks, or if the group is broken. `ranks` must outlive it.
  static std::unique_ptr<OneShot> make(const Device& device, RankGroup& ranks);
  ~OneShot();
  OneShot(const OneShot&) = delete;
  OneShot& operator=(const OneShot&) = delete;

  /// Whether `all_reduce` takes the tensor: it consists of whole, aligned words.
  bool adds(const TensorView& x) const;
  /// Whether an inbox takes the tensor in one piece. NCCL adds larger ones sooner.
  bool fits(const TensorView& x) const;
  /// Whether `all_gather` does: there are two ranks, and rows are of whole, aligned words.
  bool gathers(const AllGatherArgs& args) const;
  /// See kernels/ops.h. Both may be captured in a graph, and go in pieces that fit an inbox.
  void all_reduce(const TensorView& x);
  void all_gather(const AllGatherArgs& args);
  /// Ends kernels that wait for words of a lost rank. Their results are worthless.
  void abort();

 private:
  OneShot(const Device& device, const RankGroup& group);
  bool allocate();
  bool connect(RankGroup& ranks);

  const Device& device_;
  const RankGroup& group_;
  OneShotRanks ranks_;
  std::array<bool, kMostRanks> is_opened_ = {};  ///< inboxes of other processes
  int* is_aborted_ = nullptr;                    ///< pinned
};

}  // namespace baton::cuda
