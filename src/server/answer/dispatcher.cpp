/// The ways of a job from its request to its answer, and the threads that bring the engine's events and send large answers.
#include "server/answer/dispatcher.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/attempt.h"
#include "core/check.h"
#include "core/limits/insist.h"
#include "core/limits/thread_body.h"
#include "core/log.h"

namespace baton {
namespace {

using Clock = Job::Clock;

constexpr std::chrono::milliseconds kWait{100};
/// Of each thread, for what must not be lost: an event, the end of an answer.
constexpr std::size_t kAnswersReserveBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kLookEvery{1};
constexpr std::string_view kLostEvents =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to bring results to their answers\"";
constexpr std::string_view kLostCancellation =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to end requests of clients that left\"";
constexpr std::int64_t kMaxPieceBytes = 256 << 10;
constexpr std::string_view kLostEnd =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to end an answer\"";

/// Statuses in logs and metrics: the client left; memory ran out.
constexpr int kClientClosedRequest = 499;
constexpr int kOutOfMemory = 503;

/// A part of the body of a stream or of a large answer.
HttpOutput piece_output(ExchangeId exchange, std::string bytes) {
  return {exchange, HttpOutput::Kind::piece, {}, std::move(bytes)};
}
HttpOutput end_output(ExchangeId exchange) { return {exchange, HttpOutput::Kind::end, {}, {}}; }
/// A whole answer, with headers beside its own.
HttpOutput whole_output(ExchangeId exchange, HttpResponse response, const HttpHeaders& headers) {
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  return {exchange, HttpOutput::Kind::whole, std::move(response), {}};
}
/// The status line and headers of a stream of events.
HttpOutput head_output(ExchangeId exchange, const HttpHeaders& headers, const AnswerHeader& header) {
  HttpResponse response;
  response.headers = headers;
  response.headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would keep the events until it has many
  response.headers.emplace_back("X-Request-Id", header.id);
  return {exchange, HttpOutput::Kind::head, std::move(response), {}};
}
HttpResponse whole_response(Answer& answer) {
  HttpResponse response = answer.response();
  response.headers.emplace_back("X-Request-Id", answer.header().id);
  return response;
}

}  // namespace

AnswerDispatcher::AnswerDispatcher(Engine& engine, HttpServer& http, MetricsPage& metrics, std::chrono::milliseconds wait)
    : engine_(engine),
      http_(http),
      metrics_(metrics),
      longest_silence_(wait),
      jobs_([this] { engine_.wake_waiter(); },
            [this](double seconds) {
              if (http_.is_io_thread()) metrics_.observe_io_wait(seconds);
            }) {}
AnswerDispatcher::~AnswerDispatcher() { stop(); }

void AnswerDispatcher::start(ThreadWatch& watch) {
  check(!thread_.joinable(), "an AnswerDispatcher is started once");
  thread_ = std::thread(thread_body("answers", kAnswersReserveBytes,
                                    [this, &place = watch.add("answers")](MemoryReserve& reserve) { run(place, reserve); }));
  sender_ = std::thread(
      thread_body("large-answers", kAnswersReserveBytes,
                  [this, &place = watch.add("large-answers")](MemoryReserve& reserve) { run_sender(place, reserve); }));
}

void AnswerDispatcher::stop() {
  if (!thread_.joinable()) return;
  jobs_.stop();
  engine_.wake_waiter();
  thread_.join();
  sender_.join();
  forget_those_that_left();
}

/// The engine's requests for one job, with their places: all of them or, unless `finish` is called, none. The owner of one
/// holds the lock of `places` while it lives.
class AnswerDispatcher::Submission {
 public:
  Submission(Engine& engine, std::unordered_map<RequestId, Place>& places, const Job& job, std::size_t n_requests)
      : engine_(engine), places_(places), job_(job) {
    submitted_.reserve(n_requests);
  }
  ~Submission() {
    for (const RequestId request : submitted_) {
      places_.erase(request);
      insist(kLostCancellation, [&] { engine_.cancel(request); });
    }
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  Result<void> add(Request request) {
    request.arrived = job_.arrived;
    BATON_TRY(const RequestId id, engine_.submit(std::move(request)));
    const std::size_t prompt = submitted_.size();
    submitted_.push_back(id);  // it has room
    places_.emplace(id, Place{job_.exchange, prompt});
    return {};
  }
  std::vector<RequestId> finish() { return std::exchange(submitted_, {}); }

 private:
  Engine& engine_;
  std::unordered_map<RequestId, Place>& places_;
  const Job& job_;
  std::vector<RequestId> submitted_;
};

void AnswerDispatcher::open(ExchangeId exchange, std::string handler, std::string method, HttpHeaders headers,
                            const ErrorForm& errors, KeyUse use) {
  auto job = std::make_unique<Job>();
  job->exchange = exchange;
  job->handler = std::move(handler);
  job->method = std::move(method);
  job->headers = std::move(headers);
  job->errors = &errors;
  job->arrived = Clock::now();
  job->use = std::move(use);
  jobs_.open(std::move(job));
}

/// Reports the end of a job to the log and the metrics, once. It no longer counts as one of its key's: the client may send
/// the next request as soon as it has the answer.
void AnswerDispatcher::tell(Job& job, int status) noexcept {
  if (std::holds_alternative<Job::Reported>(job.state)) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - job.arrived).count();
  const bool is_told = attempt([&] {
    metrics_.observe_request(job.handler, job.method, status, seconds);
    if (const Answer* const answer = job.answer())
      log::info("event=request_finished {} handler={} key={} status={} seconds={:.3f}", answer->log_line(), job.handler,
                job.use.name().empty() ? "-" : job.use.name(), status, seconds);
    else
      log::debug("event=answered handler={} method={} status={} seconds={:.3f}", job.handler, job.method, status, seconds);
  });
  if (!is_told) log::warning("event=out_of_memory effect=\"a request is missing in the log\"");
  job.use = KeyUse();
  job.state = Job::Reported{};
}

/// Tells the engine to end the job's requests.
void AnswerDispatcher::cancel(const Job& job) {
  for (const RequestId request : job.requests) engine_.cancel(request);
}

/// From now on events of these jobs' requests are dropped.
void AnswerDispatcher::forget_places(JobQueue jobs) noexcept {
  if (jobs.empty()) return;
  const MutexLock places(places_mutex_);
  while (!jobs.empty()) {
    const JobPtr job = jobs.pop();
    for (const RequestId request : job->requests) places_.erase(request);
  }
}

void AnswerDispatcher::forget_those_that_left() {
  JobQueue left = jobs_.take_left();
  JobQueue ended;
  while (!left.empty()) {
    JobPtr job = left.pop();
    insist(kLostCancellation, [&] { cancel(*job); });
    tell(*job, kClientClosedRequest);
    ended.push(std::move(job));
  }
  forget_places(std::move(ended));
}

void AnswerDispatcher::respond(ExchangeId exchange, HttpResponse response) {
  HeldJob job = jobs_.take(exchange);
  if (!job) return;
  if (response.status >= 400) response = job->errors->rewrite(std::move(response));
  const int status = response.status;
  HttpOutput output = whole_output(exchange, std::move(response), job->headers);
  tell(*job, status);
  http_.deliver(std::move(output));
  std::move(job).end();
}

void AnswerDispatcher::send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames) {
  if (!answer->is_stream() && !answer->is_large()) return respond(exchange, whole_response(*answer));
  HeldJob job = jobs_.take(exchange);
  if (!job) return;
  if (answer->is_large()) {
    job->state = Job::Sending{std::move(answer)};
    return std::move(job).queue();
  }
  const auto outputs = std::make_shared<std::vector<HttpOutput>>();
  outputs->push_back(head_output(exchange, job->headers, answer->header()));
  outputs->push_back(piece_output(exchange, std::move(frames)));
  outputs->push_back(end_output(exchange));
  tell(*job, 200);
  http_.deliver(outputs);
  std::move(job).end();
}

