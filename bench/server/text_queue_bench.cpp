/// Short chat requests that the threads of text work read, render and encode, in requests per second of real time, by the
/// number of threads for short work: bodies of 2 KB, no two alike. The thread of long work helps, as in a server.
///
/// `chat` waits for batches of a thousand; `paced` sends 2,000 a second, and its counters are the times from a request's
/// arrival to its ids, in microseconds.
///
/// The model and the texts are the demo's; BATON_BENCH_MODEL names where its folder is on another machine.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "core/check.h"
#include "io/file.h"
#include "io/json.h"
#include "server/http/json_body.h"
#include "server/limits/text_queue.h"
#include "server/limits/thread_watch.h"
#include "server/prompt/prompts.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBodyBytes = 2000;
constexpr std::size_t kBodies = 1000;
constexpr std::int64_t kPerSecond = 2000;
constexpr std::int32_t kMaxLen = 1 << 20;

template <class T>
T or_end(Result<T> result) {
  check(result.has_value(), result ? "" : result.error().message);
  return std::move(*result);
}

std::filesystem::path demo() {
  const char* const given = std::getenv("BATON_BENCH_MODEL");
  return given != nullptr ? std::filesystem::path(given) : std::filesystem::path(BATON_SOURCE_DIR) / "models/demo";
}

ServedModel load_model() {
  const std::filesystem::path folder = demo();
  Tokenizer tokenizer = or_end(Tokenizer::load(folder));
  check(!tokenizer.chat_templates().empty(), "the model has no chat template");
  ChatTemplate chat_template = or_end(ChatTemplate::parse(tokenizer.chat_templates().begin()->second));
  const auto n_vocab = static_cast<std::int32_t>(tokenizer.n_vocab());
  ServedModel model{{"demo"}, folder.string(), std::move(tokenizer), std::move(chat_template), {}, n_vocab, kMaxLen};
  model.look_at_templates();
  return model;
}

/// Bodies of about kBodyBytes, each with another part of the demo's questions.
std::vector<HttpRequest> make_requests() {
  const std::string text = or_end(read_file(demo() / "questions.jsonl"));
  check(text.size() > 2 * kBodyBytes, "the questions are too short a text");
  std::vector<HttpRequest> requests(kBodies);
  for (std::size_t i = 0; i < kBodies; ++i) {
    json::Value message;
    message["role"] = "user";
    message["content"] = fmt::format("{} {}", i, text.substr(i * 97 % (text.size() - kBodyBytes), kBodyBytes - 100));
    json::Value body;
    body["model"] = "demo";
    body["max_tokens"] = 16;
    body["messages"] = json::Value::array({std::move(message)});
    requests[i].body = json::dump(body);
  }
  return requests;
}

struct Setting {
  ServedModel model = load_model();
  std::vector<HttpRequest> requests = make_requests();
};

const Setting& setting() {
  static const Setting made;
  return made;
}

/// What a handler does with a chat request before the engine gets it.
std::size_t encode(const HttpRequest& request) {
  const ServedModel& model = setting().model;
  const json::Value body = or_end(parse_body(request, 1 << 20));
  const ChatRequest chat = or_end(parse_chat_request(body, model.defaults, {.n_vocab = model.n_vocab}));
  return or_end(tokenize_chat(model, {}, chat)).tokens.size();
}

void chat(benchmark::State& state) {
  const std::vector<HttpRequest>& requests = setting().requests;
  Budget places(1 << 20, 1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, static_cast<int>(state.range(0)));
  std::atomic<std::int64_t> n_tokens = 0;
  for (auto _ : state) {
    std::latch done(static_cast<std::ptrdiff_t>(requests.size()));
    for (const HttpRequest& request : requests) {
      const bool is_queued = queue.push({TextQueue::Kind::text, {}, request.body.size(), [&] {
                                           n_tokens += static_cast<std::int64_t>(encode(request));
                                           done.count_down();
                                         }});
      check(is_queued, "the queue has no place");
    }
    done.wait();
  }
  const std::int64_t n_requests = state.iterations() * static_cast<std::int64_t>(requests.size());
  state.SetItemsProcessed(n_requests);
  state.counters["tokens_each"] = static_cast<double>(n_tokens) / static_cast<double>(n_requests);
}

void paced(benchmark::State& state) {
  const std::vector<HttpRequest>& requests = setting().requests;
  Budget places(1 << 20, 1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, static_cast<int>(state.range(0)));
  std::vector<double> took_us;
  for (auto _ : state) {
    std::vector<double> batch_us(requests.size());
    std::latch done(static_cast<std::ptrdiff_t>(requests.size()));
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto due = begin + std::chrono::nanoseconds(1'000'000'000 / kPerSecond * static_cast<std::int64_t>(i));
      std::this_thread::sleep_until(due);
      const bool is_queued = queue.push({TextQueue::Kind::text, {}, requests[i].body.size(), [&, i, due] {
                                           benchmark::DoNotOptimize(encode(requests[i]));
                                           batch_us[i] = std::chrono::duration<double, std::micro>(Clock::now() - due).count();
                                           done.count_down();
                                         }});
      check(is_queued, "the queue has no place");
    }
    done.wait();
    took_us.insert(took_us.end(), batch_us.begin(), batch_us.end());
  }
  std::ranges::sort(took_us);
  state.SetItemsProcessed(static_cast<std::int64_t>(took_us.size()));
  state.counters["median_us"] = took_us[took_us.size() / 2];
  state.counters["p99_us"] = took_us[took_us.size() * 99 / 100];
  state.counters["longest_us"] = took_us.back();
}

BENCHMARK(chat)->RangeMultiplier(2)->Range(1, 8)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(paced)->RangeMultiplier(2)->Range(1, 8)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton
