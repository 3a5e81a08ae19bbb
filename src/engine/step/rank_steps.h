/// Keeps the executors of all ranks doing the same: rank 0's passes on what it is told, the others follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/dtype.h"
#include "core/result.h"
#include "engine/cache/cache_group.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include "model/decoder.h"
#include "ranks/rank_group.h"

namespace baton {

/// Rank 0's side. Each function tells the other ranks to call the function of Executor that has its name, and copies
/// what that one reads. A broken group is told nothing. Thread: engine only.
class RankSteps {
 public:
  /// `ranks` null: there is one rank, and every function does nothing.
  explicit RankSteps(std::shared_ptr<RankGroup> ranks) : ranks_(std::move(ranks)) {}

  /// Tells the other ranks what to load, in words of the loader; see next_load. Rank 0 opens its device after that, because
  /// devices connect to each other when they are opened.
  void load(std::string_view what);
  /// Tells the other ranks what the device of rank 0 is and decides, in words of the loader; see next_device.
  void device(std::string_view what);
  void create(const StepBounds& bounds);
  void allocate_cache(std::span<const CacheGroup> groups, std::int32_t block_len, DType dtype);
  void capture_steps(std::int32_t max_rows);
  void forward(const StepInput& step);
  void sample();
  /// `masks`: the first bytes of the mask memory, those of `n_rows` rows.
  void sample_masked(std::int32_t n_rows, std::span<const std::byte> masks);
  void wait();
  /// The other ranks forget their executor, or that they wait for one, and take the next load.
  void end();

  /// After create, allocate_cache and capture_steps: waits until every rank has done it. `own` is this rank's result.
  /// Returns the least free memory of all ranks in bytes. Errors: the first rank's that failed, by rank; unavailable.
  Result<std::int64_t> agree(const Result<void>& own, std::int64_t free_memory_bytes);
  /// A sentence; nothing while all ranks run.
  std::optional<std::string> fault() const;

 private:
  std::shared_ptr<RankGroup> ranks_;
};

/// The other ranks' side: waits for what rank 0 loads next. Nothing: rank 0 has ended the group. Errors: unavailable (the
/// group is broken).
Result<std::optional<std::string>> next_load(RankGroup& ranks);

/// The other ranks' side, after next_load: waits for what rank 0 says of its device. Nothing: rank 0 has given up this load or has
/// ended the group. Errors: unavailable (the group is broken).
Result<std::optional<std::string>> next_device(RankGroup& ranks);

/// The step of the bytes of another rank's StepInput, in the memory of `reused`. Errors: invalid_data where an offset, a count
/// or a size is not what a step within `bounds` has; the elements themselves are taken as they are.
Result<StepInput> unpack_step(std::span<const std::byte> bytes, const StepBounds& bounds, StepInput reused);

/// Makes an executor and runs what rank 0 passes on, until rank 0's executor ends. `backend` and `model` are this rank's
/// parts of rank 0's. Errors: this rank could not be set up (rank 0 knows it); unavailable (the group is broken).
Result<void> follow_rank_0(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, RankGroup& ranks);

}  // namespace baton
