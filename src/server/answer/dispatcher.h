/// Unfinished answers: connects the clients' exchanges with the engine's requests, and has the threads that bring the
/// engine's events to the answers and write large answers.
#pragma once

#include <chrono>
#include <cstddef>
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
#include "server/answer/job_table.h"
#include "server/http/server.h"
#include "server/keys/api_keys.h"
#include "server/limits/thread_watch.h"
#include "server/observe/metrics_page.h"

namespace baton {

/// A job is opened when its request arrives, and begun when its prompts are tokenised. It is removed when its answer was
/// handed to the HTTP server or its client has left; then the engine has nothing of it any more.
///
/// Memory may run out in any of these functions that is not noexcept: they throw std::bad_alloc, and the job is as it was
/// before, so that it can be answered with a 503. What its threads do must not be lost: they try again (core/limits/insist.h).
///
/// A large answer is written by a thread of its own, so that no other client waits for it: piece by piece, the next one when
/// the client has taken the last, the answers in turn.
///
/// Thread: any. Its own thread alone consumes the engine's events. A thread that works on a job (submits its prompts, decodes
/// and writes its answer) holds it, without a lock, so the I/O thread never waits for that (answer/job_table.h).
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
  bool is_open(ExchangeId exchange) const { return jobs_.is_open(exchange); }
  /// Answers without the engine.
  void respond(ExchangeId exchange, HttpResponse response);
  /// Submits one engine request for each prompt of `answer`. Errors (and then nothing runs): those of Engine::submit.
  /// Not on the I/O thread.
  Result<void> begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests);
  /// Sends an answer for which the engine has nothing to do. Not on the I/O thread.
  void send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames);
  /// The client has left: cancels its requests.
  void client_left(ExchangeId exchange) noexcept { jobs_.client_left(exchange); }
  /// The client has taken a piece of a large answer: the next one may be sent.
  void client_reads(ExchangeId exchange) noexcept { jobs_.client_reads(exchange); }

  std::size_t n_open() const { return jobs_.n_open(); }
  /// Waits until no job is open; false when there still is one after `timeout`.
  bool wait_until_empty(std::chrono::milliseconds timeout) { return jobs_.wait_until_empty(timeout); }
  /// Asks the engine to abort all jobs; their clients get the answers so far.
  void cancel_all();

 private:
  class Submission;
  struct Place {
    ExchangeId exchange;
    std::size_t prompt = 0;
  };
  /// An event and where it belongs: in held[job].
  struct Work {
    const Event* event = nullptr;
    Place place;
    std::size_t job = 0;
  };
  struct Batch {
    std::vector<HeldJob> held;  ///< null: the job is gone
    std::vector<Work> work;     ///< the events of a job in their order
  };

  void tell(Job& job, int status) noexcept;
  void forget_places(JobQueue jobs) noexcept;
  void cancel(const Job& job);
  void run(ThreadWatch::Place& place, MemoryReserve& reserve);
  void answer_events(const std::vector<Event>& events);
  void break_silence();
  Batch take_jobs(const std::vector<Event>& events);
  void answer(const Work& work, Job& job, std::vector<HttpOutput>& outputs);
  void give_up(Job& job, std::vector<HttpOutput>& outputs);
  void send_piece(HeldJob& held);
  void deliver(std::vector<HttpOutput> outputs);
  void give_up_sending(HeldJob& held);
  void end_sending(HeldJob held, int status, std::vector<HttpOutput> last);
  void run_sender(ThreadWatch::Place& place, MemoryReserve& reserve);
  void forget_those_that_left();

  Engine& engine_;
  HttpServer& http_;
  MetricsPage& metrics_;
  const std::chrono::milliseconds longest_silence_;
  std::chrono::steady_clock::time_point next_look_at_silence_;  // of the thread
  std::thread thread_;
  std::thread sender_;

  JobTable jobs_;

  /// Where the events of a request belong. The I/O thread does not take this lock, which is held while requests are
  /// submitted, so that no event of them comes too early. Taken before the lock of the table and the engine's.
  mutable Mutex places_mutex_;
  std::unordered_map<RequestId, Place> places_ BATON_GUARDED_BY(places_mutex_);
};

}  // namespace baton
