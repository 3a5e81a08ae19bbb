/// Opens NCCL and looks up its functions.
#include "kernels/cuda/ranks/nccl.h"

#include <dlfcn.h>

#include <fmt/format.h>

namespace baton::cuda {

Result<Nccl> Nccl::open() {
  constexpr const char* kFile = "libnccl.so.2";
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(ErrorCode::unavailable, fmt::format("several GPUs need NCCL, and {} cannot be loaded: {}", kFile, dlerror()),
                "tensor_parallel_size");
  Nccl made;
  const char* missing = nullptr;
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(made.get_version, "ncclGetVersion");
  find(made.error_string, "ncclGetErrorString");
  find(made.last_error, "ncclGetLastError");
  find(made.get_unique_id, "ncclGetUniqueId");
  find(made.init_rank, "ncclCommInitRank");
  find(made.destroy, "ncclCommDestroy");
  find(made.abort, "ncclCommAbort");
  find(made.get_async_error, "ncclCommGetAsyncError");
  find(made.all_reduce, "ncclAllReduce");
  find(made.all_gather, "ncclAllGather");
  if (missing != nullptr)
    return fail(ErrorCode::unavailable, fmt::format("several GPUs need NCCL, and {} has no {}", kFile, missing),
                "tensor_parallel_size");
  return made;
}

}  // namespace baton::cuda