Result<void> AnswerDispatcher::begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests) {
  std::int64_t n_prompt_tokens = 0;
  for (const Request& request : requests) n_prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
  // Until the job is back in the table: the next thread that works on it is that of events.
  const MutexLock places(places_mutex_);
  HeldJob job = jobs_.take(exchange);
  if (!job) return {};  // the client has left meanwhile
  Submission submission(engine_, places_, *job, requests.size());
  for (Request& request : requests) BATON_TRY_VOID(submission.add(std::move(request)));
  if (answer->is_stream()) http_.deliver(head_output(exchange, job->headers, answer->header()));
  // Nothing fails any more: the client may have the head.
  job->use.charge(n_prompt_tokens, 0);
  job->requests = submission.finish();
  job->state = Job::Running{std::move(answer), Clock::now()};
  return {};
}

/// Takes the jobs of events from the table. If it throws, no job was taken.
AnswerDispatcher::Batch AnswerDispatcher::take_jobs(const std::vector<Event>& events) {
  Batch batch;
  batch.work.reserve(events.size());
  const MutexLock places(places_mutex_);
  for (const Event& event : events)
    if (const auto place = places_.find(event.request); place != places_.end()) batch.work.push_back({&event, place->second});
  // The events of a job stand in one array, so that their addresses are in their order.
  std::ranges::sort(batch.work, {}, [](const Work& work) { return std::pair(work.place.exchange.value, work.event); });
  std::vector<ExchangeId> exchanges;
  for (Work& work : batch.work) {
    if (exchanges.empty() || exchanges.back() != work.place.exchange) exchanges.push_back(work.place.exchange);
    work.job = exchanges.size() - 1;
  }
  batch.held = jobs_.take_running(exchanges);
  return batch;
}

