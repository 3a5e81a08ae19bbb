/// Clients that send one request after another, and check the answers.
#include "bench/stream/stream_load.h"

#include <cstdlib>
#include <functional>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "bench/http/load.h"

namespace baton {
namespace {

constexpr std::size_t kShownFaults = 10;
/// From a fault to the client's next request: the cause may persist.
constexpr double kAfterFaultS = 1;

class StreamSource final : public LoadSource {
 public:
  explicit StreamSource(const StreamLoad& load) : load_(load) {
    for (std::int32_t i = 0; i < load.n_clients; ++i) {
      clients_.push_back({StreamCheck(load.expected), 0});
      due_.push(0);
    }
  }

  bool is_over(double now_s) const override {
    return now_s >= load_.seconds || (load_.n_requests > 0 && result_.n_requests >= load_.n_requests);
  }
  double next_due_s() const override { return due_.empty() ? std::numeric_limits<double>::infinity() : due_.top(); }

  std::string begin(std::size_t slot, double now_s) override {
    due_.pop();
    clients_[slot] = {StreamCheck(load_.expected), now_s};
    return load_.bodies[static_cast<std::size_t>(result_.n_requests++) % load_.bodies.size()];
  }

  std::string take(std::size_t slot, const HttpHead& head, std::string_view bytes, double at_s) override {
    Client& client = clients_[slot];
    const bool is_first = client.check.n_frames() == 0;
    if (client.check.push(head, bytes) > 0) {
      (is_first ? result_.first_token_ms : result_.gap_ms).push_back(static_cast<float>(1e3 * (at_s - client.last_frame_s)));
      client.last_frame_s = at_s;
    }
    return client.check.fault();
  }

  void end(std::size_t slot, const HttpHead& head, std::string error, double now_s) override {
    StreamCheck& check = clients_[slot].check;
    if (error.empty()) {
      check.finish(head);
      error = check.fault();
    }
    due_.push(error.empty() ? now_s : now_s + kAfterFaultS);
    result_.n_frames += check.n_frames();
    result_.n_tokens += check.n_tokens();
    const std::int64_t n_lost = check.n_lost();
    (n_lost > 0 ? result_.n_lost : result_.n_extra) += std::abs(n_lost);
    ++(error.empty() ? result_.n_whole : result_.n_faults);
    if (!error.empty() && result_.faults.size() < kShownFaults)
      result_.faults.push_back(fmt::format("client {} after {:.1f} s: {}", slot, now_s, error));
  }

  StreamLoadResult& result() { return result_; }

 private:
  struct Client {
    StreamCheck check;        // of its answer
    double last_frame_s = 0;  // or the start of the request
  };

  const StreamLoad& load_;
  std::vector<Client> clients_;
  std::priority_queue<double, std::vector<double>, std::greater<>> due_;  // of clients without a request
  StreamLoadResult result_;
};

}  // namespace

Result<StreamLoadResult> run_stream_load(const StreamLoad& load, const std::function<void(double)>& on_second) {
  StreamSource source(load);
  BATON_TRY(
      const double seconds,
      run_load(
          {.url = load.url, .headers = {}, .n_slots = static_cast<std::size_t>(load.n_clients), .silence_s = load.silence_s},
          source, on_second));
  source.result().seconds = seconds;
  return std::move(source.result());
}

}  // namespace baton
