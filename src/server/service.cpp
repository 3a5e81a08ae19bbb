/// The table of jobs and the dispatcher.
#include "server/service.h"

#include <new>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/thread_name.h"
#include "server/answer_outputs.h"
#include "server/messages_error.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWait{100};

}  // namespace

Service::Service(Engine& engine, HttpServer& http, MetricsPage& metrics)
    : engine_(engine), http_(http), metrics_(metrics), reserve_(kAnswersReserveBytes) {}
Service::~Service() { stop(); }

void Service::start(ThreadWatch& watch) {
  check(!thread_.joinable(), "a Service is started once");
  thread_ = std::thread([this, &place = watch.add("answers")] {
    name_this_thread("answers");
    run(place);
  });
  sender_ = std::thread([this, &place = watch.add("large-answers")] {
    name_this_thread("large-answers");
    run_sender(place);
  });
}

void Service::stop() {
  if (!thread_.joinable()) return;
  {
    const auto lock = lock_jobs();
    is_stopping_ = true;
  }
  sendable_changed_.notify_all();
  thread_.join();
  sender_.join();
  forget_those_that_left();
}

/// Locks the table of jobs. How long the I/O thread had to wait is counted: it must not be noticeable.
std::unique_lock<std::mutex> Service::lock_jobs() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  const bool has_waited = !lock.owns_lock();
  const auto begin = has_waited ? Clock::now() : Clock::time_point();
  if (has_waited) lock.lock();
  if (http_.is_io_thread())
    metrics_.observe_io_wait(has_waited ? std::chrono::duration<double>(Clock::now() - begin).count() : 0);
  return lock;
}

void Service::open(ExchangeId exchange, std::string handler, std::string method, HttpHeaders headers, KeyUse use) {
  Job job;
  job.handler = std::move(handler);
  job.method = std::move(method);
  job.headers = std::move(headers);
  job.arrived = Clock::now();
  job.use = std::move(use);
  const auto lock = lock_jobs();
  jobs_.emplace(exchange, std::move(job));
}

bool Service::is_open(ExchangeId exchange) const {
  const auto lock = lock_jobs();
  const auto found = jobs_.find(exchange);
  return found != jobs_.end() && !found->second.has_left;
}

/// Marks a job busy, so that it stays until the caller ends or releases it. Null if it is gone.
Service::Job* Service::hold(ExchangeId exchange) {
  const auto lock = lock_jobs();
  const auto found = jobs_.find(exchange);
  if (found == jobs_.end()) return nullptr;
  check(!found->second.is_busy, "a job is busy twice");
  found->second.is_busy = true;
  return &found->second;
}

/// The job is busy no longer. If its client left meanwhile, it goes.
void Service::release(ExchangeId exchange) {
  const auto lock = lock_jobs();
  const auto found = jobs_.find(exchange);
  found->second.is_busy = false;
  if (found->second.has_left) jobs_.erase(found);
  if (jobs_.empty()) emptied_.notify_all();
}

void Service::remove(ExchangeId exchange) {
  Jobs::node_type removed;  // goes after the lock
  const auto lock = lock_jobs();
  removed = jobs_.extract(exchange);
  if (jobs_.empty()) emptied_.notify_all();
}

/// Reports the end of a job to the log and the metrics. It no longer counts as one of its key's: the client may send the
/// next request as soon as it has the answer.
void Service::tell(Job& job, int status) {
  const double seconds = std::chrono::duration<double>(Clock::now() - job.arrived).count();
  metrics_.observe_request(job.handler, job.method, status, seconds);
  if (job.answer != nullptr)
    log::info("event=request_finished {} handler={} key={} status={} seconds={:.3f}", job.answer->log_line(), job.handler,
              job.use.name().empty() ? "-" : job.use.name(), status, seconds);
  else
    log::debug("event=answered handler={} method={} status={} seconds={:.3f}", job.handler, job.method, status, seconds);
  job.use = KeyUse();
}

void Service::cancel(const Job& job) {
  for (const RequestId request : job.requests) engine_.cancel(request);
}

/// From now on events of the job's requests are dropped.
void Service::forget_places(const Job& job) {
  const std::scoped_lock places(places_mutex_);
  for (const RequestId request : job.requests) places_.erase(request);
}

void Service::forget_those_that_left() {
  std::vector<Job> left;
  {
    const auto lock = lock_jobs();
    left.swap(left_);
  }
  for (Job& job : left) {
    tell(job, kClientClosedRequest);
    forget_places(job);
  }
}

