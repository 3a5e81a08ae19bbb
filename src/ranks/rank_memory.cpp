/// An anonymous file that several processes map.
#include "ranks/rank_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "core/check.h"
#include "core/parallel.h"
#include "ranks/rank_group.h"
#include "ranks/shared_counter.h"

namespace baton {
namespace {

constexpr std::size_t kPage = 4096;
/// How long a rank sleeps before it looks whether its wait has been ended from outside.
constexpr long kSleepNs = 5'000'000;
/// A rank looks this often before it sleeps, and lets others run in between: another rank is mostly there within
/// microseconds. Where ranks have no processors of their own, it sleeps soon.
constexpr int kLooksWithProcessor = 2000;
constexpr int kLooksWithout = 20;

using MemoryClock = std::chrono::steady_clock;

std::size_t whole_pages(std::size_t n_bytes) { return (n_bytes + kPage - 1) / kPage * kPage; }

}  // namespace

/// The beginning of the memory. The ring and the bytes of the user follow, at page boundaries. Positions in the ring
/// count bytes modulo 2^32.
struct RankMemory::Layout {
  std::uint64_t token;
  std::uint64_t size_bytes;
  std::int32_t n_ranks;
  std::int32_t n_looks;
  std::atomic<std::uint32_t> is_broken;
  alignas(64) SharedCounter written;               ///< set by rank 0
  std::array<SharedCounter, kMaxRanks> n_read;     ///< set by each reader
  std::array<SharedCounter, kMaxRanks> n_arrived;  ///< barriers that each rank has come to

  /// Waits until `is_there(value of counter)`.
  template <class IsThere>
  bool wait(SharedCounter& counter, const IsThere& is_there, const IsEnded& is_ended) {
    for (int look = 0; look < n_looks; ++look) {
      if (is_there(counter.value.load(std::memory_order_acquire))) return true;
      if (is_broken.load(std::memory_order_relaxed) != 0) return false;
      std::this_thread::yield();
    }
    while (true) {
      const std::uint32_t seen = counter.value.load(std::memory_order_acquire);
      if (is_there(seen)) return true;
      if (is_broken.load() != 0 || is_ended()) return false;
      counter.sleep_while(seen, kSleepNs);
    }
  }
};

Result<std::unique_ptr<RankMemory>> RankMemory::create(int n_ranks, std::size_t user_bytes) {
  check(n_ranks >= 1 && n_ranks <= kMaxRanks, "RankMemory: a number of ranks out of range");
  const std::size_t size_bytes = whole_pages(sizeof(Layout)) + RankGroup::ring_bytes + whole_pages(user_bytes);
  FileDescriptor file(::memfd_create("baton-ranks", MFD_CLOEXEC));
  const auto no_memory = [&] {
    return fail(ErrorCode::out_of_memory,
                fmt::format("{} bytes of memory that the ranks share are not to be had: {}", size_bytes, std::strerror(errno)));
  };
  if (file.number() < 0 || ::ftruncate(file.number(), static_cast<off_t>(size_bytes)) != 0) return no_memory();
  void* mapped = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (mapped == MAP_FAILED) return no_memory();
  auto* layout = static_cast<Layout*>(mapped);
  std::random_device random;
  layout->token = (std::uint64_t{random()} << 32) | random();
  layout->size_bytes = size_bytes;
  layout->n_ranks = n_ranks;
  layout->n_looks = n_available_threads() >= 2 * n_ranks ? kLooksWithProcessor : kLooksWithout;
  return std::unique_ptr<RankMemory>(new RankMemory(layout, std::move(file)));
}

std::unique_ptr<RankMemory> RankMemory::attach(const RankMemoryPlace& place) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.number() < 0) return nullptr;
  // A file that is too small would kill a process that reads past its end.
  const off_t size_bytes = ::lseek(file.number(), 0, SEEK_END);
  void* mapped = MAP_FAILED;
  if (size_bytes > 0 && static_cast<std::uint64_t>(size_bytes) == place.size_bytes && place.size_bytes > sizeof(Layout))
    mapped = ::mmap(nullptr, place.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* layout = static_cast<Layout*>(mapped);
  if (layout->token != place.token || layout->size_bytes != place.size_bytes || layout->n_ranks != place.n_ranks) {
    ::munmap(mapped, place.size_bytes);
    return nullptr;
  }
  return std::unique_ptr<RankMemory>(new RankMemory(layout, {}));
}

