/// The table of jobs and the dispatcher.
#include "server/answer/dispatcher.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/limits/insist.h"
#include "core/limits/thread_body.h"
#include "core/log.h"
#include "server/answer/outputs.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWait{100};
/// Of each thread, for what must not be lost: an event, the end of an answer.
constexpr std::size_t kAnswersReserveBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kLookEvery{1};
constexpr std::string_view kLostEvents =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to bring results to their answers\"";
constexpr std::string_view kLostCancellation =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to end requests of clients that left\"";

}  // namespace

AnswerDispatcher::AnswerDispatcher(Engine& engine, HttpServer& http, MetricsPage& metrics, std::chrono::milliseconds wait)
    : engine_(engine), http_(http), metrics_(metrics), longest_silence_(wait) {}
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
  {
    const JobsLock lock(*this);
    is_stopping_ = true;
  }
  sendable_changed_.notify_all();
  thread_.join();
  sender_.join();
  forget_those_that_left();
}

AnswerDispatcher::JobsLock::JobsLock(const AnswerDispatcher& dispatcher)
    : waited_seconds_(acquire(dispatcher.mutex_)), lock_(dispatcher.mutex_, std::adopt_lock) {
  if (dispatcher.http_.is_io_thread()) dispatcher.metrics_.observe_io_wait(waited_seconds_);
}

/// Returns the seconds that it had to wait.
double AnswerDispatcher::JobsLock::acquire(Mutex& mutex) {
  if (mutex.try_lock()) return 0;
  const auto begin = Clock::now();
  mutex.lock();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A job that the calling thread alone works on: until this ends the job stays, also when its client leaves. An
/// exception ends this too, so that another answer can be given.
class AnswerDispatcher::BusyJob {
 public:
  /// Null if the job is gone.
  BusyJob(AnswerDispatcher& dispatcher, ExchangeId exchange) : dispatcher_(dispatcher) {
    const JobsLock lock(dispatcher_);
    job_ = dispatcher_.find(exchange);
    if (job_ == nullptr) return;
    check(!job_->is_busy, "a job is busy twice");
    job_->is_busy = true;
  }
  /// The job is busy no longer. If its client left meanwhile, it goes.
  ~BusyJob() {
    if (job_ == nullptr) return;
    const JobsLock lock(dispatcher_);
    job_->is_busy = false;
    if (job_->has_left) dispatcher_.leave(*job_);
  }
  BusyJob(const BusyJob&) = delete;
  BusyJob& operator=(const BusyJob&) = delete;

  explicit operator bool() const { return job_ != nullptr; }
  Job& operator*() const { return *job_; }
  Job* operator->() const { return job_; }

  /// Its answer was sent.
  void end() { dispatcher_.remove(*std::exchange(job_, nullptr)); }
  /// The thread for large answers has it from now on.
  void hand_to_sender() {
    const JobsLock lock(dispatcher_);
    dispatcher_.begin_sending(*std::exchange(job_, nullptr));
  }

 private:
  AnswerDispatcher& dispatcher_;
  Job* job_ = nullptr;
};

/// The engine's requests for one job, with their places: all of them or, unless `finish` is called, none. The owner of
/// one holds the lock of `places` while it lives.
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
  Jobs opened;
  Job& job = opened.emplace_back();
  job.exchange = exchange;
  job.handler = std::move(handler);
  job.method = std::move(method);
  job.headers = std::move(headers);
  job.errors = &errors;
  job.arrived = Clock::now();
  job.use = std::move(use);
  const JobsLock lock(*this);
  open_.emplace(exchange, opened.begin());
  jobs_.splice(jobs_.end(), opened);
}

bool AnswerDispatcher::is_open(ExchangeId exchange) const {
  const JobsLock lock(*this);
  const auto found = open_.find(exchange);
  return found != open_.end() && !found->second->has_left;
}

/// Null if the job is gone.
AnswerDispatcher::Job* AnswerDispatcher::find(ExchangeId exchange) {
  const auto found = open_.find(exchange);
  return found == open_.end() ? nullptr : &*found->second;
}

/// Takes a job out of `jobs_`.
AnswerDispatcher::Jobs AnswerDispatcher::take_out(Job& job) noexcept {
  Jobs taken;
  const auto found = open_.find(job.exchange);
  taken.splice(taken.end(), jobs_, found->second);
  open_.erase(found);
  if (open_.empty()) emptied_.notify_all();
  return taken;
}

/// The client of a job that is not busy has left: the job goes to the ones that the dispatcher's thread forgets.
void AnswerDispatcher::leave(Job& job) noexcept {
  try {
    cancel(job);
  } catch (const std::bad_alloc&) {
    // The dispatcher's thread does it, which can wait for memory.
  }
  Jobs left = take_out(job);
  left_.splice(left_.end(), left);
}

void AnswerDispatcher::remove(Job& job) noexcept {
  Jobs removed;  // goes after the lock
  const JobsLock lock(*this);
  removed = take_out(job);
}

