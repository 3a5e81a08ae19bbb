/// Collectives of the CUDA backend, by NCCL or a kernel of our own on the backend's stream, and waits that end when a rank is
/// lost.
#pragma once

#include <memory>

#include "core/result.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ranks/nccl.h"
#include "kernels/cuda/ranks/one_shot.h"
#include "kernels/ops.h"

namespace baton {
class RankGroup;
}

namespace baton::cuda {

/// One rank of a communicator of several.
///
/// NCCL adds and gathers what the one-shot kernels do not take. A kernel of either waits for the other ranks' kernels on
/// the device. If a rank is lost, or NCCL reports an error, the wait that notices it aborts the communicator, which ends
/// these kernels, and breaks the group. From then on collectives enqueue nothing and results are worthless.
///
/// NCCL adds in an order that depends on the size of the data. In batch-invariant mode it adds nothing: it gathers, and every rank adds
/// in rank order what it has gathered, which gives the bits of the one-shot kernels.
///
/// Thread: the backend's. All ranks must make the same calls in the same order.
class Collectives {
 public:
  /// All ranks must call it. Connects to the others, each with a device of its own. Errors: unavailable (no NCCL, another
  /// version of it, NCCL's reason, a lost rank), out_of_memory.
  static Result<std::unique_ptr<Collectives>> make(const Device& device, std::shared_ptr<RankGroup> ranks,
                                                   bool batch_invariant);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int rank() const;
  int world_size() const;
  bool is_aborted() const { return communicator_ == nullptr; }
  /// See the functions of the same names in kernels/ops.h. Both may be captured in a graph.
  void all_reduce(TensorView x);
  void all_gather(const AllGatherArgs& args);

  /// Waits until `is_done` gives another answer than cudaErrorNotReady, and returns it.
  template <class Query>
  cudaError_t wait(const Query& is_done);

 private:
  Collectives(const Device& device, std::shared_ptr<RankGroup> ranks, const Nccl& nccl, bool batch_invariant);
  Result<void> connect();
  Result<void> warm_up();
  /// Checks the group and the communicator while a thread waits; aborts if one is broken.
  void look_after_ranks();
  void abort(const std::string& reason);
  void check_enqueued(ncclResult_t result, const char* what);
  /// All ranks' data in each rank's memory, piece by piece, and their sums.
  void gather_and_add(const TensorView& x);

  const Device& device_;
  std::shared_ptr<RankGroup> ranks_;
  Nccl nccl_;
  ncclComm_t communicator_ = nullptr;  ///< null: aborted
  std::unique_ptr<OneShot> one_shot_;  ///< null: NCCL does it all
  const bool batch_invariant_;
  std::byte* gathered_ = nullptr;  ///< [ranks, piece] of gather_and_add, in batch-invariant mode
};

template <class Query>
cudaError_t Collectives::wait(const Query& is_done) {
  constexpr int kQueriesBetweenLooks = 256;  // a query takes about a microsecond
  for (int i = 1;; ++i) {
    if (const cudaError_t state = is_done(); state != cudaErrorNotReady) return state;
    if (i % kQueriesBetweenLooks == 0) look_after_ranks();
  }
}

/// Waits for an event. `collectives` null: there is one rank.
void wait_for_event(Collectives* collectives, cudaEvent_t event, const char* what);
/// Waits for all operations of the device's stream.
void wait_for_stream(Collectives* collectives, const Device& device, const char* what);

/// See the functions of the same names in kernels/ops.h. `collectives` null: there is one rank.
void all_reduce(const Device& device, Collectives* collectives, TensorView x);
void all_gather(const Device& device, Collectives* collectives, const AllGatherArgs& args);
/// The last step of a sum in rank order: x[i] = parts[0][i] + parts[1][i] + ..., in f32, rounded once. parts [n_ranks, elements of x]
/// of x's dtype.
void sum_parts(const Device& device, const TensorView& x, const std::byte* parts, int n_ranks);
/// The last step of all_gather: out[row][rank * n + i] = parts[rank][row][i], for the columns that out has. At most 65,535
/// rows.
void join_parts(const Device& device, const AllGatherArgs& args);

}  // namespace baton::cuda
