/// Collectives of the CUDA backend: calls NCCL or kernels of our own, and watches the ranks while a thread waits.
#include "kernels/cuda/ranks/collectives.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"
#include "ranks/rank_group.h"

namespace baton::cuda {
namespace {

/// Of each rank's data, when all are gathered to be added.
constexpr std::size_t kGatheredBytes = 4 << 20;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    default: check_failed("all_reduce: not a float dtype");
  }
}

std::string version_of(int version) { return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100); }

}  // namespace

Collectives::Collectives(const Device& device, std::shared_ptr<RankGroup> ranks, const Nccl& nccl, bool batch_invariant)
    : device_(device), ranks_(std::move(ranks)), nccl_(nccl), batch_invariant_(batch_invariant) {}

Result<std::unique_ptr<Collectives>> Collectives::make(const Device& device, std::shared_ptr<RankGroup> ranks,
                                                       bool batch_invariant) {
  BATON_TRY(const Nccl nccl, Nccl::open());
  std::unique_ptr<Collectives> made(new Collectives(device, std::move(ranks), nccl, batch_invariant));
  BATON_TRY_VOID(made->connect());
  return made;
}

Result<void> Collectives::connect() {
  const auto refuse = [&](std::string reason) {
    return fail(ErrorCode::unavailable, std::move(reason), "tensor_parallel_size");
  };
  const auto lost = [&] { return refuse(ranks_->fault().value_or("a rank is lost")); };
  struct Setup {
    int version = 0;
    ncclUniqueId id{};
  } setup;
  int version = 0;
  nccl_.get_version(&version);
  ncclResult_t result = ncclSuccess;
  if (rank() == 0) {
    setup.version = version;
    result = nccl_.get_unique_id(&setup.id);
    if (result != ncclSuccess) return refuse(fmt::format("NCCL cannot start: {}", nccl_.last_error(nullptr)));
  }
  if (!ranks_->broadcast({reinterpret_cast<std::byte*>(&setup), sizeof(setup)})) return lost();
  if (setup.version != version)
    return refuse(fmt::format("this rank has NCCL {}, and rank 0 has {}: all ranks must have the same", version_of(version),
                              version_of(setup.version)));
  // NCCL would wait without end for a rank that has failed before.
  if (!ranks_->barrier()) return lost();
  check_cuda(cudaSetDevice(device_.ordinal), "cudaSetDevice");
  result = nccl_.init_rank(&communicator_, world_size(), setup.id, rank());
  if (result != ncclSuccess) {
    communicator_ = nullptr;
    return refuse(fmt::format("NCCL cannot connect {} ranks: {}: {}", world_size(), nccl_.error_string(result),
                              nccl_.last_error(nullptr)));
  }
  if (batch_invariant_) {
    BATON_TRY(gathered_, device_memory(kGatheredBytes * static_cast<std::size_t>(world_size()), "sums in rank order"));
  }
  BATON_TRY_VOID(warm_up());
  one_shot_ = OneShot::make(device_, *ranks_);
  if (ranks_->is_broken()) return lost();
  return {};
}

/// NCCL's first calls.
Result<void> Collectives::warm_up() {
  // NCCL connects and allocates at the first call of each algorithm: before the cache takes the rest of the memory, and
  // before a graph is captured. The sizes are those of one row, of some rows and of a prompt.
  std::byte* memory = nullptr;
  constexpr std::size_t kMost = 16 << 20;
  if (cudaMalloc(reinterpret_cast<void**>(&memory), kMost) != cudaSuccess) {
    cudaGetLastError();
    return fail(ErrorCode::out_of_memory, fmt::format("no device memory for {} bytes of NCCL's first calls", kMost));
  }
  check_cuda(cudaMemsetAsync(memory, 0, kMost, device_.stream), "cudaMemset");
  for (const std::size_t n_bytes : {std::size_t{8} << 10, std::size_t{256} << 10, std::size_t{2} << 20, kMost}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      all_reduce({memory, dtype, {static_cast<std::int64_t>(n_bytes / size_bytes(dtype))}});
    const std::size_t share = n_bytes / static_cast<std::size_t>(world_size()) / sizeof(float);
    if (!is_aborted())
      check_enqueued(nccl_.all_gather(memory + static_cast<std::size_t>(rank()) * share * sizeof(float), memory, share,
                                      ncclFloat32, communicator_, device_.stream),
                     "all_gather");
  }
  wait_for_stream(this, device_, "NCCL");
  check_cuda(cudaFree(memory), "cudaFree");
  if (is_aborted()) return fail(ErrorCode::unavailable, ranks_->fault().value_or("a rank is lost"), "tensor_parallel_size");
  return {};
}

