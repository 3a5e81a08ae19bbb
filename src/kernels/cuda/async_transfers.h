/// Copies between the host and a CUDA device that the host does not wait for when it enqueues them.
#pragma once

#include <cstddef>
#include <memory>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ranks/collectives.h"

namespace baton::cuda {

/// See Backend::make_readback and Backend::make_upload. `device`, and `collectives` (null: one rank), are kept and must
/// outlive what is returned.
Result<std::unique_ptr<AsyncReadback>> make_readback(const Device& device, Collectives* collectives, std::size_t size_bytes);
Result<std::unique_ptr<AsyncUpload>> make_upload(const Device& device, Collectives* collectives, std::size_t size_bytes);

}  // namespace baton::cuda
