/// The table of jobs and the dispatcher.
#include "server/service.h"

#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/thread_name.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kWait{100};

HttpOutput piece(ExchangeId exchange, std::string bytes) { return {exchange, HttpOutput::Kind::piece, {}, std::move(bytes)}; }
HttpOutput end(ExchangeId exchange) { return {exchange, HttpOutput::Kind::end, {}, {}}; }
HttpResponse whole_response(Answer& answer) {
  HttpResponse response = answer.response();
  response.headers.emplace_back("X-Request-Id", answer.header().id);
  return response;
}

}  // namespace

Service::Service(Engine& engine, HttpServer& http, MetricsPage& metrics) : engine_(engine), http_(http), metrics_(metrics) {}
Service::~Service() { stop(); }

void Service::start() {
  check(!thread_.joinable(), "a Service is started once");
  thread_ = std::thread([this] {
    name_this_thread("answers");
    run();
  });
}

void Service::stop() {
  if (!thread_.joinable()) return;
  {
    const auto lock = lock_jobs();
    is_stopping_ = true;
  }
  thread_.join();
}

/// Locks the table of jobs. How long the I/O thread had to wait is counted: it must not be noticeable.
std::unique_lock<std::mutex> Service::lock_jobs() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  const bool has_waited = !lock.owns_lock();
  const auto begin = has_waited ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  if (has_waited) lock.lock();
  if (http_.is_io_thread())
    metrics_.observe_io_wait(has_waited ? std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() : 0);
  return lock;
}

void Service::open(ExchangeId exchange, std::string handler, std::string method, HttpHeaders headers) {
  const auto lock = lock_jobs();
  jobs_.emplace(exchange,
                Job{std::move(handler), std::move(method), std::move(headers), std::chrono::steady_clock::now(), nullptr, {}});
}

void Service::forget_requests(const Job& job, bool cancel) {
  for (const RequestId request : job.requests) {
    places_.erase(request);
    if (cancel) engine_.cancel(request);
  }
}

HttpOutput Service::whole(Jobs::iterator job, HttpResponse response) const {
  const HttpHeaders& headers = job->second.headers;
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  return {job->first, HttpOutput::Kind::whole, std::move(response), {}};
}

HttpOutput Service::head(Jobs::iterator job, const AnswerHeader& header) const {
  HttpResponse response;
  response.headers = job->second.headers;
  response.headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("X-Request-Id", header.id);
  return {job->first, HttpOutput::Kind::head, std::move(response), {}};
}

void Service::finish(Jobs::iterator job, int status) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - job->second.arrived;
  const Job& done = job->second;
  if (done.answer != nullptr) {
    log::info("event=request_finished {} handler={} status={} seconds={:.3f}", done.answer->log_line(), done.handler, status,
              took.count());
  } else {
    log::debug("event=answered handler={} method={} status={} seconds={:.3f}", done.handler, done.method, status, took.count());
  }
  metrics_.observe_request(job->second.handler, job->second.method, status, took.count());
  jobs_.erase(job);
  if (jobs_.empty()) emptied_.notify_all();
}

void Service::respond(ExchangeId exchange, HttpResponse response) {
  const auto lock = lock_jobs();
  const auto job = jobs_.find(exchange);
  if (job == jobs_.end()) return;
  const int status = response.status;
  http_.deliver(whole(job, std::move(response)));
  finish(job, status);
}

void Service::send_finished(ExchangeId exchange, std::unique_ptr<Answer> answer, std::string frames) {
  if (!answer->is_stream()) return respond(exchange, whole_response(*answer));
  const auto lock = lock_jobs();
  const auto job = jobs_.find(exchange);
  if (job == jobs_.end()) return;
  std::vector<HttpOutput> outputs;
  outputs.push_back(head(job, answer->header()));
  outputs.push_back(piece(exchange, std::move(frames)));
  outputs.push_back(end(exchange));
  http_.deliver(std::move(outputs));
  finish(job, 200);
}

Result<void> Service::begin(ExchangeId exchange, std::unique_ptr<Answer> answer, std::vector<Request> requests) {
  const auto lock = lock_jobs();
  const auto found = jobs_.find(exchange);
  if (found == jobs_.end()) return {};  // the client has left meanwhile
  Job& job = found->second;
  for (Request& request : requests) {
    request.arrived = job.arrived;
    auto id = engine_.submit(std::move(request));
    if (!id) {
      forget_requests(job, /*cancel=*/true);
      job.requests.clear();
      return tl::unexpected<Error>(std::move(id.error()));
    }
    // Events of it wait for the lock.
    places_.emplace(*id, Place{exchange, job.requests.size()});
    job.requests.push_back(*id);
  }
  job.answer = std::move(answer);
  if (job.answer->is_stream()) http_.deliver(head(found, job.answer->header()));
  return {};
}

void Service::client_left(ExchangeId exchange) {
  constexpr int kClientClosedRequest = 499;
  const auto lock = lock_jobs();
  const auto job = jobs_.find(exchange);
  if (job == jobs_.end()) return;
  forget_requests(job->second, /*cancel=*/true);
  finish(job, kClientClosedRequest);
}

void Service::take(const Event& event, std::vector<HttpOutput>& outputs) {
  const auto place = places_.find(event.request);
  if (place == places_.end()) return;  // of a job that is gone
  const ExchangeId exchange = place->second.exchange;
  const auto job = jobs_.find(exchange);
  Answer& answer = *job->second.answer;
  Answer::Reaction reaction = answer.take(place->second.prompt, event);
  if (reaction.has_met_stop) engine_.finish(event.request, event.index, FinishReason::stop);
  if (!reaction.frames.empty()) outputs.push_back(piece(exchange, std::move(reaction.frames)));
  if (!answer.is_done()) return;
  forget_requests(job->second, /*cancel=*/answer.has_failed());
  int status = 200;
  if (answer.is_stream()) {
    outputs.push_back(end(exchange));
  } else {
    outputs.push_back(whole(job, whole_response(answer)));
    status = outputs.back().response.status;
  }
  finish(job, status);
}

void Service::run() {
  while (true) {
    const std::vector<Event> events = engine_.wait_events(kWait);
    const auto lock = lock_jobs();
    if (is_stopping_) return;
    std::vector<HttpOutput> outputs;
    for (const Event& event : events) take(event, outputs);
    if (!outputs.empty()) http_.deliver(std::move(outputs));
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
  const auto lock = lock_jobs();
  for (const auto& [request, place] : places_) engine_.cancel(request);
}

}  // namespace baton
