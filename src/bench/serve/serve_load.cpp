/// The queue of due requests, and their answers.
#include "bench/serve/serve_load.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bench/http/completion_stream.h"
#include "bench/http/load.h"
#include "cli/interrupt.h"

namespace baton {
namespace {

constexpr std::size_t kPreparedBytes = std::size_t{256} << 20;
constexpr std::size_t kErrorBytes = 4096;

/// A request that can be sent once it is due.
struct Ready {
  double due_s = 0;
  std::size_t request = 0;
  bool operator>(const Ready& other) const { return std::pair(due_s, request) > std::pair(other.due_s, other.request); }
};

/// A slot's request and answer.
struct Exchange {
  std::size_t request = 0;
  CompletionStream stream;
  std::string error_body;
  double last_chunk_s = 0;
};

class ServeSource final : public LoadSource {
 public:
  ServeSource(const ServeLoad& load, std::size_t n_slots)
      : load_(load),
        requests_(load.workload->requests),
        writer_(load.format),
        exchanges_(n_slots),
        prepared_(requests_.size()),
        followers_(requests_.size()) {
    result_.requests.resize(requests_.size());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i].follows)
        followers_[*requests_[i].follows].push_back(i);
      else
        ready_.push({load.arrivals_s[i], i});
    }
    preparing_ = ready_;
    while (prepare_next()) {
    }
  }

  bool is_over(double now_s) const override {
    return ready_.empty() || ready_.top().due_s >= limit_s() || now_s >= limit_s() || was_interrupted();
  }
  double next_due_s() const override { return ready_.top().due_s; }
  void prepare() override { prepare_next(); }

  std::string begin(std::size_t slot, double now_s) override {
    const Ready next = ready_.top();
    ready_.pop();
    ++n_running_;
    exchanges_[slot] = Exchange{.request = next.request, .stream = {}, .error_body = {}};
    ServedRequest& served = result_.requests[next.request];
    served.is_sent = true;
    const auto conversation = conversations_.find(next.request);
    served.times.prompt_len = conversation != conversations_.end()
                                  ? conversation->second.n_tokens
                                  : static_cast<std::int64_t>(requests_[next.request].prompt.size());
    served.times.sent = now_s;
    served.lag_s = now_s - std::max(next.due_s, place_free_s_);
    return body_of(next.request);
  }

  std::string take(std::size_t slot, const HttpHead& head, std::string_view bytes, double at_s) override {
    Exchange& exchange = exchanges_[slot];
    if (!is_stream(head)) {
      exchange.error_body.append(bytes.substr(0, kErrorBytes - std::min(kErrorBytes, exchange.error_body.size())));
      return "";
    }
    RequestTimes& times = result_.requests[exchange.request].times;
    const bool is_first = exchange.stream.n_chunks() == 0;
    const int n_chunks = exchange.stream.push(bytes);
    for (int i = 0; i < n_chunks; ++i) {
      if (is_first && i == 0)
        times.ttft = at_s - times.sent;
      else
        times.gaps.push_back(at_s - exchange.last_chunk_s);
      exchange.last_chunk_s = at_s;
    }
    return "";
  }

  void end(std::size_t slot, const HttpHead& head, std::string error, double now_s) override {
    Exchange& exchange = exchanges_[slot];
    if (static_cast<std::size_t>(n_running_--) == exchanges_.size()) place_free_s_ = now_s;
    result_.seconds = now_s;
    if (error.empty()) error = error_of(exchange, head);
    if (error.empty()) note_answer(exchange);
    settle(exchange.request, exchange.stream, now_s, std::move(error));
  }

  std::int64_t n_ended() const { return n_ended_; }
  ServeLoadResult& result() { return result_; }

 private:
  double limit_s() const { return load_.time_limit_s > 0 ? load_.time_limit_s : std::numeric_limits<double>::infinity(); }

  /// Writes the body of one more request, so that sending it takes no time. Returns false if all are written or enough
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

  std::string body_of(std::size_t i) {
    if (const auto conversation = conversations_.find(i); conversation != conversations_.end())
      return writer_.write(conversation->second, requests_[i].output_len);
    if (prepared_[i].empty()) return writer_.write(requests_[i].prompt, requests_[i].output_len);
    prepared_bytes_ -= prepared_[i].size();
    return std::move(prepared_[i]);
  }

  static bool is_stream(const HttpHead& head) {
    return head.status == 200 && head.content_type.starts_with("text/event-stream");
  }

  /// Why a response that came to its end is not an answer; empty if it is one.
  static std::string error_of(Exchange& exchange, const HttpHead& head) {
    if (!is_stream(head)) return fmt::format("{}: {}", head.status_line, message_of_error(exchange.error_body));
    exchange.stream.finish();
    return exchange.stream.error();
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

  const ServeLoad& load_;
  const std::vector<WorkloadRequest>& requests_;
  const RequestWriter writer_;
  std::vector<Exchange> exchanges_;  // by slot
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> preparing_;  // requests whose bodies are not written yet
  std::vector<std::string> prepared_;
  std::size_t prepared_bytes_ = 0;
  std::vector<std::vector<std::size_t>> followers_;
  std::map<std::size_t, PromptHistory> conversations_;  // of later turns that are ready or under way
  ServeLoadResult result_;
  double place_free_s_ = 0;  // when max_concurrency last let a request through
  std::int64_t n_running_ = 0;
  std::int64_t n_ended_ = 0;
};

}  // namespace

Result<ServeLoadResult> run_serve_load(const ServeLoad& load, const std::function<void(std::int64_t)>& on_second) {
  std::size_t n_slots = load.workload->requests.size();
  if (load.max_concurrency > 0) n_slots = std::min(n_slots, static_cast<std::size_t>(load.max_concurrency));
  ServeSource source(load, n_slots);
  const RequestFormat& format = load.format;
  BATON_TRY_VOID(run_load({.url = format.address.url() + format.endpoint,
                           .headers = format.headers,
                           .n_slots = n_slots,
                           .timeout_s = load.timeout_s},
                          source, [&](double) { on_second(source.n_ended()); }));
  source.result().was_interrupted = was_interrupted();
  return std::move(source.result());
}

}  // namespace baton
