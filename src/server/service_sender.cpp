/// The thread that sends large answers piece by piece, as their clients read.
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "core/log.h"
#include "server/answer_outputs.h"
#include "server/service.h"

namespace baton {
namespace {

constexpr std::int64_t kMaxPieceBytes = 256 << 10;
constexpr std::chrono::milliseconds kRoomPoll{20};

}  // namespace

/// Hands a busy job with a large answer to the thread that sends these. Under the lock.
void Service::begin_sending(ExchangeId exchange, Job& job) {
  job.is_large = true;
  job.waits_for_client = true;
  resume_sending(exchange, job);
}

/// Under the lock.
void Service::resume_sending(ExchangeId exchange, Job& job) {
  if (!job.waits_for_client) return;
  sendable_.push_back(exchange);
  job.waits_for_client = false;
  sendable_changed_.notify_all();
}

void Service::client_reads(ExchangeId exchange) {
  const auto lock = lock_jobs();
  const auto found = jobs_.find(exchange);
  if (found != jobs_.end()) resume_sending(exchange, found->second);
}

/// Sends the last outputs of a large answer, and removes its job.
void Service::end_sending(ExchangeId exchange, Job& job, int status, std::vector<HttpOutput> last) {
  tell(job, status);
  if (!last.empty()) http_.deliver(std::move(last));
  forget_places(job);
  remove(exchange);
}

/// Memory ran out while a large answer was sent. If it has begun, its connection is closed, and client_left ends the job.
void Service::give_up_sending(ExchangeId exchange, Job& job) {
  log::warning("event=out_of_memory effect=\"an answer is given up while it is sent\"");
  job.answer->give_up();
  if (job.has_sent_head) {
    http_.abandon(exchange);
    const auto lock = lock_jobs();
    job.waits_for_client = true;
    if (job.has_left) resume_sending(exchange, job);
    return;
  }
  std::vector<HttpOutput> outputs;
  outputs.push_back(whole_output(exchange, whole_response(*job.answer), job.headers));
  end_sending(exchange, job, kOutOfMemory, std::move(outputs));
}

/// Writes and sends the next piece of a large answer. Ends the job with the last one, or if its client has left.
void Service::send_piece(ExchangeId exchange, Job& job) {
  std::vector<HttpOutput> outputs;
  Answer::Piece next = job.answer->next_piece();
  if (!job.has_sent_head) {
    HttpResponse response;
    response.headers = job.headers;
    response.headers.emplace_back("Content-Type", "application/json");
    response.headers.emplace_back("X-Request-Id", job.answer->header().id);
    outputs.push_back({exchange, HttpOutput::Kind::head, std::move(response), {}});
  }
  outputs.push_back(piece_output(exchange, std::move(next.bytes)));
  job.has_sent_head = true;
  if (next.is_last) {
    outputs.push_back(end_output(exchange));
    end_sending(exchange, job, 200, std::move(outputs));
    return;
  }
  outputs.back().asks_for_more = true;
  bool has_left = false;
  {
    const auto lock = lock_jobs();
    has_left = job.has_left;
    job.waits_for_client = !has_left;
  }
  if (has_left) return end_sending(exchange, job, kClientClosedRequest, {});
  // The client takes it, and the job is resumed.
  http_.deliver(std::move(outputs));
}

void Service::run_sender(ThreadWatch::Place& place) {
  MemoryReserve reserve(kAnswersReserveBytes);
  const MemoryReserve::User user(reserve);
  auto lock = lock_jobs();
  while (true) {
    reserve.restore();
    sendable_changed_.wait(lock, [this] { return is_stopping_ || !sendable_.empty(); });
    if (is_stopping_) return;
    const ExchangeId exchange = sendable_.front();
    Job& job = jobs_.at(exchange);
    const Budget& unsent = http_.budgets().unsent;
    if (!job.has_left && unsent.used() + kMaxPieceBytes > unsent.limit() / 2) {
      // Other clients' answers take the room of answers that wait to be sent. They go, or their clients are given up.
      sendable_changed_.wait_for(lock, kRoomPoll, [this] { return is_stopping_; });
      continue;
    }
    sendable_.pop_front();
    const bool has_left = job.has_left;
    lock.unlock();
    place.begin();
    if (has_left) {
      end_sending(exchange, job, kClientClosedRequest, {});
    } else {
      try {
        send_piece(exchange, job);
      } catch (const std::bad_alloc&) {
        give_up_sending(exchange, job);
      }
    }
    place.end();
    lock.lock();
  }
}

}  // namespace baton