/// Reports the end of a job to the log and the metrics, once. It no longer counts as one of its key's: the client may
/// send the next request as soon as it has the answer.
void AnswerDispatcher::tell(Job& job, int status) noexcept {
  if (std::exchange(job.is_told, true)) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - job.arrived).count();
  try {
    metrics_.observe_request(job.handler, job.method, status, seconds);
    if (job.answer != nullptr)
      log::info("event=request_finished {} handler={} key={} status={} seconds={:.3f}", job.answer->log_line(), job.handler,
                job.use.name().empty() ? "-" : job.use.name(), status, seconds);
    else
      log::debug("event=answered handler={} method={} status={} seconds={:.3f}", job.handler, job.method, status, seconds);
  } catch (const std::bad_alloc&) {
    log::warning("event=out_of_memory effect=\"a request is missing in the log\"");
  }
  job.use = KeyUse();
}

/// Tells the engine to end the job's requests, once.
void AnswerDispatcher::cancel(Job& job) {
  if (job.is_cancelled) return;
  for (const RequestId request : job.requests) engine_.cancel(request);
  job.is_cancelled = true;
}

/// From now on events of the job's requests are dropped.
void AnswerDispatcher::forget_places(const Job& job) noexcept {
  const MutexLock places(places_mutex_);
  for (const RequestId request : job.requests) places_.erase(request);
}

void AnswerDispatcher::forget_those_that_left() {
  Jobs left;
  {
    const JobsLock lock(*this);
    left.swap(left_);
  }
  for (Job& job : left) {
    insist(kLostCancellation, [&] { cancel(job); });
    tell(job, kClientClosedRequest);
    forget_places(job);
  }
}

void AnswerDispatcher::respond(ExchangeId exchange, HttpResponse response) {
  BusyJob job(*this, exchange);
  if (!job) return;
  if (response.status >= 400) response = job->errors->rewrite(std::move(response));
  const int status = response.status;
  HttpOutput output = whole_output(exchange, std::move(response), job->headers);
  tell(*job, status);
  http_.deliver(std::move(output));
  job.end();
}

void AnswerDispatcher::send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames) {
  if (!answer->is_stream() && !answer->is_large()) return respond(exchange, whole_response(*answer));
  BusyJob job(*this, exchange);
  if (!job) return;
  if (answer->is_large()) {
    job->answer = std::move(answer);
    return job.hand_to_sender();
  }
  std::vector<HttpOutput> outputs;
  outputs.push_back(head_output(exchange, job->headers, answer->header()));
  outputs.push_back(piece_output(exchange, std::move(frames)));
  outputs.push_back(end_output(exchange));
  tell(*job, 200);
  http_.deliver(std::move(outputs));
  job.end();
}

Result<void> AnswerDispatcher::begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests) {
  std::int64_t n_prompt_tokens = 0;
  for (const Request& request : requests) n_prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
  // Until the job is not busy: the next thread that works on it is that of events.
  const MutexLock places(places_mutex_);
  BusyJob job(*this, exchange);
  if (!job) return {};  // the client has left meanwhile
  Submission submission(engine_, places_, *job, requests.size());
  for (Request& request : requests) BATON_TRY_VOID(submission.add(std::move(request)));
  if (answer->is_stream()) http_.deliver(head_output(exchange, job->headers, answer->header()));
  // Nothing fails any more: the client may have the head.
  job->use.charge(n_prompt_tokens, 0);
  job->last_piece = Clock::now();
  job->requests = submission.finish();
  job->answer = std::move(answer);
  return {};
}

void AnswerDispatcher::client_left(ExchangeId exchange) noexcept {
  const JobsLock lock(*this);
  Job* const job = find(exchange);
  if (job == nullptr) return;
  job->has_left = true;
  resume_sending(*job);
  if (!job->is_busy) leave(*job);
}

/// Finds the jobs of events and marks them busy. Leaves out events of jobs that are gone. Can be called again if it
/// throws.
std::vector<AnswerDispatcher::Work> AnswerDispatcher::take_jobs(const std::vector<Event>& events) {
  std::vector<Work> work;
  work.reserve(events.size());
  const MutexLock places(places_mutex_);
  const JobsLock lock(*this);
  for (const Event& event : events) {
    const auto place = places_.find(event.request);
    if (place == places_.end()) continue;
    Job* const job = find(place->second.exchange);
    if (job == nullptr || job->is_large) continue;
    job->is_busy = true;
    work.push_back({&event, place->second.prompt, job});
  }
  return work;
}

