/// Which rank this process is: said by flags, by the program that started it, or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"

namespace baton {

/// The values of the flags of the same names. Negative, 0 or empty: not given.
struct RankFlags {
  int tensor_parallel_size = 1;
  int rank = -1;
  int world_size = 0;
  std::string master_addr = {};
  int master_port = 0;
  double rank_hang_timeout_s = 6;
};

/// Where a process stands among the ranks.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< index among the ranks of this host
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  bool starts_others = false;  ///< rank 0 starts the other ranks on this host
};

/// The port of rank 0 if none is named: PyTorch's.
inline constexpr std::uint16_t kDefaultMasterPort = 29500;

/// Looks up a variable of the environment; null: it is not set.
using ReadEnvironment = std::function<const char*(const char* name)>;

/// The flags say it first, then the environment of torchrun, mpirun (Open MPI, MPICH), an indexed Kubernetes job or a
/// LeaderWorkerSet; a launcher of one process says nothing. The environment counts only beside a tensor_parallel_size
/// above 1, which the world size must equal: several independent servers may be started by a launcher too. Without
/// either, rank 0 starts the others. Errors: invalid_request (names the flag or variable).
Result<RankPlace> find_rank_place(const RankFlags& flags, const ReadEnvironment& read);

}  // namespace baton
