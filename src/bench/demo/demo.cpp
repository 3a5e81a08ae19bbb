/// `baton demo`: what sharing saves where reading sets the pace, then a server in this process and 64 streamed
/// questions.
#include "bench/demo/demo.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "bench/demo/demo_answer.h"
#include "bench/demo/demo_report.h"
#include "bench/engine/decode_bench.h"
#include "bench/http/http_streams.h"
#include "bench/report/machine_report.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "cli/version.h"
#include "core/log.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/backend.h"
#include "ranks/rank_group.h"
#include "server/server.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{300};
constexpr const char* kPrefixName = "shop";
/// Share of the questions that must be answered exactly right.
constexpr double kNeededShare = 62.0 / 64.0;

struct Question {
  json::Value messages;
  std::string text;
  std::string answer;
};

Result<std::vector<Question>> read_questions(const std::filesystem::path& file, std::int32_t count) {
  BATON_TRY(const std::string text, read_file(file));
  std::vector<Question> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) {
      BATON_TRY(const json::Value line, json::parse(std::string_view(text).substr(begin, end - begin), file.string()));
      BATON_TRY(const std::string answer, json::get<std::string>(line, "answer"));
      BATON_TRY(const auto messages, json::get<std::vector<json::Value>>(line, "messages"));
      if (messages.empty()) return fail(ErrorCode::invalid_data, fmt::format("{}: a question without messages", file.string()));
      BATON_TRY(const std::string question, json::get<std::string>(messages.front(), "content"));
      all.push_back({messages, question, answer});
    }
    begin = end + 1;
  }
  if (all.size() < static_cast<std::size_t>(count))
    return fail(ErrorCode::invalid_request, fmt::format("--questions {}: {} holds {}", count, file.string(), all.size()),
                "questions");
  all.resize(static_cast<std::size_t>(count));
  return all;
}

/// Sends all questions at once and reads the streams.
Result<void> ask(const std::string& url, const std::vector<Question>& questions, DemoArm& result) {
  BATON_TRY(HttpStreams streams, HttpStreams::create(questions.size(), {}));
  for (std::size_t i = 0; i < questions.size(); ++i)
    streams.send(i, url + "/v1/chat/completions",
                 json::dump({{"model", "demo"},
                             {"prefix", kPrefixName},
                             {"messages", questions[i].messages},
                             {"temperature", 0},
                             {"max_tokens", 96},
                             {"stream", true},
                             {"return_token_ids", true}}));
  result.answers.resize(questions.size());
  std::vector<ServerSentEvents> events(questions.size());
  std::vector<std::string> faults(questions.size());
  Progress progress(fmt::format("{:5}", result.attention), "answers", static_cast<std::int64_t>(questions.size()));
  std::int64_t n_complete = 0;
  const auto begin = Clock::now();
  const auto take = [&](const HttpStreams::News& news) {
    DemoAnswer& answer = result.answers[news.slot];
    std::string& fault = faults[news.slot];
    const bool was_complete = answer.is_complete;
    events[news.slot].push(news.bytes, [&](std::string_view data) {
      const auto taken = answer.take(data, std::chrono::duration<double>(Clock::now() - begin).count());
      if (!taken && fault.empty()) fault = taken.error().message;
    });
    if (answer.is_complete && !was_complete) progress.update(++n_complete);
    if (news.is_end && (news.head.status != 200 || !answer.is_complete))
      fault = fmt::format("status {} and no whole answer {}{}", news.head.status, news.error, fault);
    return news.is_end;
  };
  for (std::size_t n_open = questions.size(); n_open > 0 && Clock::now() < begin + kTimeout;)
    streams.wait(begin + kTimeout, [&](const HttpStreams::News& news) { n_open -= take(news) ? 1 : 0; });
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (faults[i].empty() && !result.answers[i].is_complete) faults[i] = "no whole answer in time";
    if (!faults[i].empty()) return fail(ErrorCode::internal, fmt::format("question {} got {}", i + 1, faults[i]));
  }
  return {};
}

void summarize(const std::vector<Question>& questions, DemoArm& result) {
  std::vector<double> first_tokens;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    result.n_right += result.answers[i].text == questions[i].answer ? 1 : 0;
    result.n_tokens += static_cast<std::int64_t>(result.answers[i].token_ids.size());
    first_tokens.push_back(result.answers[i].first_token_s);
  }
  std::sort(first_tokens.begin(), first_tokens.end());
  result.median_first_token_s = first_tokens[first_tokens.size() / 2];
}

