/// A rank's membership: what it shares, and what it hears of the others.
#include "ranks/rank_group.h"

#include <thread>

#include <fmt/format.h>

#include "core/check.h"
#include "core/thread_name.h"
#include "ranks/rank_handshake.h"
#include "ranks/rank_memory.h"
#include "ranks/rank_monitor.h"

namespace baton {

class RankGroup::Impl {
 public:
  Impl(RankIntroduction introduction, const RankOptions& options)
      : rank(options.rank),
        world_size(options.world_size),
        local_rank(options.local_rank),
        barrier_timeout(options.barrier_timeout),
        process_ids(std::move(introduction.process_ids)),
        memory(std::move(introduction.memory)),
        monitor(std::move(introduction.peers), rank, introduction.hang_timeout, [this] { wake_memory(); }) {}

  /// Ends the waits of all ranks of this host. The end in order needs none: then only receivers wait, and they look.
  void wake_memory() const {
    if (memory != nullptr && !monitor_has_ended()) memory->mark_broken();
  }
  bool monitor_has_ended() const { return monitor.has_ended(); }
  RankMemory::IsEnded is_over() const {
    return [this] { return monitor.is_over(); };
  }

  const int rank;
  const int world_size;
  const int local_rank;
  const std::chrono::milliseconds barrier_timeout;
  const std::vector<std::int64_t> process_ids;
  const std::unique_ptr<RankMemory> memory;  ///< null: the ranks are on several hosts
  RankMonitor monitor;
};

namespace {

void check_rank_options(const RankOptions& options) {
  check(options.world_size >= 1 && options.world_size <= kMaxRanks && options.rank >= 0 && options.rank < options.world_size,
        "RankGroup: a rank or a world size out of range");
}

}  // namespace

RankGroup::RankGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankGroup::~RankGroup() = default;

Result<std::shared_ptr<RankGroup>> RankGroup::host(RankListener listener, const RankOptions& options) {
  check_rank_options(options);
  check(options.rank == 0, "RankGroup: only rank 0 is the host");
  BATON_TRY(RankIntroduction introduction, host_ranks(std::move(listener), options));
  return std::shared_ptr<RankGroup>(new RankGroup(std::make_unique<Impl>(std::move(introduction), options)));
}

Result<std::shared_ptr<RankGroup>> RankGroup::join(const RankOptions& options) {
  check_rank_options(options);
  check(options.rank > 0, "RankGroup: rank 0 joins no other rank");
  BATON_TRY(RankIntroduction introduction, join_ranks(options));
  return std::shared_ptr<RankGroup>(new RankGroup(std::make_unique<Impl>(std::move(introduction), options)));
}

Result<std::vector<std::shared_ptr<RankGroup>>> RankGroup::make_threads(RankOptions options) {
  BATON_TRY(RankListener listener, RankListener::bind("127.0.0.1", 0));
  options.master_addr = "127.0.0.1";
  options.master_port = listener.port();
  std::vector<Result<std::shared_ptr<RankGroup>>> made(static_cast<std::size_t>(options.world_size));
  std::vector<std::thread> joining;
  for (int rank = 1; rank < options.world_size; ++rank)
    joining.emplace_back([&made, rank, options]() mutable {
      name_this_thread("rank-join");
      options.rank = options.local_rank = rank;
      made[static_cast<std::size_t>(rank)] = join(options);
    });
  options.rank = options.local_rank = 0;
  made[0] = host(std::move(listener), options);
  for (std::thread& thread : joining) thread.join();
  std::vector<std::shared_ptr<RankGroup>> groups;
  for (auto& group : made) {
    if (!group) return tl::unexpected<Error>(group.error());
    groups.push_back(std::move(*group));
  }
  return groups;
}

int RankGroup::rank() const { return impl_->rank; }
int RankGroup::world_size() const { return impl_->world_size; }
int RankGroup::local_rank() const { return impl_->local_rank; }
bool RankGroup::is_on_one_host() const { return impl_->memory != nullptr; }
const std::vector<std::int64_t>& RankGroup::process_ids() const { return impl_->process_ids; }

std::span<std::byte> RankGroup::memory() const {
  return impl_->memory == nullptr ? std::span<std::byte>{} : impl_->memory->user();
}

bool RankGroup::barrier() {
  if (impl_->memory == nullptr) {
    std::byte go{};
    return gather({}).has_value() && broadcast({&go, 1});
  }
  const RankMemory::BarrierEnd end = impl_->memory->barrier(impl_->rank, impl_->barrier_timeout, impl_->is_over());
  if (end.late_rank >= 0)
    fail(fmt::format("rank {} has not come to a barrier within {:.1f} s", end.late_rank,
                     std::chrono::duration<double>(impl_->barrier_timeout).count()));
  return end.is_reached;
}

bool RankGroup::send(std::span<const std::byte> bytes) {
  check(impl_->rank == 0, "RankGroup: only rank 0 sends");
  if (is_broken()) return false;
  if (impl_->memory != nullptr) return impl_->memory->write(bytes, impl_->is_over());
  impl_->monitor.send(RankFrame::stream, bytes);
  return true;
}

bool RankGroup::receive(std::span<std::byte> bytes) {
  check(impl_->rank > 0, "RankGroup: rank 0 receives nothing");
  if (impl_->memory == nullptr) return impl_->monitor.read_stream(bytes);
  return impl_->memory->read(impl_->rank, bytes, impl_->is_over());
}

bool RankGroup::broadcast(std::span<std::byte> bytes) { return impl_->rank == 0 ? send(bytes) : receive(bytes); }

Result<std::vector<std::vector<std::byte>>> RankGroup::gather(std::span<const std::byte> bytes) {
  std::vector<std::vector<std::byte>> of_ranks;
  if (impl_->rank > 0) {
    if (const auto sentence = fault()) return baton::fail(ErrorCode::unavailable, *sentence);
    impl_->monitor.send(RankFrame::reply, bytes);
    return of_ranks;
  }
  of_ranks.emplace_back(bytes.begin(), bytes.end());
  for (int rank = 1; rank < impl_->world_size; ++rank) {
    auto reply = impl_->monitor.read_reply(rank);
    if (!reply) return baton::fail(ErrorCode::unavailable, fault().value_or("the group has ended"));
    of_ranks.push_back(std::move(*reply));
  }
  return of_ranks;
}

bool RankGroup::is_broken() const {
  return (impl_->memory != nullptr && impl_->memory->is_broken()) || (impl_->monitor.is_over() && !impl_->monitor.has_ended());
}

bool RankGroup::has_ended() const { return impl_->monitor.has_ended(); }
std::optional<std::string> RankGroup::fault() const { return impl_->monitor.fault(); }
void RankGroup::fail(const std::string& sentence) {
  impl_->monitor.break_group(fmt::format("rank {}: {}", impl_->rank, sentence));
}
std::optional<std::string> RankGroup::wait_fault(std::chrono::milliseconds timeout) const {
  return impl_->monitor.wait_fault(timeout);
}

}  // namespace baton
