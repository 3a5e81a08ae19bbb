/// Unfinished answers: connects the clients' exchanges with the engine's requests, and has the threads that bring the
/// engine's events to the answers and write large answers.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/answer/answer.h"
#include "server/http/server.h"
#include "server/keys/api_keys.h"
#include "server/limits/thread_watch.h"
#include "server/observe/metrics_page.h"

namespace baton {

/// Jobs by exchange. A job is opened when its request arrives, and begun when its prompts are tokenised. It is removed
/// when its answer was handed to the HTTP server or its client has left; then the engine has nothing of it any more.
///
/// Memory may run out in any of these functions that is not noexcept: they throw std::bad_alloc, and the job is as it was
/// before, so that it can be answered with a 503. What its threads do must not be lost: they try again (core/limits/insist.h).
///
/// A large answer is written by a thread of its own, so that no other client waits for it: piece by piece, the next one when
/// the client has taken the last, the answers in turn. A job is busy meanwhile.
///
/// Thread: any. Its own thread alone consumes the engine's events. A thread that works on a job (submits its prompts,
/// decodes and writes its answer) marks it busy and does so without a lock, so the I/O thread never waits for that; a
/// client that leaves meanwhile is noted, and the thread that made the job busy ends it.
class AnswerDispatcher {
 public:
  static constexpr std::chrono::seconds kLongestSilence{15};

  /// All three must outlive it. A stream that has nothing to say for `wait` says that it waits.
  AnswerDispatcher(Engine& engine, HttpServer& http, MetricsPage& metrics, std::chrono::milliseconds wait = kLongestSilence);
  ~AnswerDispatcher();

  /// `watch` must outlive the threads.
  void start(ThreadWatch& watch);
  /// Ends the threads. Idempotent.
  void stop();

  /// A request has arrived at the route `handler`. Whatever answers it will carry `headers`, errors in the form `errors`, a
  /// constant. `use` counts the tokens computed for it, and ends with it.
  void open(ExchangeId exchange, std::string handler, std::string method, HttpHeaders headers, const ErrorForm& errors,
            KeyUse use);
  /// Whether a client still waits for this answer.
  bool is_open(ExchangeId exchange) const;
  /// Answers without the engine.
  void respond(ExchangeId exchange, HttpResponse response);
  /// Submits one engine request for each prompt of `answer`. Errors (and then nothing runs): those of Engine::submit.
  /// Not on the I/O thread.
  Result<void> begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests);
  /// Sends an answer for which the engine has nothing to do. Not on the I/O thread.
  void send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames);
  /// The client has left: cancels its requests.
  void client_left(ExchangeId exchange) noexcept;
  /// The client has taken a piece of a large answer: the next one may be sent.
  void client_reads(ExchangeId exchange) noexcept;

  std::size_t n_open() const;
  /// Waits until no job is open; false when there still is one after `timeout`.
  bool wait_until_empty(std::chrono::milliseconds timeout);
  /// Asks the engine to abort all jobs; their clients get the answers so far.
  void cancel_all();

 private:
  struct Job {
    ExchangeId exchange;
    std::string handler;
    std::string method;
    HttpHeaders headers;
    const ErrorForm* errors = nullptr;
    std::chrono::steady_clock::time_point arrived;
    std::chrono::steady_clock::time_point last_piece;  // of a stream
    KeyUse use;
    std::unique_ptr<Answer> answer;   // null until begun
    std::vector<RequestId> requests;  // one for each prompt
    bool is_busy = false;             // a thread works on it without the lock: only that thread may end it
    bool has_left = false;            // its client left while it was busy
    bool is_told = false;             // its end was reported
    bool is_cancelled = false;        // the engine was told to end its requests
    bool is_large = false;            // its answer is complete, and the thread for large answers sends it
    bool waits_for_client = false;    // of a large one: it is not in `sendable_`
    bool has_sent_head = false;       // of a large one
  };
  /// A job is in one list at a time, and changes to another one without an allocation.
  using Jobs = std::list<Job>;
  /// Holds mutex_. How long the I/O thread had to wait for it is counted: it must not be noticeable.
  class BATON_SCOPED_LOCK JobsLock {
   public:
    explicit JobsLock(const AnswerDispatcher& dispatcher) BATON_ACQUIRE(dispatcher.mutex_);
    ~JobsLock() BATON_RELEASE() {}
    JobsLock(const JobsLock&) = delete;
    JobsLock& operator=(const JobsLock&) = delete;

   private:
    static double acquire(Mutex& mutex) BATON_ACQUIRE(mutex);

    const double waited_seconds_;
    const MutexLock lock_;
  };
  class BusyJob;
  class Submission;
  struct Place {
    ExchangeId exchange;
    std::size_t prompt = 0;
  };
  /// An event, and the busy job that it belongs to.
  struct Work {
    const Event* event = nullptr;
    std::size_t prompt = 0;
    Job* job = nullptr;
  };

  Job* find(ExchangeId exchange) BATON_REQUIRES(mutex_);
  Jobs take_out(Job& job) noexcept BATON_REQUIRES(mutex_);
  void leave(Job& job) noexcept BATON_REQUIRES(mutex_);
  void remove(Job& job) noexcept;
  void tell(Job& job, int status) noexcept;
  void forget_places(const Job& job) noexcept;
  void cancel(Job& job);
  void run(ThreadWatch::Place& place, MemoryReserve& reserve);
  void answer_events(const std::vector<Event>& events);
  void break_silence();
  std::vector<Work> take_jobs(const std::vector<Event>& events);
  void answer(const Work& work, std::vector<HttpOutput>& outputs);
  void give_up(const Work& work, std::vector<HttpOutput>& outputs);
  void release_jobs(const std::vector<Work>& work);
  void begin_sending(Job& job) noexcept BATON_REQUIRES(mutex_);
  void resume_sending(Job& job) noexcept BATON_REQUIRES(mutex_);
  void send_piece(Job& job);
  void deliver(std::vector<HttpOutput> outputs);
  void give_up_sending(Job& job);
  void end_sending(Job& job, int status, std::vector<HttpOutput> last);
  void run_sender(ThreadWatch::Place& place, MemoryReserve& reserve);
  void forget_those_that_left();

  Engine& engine_;
  HttpServer& http_;
  MetricsPage& metrics_;
  const std::chrono::milliseconds longest_silence_;
  std::chrono::steady_clock::time_point next_look_at_silence_;  // of the thread
  std::thread thread_;
  std::thread sender_;

  /// Where the events of a request belong. The I/O thread does not take this lock, which is held while requests are
  /// submitted, so that no event of them comes too early. Taken before the other one and the engine's.
  mutable Mutex places_mutex_ BATON_ACQUIRED_BEFORE(mutex_);
  std::unordered_map<RequestId, Place> places_ BATON_GUARDED_BY(places_mutex_);

  /// Held for a moment only: nothing is computed or serialised under it.
  mutable Mutex mutex_;
  Condition emptied_;
  bool is_stopping_ BATON_GUARDED_BY(mutex_) = false;
  Jobs jobs_ BATON_GUARDED_BY(mutex_);      // those in no other list
  Jobs left_ BATON_GUARDED_BY(mutex_);      // whose clients have left; the dispatcher's thread forgets them
  Jobs sendable_ BATON_GUARDED_BY(mutex_);  // large answers of which a piece may be sent, in turn
  std::unordered_map<ExchangeId, Jobs::iterator> open_ BATON_GUARDED_BY(mutex_);  // those of `jobs_` and `sendable_`
  Condition sendable_changed_;
};

}  // namespace baton
