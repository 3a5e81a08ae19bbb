/// A request that is not answered yet: what it was, and how far its answer is.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "server/answer/answer.h"
#include "server/http/error_body.h"
#include "server/http/message.h"
#include "server/http/ticket.h"
#include "server/keys/api_keys.h"

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

}  // namespace baton