/// Passes an event to its answer and adds the results to `outputs`, which has room for them. Without a lock.
void AnswerDispatcher::answer(const Work& work, std::vector<HttpOutput>& outputs) {
  Job& job = *work.job;
  Answer& answer = *job.answer;
  if (answer.is_done()) return;
  const std::size_t n_tokens = work.event->tokens.size() + (work.event->stop_token ? 1 : 0);
  if (n_tokens > 0) job.use.charge(0, static_cast<std::int64_t>(n_tokens));
  Answer::Reaction reaction = answer.take(work.prompt, *work.event);
  if (reaction.has_met_stop)
    insist(kLostCancellation, [&] { engine_.finish(work.event->request, work.event->index, FinishReason::stop); });
  if (!reaction.frames.empty()) {
    job.last_piece = Clock::now();
    outputs.push_back(piece_output(job.exchange, std::move(reaction.frames)));
  }
  if (!answer.is_done()) return;
  if (answer.has_failed()) insist(kLostCancellation, [&] { cancel(job); });
  if (answer.is_large()) return;  // release_jobs hands it on
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
void AnswerDispatcher::give_up(const Work& work, std::vector<HttpOutput>& outputs) {
  Job& job = *work.job;
  log::warning("event=out_of_memory effect=\"an answer is given up\"");
  std::string frames = job.answer->give_up();
  cancel(job);
  if (job.answer->is_stream()) {
    outputs.push_back(piece_output(job.exchange, std::move(frames)));
    outputs.push_back(end_output(job.exchange));
  } else {
    outputs.push_back(whole_output(job.exchange, whole_response(*job.answer), job.headers));
  }
  tell(job, kOutOfMemory);
}

/// Marks jobs as no longer busy, and ends jobs that are done or whose clients have left meanwhile.
void AnswerDispatcher::release_jobs(const std::vector<Work>& work) {
  Jobs done;
  {
    const JobsLock lock(*this);
    for (const Work& one : work) {
      Job& job = *one.job;
      if (!job.is_busy || job.is_large) continue;  // another event's too
      if (job.answer->is_large()) {
        begin_sending(job);
        continue;
      }
      job.is_busy = false;
      if (job.answer->is_done()) {
        Jobs taken = take_out(job);
        done.splice(done.end(), taken);
      } else if (job.has_left) {
        leave(job);
      }
    }
  }
  for (const Job& job : done) forget_places(job);
}

void AnswerDispatcher::run(ThreadWatch::Place& place, MemoryReserve& reserve) {
  while (true) {
    reserve.restore();
    const std::vector<Event> events = engine_.wait_events(kWait);
    const ThreadWatch::Work of_thread(place);
    forget_those_that_left();
    {
      const JobsLock lock(*this);
      if (is_stopping_) return;
    }
    if (!events.empty()) answer_events(events);
    break_silence();
  }
}

/// Nothing of it may be lost: the engine tells each event once.
void AnswerDispatcher::answer_events(const std::vector<Event>& events) {
  constexpr std::size_t kMostOutputs = 4;  // of an event: its frames and the end, or those of an answer that is given up
  std::vector<Work> work;
  std::vector<HttpOutput> outputs;
  insist(kLostEvents, [&] { work = take_jobs(events); });
  insist(kLostEvents, [&] { outputs.reserve(kMostOutputs * work.size()); });
  for (const Work& one : work) {
    try {
      answer(one, outputs);
    } catch (const std::bad_alloc&) {
      insist(kLostEvents, [&] { give_up(one, outputs); });
    }
  }
  deliver(std::move(outputs));
  release_jobs(work);
}

/// Tells the clients of streams that have waited long that they still do: a proxy ends what is silent.
void AnswerDispatcher::break_silence() {
  const Clock::time_point now = Clock::now();
  if (now < next_look_at_silence_) return;
  next_look_at_silence_ = now + std::min<Clock::duration>(longest_silence_, kLookEvery);
  std::vector<HttpOutput> outputs;
  try {
    const JobsLock lock(*this);
    for (Job& job : jobs_) {
      if (job.is_busy || job.answer == nullptr || !job.answer->is_stream() || now - job.last_piece < longest_silence_) continue;
      outputs.push_back(piece_output(job.exchange, std::string(job.answer->waiting_frame())));
      job.last_piece = now;
    }
  } catch (const std::bad_alloc&) {
    return;  // they are told later
  }
  deliver(std::move(outputs));
}

/// Hands outputs to the HTTP server as soon as there is memory for that. Not on the I/O thread.
void AnswerDispatcher::deliver(std::vector<HttpOutput> outputs) {
  if (outputs.empty()) return;
  insist(kLostEvents, [&] { http_.deliver(std::move(outputs)); });
}

std::size_t AnswerDispatcher::n_open() const {
  const JobsLock lock(*this);
  return open_.size();
}

bool AnswerDispatcher::wait_until_empty(std::chrono::milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  const JobsLock lock(*this);
  while (!open_.empty() && emptied_.wait_until(mutex_, end)) {
  }
  return open_.empty();
}

void AnswerDispatcher::cancel_all() {
  const MutexLock places(places_mutex_);
  for (const auto& [request, place] : places_) engine_.cancel(request);
}

}  // namespace baton
