/// Copies between the host and a CUDA device that the host does not wait for when it enqueues them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ranks/collectives.h"

namespace baton::cuda {

/// Counts the readbacks that were enqueued on a stream: one that was enqueued before another has work of the device after it.
struct ReadbackOrder {
  std::uint64_t n_enqueued = 0;
};

/// See Backend::make_readback and Backend::make_upload. `device`, `collectives` (null: one rank) and `order`, that of the device's
/// stream, are kept and must outlive what is returned.
Result<std::unique_ptr<AsyncReadback>> make_readback(const Device& device, Collectives* collectives, ReadbackOrder& order,
                                                     std::size_t size_bytes);
Result<std::unique_ptr<AsyncUpload>> make_upload(const Device& device, Collectives* collectives, std::size_t size_bytes);

}  // namespace baton::cuda
