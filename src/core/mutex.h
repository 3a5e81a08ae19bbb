/// A mutex, its lock and a condition, with annotations that let clang prove which lock guards what (tools/check_locks.py).
///
/// The standard library's types carry no annotations, so the rest of src/ uses these. Other compilers see the standard types
/// alone, and the code is the same.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define BATON_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define BATON_THREAD_ANNOTATION(...)
#endif

/// Of a member: it may be used only while the mutex is held.
#define BATON_GUARDED_BY(mutex) BATON_THREAD_ANNOTATION(guarded_by(mutex))
/// Of a mutex: a thread that holds one of the others must not lock this one.
#define BATON_ACQUIRED_BEFORE(...) BATON_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
/// Of a function or a lambda: the caller holds the mutex, and still does afterwards.
#define BATON_REQUIRES(...) BATON_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
/// Of a function: the caller does not hold the mutex, because the function locks it.
#define BATON_EXCLUDES(...) BATON_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
/// Of functions that lock, lock if they return `true`, or unlock; without a mutex, the object's own.
#define BATON_ACQUIRE(...) BATON_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define BATON_TRY_ACQUIRE(...) BATON_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define BATON_RELEASE(...) BATON_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
/// Of a class that holds a mutex while it lives.
#define BATON_SCOPED_LOCK BATON_THREAD_ANNOTATION(scoped_lockable)

namespace baton {

/// std::mutex. Lock it by a MutexLock.
class BATON_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() BATON_ACQUIRE() { mutex_.lock(); }
  bool try_lock() BATON_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() BATON_RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

/// Holds a mutex to the end of the scope, except between `unlock` and `lock`.
class BATON_SCOPED_LOCK MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) BATON_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// The caller has locked the mutex by Mutex::try_lock.
  MutexLock(Mutex& mutex, std::adopt_lock_t) BATON_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() BATON_RELEASE() {
    if (is_held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() BATON_RELEASE() {
    mutex_.unlock();
    is_held_ = false;
  }
  void lock() BATON_ACQUIRE() {
    mutex_.lock();
    is_held_ = true;
  }

 private:
  Mutex& mutex_;
  bool is_held_ = true;
};

/// Gives up a mutex that the caller holds, to the end of the scope. The lock that holds it must live longer.
class BATON_SCOPED_LOCK MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) BATON_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() BATON_RELEASE() { mutex_.lock(); }  // clang's word for the end of what the constructor did
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

/// std::condition_variable. A wait gives the mutex up and holds it again when it returns, which may also be without a
/// notification, so waits stand in loops: `while (!is_ready_) changed_.wait(mutex_);`. There is no wait that takes a
/// predicate, because the analysis does not look into one.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(Mutex& mutex) BATON_REQUIRES(mutex) {
    HeldLock held(mutex.mutex_);
    condition_.wait(held.lock);
  }
  /// False: the time is over.
  template <class Clock, class Duration>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& end) BATON_REQUIRES(mutex) {
    HeldLock held(mutex.mutex_);
    return condition_.wait_until(held.lock, end) == std::cv_status::no_timeout;
  }
  /// False: the time is over.
  template <class Rep, class Period>
  bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& time) BATON_REQUIRES(mutex) {
    HeldLock held(mutex.mutex_);
    return condition_.wait_for(held.lock, time) == std::cv_status::no_timeout;
  }

 private:
  /// The standard's lock on a mutex that the caller holds and continues holding.
  struct HeldLock {
    explicit HeldLock(std::mutex& mutex) : lock(mutex, std::adopt_lock) {}
    ~HeldLock() { lock.release(); }
    HeldLock(const HeldLock&) = delete;
    HeldLock& operator=(const HeldLock&) = delete;
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable condition_;
};

}  // namespace baton
