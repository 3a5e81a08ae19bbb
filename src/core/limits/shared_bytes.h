/// Memory that several objects take together, counted against one limit.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace baton {

/// A number of bytes and the most that it should be. Counting is never refused: callers look at `is_over`.
/// Thread: any.
class SharedBytes {
 public:
  explicit SharedBytes(std::size_t limit) : limit_(limit) {}
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  std::size_t limit() const { return limit_; }
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  bool is_over() const { return used() > limit_; }

 private:
  friend class BytesShare;
  const std::size_t limit_;
  std::atomic<std::size_t> used_ = 0;
};

/// What one object has of them, which goes back when the share ends. Thread: one at a time.
class BytesShare {
 public:
  /// Of no bytes: counts nothing and is never over.
  BytesShare() = default;
  explicit BytesShare(std::shared_ptr<SharedBytes> of) : of_(std::move(of)) {}
  BytesShare(const BytesShare&) = delete;
  BytesShare& operator=(const BytesShare&) = delete;
  ~BytesShare() { set(0); }

  /// Its size from now on.
  void set(std::size_t n_bytes) {
    if (of_ == nullptr || n_bytes == n_bytes_) return;
    if (n_bytes > n_bytes_)
      of_->used_.fetch_add(n_bytes - n_bytes_, std::memory_order_relaxed);
    else
      of_->used_.fetch_sub(n_bytes_ - n_bytes, std::memory_order_relaxed);
    n_bytes_ = n_bytes;
  }
  /// Whether all together are over their limit, and this one has more than 1/256 of it.
  bool is_too_large() const { return of_ != nullptr && of_->is_over() && n_bytes_ > of_->limit() / 256; }

 private:
  const std::shared_ptr<SharedBytes> of_;
  std::size_t n_bytes_ = 0;
};

}  // namespace baton