RankMemory::~RankMemory() { ::munmap(layout_, layout_->size_bytes); }

RankMemoryPlace RankMemory::place() const {
  return {::getpid(), file_.number(), layout_->n_ranks, layout_->size_bytes, layout_->token};
}

std::byte* RankMemory::ring() const { return reinterpret_cast<std::byte*>(layout_) + whole_pages(sizeof(Layout)); }

std::span<std::byte> RankMemory::user() const {
  const std::size_t before = whole_pages(sizeof(Layout)) + RankGroup::ring_bytes;
  return {reinterpret_cast<std::byte*>(layout_) + before, layout_->size_bytes - before};
}

RankMemory::BarrierEnd RankMemory::barrier(int rank, std::chrono::milliseconds timeout, const IsEnded& is_ended) {
  const auto mine = static_cast<std::size_t>(rank);
  const std::uint32_t turn = layout_->n_arrived[mine].value.load(std::memory_order_relaxed) + 1;
  layout_->n_arrived[mine].set(turn);
  const MemoryClock::time_point deadline = MemoryClock::now() + timeout;
  for (int other = 0; other < layout_->n_ranks; ++other) {
    bool is_late = false;
    const auto has_come = [turn](std::uint32_t arrived) { return static_cast<std::int32_t>(arrived - turn) >= 0; };
    const auto ends = [&] { return is_ended() || (is_late = MemoryClock::now() > deadline); };
    if (!layout_->wait(layout_->n_arrived[static_cast<std::size_t>(other)], has_come, ends))
      return {false, is_late ? other : -1};
  }
  return {true, -1};
}

bool RankMemory::write(std::span<const std::byte> bytes, const IsEnded& is_ended) {
  std::uint32_t position = layout_->written.value.load(std::memory_order_relaxed);
  while (!bytes.empty()) {
    const std::size_t at = position % RankGroup::ring_bytes;
    // A quarter of the ring at a time, so that readers begin while the rest is written.
    const std::size_t n = std::min({bytes.size(), RankGroup::ring_bytes - at, RankGroup::ring_bytes / 4});
    for (int reader = 1; reader < layout_->n_ranks; ++reader) {
      const auto has_room = [&](std::uint32_t n_read) { return position - n_read + n <= RankGroup::ring_bytes; };
      if (!layout_->wait(layout_->n_read[static_cast<std::size_t>(reader)], has_room, is_ended)) return false;
    }
    std::memcpy(ring() + at, bytes.data(), n);
    position += static_cast<std::uint32_t>(n);
    layout_->written.set(position);
    bytes = bytes.subspan(n);
  }
  return !is_broken();
}

bool RankMemory::read(int rank, std::span<std::byte> bytes, const IsEnded& is_ended) {
  SharedCounter& mine = layout_->n_read[static_cast<std::size_t>(rank)];
  std::uint32_t position = mine.value.load(std::memory_order_relaxed);
  while (!bytes.empty()) {
    if (!layout_->wait(
            layout_->written, [&](std::uint32_t written) { return written != position; }, is_ended))
      return false;
    const std::uint32_t n_there = layout_->written.value.load(std::memory_order_acquire) - position;
    const std::size_t at = position % RankGroup::ring_bytes;
    const std::size_t n = std::min({bytes.size(), std::size_t{n_there}, RankGroup::ring_bytes - at});
    std::memcpy(bytes.data(), ring() + at, n);
    position += static_cast<std::uint32_t>(n);
    mine.set(position);
    bytes = bytes.subspan(n);
  }
  return true;
}

void RankMemory::mark_broken() {
  layout_->is_broken.store(1);
  layout_->written.wake();
  for (SharedCounter& counter : layout_->n_read) counter.wake();
  for (SharedCounter& counter : layout_->n_arrived) counter.wake();
}

bool RankMemory::is_broken() const { return layout_->is_broken.load(std::memory_order_relaxed) != 0; }

}  // namespace baton
