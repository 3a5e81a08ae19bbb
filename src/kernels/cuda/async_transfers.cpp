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

/// Between two questions of a thread that may awake late.
constexpr std::chrono::microseconds kDoze{50};

/// Pinned memory, and an event after the copy to it. See wait_as_expected for how it is waited for. One rank that expects a long wait
/// has the device tell the event by an interrupt, which costs the device about 2 us; several ranks look after each other meanwhile, and
/// sleep between questions.
class CudaReadback final : public AsyncReadback {
 public:
  static Result<std::unique_ptr<AsyncReadback>> make(const Device& device, Collectives* collectives, ReadbackOrder& order,
                                                     std::size_t size_bytes) {
    std::unique_ptr<CudaReadback> made(new CudaReadback(device, collectives, order, size_bytes));
    check_cuda(cudaEventCreateWithFlags(&made->quiet_, cudaEventDisableTiming), "cudaEventCreate");
    check_cuda(cudaEventCreateWithFlags(&made->telling_, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreate");
    made->arrived_ = made->quiet_;
    BATON_TRY(made->data_, pinned_memory(size_bytes, "results"));
    return made;
  }
  ~CudaReadback() override {
    wait_for_event(collectives_, arrived_, "AsyncReadback");
    cudaEventDestroy(quiet_);
    cudaEventDestroy(telling_);
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
    arrived_ = collectives_ == nullptr && expected_.is_mostly_long() ? telling_ : quiet_;
    check_cuda(cudaEventRecord(arrived_, device_.stream), "AsyncReadback");
    number_ = ++order_.n_enqueued;
  }
  std::span<const std::byte> wait() override {
    wait_as_expected(expected_, /*has_more=*/order_.n_enqueued > number_, *this);
    return {data_, n_bytes_};
  }

  // What wait_as_expected asks for.
  static std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }
  bool is_over() const { return ask() != cudaErrorNotReady; }
  static void sleep_for(std::chrono::nanoseconds time) { nap(time); }
  void sleep_until_over() const {
    if (collectives_ == nullptr) return check_cuda(cudaEventSynchronize(arrived_), "AsyncReadback");
    const auto doze = [this] {
      const cudaError_t state = ask();
      if (state == cudaErrorNotReady) nap(kDoze);
      return state;
    };
    check_cuda(collectives_->wait(doze), "AsyncReadback");
  }
  void ask_until_over() const {
    if (arrived_ == quiet_) return wait_for_event(collectives_, arrived_, "AsyncReadback");
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) state = ask();
    check_cuda(state, "AsyncReadback");
  }

 private:
  CudaReadback(const Device& device, Collectives* collectives, ReadbackOrder& order, std::size_t size_bytes)
      : device_(device), collectives_(collectives), order_(order), size_bytes_(size_bytes) {}

  cudaError_t ask() const {
    const cudaError_t state = cudaEventQuery(arrived_);
    if (state == cudaErrorNotReady) cudaGetLastError();  // clears the answer, so that the next launch does not report it
    return state;
  }

  const Device& device_;
  Collectives* collectives_;  ///< null: one rank
  ReadbackOrder& order_;
  std::size_t size_bytes_;
  std::size_t n_bytes_ = 0;
  std::uint64_t number_ = 0;  ///< of the last copy, in order_
  std::byte* data_ = nullptr;
  cudaEvent_t quiet_ = nullptr;    ///< CUDA waits for it by asking
  cudaEvent_t telling_ = nullptr;  ///< CUDA sleeps until it
  cudaEvent_t arrived_ = nullptr;  ///< the one of the last copy
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

Result<std::unique_ptr<AsyncReadback>> make_readback(const Device& device, Collectives* collectives, ReadbackOrder& order,
                                                     std::size_t size_bytes) {
  return CudaReadback::make(device, collectives, order, size_bytes);
}

Result<std::unique_ptr<AsyncUpload>> make_upload(const Device& device, Collectives* collectives, std::size_t size_bytes) {
  return CudaUpload::make(device, collectives, size_bytes);
}

}  // namespace baton::cuda