/// Passes an event to its answer and adds the results to `outputs`, which has room for them. Without a lock.
void AnswerDispatcher::answer(const Work& work, Job& job, std::vector<HttpOutput>& outputs) {
  auto* const running = std::get_if<Job::Running>(&job.state);
  if (running == nullptr || running->answer->is_done()) return;
  Answer& answer = *running->answer;
  const std::size_t n_tokens = work.event->tokens.size() + (work.event->stop_token ? 1 : 0);
  if (n_tokens > 0) job.use.charge(0, static_cast<std::int64_t>(n_tokens));
  Answer::Reaction reaction = answer.take(work.place.prompt, *work.event);
  if (reaction.has_met_stop)
    insist(kLostCancellation, [&] { engine_.finish(work.event->request, work.event->index, FinishReason::stop); });
  if (!reaction.frames.empty()) {
    running->last_piece = Clock::now();
    outputs.push_back(piece_output(job.exchange, std::move(reaction.frames)));
  }
  if (!answer.is_done()) return;
  if (answer.has_failed()) insist(kLostCancellation, [&] { cancel(job); });
  if (answer.is_large()) {
    job.state = Job::Sending{std::move(running->answer)};
    return;
  }
  int status = 200;
  if (answer.is_stream()) {
    outputs.push_back(end_output(job.exchange));
  } else {
    outputs.push_back(whole_output(job.exchange, whole_response(answer), job.headers));
    status = outputs.back().response.status;
  }
  tell(job, status);
}

/// Memory ran out while an answer was written: it ends. Can be called again if it throws.
void AnswerDispatcher::give_up(Job& job, std::vector<HttpOutput>& outputs) {
  log::warning("event=out_of_memory effect=\"an answer is given up\"");
  Answer& answer = *job.answer();
  std::string frames = answer.give_up();
  cancel(job);
  if (answer.is_stream()) {
    outputs.push_back(piece_output(job.exchange, std::move(frames)));
    outputs.push_back(end_output(job.exchange));
  } else {
    outputs.push_back(whole_output(job.exchange, whole_response(answer), job.headers));
  }
  tell(job, kOutOfMemory);
}

void AnswerDispatcher::run(ThreadWatch::Place& place, MemoryReserve& reserve) {
  while (true) {
    reserve.restore();
    const std::vector<Event> events = engine_.wait_events(kWait);
    const ThreadWatch::Work of_thread(place);
    forget_those_that_left();
    if (jobs_.is_stopping()) return;
    if (!events.empty()) answer_events(events);
    break_silence();
  }
}

/// Nothing of it may be lost: the engine tells each event once.
void AnswerDispatcher::answer_events(const std::vector<Event>& events) {
  constexpr std::size_t kMostOutputs = 4;  // of an event: its frames and the end, or those of an answer that is given up
  Batch batch;
  std::vector<HttpOutput> outputs;
  insist(kLostEvents, [&] { batch = take_jobs(events); });
  insist(kLostEvents, [&] { outputs.reserve(kMostOutputs * batch.work.size()); });
  for (const Work& work : batch.work) {
    const HeldJob& job = batch.held[work.job];
    if (job && !attempt([&] { answer(work, *job, outputs); })) insist(kLostEvents, [&] { give_up(*job, outputs); });
  }
  deliver(std::move(outputs));
  forget_places(jobs_.give_back(batch.held));
}

/// Tells the clients of streams that have waited long that they still do: a proxy ends what is silent.
void AnswerDispatcher::break_silence() {
  const Clock::time_point now = Clock::now();
  if (now < next_look_at_silence_) return;
  next_look_at_silence_ = now + std::min<Clock::duration>(longest_silence_, kLookEvery);
  std::vector<HttpOutput> outputs;
  const auto tell_one = [&](Job& job) {
    auto* const running = std::get_if<Job::Running>(&job.state);
    if (running == nullptr || !running->answer->is_stream() || now - running->last_piece < longest_silence_) return;
    outputs.push_back(piece_output(job.exchange, std::string(running->answer->waiting_frame())));
    running->last_piece = now;
  };
  insist(kLostEvents, [&] { jobs_.for_each_resting(tell_one); });
  deliver(std::move(outputs));
}

/// Hands outputs to the HTTP server as soon as there is memory for that. Not on the I/O thread.
void AnswerDispatcher::deliver(std::vector<HttpOutput> outputs) {
  if (outputs.empty()) return;
  std::shared_ptr<std::vector<HttpOutput>> shared;
  insist(kLostEvents, [&] { shared = std::make_shared<std::vector<HttpOutput>>(); });
  *shared = std::move(outputs);
  insist(kLostEvents, [&] { http_.deliver(shared); });
}

void AnswerDispatcher::cancel_all() {
  const MutexLock places(places_mutex_);
  for (const auto& [request, place] : places_) engine_.cancel(request);
}

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
