/// Rates of plain memory reads during a benchmark: the upper limit for attention.
#pragma once

#include <cstdint>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"

namespace baton {

/// Microseconds of wall time, or of this thread's processor time.
class StopWatch {
 public:
  explicit StopWatch(bool processor_time);
  double us() const { return now() - begin_; }

 private:
  double now() const;
  int clock_;
  double begin_;
};

/// Bytes per microsecond of reading 256 MiB front to back with all threads of a CPU.
class CpuReadRate {
 public:
  static Result<CpuReadRate> make(Backend& backend, int n_threads, bool processor_time);
  /// Measures once more; `best` is the largest value so far.
  void measure();
  double best() const { return best_; }

 private:
  CpuReadRate(Buffer buffer, int n_threads, bool processor_time);
  std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(buffer_.data()); }

  Buffer buffer_;
  Parallel parallel_;
  bool processor_time_;
  double best_ = 0;
};

/// The read-only kernel of the CUDA module, whose backend must have been made before.
class CudaRead {
 public:
  static Result<CudaRead> make(int device);
  /// Median microseconds of a read-only kernel over `n_bytes`, launch included, in a captured graph over buffers that
  /// rotate past the L2; 0 if there is too little memory.
  double us(std::int64_t n_bytes) const { return read_us_(device_, n_bytes); }

 private:
  using ReadUs = double (*)(int device, std::int64_t n_bytes);
  CudaRead(ReadUs read_us, int device) : read_us_(read_us), device_(device) {}
  ReadUs read_us_;
  int device_;
};

}  // namespace baton
