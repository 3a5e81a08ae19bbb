/// Times memory reads: sums of words on a CPU, the module's own kernel on a CUDA device.
#include "bench/attention/read_rate.h"

#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"

namespace baton {
namespace {

constexpr std::size_t kWords = (256u << 20) / sizeof(std::uint64_t);

}  // namespace

StopWatch::StopWatch(bool processor_time) : clock_(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC), begin_(now()) {}

double StopWatch::now() const {
  timespec time{};
  clock_gettime(clock_, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

Result<CpuReadRate> CpuReadRate::make(Backend& backend, int n_threads, bool processor_time) {
  BATON_TRY(Buffer buffer, backend.allocate(kWords * sizeof(std::uint64_t)));
  CpuReadRate made(std::move(buffer), n_threads, processor_time);
  std::fill_n(made.words(), kWords, 1);
  return made;
}

CpuReadRate::CpuReadRate(Buffer buffer, int n_threads, bool processor_time)
    : buffer_(std::move(buffer)), parallel_(n_threads), processor_time_(processor_time) {}

void CpuReadRate::measure() {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(parallel_.n_threads()));
  const StopWatch watch(processor_time_);
  parallel_.for_parts(parallel_.n_threads(), [&](std::int64_t part, int) {
    const std::size_t n = kWords / sums.size();
    const std::uint64_t* at = words() + n * static_cast<std::size_t>(part);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += at[i];
    sums[static_cast<std::size_t>(part)] = sum;
  });
  const double us = watch.us();
  check(sums[0] == kWords / sums.size(), "CpuReadRate: the buffer changed");
  best_ = std::max(best_, static_cast<double>(kWords * sizeof(std::uint64_t)) / us);
}

Result<CudaRead> CudaRead::make(int device) {
  // The module is open already, so opening it by name alone gives the same one.
  void* module = dlopen("libbaton_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  auto* read_us = module == nullptr ? nullptr : reinterpret_cast<ReadUs>(dlsym(module, "baton_cuda_read_us"));
  if (read_us == nullptr)
    return fail(ErrorCode::unavailable,
                "the CUDA module has no read-only kernel (baton_cuda_read_us): it is another version's");
  return CudaRead(read_us, device);
}

}  // namespace baton
