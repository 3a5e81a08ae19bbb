/// NCCL's functions. The library is opened when several ranks need it, so one GPU needs no NCCL.
#pragma once

#include <nccl.h>

#include "core/result.h"

namespace baton::cuda {

/// Functions of libnccl.so.2, which stays open until the process ends.
struct Nccl {
  /// Errors: unavailable names what is missing.
  static Result<Nccl> open();

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
};

}  // namespace baton::cuda
