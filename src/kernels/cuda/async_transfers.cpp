#include "kernels/cuda/async_transfers.h"

#include <sys/prctl.h>

#include <chrono>
#include <span>
#include <thread>

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/expected_wait.h"

namespace baton::cuda {
namespace {

/// Sleeps within a few microseconds of `time`: the system may add a thread's timer slack, 50 us unless told.
void nap(std::chrono::nanoseconds time) {
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  static_cast<void>(slack);
  std::this_thread::sleep_for(time);
}

/// Pinned memory, and an event after the copy to it. CUDA waits for an event by asking all the time, or by an interrupt that costs
/// tens of microseconds: see ExpectedWait.
class CudaReadback final : public AsyncReadback {
 public:
  static Result<std::unique_ptr<AsyncReadback>> make(const Device& device, Collectives* collectives, std::size_t size_bytes) {
    std::unique_ptr<CudaReadback> made(new CudaReadback(device, collectives, size_bytes));
    check_cuda(cudaEventCreateWithFlags(&made->arrived_, cudaEventDisableTiming), "cudaEventCreate");
    BATON_TRY(made->data_, pinned_memory(size_bytes, "results"));
    return made;
  }
  ~CudaReadback() override {
    if (arrived_ != nullptr) {
      wait_for_event(collectives_, arrived_, "AsyncReadback");
      cudaEventDestroy(arrived_);
    }
    cudaFreeHost(data_);
  }
  CudaReadback(const CudaReadback&) = delete;
  CudaReadback& operator=(const CudaReadback&) = delete;

  void enqueue(ConstTensorView from) override {
    n_bytes_ = from.size_bytes();
    check(n_bytes_ <= size_bytes_, "AsyncReadback: more than it was made for");
    check_cuda(cudaSetDevice(device_.ordinal), "cudaSetDevice");
    if (n_bytes_ > 0)
      check_cuda(cudaMemcpyAsync(data_, from.data, n_bytes_, cudaMemcpyDeviceToHost, device_.stream), "AsyncReadback");
    check_cuda(cudaEventRecord(arrived_, device_.stream), "AsyncReadback");
  }
  std::span<const std::byte> wait() override {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    const std::chrono::nanoseconds pause = expected_.nap();
    const bool sleeps = pause > pause.zero() && !has_arrived();
    if (sleeps) nap(pause);
    const bool was_over_after_nap = sleeps && has_arrived();
    wait_for_event(collectives_, arrived_, "AsyncReadback");
    expected_.took(Clock::now() - begin, was_over_after_nap);
    return {data_, n_bytes_};
  }

 private:
  CudaReadback(const Device& device, Collectives* collectives, std::size_t size_bytes)
      : device_(device), collectives_(collectives), size_bytes_(size_bytes) {}

  bool has_arrived() const {
    const bool has = cudaEventQuery(arrived_) != cudaErrorNotReady;  // an error is for wait_for_event to report
    if (!has) cudaGetLastError();  // clears the answer, so that the next launch does not report it
    return has;
  }

  const Device& device_;
  Collectives* collectives_;  ///< null: one rank
  std::size_t size_bytes_;
  std::size_t n_bytes_ = 0;
  std::byte* data_ = nullptr;
  cudaEvent_t arrived_ = nullptr;
  ExpectedWait expected_;
};

/// Pinned host memory and the device memory that it is copied to.
class CudaUpload final : public AsyncUpload {
 public:
  static Result<std::unique_ptr<AsyncUpload>> make(const Device& device, Collectives* collectives, std::size_t size_bytes) {
    std::unique_ptr<CudaUpload> made(new CudaUpload(device, collectives, size_bytes));
    check_cuda(cudaEventCreateWithFlags(&made->was_read_, cudaEventDisableTiming), "cudaEventCreate");
    if (size_bytes == 0) return made;
    BATON_TRY(made->copy_, device_memory(size_bytes, "uploads"));
    BATON_TRY(made->data_, pinned_memory(size_bytes, "uploads"));
    return made;
  }
  ~CudaUpload() override {
    if (was_read_ != nullptr) {
      wait_for_event(collectives_, was_read_, "AsyncUpload");
      cudaEventDestroy(was_read_);
    }
    cudaFreeHost(data_);
    cudaFree(copy_);
  }
  CudaUpload(const CudaUpload&) = delete;
  CudaUpload& operator=(const CudaUpload&) = delete;

  std::span<std::byte> host() override {
    wait_for_event(collectives_, was_read_, "AsyncUpload");
    return {data_, size_bytes_};
  }
  void enqueue(std::size_t n_bytes) override {
    check(n_bytes <= size_bytes_, "AsyncUpload: more than it was made for");
    check_cuda(cudaSetDevice(device_.ordinal), "cudaSetDevice");
    if (n_bytes > 0) check_cuda(cudaMemcpyAsync(copy_, data_, n_bytes, cudaMemcpyHostToDevice, device_.stream), "AsyncUpload");
    check_cuda(cudaEventRecord(was_read_, device_.stream), "AsyncUpload");
  }
  const std::byte* device() const override { return copy_; }

 private:
  CudaUpload(const Device& device, Collectives* collectives, std::size_t size_bytes)
      : device_(device), collectives_(collectives), size_bytes_(size_bytes) {}

  const Device& device_;
  Collectives* collectives_;  ///< null: one rank
  std::size_t size_bytes_;
  std::byte* data_ = nullptr;
  std::byte* copy_ = nullptr;
  cudaEvent_t was_read_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<AsyncReadback>> make_readback(const Device& device, Collectives* collectives, std::size_t size_bytes) {
  return CudaReadback::make(device, collectives, size_bytes);
}

Result<std::unique_ptr<AsyncUpload>> make_upload(const Device& device, Collectives* collectives, std::size_t size_bytes) {
  return CudaUpload::make(device, collectives, size_bytes);
}

}  // namespace baton::cuda
