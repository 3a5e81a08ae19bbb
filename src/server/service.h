/// Unfinished answers: connects the clients' exchanges with the engine's requests, and has the threads that bring the
/// engine's events to the answers and write large answers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/memory_reserve.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/api_keys.h"
#include "server/http_server.h"
#include "server/metrics_page.h"
#include "server/openai_answer.h"
#include "server/thread_watch.h"

namespace baton {

/// Jobs by exchange. A job is opened when its request arrives, and begun when its prompts are tokenised. It is removed
/// when its answer was handed to the HTTP server or its client has left; then the engine has nothing of it any more.
///
/// A large answer is written by a thread of its own, so that no other client waits for it: piece by piece, the next one when
/// the client has taken the last, the answers in turn. A job is busy meanwhile.
///
/// Thread: any. Its own thread alone consumes the engine's events. A thread that works on a job (submits its prompts,
/// decodes and writes its answer) marks it busy and does so without a lock, so the I/O thread never waits for that; a
/// client that leaves meanwhile is noted, and the thread that made the job busy ends it.
class Service {
 public:
  /// All three must outlive it.
  Service(Engine& engine, HttpServer& http, MetricsPage& metrics);
  ~Service();

  /// `watch` must outlive the threads.
  void start(ThreadWatch& watch);
  /// Ends the threads. Idempotent.
  void stop();

  /// A request has arrived at the route `handler`. Whatever answers it will carry `headers`. `use` counts the tokens
  /// computed for it, and ends with it.
  void open(ExchangeId exchange, std::string handler, std::string method, HttpHeaders headers, KeyUse use);
  /// Whether a client still waits for this answer.
  bool is_open(ExchangeId exchange) const;
  /// Answers without the engine. If it throws std::bad_alloc, it can be called again.
  void respond(ExchangeId exchange, HttpResponse response);
  /// Submits one engine request for each prompt of `answer`. Errors (and then nothing runs): those of Engine::submit.
  /// Not on the I/O thread.
  Result<void> begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests);
  /// Sends an answer for which the engine has nothing to do. Not on the I/O thread.
  void send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames);
  /// The client has left: cancels its requests.
  void client_left(ExchangeId exchange);
  /// The client has taken a piece of a large answer: the next one may be sent.
  void client_reads(ExchangeId exchange);

  std::size_t n_open() const;
  /// Waits until no job is open; false when there still is one after `timeout`.
  bool wait_until_empty(std::chrono::milliseconds timeout);
  /// Asks the engine to abort all jobs; their clients get the answers so far.
  void cancel_all();

 private:
  struct Job {
    std::string handler;
    std::string method;
    HttpHeaders headers;
    std::chrono::steady_clock::time_point arrived;
    KeyUse use;
    std::unique_ptr<Answer> answer;   // null until begun
    std::vector<RequestId> requests;  // one for each prompt
    bool is_busy = false;             // a thread works on it without the lock: only that thread may end it
    bool has_left = false;            // its client left while it was busy
    bool is_large = false;            // its answer is complete, and the thread for large answers sends it
    bool waits_for_client = false;    // of a large one: it is not in `sendable_`
    bool has_sent_head = false;       // of a large one
  };
  using Jobs = std::unordered_map<ExchangeId, Job>;
  struct Place {
    ExchangeId exchange;
    std::size_t prompt = 0;
  };
  /// An event, and the busy job that it belongs to.
  struct Work {
    const Event* event = nullptr;
    ExchangeId exchange;
    std::size_t prompt = 0;
    Job* job = nullptr;
  };

  std::unique_lock<std::mutex> lock_jobs() const;
  Job* hold(ExchangeId exchange);
  void release(ExchangeId exchange);
  void remove(ExchangeId exchange);
  void tell(Job& job, int status);
  void forget_places(const Job& job);
  void cancel(const Job& job);
  Result<std::vector<RequestId>> submit(ExchangeId exchange, std::chrono::steady_clock::time_point arrived,
                                        std::vector<Request> requests);
  void run(ThreadWatch::Place& place);
  void answer_events(ThreadWatch::Place& place);
  std::vector<Work> take_jobs(const std::vector<Event>& events);
  void answer(const Work& work, std::vector<HttpOutput>& outputs);
  void give_up(const Work& work, std::vector<HttpOutput>& outputs);
  void release_jobs(const std::vector<Work>& work);
  void begin_sending(ExchangeId exchange, Job& job);
  void resume_sending(ExchangeId exchange, Job& job);
  void send_piece(ExchangeId exchange, Job& job);
  void give_up_sending(ExchangeId exchange, Job& job);
  void end_sending(ExchangeId exchange, Job& job, int status, std::vector<HttpOutput> last);
  void run_sender(ThreadWatch::Place& place);
  void forget_those_that_left();

  Engine& engine_;
  HttpServer& http_;
  MetricsPage& metrics_;
  MemoryReserve reserve_;  // of the thread, for what must not be lost: an event, the end of an answer
  std::thread thread_;
  std::thread sender_;

  /// Where the events of a request belong. The I/O thread does not take this lock, which is held while requests are
  /// submitted, so that no event of them comes too early. Taken before the other one.
  mutable std::mutex places_mutex_;
  std::unordered_map<RequestId, Place> places_;

  /// Held for a moment only: nothing is computed or serialised under it.
  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  bool is_stopping_ = false;
  Jobs jobs_;
  std::vector<Job> left_;            // whose clients have left; the service's thread forgets them
  std::deque<ExchangeId> sendable_;  // large answers of which a piece may be sent, in turn
  std::condition_variable sendable_changed_;
};

}  // namespace baton
