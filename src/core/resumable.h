/// A function that pauses between its steps and is continued later.
#pragma once

#include <coroutine>
#include <utility>

namespace baton {

/// The state of such a function, a coroutine with this return type. It begins at the first `resume`, and pauses at each
/// `co_await Resumable::pause()`. What its references and views refer to must outlive it. Move-only. Thread: one at a time.
class [[nodiscard]] Resumable {
 public:
  struct promise_type {
    Resumable get_return_object() { return Resumable(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    [[noreturn]] void unhandled_exception() { throw; }  // out of `resume`, which ends the function
  };

  Resumable(Resumable&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Resumable& operator=(Resumable&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Resumable() {
    if (handle_) handle_.destroy();
  }

  static std::suspend_always pause() { return {}; }

  /// Runs the function to its next pause. False if it came to its end, after which this is not called again.
  bool resume() {
    handle_.resume();
    return !handle_.done();
  }
  /// Runs it to its end.
  void finish() {
    while (resume()) {
    }
  }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Resumable(Handle handle) : handle_(handle) {}
  Handle handle_;
};

}  // namespace baton