void Service::respond(ExchangeId exchange, HttpResponse response) {
  Job* const job = hold(exchange);
  if (job == nullptr) return;
  if (response.status >= 400 && is_messages_path(job->handler)) response = as_messages_error(std::move(response));
  try {
    tell(*job, response.status);
    http_.deliver(whole_output(exchange, std::move(response), job->headers));
  } catch (const std::bad_alloc&) {
    release(exchange);
    throw;
  }
  remove(exchange);
}

void Service::send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames) {
  if (!answer->is_stream() && !answer->is_large()) return respond(exchange, whole_response(*answer));
  Job* const job = hold(exchange);
  if (job == nullptr) return;
  if (answer->is_large()) {
    const auto lock = lock_jobs();
    job->answer = std::move(answer);
    return begin_sending(exchange, *job);
  }
  tell(*job, 200);
  std::vector<HttpOutput> outputs;
  outputs.push_back(head_output(exchange, job->headers, answer->header()));
  outputs.push_back(piece_output(exchange, std::move(frames)));
  outputs.push_back(end_output(exchange));
  http_.deliver(std::move(outputs));
  remove(exchange);
}

/// Submits all of the requests, or none. Under the lock of places.
Result<std::vector<RequestId>> Service::submit(ExchangeId exchange, Clock::time_point arrived, std::vector<Request> requests) {
  std::vector<RequestId> submitted;
  submitted.reserve(requests.size());
  for (Request& request : requests) {
    request.arrived = arrived;
    const auto submit_one = [&]() -> Result<RequestId> {
      try {
        return engine_.submit(std::move(request));
      } catch (const std::bad_alloc&) {
        return fail(ErrorCode::unavailable, "this server has no memory left for the request");
      }
    };
    auto id = submit_one();
    if (!id) {
      for (const RequestId earlier : submitted) {
        places_.erase(earlier);
        engine_.cancel(earlier);
      }
      return tl::unexpected<Error>(std::move(id.error()));
    }
    places_.emplace(*id, Place{exchange, submitted.size()});
    submitted.push_back(*id);
  }
  return submitted;
}

Result<void> Service::begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests) {
  Job* const job = hold(exchange);
  if (job == nullptr) return {};  // the client has left meanwhile
  Result<void> begun;
  bool has_left = false;
  std::int64_t n_prompt_tokens = 0;
  for (const Request& request : requests) n_prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
  {
    const std::scoped_lock places(places_mutex_);
    auto submitted = submit(exchange, job->arrived, std::move(requests));
    if (submitted) job->use.charge(n_prompt_tokens, 0);
    if (submitted && answer->is_stream()) http_.deliver(head_output(exchange, job->headers, answer->header()));
    const auto lock = lock_jobs();
    has_left = job->has_left;
    job->is_busy = has_left;
    if (submitted) {
      // Events of a job that ends here must not be found: another thread would work on it meanwhile.
      if (has_left)
        for (const RequestId request : *submitted) places_.erase(request);
      job->requests = std::move(*submitted);
      job->answer = std::move(answer);
    } else if (!has_left) {
      begun = tl::unexpected<Error>(std::move(submitted.error()));
    }
  }
  if (!has_left) return begun;
  cancel(*job);
  tell(*job, kClientClosedRequest);
  forget_places(*job);
  remove(exchange);
  return {};
}

void Service::client_left(ExchangeId exchange) {
  const auto lock = lock_jobs();
  const auto found = jobs_.find(exchange);
  if (found == jobs_.end()) return;
  found->second.has_left = true;
  if (found->second.is_large) resume_sending(exchange, found->second);
  if (found->second.is_busy) return;
  cancel(found->second);
  left_.push_back(std::move(found->second));
  jobs_.erase(found);
  if (jobs_.empty()) emptied_.notify_all();
}

/// Finds the jobs of events and marks them busy. Leaves out events of jobs that are gone.
std::vector<Service::Work> Service::take_jobs(const std::vector<Event>& events) {
  std::vector<Work> work;
  work.reserve(events.size());
  const std::scoped_lock places(places_mutex_);
  const auto lock = lock_jobs();
  for (const Event& event : events) {
    const auto place = places_.find(event.request);
    if (place == places_.end()) continue;
    const auto [exchange, prompt] = place->second;
    const auto job = jobs_.find(exchange);
    if (job == jobs_.end() || job->second.is_large) continue;
    job->second.is_busy = true;
    work.push_back({&event, exchange, prompt, &job->second});
  }
  return work;
}

