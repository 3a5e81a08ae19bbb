/// The requests that are not answered yet: the open jobs by exchange, how far each is, and which thread has it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "server/answer/answer.h"
#include "server/http/json_body.h"
#include "server/http/message.h"
#include "server/keys/api_keys.h"
#include "server/limits/budget.h"

namespace baton {

struct Job;
/// Its holder alone works on the job.
using JobPtr = std::unique_ptr<Job>;

struct Job {
  using Clock = std::chrono::steady_clock;
  /// Its prompts are not with the engine yet.
  struct Opened {};
  /// The engine works on it.
  struct Running {
    std::unique_ptr<Answer> answer;
    Clock::time_point last_piece;  ///< of a stream
  };
  /// Its answer is complete and large. It is sent piece by piece.
  struct Sending {
    std::unique_ptr<Answer> answer;
    std::size_t n_pieces = 0;  ///< sent so far, the head of the response with the first
  };
  /// The log and the metrics have its end.
  struct Reported {};

  ExchangeId exchange;
  std::string handler;
  std::string method;
  HttpHeaders headers;
  const ErrorForm* errors = nullptr;
  Clock::time_point arrived;
  KeyUse use;
  std::vector<RequestId> requests;  ///< one for each prompt
  std::variant<Opened, Running, Sending, Reported> state;
  JobPtr next;  ///< in a JobQueue

  /// Null if there is none.
  Answer* answer() const {
    if (const auto* running = std::get_if<Running>(&state)) return running->answer.get();
    if (const auto* sending = std::get_if<Sending>(&state)) return sending->answer.get();
    return nullptr;
  }
};

/// Jobs in order. Nothing here allocates.
class JobQueue {
 public:
  JobQueue() = default;
  JobQueue(JobQueue&&) = default;
  JobQueue& operator=(JobQueue&&) = default;
  ~JobQueue() {
    while (!empty()) pop();
  }

  bool empty() const { return first_ == nullptr; }
  const Job& front() const { return *first_; }
  void push(JobPtr job) noexcept {
    Job* const last = job.get();
    (first_ == nullptr ? first_ : last_->next) = std::move(job);
    last_ = last;
  }
  JobPtr pop() noexcept {
    JobPtr job = std::move(first_);
    first_ = std::move(job->next);
    return job;
  }

 private:
  JobPtr first_;
  Job* last_ = nullptr;  // if there is a first one
};

class HeldJob;

/// A job rests in the table, or one thread holds it, or it is large and queued for its next piece. A client that leaves
/// while a thread holds its job is noted, and the job goes when the thread gives it back.
///
/// Thread: any. The lock is held for a moment only: nothing is computed or serialised under it. How long the I/O thread has
/// to wait for it is counted, since it must not be noticeable.
class JobTable {
 public:
  /// `left` is called, under the lock, when take_left has another job. `waited` gets the seconds that a thread waited for the lock.
  /// Neither may throw.
  JobTable(std::function<void()> left, std::function<void(double)> waited)
      : tell_left_(std::move(left)), waited_(std::move(waited)) {}

  void open(JobPtr job);
  /// Whether a client still waits for this answer.
  bool is_open(ExchangeId exchange) const;
  std::size_t n_open() const;
  /// Waits until no job is open; false if there still is one after `timeout`.
  bool wait_until_empty(std::chrono::milliseconds timeout);

  /// Null if the job is gone. No other thread may hold it.
  HeldJob take(ExchangeId exchange);
  /// One for each exchange: null if the job is gone, if another thread holds it, or if the engine does not work on it.
  std::vector<HeldJob> take_running(std::span<const ExchangeId> exchanges);
  /// Takes jobs back after their events: one that is large is queued for its first piece, and one whose end is reported is open no
  /// longer. Returns these.
  JobQueue give_back(std::span<HeldJob> jobs) noexcept;
  /// The next job that a piece may be sent of: when less than half of `unsent` is in use. Waits for one; null after stop().
  HeldJob take_queued(const Budget& unsent, std::int64_t piece_bytes);
  /// All jobs whose clients have left.
  JobQueue take_left();
  /// Calls `visit` for the jobs that rest, under the lock.
  template <class Visit>
  void for_each_resting(Visit visit) {
    const Lock lock(*this);
    for (auto& [exchange, slot] : slots_)
      if (slot.job != nullptr) visit(*slot.job);
  }

  /// The client has left.
  void client_left(ExchangeId exchange) noexcept;
  /// The client has taken a piece of a large answer.
  void client_reads(ExchangeId exchange) noexcept;

  void stop();
  bool is_stopping() const;

 private:
  friend class HeldJob;
  enum class Client { waits, has_left };
  struct Slot {
    JobPtr job;  // null while a thread holds it, or it is queued
    Client client = Client::waits;
  };
  using Slots = std::unordered_map<ExchangeId, Slot>;
  class BATON_SCOPED_LOCK Lock {
   public:
    explicit Lock(const JobTable& table) BATON_ACQUIRE(table.mutex_);
    ~Lock() BATON_RELEASE() {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    static double acquire(Mutex& mutex) BATON_ACQUIRE(mutex);

    const double waited_seconds_;
    const MutexLock lock_;
  };

  void give_back(JobPtr job) noexcept;
  void queue(JobPtr job) noexcept;
  void remove(const Job& job) noexcept;
  void rest(JobPtr job) noexcept BATON_REQUIRES(mutex_);
  void add_to_queue(JobPtr job) noexcept BATON_REQUIRES(mutex_);
  void leave(Slots::iterator slot, JobPtr job) noexcept BATON_REQUIRES(mutex_);
  void erase(Slots::iterator slot) noexcept BATON_REQUIRES(mutex_);

  const std::function<void()> tell_left_;
  const std::function<void(double)> waited_;
  mutable Mutex mutex_;
  Condition emptied_;
  Condition queue_changed_;
  bool is_stopping_ BATON_GUARDED_BY(mutex_) = false;
  Slots slots_ BATON_GUARDED_BY(mutex_);
  JobQueue queue_ BATON_GUARDED_BY(mutex_);  // large answers that wait for their turn
  JobQueue left_ BATON_GUARDED_BY(mutex_);
};

/// A job that the calling thread alone works on. Unless it is given away, it goes back into the table at the end of this, by an
/// exception too, so that another answer can be given.
class HeldJob {
 public:
  HeldJob() = default;
  HeldJob(JobTable& table, JobPtr job) : table_(&table), job_(std::move(job)) {}
  HeldJob(HeldJob&&) = default;
  HeldJob& operator=(HeldJob&&) = delete;
  ~HeldJob() {
    if (job_ != nullptr) table_->give_back(std::move(job_));
  }

  explicit operator bool() const { return job_ != nullptr; }
  Job& operator*() const { return *job_; }
  Job* operator->() const { return job_.get(); }

  /// Its answer was sent, or will not be: the job is open no longer.
  JobPtr end() && noexcept {
    table_->remove(*job_);
    return std::move(job_);
  }
  /// A large one waits for its turn to send a piece.
  void queue() && noexcept { table_->queue(std::move(job_)); }

 private:
  friend class JobTable;
  JobTable* table_ = nullptr;
  JobPtr job_;
};

}  // namespace baton
