/// Starts, joins and watches the ranks.
#include "cli/rank_session.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/version.h"
#include "core/limits/thread_body.h"
#include "core/log.h"
#include "load/rank_load.h"

namespace baton {
namespace {

constexpr std::chrono::seconds kEndByItself{4};
constexpr std::chrono::milliseconds kWatchPeriod{200};
constexpr std::size_t kRankWatchReserveBytes = std::size_t{64} << 10;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1";
}

}  // namespace

Result<std::unique_ptr<RankSession>> RankSession::start(const RankFlags& flags) {
  std::unique_ptr<RankSession> session(new RankSession);
  BATON_TRY_VOID(session->join(flags));
  return session;
}

Result<void> RankSession::join(const RankFlags& flags) {
  BATON_TRY(const RankPlace place, find_rank_place(flags, [](const char* name) { return std::getenv(name); }));
  if (place.world_size == 1) return {};
  const char* const token = std::getenv(kRankTokenVariable);
  const RankOptions options{.rank = place.rank,
                            .world_size = place.world_size,
                            .local_rank = place.local_rank,
                            .master_addr = place.master_addr,
                            .master_port = place.master_port,
                            .token = token == nullptr ? "" : token,
                            .version = version_line(),
                            .hang_timeout = std::chrono::milliseconds(std::llround(flags.rank_hang_timeout_s * 1000))};
  if (place.rank > 0) {
    if (!end_with_parent()) return fail(ErrorCode::unavailable, fmt::format("rank {}: rank 0 has ended", place.rank));
    BATON_TRY(group_, RankGroup::join(options));
  } else if (place.starts_others) {
    log::info("event=ranks_awaited ranks={}", place.world_size);
    BATON_TRY(others_, LocalRanks::start("", options));
    group_ = others_->group();
  } else {
    BATON_TRY(RankListener listener,
              RankListener::bind(is_loopback(place.master_addr) ? place.master_addr : "", place.master_port));
    log::info("event=ranks_awaited ranks={} address={}:{}", place.world_size, place.master_addr, listener.port());
    BATON_TRY(group_, RankGroup::host(std::move(listener), options));
  }
  watch();
  return {};
}

void RankSession::watch() {
  watcher_ = std::jthread(
      thread_body("rank-watch", kRankWatchReserveBytes, [this](MemoryReserve& reserve, const std::stop_token& stop) {
        reserve.restore();
        std::optional<std::string> sentence;
        while (!(sentence = group_->wait_fault(kWatchPeriod)))
          if (stop.stop_requested() || group_->has_ended()) return;
        if (is_rank_0()) log::error("event=rank_lost reason=\"{}\"", *sentence);
        const auto deadline = std::chrono::steady_clock::now() + kEndByItself;
        while (std::chrono::steady_clock::now() < deadline) {
          if (stop.stop_requested()) return;
          std::this_thread::sleep_for(kWatchPeriod);
        }
        if (is_rank_0()) print_error("baton", {ErrorCode::unavailable, *sentence});
        if (others_ != nullptr) others_->kill_all();
        std::_Exit(1);
      }));
}

RankSession::~RankSession() {
  if (watcher_.joinable()) {
    watcher_.request_stop();
    watcher_.join();
  }
  group_.reset();
  others_.reset();
}

int rank_main(const RankSession& session) { return run_rank(session.group()) ? 0 : 1; }

}  // namespace baton