/// The capabilities of the device with these ranks. It is opened for this call only, before an engine opens it.
Result<BackendCapabilities> capabilities_of(const DemoOptions& options) {
  BATON_TRY(const std::unique_ptr<Backend> backend, make_backend(options.device, {.n_threads = options.threads}));
  BackendCapabilities can = backend->capabilities();
  const bool is_one_rank = options.ranks == nullptr || options.ranks->world_size() == 1;
  can.has_batch_invariant = can.has_batch_invariant && (is_one_rank || can.shares_host_memory);
  return can;
}

/// Without a batch-invariant mode relay and paged attention may round a token to another.
Result<DemoArm> run_arm(const std::string& attention, const DemoOptions& options, const BackendCapabilities& can,
                        const std::vector<Question>& questions) {
  ModelOptions model_options;
  model_options.attention = attention;
  model_options.batch_invariant = can.has_batch_invariant;
  model_options.device = options.device;
  model_options.threads = options.threads;
  model_options.max_num_seqs = options.n_questions;
  model_options.ranks = options.ranks;
  BATON_TRY(const ModelFiles files, find_model_files(model_options, download_bar()));
  BATON_TRY(ServedEngine loaded, load_served(files, model_options));
  const std::unique_ptr<Engine> engine = std::move(loaded.engine);
  ServedModel served = std::move(loaded.served);
  BATON_TRY(PrefixDefinition catalogue, read_prefix(kPrefixName, files.folder / "catalogue.txt"));
  ServerOptions server_options;
  server_options.address.host = "127.0.0.1";
  server_options.address.port = 0;
  server_options.routes.version = version_number();
  BATON_TRY(const std::unique_ptr<Server> server, Server::bind(std::move(server_options)));
  engine->start();
  std::vector<PrefixDefinition> prefixes;
  prefixes.push_back(std::move(catalogue));
  BATON_TRY_VOID(server->start(std::move(served), *engine, std::move(prefixes)));

  DemoArm result;
  result.attention = attention;
  result.prefix_tokens = server->prefixes().find(kPrefixName)->info.n_tokens;
  Result<void> asked;
  if (can.is_asynchronous) {  // a GPU loads kernels at their first use
    DemoArm rehearsal = result;
    asked = ask(server->address(), questions, rehearsal);
  }
  const std::int64_t requested = engine->metrics().kv_bytes_requested.value();
  const std::int64_t saved = engine->metrics().kv_bytes_saved.value();
  if (asked) asked = ask(server->address(), questions, result);
  server->begin_shutdown();
  server->wait();
  engine->stop();
  if (!asked) return fail(asked.error().code, asked.error().message);
  result.kv_bytes_requested = engine->metrics().kv_bytes_requested.value() - requested;
  result.kv_bytes_saved = engine->metrics().kv_bytes_saved.value() - saved;
  summarize(questions, result);
  return result;
}

void print_answers(const std::vector<Question>& questions, const DemoArm& relay) {
  print_output("\nSome of the questions and answers:\n\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(7, questions.size()); ++i)
    print_output("  {}\n    {}{}\n", questions[i].text, relay.answers[i].text,
                 relay.answers[i].text == questions[i].answer ? "" : fmt::format("   (expected: {})", questions[i].answer));
}

/// Questions whose token ids differ between the arms.
std::int64_t count_differences(const DemoArm& relay, const DemoArm& paged) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < relay.answers.size(); ++i) n += relay.answers[i].token_ids != paged.answers[i].token_ids ? 1 : 0;
  return n;
}

/// Measures a model that memory bandwidth limits: 110 M random weights, 32 requests after 2048 shared tokens. It is
/// shown first, because the times of the small model that answers the questions do not depend on sharing.
Result<std::vector<DecodeRun>> run_large(const DemoOptions& options) {
  DecodeBenchOptions bench;
  bench.shape = "110m";
  bench.model.device = options.device;
  bench.model.threads = options.threads;
  bench.requests = {32};
  bench.n_runs = 2;
  print_output(
      "What sharing saves: {} requests decode behind one prompt of {} tokens. A model of 110 M parameters with random "
      "weights,\n"
      "with relayed attention and with paged attention.\n\n",
      bench.requests[0], bench.shared[0]);
  flush_output();
  BATON_TRY(DecodeBenchReport report, run_decode_bench(bench));
  write_output(sharing_text(report.runs, bench.shared[0]));
  return std::move(report.runs);
}

