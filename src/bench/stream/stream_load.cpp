/// The clients and the loop over their connections.
#include "bench/stream/stream_load.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bench/http/connections.h"

namespace baton {
namespace {

using Clock = Connections::Clock;

constexpr std::size_t kShownFaults = 10;

float ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<float, std::milli>(to - from).count();
}

struct Client {
  std::optional<StreamCheck> check;  // of its answer; absent: no request is in flight
  Clock::time_point last_frame;      // or the start of the request
};

class Load {
 public:
  Load(const StreamLoad& load, Connections connections)
      : load_(load), connections_(std::move(connections)), clients_(connections_.size()) {}

  StreamLoadResult run(const std::function<void(double)>& on_second) {
    begun_ = Clock::now();
    for (Client& client : clients_) begin(client);
    auto next_second = begun_ + std::chrono::seconds(1);
    while (n_open_ > 0 || !failed_.empty() || (clients_.empty() && !is_over(Clock::now()))) {
      connections_.wait(std::min(next_second, Clock::now() + std::chrono::milliseconds(200)),
                        [this](const Connections::News& news) { take(news); });
      const auto now = Clock::now();
      if (now < next_second) continue;
      next_second += std::chrono::seconds(1);
      on_second(std::chrono::duration<double>(now - begun_).count());
      each_second(now);
    }
    result_.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    return std::move(result_);
  }

 private:
  bool is_over(Clock::time_point now) const {
    return now - begun_ >= std::chrono::duration<double>(load_.seconds) ||
           (load_.n_requests > 0 && result_.n_requests >= load_.n_requests);
  }

  /// Sends the next request. Closes the connection instead if the load is over.
  void begin(Client& client) {
    const auto now = Clock::now();
    const auto index = static_cast<std::size_t>(&client - clients_.data());
    if (is_over(now)) return connections_.close(index);
    ++n_open_;
    client.check.emplace(load_.expected);
    client.last_frame = now;
    connections_.send(index, load_.requests[static_cast<std::size_t>(result_.n_requests++) % load_.requests.size()]);
  }

  void take(const Connections::News& news) {
    Client& client = clients_[news.connection];
    if (!client.check) return;
    if (!news.end.empty()) return blame(client, news.end);
    const bool is_first = client.check->n_frames() == 0;
    if (client.check->push(news.bytes) > 0) {
      (is_first ? result_.first_token_ms : result_.gap_ms).push_back(ms_between(client.last_frame, news.at));
      client.last_frame = news.at;
    }
    if (!client.check->fault().empty()) return blame(client, client.check->fault());
    if (!client.check->is_done()) return;
    ++result_.n_whole;
    count(client);
    begin(client);
  }

  /// The current request has ended, with or without a fault.
  void count(Client& client) {
    --n_open_;
    result_.n_frames += client.check->n_frames();
    result_.n_tokens += client.check->n_tokens();
    const std::int64_t n_lost = client.check->n_lost();
    (n_lost > 0 ? result_.n_lost : result_.n_extra) += std::abs(n_lost);
    client.check.reset();
  }

  void blame(Client& client, const std::string& fault) {
    ++result_.n_faults;
    if (result_.faults.size() < kShownFaults)
      result_.faults.push_back(fmt::format("client {} after {:.1f} s: {}", &client - clients_.data(),
                                           ms_between(begun_, Clock::now()) / 1e3F, fault));
    count(client);
    connections_.close(static_cast<std::size_t>(&client - clients_.data()));
    failed_.push_back(&client);
  }

  void each_second(Clock::time_point now) {
    for (Client& client : clients_)
      if (client.check && now - client.last_frame >= std::chrono::duration<double>(load_.silence_s))
        blame(client, fmt::format("nothing came for {:.0f} s", load_.silence_s));
    for (Client* client : std::exchange(failed_, {})) begin(*client);
  }

  const StreamLoad& load_;
  Connections connections_;
  std::vector<Client> clients_;
  StreamLoadResult result_;
  Clock::time_point begun_;
  std::int64_t n_open_ = 0;      // running requests
  std::vector<Client*> failed_;  // connect again within a second, not at once: the cause may persist
};

}  // namespace

Result<StreamLoadResult> run_stream_load(const StreamLoad& load, const std::function<void(double)>& on_second) {
  BATON_TRY(Connections connections, Connections::create(load.address, static_cast<std::size_t>(load.n_clients)));
  return Load(load, std::move(connections)).run(on_second);
}

}  // namespace baton
