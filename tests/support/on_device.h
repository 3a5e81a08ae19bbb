/// Host tensors and their copies in a backend's memory, for tests of operations.
#pragma once

#include <utility>

#include "kernels/backend.h"
#include "support/host_tensor.h"

namespace baton::testing {

/// A host tensor and its copy on the device.
class OnDevice {
 public:
  OnDevice(Backend& backend, const HostTensor& host) : backend_(backend), dtype_(host.dtype), shape_(host.shape) {
    if (host.bytes.empty()) return;
    buffer_ = std::move(backend.allocate(host.bytes.size()).value());
    backend.copy_from_host(view(), host.view());
    backend.synchronize();
  }
  TensorView view() const { return {buffer_.data(), dtype_, shape_}; }
  HostTensor to_host() const {
    HostTensor host(dtype_, shape_);
    if (!host.bytes.empty()) backend_.copy_to_host(host.view(), view());
    backend_.synchronize();
    return host;
  }

 private:
  Backend& backend_;
  DType dtype_;
  Shape shape_;
  Buffer buffer_;
};

}  // namespace baton::testing
