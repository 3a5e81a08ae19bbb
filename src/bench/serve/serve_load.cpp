/// The queue of due requests and the connections that answer them.
#include "bench/serve/serve_load.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bench/http/completion_stream.h"
#include "bench/http/response_reader.h"
#include "cli/interrupt.h"

namespace baton {
namespace {

using Clock = Connections::Clock;

constexpr std::size_t kPreparedBytes = std::size_t{256} << 20;
constexpr std::size_t kErrorBytes = 4096;

/// A request that can be sent once it is due.
struct Ready {
  double due_s = 0;
  std::size_t request = 0;
  bool operator>(const Ready& other) const { return std::pair(due_s, request) > std::pair(other.due_s, other.request); }
};

/// A connection's request and answer.
struct Exchange {
  bool is_active = false;
  std::size_t request = 0;
  std::string bytes;        // of the request
  bool was_reused = false;  // the connection had served another request
  bool has_received = false;
  ResponseReader response;
  CompletionStream stream;
  std::string error_body;
  double last_chunk_s = 0;
};

class ServeRun {
 public:
  ServeRun(const ServeLoad& load, Connections connections)
      : load_(load),
        requests_(load.workload->requests),
        writer_(load.format),
        connections_(std::move(connections)),
        exchanges_(connections_.size()),
        prepared_(requests_.size()),
        followers_(requests_.size()) {
    result_.requests.resize(requests_.size());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i].follows)
        followers_[*requests_[i].follows].push_back(i);
      else
        ready_.push({load.arrivals_s[i], i});
    }
    for (std::size_t i = connections_.size(); i > 0; --i) free_.push_back(i - 1);
    preparing_ = ready_;
  }

  ServeLoadResult run(const std::function<void(std::int64_t)>& on_second) {
    while (prepare_next()) {
    }
    begin_ = Clock::now();
    auto next_second = begin_ + std::chrono::seconds(1);
    while (n_running_ > 0 || can_send_later()) {
      send_due();
      prepare_next();
      connections_.wait(std::min(next_second, next_send()), [this](const Connections::News& news) {
        take(news);
        send_due();
      });
      if (Clock::now() < next_second) continue;
      next_second += std::chrono::seconds(1);
      on_second(n_ended_);
      end_late_requests();
    }
    result_.was_interrupted = was_interrupted();
    return std::move(result_);
  }

 private:
  double since_begin(Clock::time_point at) const { return std::chrono::duration<double>(at - begin_).count(); }
  double now_s() const { return since_begin(Clock::now()); }

  double limit_s() const { return load_.time_limit_s > 0 ? load_.time_limit_s : std::numeric_limits<double>::infinity(); }
  bool can_send_later() const {
    return !ready_.empty() && ready_.top().due_s < limit_s() && now_s() < limit_s() && !was_interrupted();
  }
  Clock::time_point next_send() const {
    if (free_.empty() || !can_send_later()) return Clock::time_point::max();
    return begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(ready_.top().due_s));
  }

  /// Writes the bytes of one more request, so that sending it takes no time. Returns false if all are written or enough
  /// memory is in use.
  bool prepare_next() {
    if (preparing_.empty() || prepared_bytes_ > kPreparedBytes) return false;
    const std::size_t i = preparing_.top().request;
    preparing_.pop();
    if (result_.requests[i].is_sent) return true;
    prepared_[i] = writer_.write(requests_[i].prompt, requests_[i].output_len);
    prepared_bytes_ += prepared_[i].size();
    return true;
  }

  std::string bytes_of(std::size_t i) {
    if (const auto conversation = conversations_.find(i); conversation != conversations_.end())
      return writer_.write(conversation->second, requests_[i].output_len);
    if (prepared_[i].empty()) return writer_.write(requests_[i].prompt, requests_[i].output_len);
    prepared_bytes_ -= prepared_[i].size();
    return std::move(prepared_[i]);
  }

  void send_due() {
    while (!free_.empty() && can_send_later() && ready_.top().due_s <= now_s()) {
      const Ready next = ready_.top();
      ready_.pop();
      send(next);
    }
  }

  void send(const Ready& next) {
    const std::size_t index = free_.back();
    free_.pop_back();
    ++n_running_;
    Exchange& exchange = exchanges_[index];
    exchange = Exchange{};
    exchange.is_active = true;
    exchange.request = next.request;
    exchange.bytes = bytes_of(next.request);
    exchange.was_reused = connections_.is_open(index);
    ServedRequest& served = result_.requests[next.request];
    served.is_sent = true;
    const auto conversation = conversations_.find(next.request);
    served.times.prompt_len = conversation != conversations_.end()
                                  ? conversation->second.n_tokens
                                  : static_cast<std::int64_t>(requests_[next.request].prompt.size());
    served.times.sent = now_s();
    served.lag_s = served.times.sent - std::max(next.due_s, place_free_s_);
    connections_.send(index, exchange.bytes);
  }

  void take(const Connections::News& news) {
    Exchange& exchange = exchanges_[news.connection];
    if (!exchange.is_active) return connections_.close(news.connection);  // idle: the server may end it at any time
    if (!news.end.empty() && exchange.was_reused && !exchange.has_received) {
      exchange.was_reused = false;  // the server ended the connection while the request was on its way
      return connections_.send(news.connection, exchange.bytes);
    }
    exchange.has_received = true;
    const double at = since_begin(news.at);
    exchange.response.push(news.bytes, [&](std::string_view piece) { take_body(exchange, piece, at); });
    if (news.is_closed && exchange.response.has_head()) exchange.response.close();
    if (!exchange.response.fault().empty()) return end(news.connection, exchange.response.fault());
    if (exchange.response.is_done()) return end(news.connection, error_of(exchange));
    if (!news.end.empty()) end(news.connection, news.end);
  }

  static bool is_stream(const ResponseReader& response) {
    return response.status() == 200 && response.header("content-type").starts_with("text/event-stream");
  }

  void take_body(Exchange& exchange, std::string_view piece, double at) {
    if (!is_stream(exchange.response)) {
      exchange.error_body.append(piece.substr(0, kErrorBytes - std::min(kErrorBytes, exchange.error_body.size())));
      return;
    }
    RequestTimes& times = result_.requests[exchange.request].times;
    const bool is_first = exchange.stream.n_chunks() == 0;
    const int n_chunks = exchange.stream.push(piece);
    for (int i = 0; i < n_chunks; ++i) {
      if (is_first && i == 0)
        times.ttft = at - times.sent;
      else
        times.gaps.push_back(at - exchange.last_chunk_s);
      exchange.last_chunk_s = at;
    }
  }

  /// Why a response that came to its end is no answer; empty if it is one.
  static std::string error_of(Exchange& exchange) {
    if (!is_stream(exchange.response))
      return fmt::format("{}: {}", exchange.response.status_line(), message_of_error(exchange.error_body));
    exchange.stream.finish();
    return exchange.stream.error();
  }

  /// A request has ended, with or without an error; its connection is free.
  void end(std::size_t index, std::string error) {
    Exchange& exchange = exchanges_[index];
    const double now = now_s();
    if (free_.empty()) place_free_s_ = now;
    if (!error.empty() || !exchange.response.keeps_connection() || exchange.response.has_more()) connections_.close(index);
    exchange.is_active = false;
    free_.push_back(index);
    --n_running_;
    result_.seconds = now;
    if (error.empty()) note_answer(exchange);
    settle(exchange.request, exchange.stream, now, std::move(error));
  }

  void note_answer(const Exchange& exchange) {
    const CompletionStream& stream = exchange.stream;
    ServedRequest& served = result_.requests[exchange.request];
    served.times.is_complete = true;
    served.times.e2e = exchange.last_chunk_s - served.times.sent;
    served.has_usage = stream.completion_tokens().has_value();
    served.times.output_len = output_len_of(stream);
    if (load_.format.is_chat) served.times.prompt_len = stream.prompt_tokens().value_or(served.times.prompt_len);
    served.cached_tokens = stream.cached_tokens();
    served.text = stream.text();
  }

  std::int64_t output_len_of(const CompletionStream& stream) const {
    if (stream.completion_tokens()) return *stream.completion_tokens();
    if (!stream.token_ids().empty()) return static_cast<std::int64_t>(stream.token_ids().size());
    if (load_.format.tokenizer == nullptr) return stream.n_chunks();
    return static_cast<std::int64_t>(load_.format.tokenizer->encode_plain(stream.text()).size());
  }

  /// Notes an error, and makes the next turns of the conversation ready, or lets them fail too.
  void settle(std::size_t i, const CompletionStream& stream, double now, std::string error) {
    ++n_ended_;
    if (error.empty() && !followers_[i].empty()) error = make_followers_ready(i, stream, now);
    conversations_.erase(i);
    if (error.empty()) return;
    result_.requests[i].error = error;
    for (const std::size_t follower : followers_[i]) settle(follower, stream, now, "the previous turn failed: " + error);
  }

  /// Returns why there can be no next turn; empty if it can.
  std::string make_followers_ready(std::size_t i, const CompletionStream& stream, double now) {
    PromptHistory conversation;
    if (const auto kept = conversations_.find(i); kept != conversations_.end())
      conversation = kept->second;
    else
      writer_.add_prompt(conversation, requests_[i].prompt);
    if (auto added = writer_.add_answer(conversation, stream.text(), stream.token_ids()); !added) return added.error().message;
    for (const std::size_t follower : followers_[i]) {
      PromptHistory longer = conversation;
      writer_.add_prompt(longer, requests_[follower].prompt);
      conversations_[follower] = std::move(longer);
      ready_.push({std::max(load_.arrivals_s[follower], now), follower});
    }
    return "";
  }

  void end_late_requests() {
    const double now = now_s();
    for (std::size_t i = 0; i < exchanges_.size(); ++i) {
      if (!exchanges_[i].is_active) continue;
      if (was_interrupted())
        end(i, "interrupted");
      else if (now - result_.requests[exchanges_[i].request].times.sent >= load_.timeout_s)
        end(i, fmt::format("no whole answer within {:g} s", load_.timeout_s));
    }
  }

  const ServeLoad& load_;
  const std::vector<WorkloadRequest>& requests_;
  const RequestWriter writer_;
  Connections connections_;
  std::vector<Exchange> exchanges_;  // by connection
  std::vector<std::size_t> free_;    // connections; the one used last is at the end
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> preparing_;  // requests whose bytes are not written yet
  std::vector<std::string> prepared_;
  std::size_t prepared_bytes_ = 0;
  std::vector<std::vector<std::size_t>> followers_;
  std::map<std::size_t, PromptHistory> conversations_;  // of later turns that are ready or under way
  ServeLoadResult result_;
  Clock::time_point begin_;
  double place_free_s_ = 0;  // when max_concurrency last let a request through
  std::int64_t n_running_ = 0;
  std::int64_t n_ended_ = 0;
};

}  // namespace

Result<ServeLoadResult> run_serve_load(const ServeLoad& load, const std::function<void(std::int64_t)>& on_second) {
  std::size_t n_connections = load.workload->requests.size();
  if (load.max_concurrency > 0) n_connections = std::min(n_connections, static_cast<std::size_t>(load.max_concurrency));
  BATON_TRY(Connections connections, Connections::create(load.format.address, n_connections));
  return ServeRun(load, std::move(connections)).run(on_second);
}

}  // namespace baton
