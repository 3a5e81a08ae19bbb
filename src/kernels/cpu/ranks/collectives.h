/// Collectives of the CPU backend: ranks of one host exchange data through memory that they share.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/ops.h"

namespace baton {
class RankGroup;
}

namespace baton::cpu {

/// The shared memory is cut into two halves, and each half into a slot for each rank. Data larger than a slot goes in
/// pieces, which use the halves in turn. A rank writes to a half again only two pieces later: the barrier of the piece
/// between proves that all ranks have finished reading it.
///
/// Thread: the backend's. All ranks must make the same calls in the same order.
class Collectives {
 public:
  /// `ranks` null: one rank, which exchanges nothing.
  explicit Collectives(std::shared_ptr<RankGroup> ranks);

  /// Whether a group can do without another network: its ranks must be on one host and share enough memory.
  static Result<void> check_ranks(const RankGroup* ranks);

  int rank() const;
  int world_size() const;
  /// See the functions of the same names in kernels/ops.h. Each rank adds a part of x for all ranks, in rank order, so
  /// the bits depend neither on which rank is late nor on how x is cut. If the group is broken, the results are
  /// worthless.
  void all_reduce(const Parallel& parallel, TensorView x);
  void all_gather(const Parallel& parallel, const AllGatherArgs& args);

 private:
  std::span<std::byte> slot(int rank) const;
  bool reduce_piece(const Parallel& parallel, TensorView piece);

  std::shared_ptr<RankGroup> ranks_;
  std::size_t slot_bytes_ = 0;
  std::size_t half_ = 0;  ///< 0 or 1: of the current piece
};

}  // namespace baton::cpu