json::Value to_json(const DemoArm& result) {
  return {{"attention", result.attention},
          {"right", result.n_right},
          {"questions", result.answers.size()},
          {"tokens", result.n_tokens},
          {"seconds", result.seconds},
          {"tokens_per_s", result.tokens_per_s()},
          {"median_ttft_ms", 1e3 * result.median_first_token_s},
          {"kv_bytes_requested", result.kv_bytes_requested},
          {"kv_bytes_saved", result.kv_bytes_saved},
          {"prefix_tokens", result.prefix_tokens}};
}

/// True if all conditions of the demo hold.
Result<bool> run(const DemoOptions& options) {
  BATON_TRY_VOID(check_json_file(options.json_file));
  BATON_TRY(const ModelFiles files, find_model_files(ModelOptions{}, download_bar()));
  BATON_TRY(const BackendCapabilities can, capabilities_of(options));
  BATON_TRY(const std::vector<Question> questions, read_questions(files.folder / "questions.jsonl", options.n_questions));
  json::Value report = json::Value::object();
  if (!options.skip_large) {
    BATON_TRY(const std::vector<DecodeRun> runs, run_large(options));
    report["large"] = json::Value::array();
    for (const DecodeRun& decode : runs)
      report["large"].push_back({{"arm", decode.arm},
                                 {"tokens_per_s", decode.tokens_per_s},
                                 {"kv_bytes_requested", decode.kv_bytes_requested},
                                 {"kv_bytes_saved", decode.kv_bytes_saved}});
  }
  print_output(
      "{}Now answers: serving the demo model with the catalogue registered as '{}', and asking {} questions at once over "
      "HTTP,\n"
      "with relayed and with paged attention.\n\n",
      options.skip_large ? "" : "\n", kPrefixName, questions.size());
  flush_output();
  BATON_TRY(const DemoArm relay, run_arm("relay", options, can, questions));
  BATON_TRY(const DemoArm paged, run_arm("paged", options, can, questions));
  print_answers(questions, relay);
  const std::int64_t n_different = count_differences(relay, paged);
  const auto* how = can.has_batch_invariant ? " (--batch-invariant)" : "";
  write_output(answers_text(relay, paged, !options.skip_large));
  if (n_different == 0)
    print_output("  The two gave the same tokens, every one{}\n", how);
  else
    print_output("  The two differ in {} answers{}\n", n_different, how);
  flush_output();
  report["relay"] = to_json(relay);
  report["paged"] = to_json(paged);
  report["differing_answers"] = n_different;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "baton";
  print_output(
      "\nServe it yourself:\n\n  {} serve{} --prefix {}={}\n\n  curl -s localhost:8000/v1/chat/completions -H 'Content-Type: "
      "application/json' -d \\\n"
      "    '{{\"model\": \"demo\", \"prefix\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"{}\"}}], "
      "\"temperature\": 0}}'\n",
      program, options.device == DemoOptions{}.device ? "" : " --device " + options.device, kPrefixName,
      (files.folder / "catalogue.txt").string(), kPrefixName, questions[0].text);
  if (!options.json_file.empty()) BATON_TRY_VOID(write_file(options.json_file, json::dump_pretty(report)));

  const double needed = kNeededShare * static_cast<double>(questions.size());
  const bool enough = static_cast<double>(std::min(relay.n_right, paged.n_right)) >= needed;
  if (!enough) print_note("baton demo: fewer than {:.0f} of {} answers are exactly right\n", needed, questions.size());
  const bool same = n_different == 0 || !can.has_batch_invariant;
  if (!same) print_note("baton demo: relay and paged differ in {} answers\n", n_different);
  return enough && same;
}

}  // namespace

int demo_main(const DemoOptions& options) {
  if (log::is_enabled(log::Level::info)) log::set_level(log::Level::warning);
  const auto good = run(options);
  if (!good) {
    print_error("baton demo", good.error());
    return 1;
  }
  return *good ? 0 : 1;
}

}  // namespace baton