Collectives::~Collectives() {
  if (communicator_ != nullptr) {
    if (ranks_->is_broken())
      nccl_.abort(communicator_);
    else
      nccl_.destroy(communicator_);
  }
  // Kernels of a broken group may still run, which cudaFree would wait for: this process is about to end.
  if (!ranks_->is_broken()) cudaFree(gathered_);
}

int Collectives::rank() const { return ranks_->rank(); }

int Collectives::world_size() const { return ranks_->world_size(); }

void Collectives::abort(const std::string& reason) {
  ranks_->fail(reason);
  if (one_shot_ != nullptr) one_shot_->abort();
  nccl_.abort(std::exchange(communicator_, nullptr));
}

void Collectives::look_after_ranks() {
  if (is_aborted()) return;
  if (ranks_->is_broken()) return abort("it ends because another rank is lost");
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.get_async_error(communicator_, &state);
  if (asked == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) return;
  abort(fmt::format("NCCL: {}", nccl_.error_string(asked == ncclSuccess ? state : asked)));
}

void Collectives::check_enqueued(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  abort(fmt::format("NCCL's {}: {}: {}", what, nccl_.error_string(result), nccl_.last_error(communicator_)));
}

void Collectives::all_reduce(TensorView x) {
  const auto n = static_cast<std::size_t>(x.shape.n_elements());
  if (is_aborted() || n == 0) return;
  if (one_shot_ != nullptr && one_shot_->adds(x) && (batch_invariant_ || one_shot_->fits(x))) return one_shot_->all_reduce(x);
  if (batch_invariant_) return gather_and_add(x);
  device_.is_after_collective = true;
  check_enqueued(nccl_.all_reduce(x.data, x.data, n, nccl_type(x.dtype), ncclSum, communicator_, device_.stream), "all_reduce");
}

void Collectives::gather_and_add(const TensorView& x) {
  const std::int64_t n = x.shape.n_elements();
  const std::size_t element = size_bytes(x.dtype);
  const auto most = static_cast<std::int64_t>(kGatheredBytes / element);
  for (std::int64_t begin = 0; begin < n && !is_aborted(); begin += most) {
    const TensorView piece{x.data + static_cast<std::size_t>(begin) * element, x.dtype, {std::min(most, n - begin)}};
    check_enqueued(nccl_.all_gather(piece.data, gathered_, piece.size_bytes(), ncclUint8, communicator_, device_.stream),
                   "all_gather");
    sum_parts(device_, piece, gathered_, world_size());
  }
}

void Collectives::all_gather(const AllGatherArgs& args) {
  check(args.parts.shape[0] == world_size(), "all_gather: parts of another number of ranks");
  const std::size_t part_bytes = args.parts.size_bytes() / static_cast<std::size_t>(world_size());
  if (is_aborted() || part_bytes == 0) return;
  if (one_shot_ != nullptr && one_shot_->gathers(args)) return one_shot_->all_gather(args);
  const std::byte* const own = args.parts.data + static_cast<std::size_t>(rank()) * part_bytes;
  check_enqueued(nccl_.all_gather(own, args.parts.data, part_bytes, ncclUint8, communicator_, device_.stream), "all_gather");
  device_.is_after_collective = true;
  join_parts(device_, args);
}

void wait_for_event(Collectives* collectives, cudaEvent_t event, const char* what) {
  check_cuda(collectives == nullptr ? cudaEventSynchronize(event) : collectives->wait([&] { return cudaEventQuery(event); }),
             what);
}

void wait_for_stream(Collectives* collectives, const Device& device, const char* what) {
  check_cuda(collectives == nullptr ? cudaStreamSynchronize(device.stream)
                                    : collectives->wait([&] { return cudaStreamQuery(device.stream); }),
             what);
}

void all_reduce(const Device&, Collectives* collectives, TensorView x) {
  if (collectives != nullptr) collectives->all_reduce(x);
}

void all_gather(const Device& device, Collectives* collectives, const AllGatherArgs& args) {
  if (collectives != nullptr) return collectives->all_gather(args);
  check(args.parts.shape[0] == 1, "all_gather: parts of another number of ranks");
  join_parts(device, args);
}

}  // namespace baton::cuda
