/// The thread that sends large answers piece by piece, as their clients read.
#include <string_view>
#include <utility>
#include <vector>

#include "core/attempt.h"
#include "core/limits/insist.h"
#include "core/log.h"
#include "server/answer/dispatcher.h"
#include "server/answer/outputs.h"

namespace baton {
namespace {

constexpr std::int64_t kMaxPieceBytes = 256 << 10;
constexpr std::string_view kLostEnd =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to end an answer\"";

}  // namespace

/// Sends the last outputs of a large answer, and ends its job.
void AnswerDispatcher::end_sending(HeldJob held, int status, std::vector<HttpOutput> last) {
  tell(*held, status);
  deliver(std::move(last));
  JobQueue ended;
  ended.push(std::move(held).end());
  forget_places(std::move(ended));
}

/// Memory ran out while a large answer was sent. If it has begun, its connection is closed, and client_left ends the job.
/// Can be called again if it throws.
void AnswerDispatcher::give_up_sending(HeldJob& held) {
  log::warning("event=out_of_memory effect=\"an answer is given up while it is sent\"");
  auto& sending = std::get<Job::Sending>(held->state);
  sending.answer->give_up();
  if (sending.n_pieces > 0) return http_.abandon(held->exchange);
  std::vector<HttpOutput> outputs;
  outputs.push_back(whole_output(held->exchange, whole_response(*sending.answer), held->headers));
  end_sending(std::move(held), kOutOfMemory, std::move(outputs));
}

/// Writes and sends the next piece of a large answer. Ends the job with the last one. If it throws, nothing of the piece was
/// sent.
void AnswerDispatcher::send_piece(HeldJob& held) {
  const ExchangeId exchange = held->exchange;
  auto& sending = std::get<Job::Sending>(held->state);
  std::vector<HttpOutput> outputs;
  outputs.reserve(3);
  Answer::Piece next = sending.answer->next_piece();
  if (sending.n_pieces == 0) {
    HttpResponse response;
    response.headers = held->headers;
    response.headers.emplace_back("Content-Type", "application/json");
    response.headers.emplace_back("X-Request-Id", sending.answer->header().id);
    outputs.push_back({exchange, HttpOutput::Kind::head, std::move(response), {}});
  }
  outputs.push_back(piece_output(exchange, std::move(next.bytes)));
  ++sending.n_pieces;
  if (next.is_last) {
    outputs.push_back(end_output(exchange));
    return end_sending(std::move(held), 200, std::move(outputs));
  }
  outputs.back().asks_for_more = true;
  { const HeldJob back = std::move(held); }  // before its client can read the piece, and ask for the next
  deliver(std::move(outputs));
}

void AnswerDispatcher::run_sender(ThreadWatch::Place& place, MemoryReserve& reserve) {
  while (true) {
    reserve.restore();
    HeldJob held = jobs_.take_queued(http_.budgets().unsent, kMaxPieceBytes);
    if (!held) return;
    const ThreadWatch::Work of_thread(place);
    if (!attempt([&] { send_piece(held); })) insist(kLostEnd, [&] { give_up_sending(held); });
  }
}

}  // namespace baton
