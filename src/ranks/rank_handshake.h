/// How the ranks of a group find each other: connections from each rank to rank 0, and memory where they share a host.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "ranks/rank_group.h"
#include "ranks/rank_memory.h"

namespace baton {

/// Another rank, as rank 0 knows it; or rank 0, as the others know it.
struct RankPeer {
  int rank = 0;
  std::int64_t process = 0;
  std::string host;            ///< empty: this one
  FileDescriptor socket = {};  ///< connected
};

/// "rank 1 (process 4242 on node-2)".
std::string to_string(const RankPeer& peer);

/// What the ranks agreed on.
struct RankIntroduction {
  std::vector<RankPeer> peers;  ///< on rank 0 all others by rank, else rank 0
  std::vector<std::int64_t> process_ids;
  std::unique_ptr<RankMemory> memory;        ///< null: the ranks are on several hosts
  std::chrono::milliseconds hang_timeout{};  ///< rank 0's
};

/// See RankGroup::host and RankGroup::join.
Result<RankIntroduction> host_ranks(RankListener listener, const RankOptions& options);
Result<RankIntroduction> join_ranks(const RankOptions& options);

}  // namespace baton
