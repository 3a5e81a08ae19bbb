/// Answers under way: what a client waits for, what the engine is asked, and the thread that brings the one's events to the
/// other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "server/http_server.h"
#include "server/metrics_page.h"
#include "server/openai_answer.h"

namespace baton {

/// Jobs by exchange. A job is opened when its request arrives, begun when its prompts are tokens, and gone when its answer has
/// been handed to the HTTP server or its client has left; then nothing of it remains in the engine.
///
/// Thread: any. Its own thread alone consumes the engine's events and, like all methods, works under one lock, so the parts of
/// an answer leave in order.
class Service {
 public:
  /// All three must outlive it.
  Service(Engine& engine, HttpServer& http, MetricsPage& metrics);
  ~Service();

  void start();
  /// Ends the thread. Idempotent.
  void stop();

  /// A request has arrived at the route `handler`. Whatever answers it will carry `headers`.
  void open(ExchangeId exchange, std::string handler, std::string method, HttpHeaders headers);
  /// Answers without the engine.
  void respond(ExchangeId exchange, HttpResponse response);
  /// Submits one engine request for each prompt of `answer`. Errors (and then nothing runs): those of Engine::submit.
  Result<void> begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests);
  /// Sends an answer for which the engine has nothing to do.
  void send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames);
  /// Whoever asked has left: cancels what runs for it.
  void client_left(ExchangeId exchange);

  std::size_t n_open() const;
  /// Waits until no job is open; false when there still is one after `timeout`.
  bool wait_until_empty(std::chrono::milliseconds timeout);
  /// Asks the engine to abort all jobs; their clients get what there is.
  void cancel_all();

 private:
  struct Job {
    std::string handler;
    std::string method;
    HttpHeaders headers;
    std::chrono::steady_clock::time_point arrived;
    std::unique_ptr<Answer> answer;   // null until begun
    std::vector<RequestId> requests;  // one for each prompt
  };
  struct Place {
    ExchangeId exchange;
    std::size_t prompt = 0;
  };
  using Jobs = std::unordered_map<ExchangeId, Job>;

  std::unique_lock<std::mutex> lock_jobs() const;
  void run();
  void take(const Event& event, std::vector<HttpOutput>& outputs);
  void finish(Jobs::iterator job, int status);
  HttpOutput whole(Jobs::iterator job, HttpResponse response) const;
  HttpOutput head(Jobs::iterator job, const AnswerHeader& header) const;
  void forget_requests(const Job& job, bool cancel);

  Engine& engine_;
  HttpServer& http_;
  MetricsPage& metrics_;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  bool is_stopping_ = false;
  Jobs jobs_;
  std::unordered_map<RequestId, Place> places_;
};

}  // namespace baton
