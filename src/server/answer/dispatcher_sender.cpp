/// The thread that sends large answers piece by piece, as their clients read.
#include <chrono>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "core/limits/insist.h"
#include "core/log.h"
#include "server/answer/dispatcher.h"
#include "server/answer/outputs.h"

namespace baton {
namespace {

constexpr std::int64_t kMaxPieceBytes = 256 << 10;
constexpr std::chrono::milliseconds kRoomPoll{20};
constexpr std::string_view kLostEnd =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to end an answer\"";

}  // namespace

/// Hands a busy job with a large answer to the thread that sends these.
void AnswerDispatcher::begin_sending(Job& job) noexcept {
  job.is_large = true;
  job.waits_for_client = true;
  resume_sending(job);
}

void AnswerDispatcher::resume_sending(Job& job) noexcept {
  if (!job.waits_for_client) return;
  sendable_.splice(sendable_.end(), jobs_, open_.find(job.exchange)->second);
  job.waits_for_client = false;
  sendable_changed_.notify_all();
}

void AnswerDispatcher::client_reads(ExchangeId exchange) noexcept {
  const JobsLock lock(*this);
  if (Job* const job = find(exchange)) resume_sending(*job);
}

/// Sends the last outputs of a large answer, and removes its job.
void AnswerDispatcher::end_sending(Job& job, int status, std::vector<HttpOutput> last) {
  tell(job, status);
  deliver(std::move(last));
  forget_places(job);
  remove(job);
}

/// Memory ran out while a large answer was sent. If it has begun, its connection is closed, and client_left ends the job.
/// Can be called again if it throws.
void AnswerDispatcher::give_up_sending(Job& job) {
  log::warning("event=out_of_memory effect=\"an answer is given up while it is sent\"");
  job.answer->give_up();
  if (job.has_sent_head) {
    http_.abandon(job.exchange);
    const JobsLock lock(*this);
    job.waits_for_client = true;
    if (job.has_left) resume_sending(job);
    return;
  }
  std::vector<HttpOutput> outputs;
  outputs.push_back(whole_output(job.exchange, whole_response(*job.answer), job.headers));
  end_sending(job, kOutOfMemory, std::move(outputs));
}

/// Writes and sends the next piece of a large answer. Ends the job with the last one, or if its client has left. If it
/// throws, nothing of the piece was sent.
void AnswerDispatcher::send_piece(Job& job) {
  std::vector<HttpOutput> outputs;
  outputs.reserve(3);
  Answer::Piece next = job.answer->next_piece();
  if (!job.has_sent_head) {
    HttpResponse response;
    response.headers = job.headers;
    response.headers.emplace_back("Content-Type", "application/json");
    response.headers.emplace_back("X-Request-Id", job.answer->header().id);
    outputs.push_back({job.exchange, HttpOutput::Kind::head, std::move(response), {}});
  }
  outputs.push_back(piece_output(job.exchange, std::move(next.bytes)));
  job.has_sent_head = true;
  if (next.is_last) {
    outputs.push_back(end_output(job.exchange));
    end_sending(job, 200, std::move(outputs));
    return;
  }
  outputs.back().asks_for_more = true;
  bool has_left = false;
  {
    const JobsLock lock(*this);
    has_left = job.has_left;
    job.waits_for_client = !has_left;
  }
  if (has_left) return end_sending(job, kClientClosedRequest, {});
  // The client takes it, and the job is resumed.
  deliver(std::move(outputs));
}

void AnswerDispatcher::run_sender(ThreadWatch::Place& place, MemoryReserve& reserve) {
  const JobsLock lock(*this);
  while (true) {
    reserve.restore();
    while (!is_stopping_ && sendable_.empty()) sendable_changed_.wait(mutex_);
    if (is_stopping_) return;
    Job& job = sendable_.front();
    const Budget& unsent = http_.budgets().unsent;
    if (!job.has_left && unsent.used() + kMaxPieceBytes > unsent.limit() / 2) {
      // Other clients' answers take the room of answers that wait to be sent. They go, or their clients are given up.
      const auto end = std::chrono::steady_clock::now() + kRoomPoll;
      while (!is_stopping_ && sendable_changed_.wait_until(mutex_, end)) {
      }
      continue;
    }
    jobs_.splice(jobs_.end(), sendable_, sendable_.begin());
    const bool has_left = job.has_left;
    const MutexUnlock meanwhile(mutex_);
    place.begin();
    if (has_left) {
      end_sending(job, kClientClosedRequest, {});
    } else {
      try {
        send_piece(job);
      } catch (const std::bad_alloc&) {
        insist(kLostEnd, [&] { give_up_sending(job); });
      }
    }
    place.end();
  }
}

}  // namespace baton
