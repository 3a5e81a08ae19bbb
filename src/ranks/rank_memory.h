/// Memory that the ranks of one host share: a barrier, a ring of bytes from rank 0 to the others, and bytes for collectives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace baton {

/// Where another process of the host finds the memory. Trivially copyable.
struct RankMemoryPlace {
  std::int64_t process = 0;
  std::int32_t descriptor = -1;
  std::int32_t n_ranks = 0;
  std::uint64_t size_bytes = 0;  ///< of all
  std::uint64_t token = 0;       ///< which the memory begins with, so that another host's process is not taken for it
};

/// An anonymous file, mapped. It has no name: when the last process that mapped it ends, however that is, it is gone.
///
/// The functions that wait ask `is_ended` every few milliseconds, and then return false. mark_broken of any rank ends
/// all waits of all ranks. Thread: one thread of each rank for what waits; any for mark_broken and is_broken.
class RankMemory {
 public:
  using IsEnded = std::function<bool()>;

  /// Errors: out_of_memory.
  static Result<std::unique_ptr<RankMemory>> create(int n_ranks, std::size_t user_bytes);
  /// Maps the memory of another process. Nothing if that process is not on this host, or not to be looked at.
  static std::unique_ptr<RankMemory> attach(const RankMemoryPlace& place);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  RankMemoryPlace place() const;
  /// The bytes for collectives.
  std::span<std::byte> user() const;

  /// Waits until all ranks have called it as often. The rank that is late, if `timeout` passes or the wait ends.
  struct BarrierEnd {
    bool is_reached = false;
    int late_rank = -1;  ///< a rank that had not come when the time was over; -1: it was not over
  };
  BarrierEnd barrier(int rank, std::chrono::milliseconds timeout, const IsEnded& is_ended);

  /// Rank 0: appends to the ring. Waits while the slowest reader has more than the ring unread.
  bool write(std::span<const std::byte> bytes, const IsEnded& is_ended);
  /// Rank `rank` > 0: reads the next bytes.
  bool read(int rank, std::span<std::byte> bytes, const IsEnded& is_ended);

  void mark_broken();
  bool is_broken() const;

 private:
  struct Layout;
  RankMemory(Layout* layout, FileDescriptor file) : layout_(layout), file_(std::move(file)) {}
  std::byte* ring() const;

  Layout* layout_;
  FileDescriptor file_;  ///< of the creator, kept open for ranks that attach; none: attached
};

}  // namespace baton
