/// Starts processes from a thread that lives as long as they: the kernel kills them when the thread that started them ends.
#include "ranks/local_ranks.h"

#include <chrono>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/thread_name.h"

namespace baton {
namespace {

constexpr const char* kAddress = "127.0.0.1";
/// Processes on this host come at once, or not at all.
constexpr std::chrono::seconds kStartTimeout{60};

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

Result<std::unique_ptr<LocalRanks>> LocalRanks::start(const std::string& program, RankOptions options) {
  std::unique_ptr<LocalRanks> ranks(new LocalRanks(program));
  BATON_TRY(RankListener listener, RankListener::bind(kAddress, options.master_port));
  options.rank = options.local_rank = 0;
  options.master_addr = kAddress;
  options.master_port = listener.port();
  options.token = random_token();
  options.start_timeout = kStartTimeout;
  options.find_lost_rank = [&processes = ranks->processes_] { return processes.find_ended(); };
  BATON_TRY_VOID(ranks->start_processes(options));
  BATON_TRY(ranks->group_, RankGroup::host(std::move(listener), options));
  return ranks;
}

Result<void> LocalRanks::start_processes(const RankOptions& options) {
  std::promise<Result<void>> started;
  std::future<Result<void>> how = started.get_future();
  starter_ = std::thread([this, options, started = std::move(started)]() mutable {
    name_this_thread("rank starter");
    const auto start_all = [&]() -> Result<void> {
      for (int rank = 1; rank < options.world_size; ++rank)
        BATON_TRY_VOID(processes_.start(
            rank,
            {"rank", "--rank", std::to_string(rank), "--tensor-parallel-size", std::to_string(options.world_size),
             "--master-addr", options.master_addr, "--master-port", std::to_string(options.master_port)},
            {fmt::format("{}={}", kRankTokenVariable, options.token)}));
      return {};
    };
    started.set_value(start_all());
    end_.get_future().wait();
  });
  return how.get();
}

LocalRanks::~LocalRanks() {
  // A rank that hangs, or waits for a group that does not form, does not end by itself.
  if (group_ == nullptr || group_->fault()) processes_.kill_all();
  group_.reset();
  processes_.wait_all();
  end_.set_value();
  if (starter_.joinable()) starter_.join();
}

}  // namespace baton
