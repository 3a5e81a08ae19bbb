/// An all-reduce for the rows of decode steps: in one launch every rank writes its data to all others and adds what it got.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"
#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton {
class RankGroup;
}

namespace baton::cuda {

constexpr int kMostOneShotRanks = 8;

/// Memory of all ranks, as one of them launches the kernel with it.
struct OneShotPlaces {
  std::byte* slots[kMostOneShotRanks];      ///< of each rank: [half][rank][most bytes]
  std::uint32_t* flags[kMostOneShotRanks];  ///< of each rank: [rank][block]
  std::uint32_t* calls;                     ///< [block]: calls so far, of this rank
  const int* has_ended;                     ///< host memory
  int rank;
  int n_ranks;
};

/// Each rank has memory that the other GPUs of its host write to: two halves, used in turn, each with a slot for every
/// rank, and a flag for each rank and block of the launch. A block writes its part to all ranks, sets their flags to the
/// number of the call, waits for its own flags and adds the slots in rank order, in f32. A block writes to a half again
/// two calls later: the flags of the call between prove that the other rank's block has finished reading.
///
/// Thread: the backend's. All ranks must make the same calls in the same order.
class OneShotReduce {
 public:
  /// All ranks must call it. Null on all of them where GPUs cannot write to each other's memory, or where a sum of
  /// known numbers comes out wrong. Errors: unavailable (a rank is lost).
  static Result<std::unique_ptr<OneShotReduce>> make(const Device& device, RankGroup& ranks);
  ~OneShotReduce();
  OneShotReduce(const OneShotReduce&) = delete;
  OneShotReduce& operator=(const OneShotReduce&) = delete;

  /// Whether a tensor is small enough, and made of whole 16 bytes.
  static bool can_add(const TensorView& x);
  /// The sum over all ranks in place, see all_reduce in kernels/ops.h. May be captured in a graph.
  void add(TensorView x);
  /// Ends kernels that wait for a lost rank, also those enqueued later.
  void end();

 private:
  OneShotReduce(const Device& device, RankGroup& ranks) : device_(device), ranks_(ranks) {}
  bool open_own();
  Result<bool> open_others(bool is_open);
  Result<bool> all_agree(bool is_fine);
  bool is_right();

  const Device& device_;
  RankGroup& ranks_;
  OneShotPlaces places_{};
  std::byte* memory_ = nullptr;
  int* has_ended_ = nullptr;              ///< pinned host memory
  void* opened_[kMostOneShotRanks] = {};  ///< memory of other processes
};

}  // namespace baton::cuda