/// Passes an event to its answer and adds the results to `outputs`. Without a lock.
void Service::answer(const Work& work, std::vector<HttpOutput>& outputs) {
  Answer& answer = *work.job->answer;
  if (answer.is_done()) return;
  const std::size_t n_tokens = work.event->tokens.size() + (work.event->stop_token ? 1 : 0);
  if (n_tokens > 0) work.job->use.charge(0, static_cast<std::int64_t>(n_tokens));
  Answer::Reaction reaction = answer.take(work.prompt, *work.event);
  if (reaction.has_met_stop) engine_.finish(work.event->request, work.event->index, FinishReason::stop);
  if (!reaction.frames.empty()) outputs.push_back(piece_output(work.exchange, std::move(reaction.frames)));
  if (!answer.is_done()) return;
  if (answer.has_failed()) cancel(*work.job);
  if (answer.is_large()) return;  // release_jobs hands it on
  int status = 200;
  if (answer.is_stream()) {
    outputs.push_back(end_output(work.exchange));
  } else {
    outputs.push_back(whole_output(work.exchange, whole_response(answer), work.job->headers));
    status = outputs.back().response.status;
  }
  tell(*work.job, status);
}

/// Memory ran out while an answer was written: it ends.
void Service::give_up(const Work& work, std::vector<HttpOutput>& outputs) {
  Answer& answer = *work.job->answer;
  log::warning("event=out_of_memory effect=\"an answer is given up\"");
  std::string frames = answer.give_up();
  cancel(*work.job);
  if (answer.is_stream()) {
    outputs.push_back(piece_output(work.exchange, std::move(frames)));
    outputs.push_back(end_output(work.exchange));
  } else {
    outputs.push_back(whole_output(work.exchange, whole_response(answer), work.job->headers));
  }
  tell(*work.job, kOutOfMemory);
}

/// Marks jobs as no longer busy, and ends those that are done or whose clients have left meanwhile.
void Service::release_jobs(const std::vector<Work>& work) {
  std::vector<Jobs::node_type> removed;
  {
    const auto lock = lock_jobs();
    for (const Work& one : work) {
      const auto job = jobs_.find(one.exchange);
      // Another event's job, which is removed or handed on.
      if (job == jobs_.end() || job->second.is_large) continue;
      if (job->second.answer->is_large()) {
        begin_sending(one.exchange, job->second);
        continue;
      }
      job->second.is_busy = false;
      if (job->second.answer->is_done() || job->second.has_left) removed.push_back(jobs_.extract(job));
    }
    if (jobs_.empty()) emptied_.notify_all();
  }
  for (Jobs::node_type& node : removed) {
    Job& job = node.mapped();
    if (!job.answer->is_done()) {
      cancel(job);
      tell(job, kClientClosedRequest);
    }
    forget_places(job);
  }
}

void Service::run(ThreadWatch::Place& place) {
  const MemoryReserve::User user(reserve_);
  try {
    answer_events(place);
  } catch (const std::bad_alloc&) {
    log::fatal("event=answers_out_of_memory effect=\"the program ends: there is no memory to bring results to their answers\"");
  }
}

void Service::answer_events(ThreadWatch::Place& place) {
  while (true) {
    reserve_.restore();
    const std::vector<Event> events = engine_.wait_events(kWait);
    const ThreadWatch::Work of_thread(place);
    forget_those_that_left();
    {
      const auto lock = lock_jobs();
      if (is_stopping_) return;
    }
    const std::vector<Work> work = take_jobs(events);
    std::vector<HttpOutput> outputs;
    for (const Work& one : work) {
      try {
        answer(one, outputs);
      } catch (const std::bad_alloc&) {
        give_up(one, outputs);
      }
    }
    if (!outputs.empty()) http_.deliver(std::move(outputs));
    if (!work.empty()) release_jobs(work);
  }
}

std::size_t Service::n_open() const {
  const auto lock = lock_jobs();
  return jobs_.size();
}

bool Service::wait_until_empty(std::chrono::milliseconds timeout) {
  auto lock = lock_jobs();
  return emptied_.wait_for(lock, timeout, [this] { return jobs_.empty(); });
}

void Service::cancel_all() {
  const std::scoped_lock places(places_mutex_);
  for (const auto& [request, place] : places_) engine_.cancel(request);
}

}  // namespace baton
