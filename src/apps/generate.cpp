/// `baton generate`: reads all lines, runs them in any order, and prints the answers in the order of the lines.
#include "apps/programs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/json_lines.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "core/log.h"
#include "core/one_line.h"
#include "io/file.h"
#include "io/json.h"
#include "load/sequence_text.h"
#include "server/prompt/prompts.h"
#include "server/request/generation.h"

namespace baton {
namespace {

/// One line of the input and its answer so far.
struct Line {
  json::Value id;
  std::optional<std::string> answer;  ///< the right answer, if the line contains it
  std::string type;
  Request request;
  GenerationRequest generation;

  std::optional<SequenceText> events;
  std::string text;
  std::vector<TokenOutput> tokens;
  SequenceStats stats;
  std::optional<FinishReason> finished;
};

/// A file, a pipe (`--prompts <(command)`) or standard input.
Result<std::string> read_prompts(const std::string& file) {
  std::error_code ignored;
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (!std::filesystem::is_fifo(file, ignored)) return read_file(file);
  std::ifstream pipe(file, std::ios::binary);
  if (!pipe) return fail(ErrorCode::io, fmt::format("cannot read {}", file));
  return std::string(std::istreambuf_iterator<char>(pipe), {});
}

Result<Line> parse_line(json::Value body, const GenerateOptions& options, const ServedModel& model, const Prefixes& prefixes,
                        std::size_t number) {
  if (!body.is_object()) return fail(ErrorCode::invalid_request, "not a JSON object");
  Line line;
  line.id = body.contains("id") ? body["id"] : json::Value(number);
  if (body.contains("answer") && body["answer"].is_string()) line.answer = body["answer"].get<std::string>();
  if (body.contains("type") && body["type"].is_string()) line.type = body["type"].get<std::string>();
  for (const char* mine : {"id", "answer", "type"}) body.erase(mine);
  if (options.temperature && !body.contains("temperature")) body["temperature"] = *options.temperature;
  if (options.max_tokens && !body.contains("max_tokens")) body["max_tokens"] = *options.max_tokens;
  const RequestBounds limits{.n_vocab = model.n_vocab, .max_logprobs = kMaxTopLogprobs};
  TokenizedPrompt prompt;
  if (body.contains("messages")) {
    BATON_TRY(const ChatRequest chat, parse_chat_request(body, model.defaults, limits));
    BATON_TRY(const ModelAndPrefix target, resolve_target(model, prefixes, chat.generation));
    BATON_TRY(prompt, tokenize_chat(model, target.prefix, chat));
    line.generation = chat.generation;
  } else {
    BATON_TRY(const CompletionRequest completion, parse_completion_request(body, model.defaults, limits));
    if (completion.prompts.size() != 1)
      return fail(ErrorCode::invalid_request, "prompt must be one prompt; write a line for each");
    BATON_TRY(const ModelAndPrefix target, resolve_target(model, prefixes, completion.generation));
    BATON_TRY(prompt, tokenize_completion(model, target.prefix, completion, completion.prompts[0]));
    if (completion.echo) return fail(ErrorCode::invalid_request, "echo is for servers");
    line.generation = completion.generation;
  }
  if (line.generation.n != 1) return fail(ErrorCode::invalid_request, "n must be 1; write a line for each continuation");
  if (line.generation.n_prompt_logprobs >= 0) return fail(ErrorCode::invalid_request, "prompt_logprobs is for servers");
  if (line.generation.is_stream) return fail(ErrorCode::invalid_request, "stream is for servers");
  BATON_TRY_VOID(allow_reasoning(model, prompt.begin, line.generation));
  BATON_TRY(const Grammars::Constrained constrained, constraint_of(model, line.generation));
  if (!constrained.ignored.empty())
    log::info("event=schema_keywords_ignored line={} keywords={}", number,
              log_value(fmt::format("{}", fmt::join(constrained.ignored, ", "))));
  line.request = std::move(engine_requests(model, line.generation, constrained.constraint, {&prompt, 1}).front());
  line.events.emplace(model.tokenizer,
                      SequenceTextOptions{.stop = line.generation.stop,
                                          .include_stop = line.generation.include_stop,
                                          .skip_special_tokens = line.generation.skip_special_tokens,
                                          .min_tokens = line.generation.sampling.min_tokens},
                      line.request.prompt);
  return line;
}

Result<std::vector<Line>> parse_lines(const std::string& text, const GenerateOptions& options, const ServedModel& model,
                                      const Prefixes& prefixes) {
  std::vector<Line> lines;
  std::size_t n_lines = 0;
  for (const auto& [number, content] : split_lines(text, n_lines)) {
    auto body = json::parse(content, fmt::format("line {}", number));
    if (!body) return fail(body.error().code, body.error().message);
    auto line = parse_line(std::move(*body), options, model, prefixes, number);
    if (!line) return fail(line.error().code, fmt::format("line {}: {}", number, line.error().message));
    lines.push_back(std::move(*line));
  }
  return lines;
}

json::Value to_json(const Line& line) {
  json::Value token_ids = json::Value::array();
  json::Value logprobs = json::Value::array();
  for (const TokenOutput& token : line.tokens) {
    token_ids.push_back(token.token);
    if (!token.logprob) continue;
    json::Value entry{{"token_id", token.token}, {"logprob", *token.logprob}};
    if (!token.top_logprobs.empty()) {
      entry["top_logprobs"] = json::Value::array();
      for (const TokenLogprob& top : token.top_logprobs)
        entry["top_logprobs"].push_back({{"token_id", top.token}, {"logprob", top.logprob}});
    }
    logprobs.push_back(std::move(entry));
  }
  json::Value out{{"id", line.id},
                  {"text", line.text},
                  {"token_ids", std::move(token_ids)},
                  {"finish_reason", to_string(*line.finished)},
                  {"usage",
                   {{"prompt_tokens", line.stats.prompt_tokens},
                    {"completion_tokens", line.stats.completion_tokens},
                    {"total_tokens", line.stats.prompt_tokens + line.stats.completion_tokens},
                    {"prompt_tokens_details", {{"cached_tokens", line.stats.cached_tokens}}}}}};
  if (line.request.sampling.n_top_logprobs >= 0) out["logprobs"] = std::move(logprobs);
  return out;
}

/// Runs lines through the engine on this thread.
class Run {
 public:
  Run(Engine& engine, std::vector<Line>& lines)
      : engine_(engine), lines_(lines), progress_("generated", "answers", static_cast<std::int64_t>(lines.size())) {}

  Result<void> go() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      auto id = engine_.submit(lines_[i].request);
      if (!id) return fail(id.error().code, fmt::format("{}: {}", json::dump(lines_[i].id), id.error().message));
      places_.emplace(*id, i);
    }
    while (n_finished_ < lines_.size() && !was_interrupted()) {
      engine_.step();
      for (const Event& event : engine_.wait_events(std::chrono::milliseconds(0))) take(event);
      if (!print_ready()) return fail(ErrorCode::io, "stopped, because answers cannot be written");
      progress_.update(static_cast<std::int64_t>(n_finished_));
    }
    // After an interrupt, finished answers after an unfinished line are printed too.
    for (; n_printed_ < lines_.size(); ++n_printed_) print(lines_[n_printed_]);
    progress_.finish();
    if (!flush_output()) return fail(ErrorCode::io, "not all answers could be written");
    return {};
  }

 private:
  void take(const Event& event) {
    Line& line = lines_[places_.at(event.request)];
    if (line.finished) return;
    SequenceText::News news = line.events->take(event);
    if (news.is_ahead_of_engine) engine_.finish(event.request, event.index, FinishReason::stop);
    line.text += news.text;
    std::ranges::move(news.tokens, std::back_inserter(line.tokens));
    if (!news.finished) return;
    line.finished = news.finished;
    line.stats = event.stats;
    line.stats.completion_tokens = static_cast<std::int32_t>(line.tokens.size());
    ++n_finished_;
  }

  /// False if writing to standard output has failed.
  bool print_ready() {
    for (; n_printed_ < lines_.size() && lines_[n_printed_].finished; ++n_printed_) print(lines_[n_printed_]);
    return flush_output();
  }

  static void print(const Line& line) {
    if (line.finished) print_output("{}\n", json::dump(to_json(line)));
  }

  Engine& engine_;
  std::vector<Line>& lines_;
  Progress progress_;
  std::unordered_map<RequestId, std::size_t> places_;
  std::size_t n_finished_ = 0;
  std::size_t n_printed_ = 0;
};

/// Counts the lines whose answer equals the right answer that the line contains.
void report_exactness(const std::vector<Line>& lines) {
  std::map<std::string, std::pair<int, int>> by_type;
  for (const Line& line : lines) {
    if (!line.answer || !line.finished) continue;
    for (const std::string& type : {std::string(), line.type}) {
      auto& [right, total] = by_type[type];
      right += line.text == *line.answer ? 1 : 0;
      ++total;
      if (line.type.empty()) break;
    }
  }
  for (const auto& [type, counts] : by_type)
    print_note("{}exact: {} of {} ({:.1f}%)\n", type.empty() ? "" : type + " ", counts.first, counts.second,
               100.0 * counts.first / counts.second);
}

Result<void> run(const GenerateOptions& options) {
  BATON_TRY(const ModelFiles files, find_model_files(options.model, download_bar()));
  BATON_TRY(ServedEngine loaded, load_served(files, options.model));
  const std::unique_ptr<Engine> engine = std::move(loaded.engine);
  ServedModel model = std::move(loaded.served);
  model.grammars = std::make_unique<Grammars>(model.n_vocab, engine->info().eos_token_ids, grammar::GrammarCache::Options{});
  BATON_TRY(const std::unique_ptr<Prefixes> prefixes, load_prefixes(options.model.prefixes, model, *engine));
  BATON_TRY(const std::string text, read_prompts(options.prompts));
  BATON_TRY(std::vector<Line> lines, parse_lines(text, options, model, *prefixes));
  BATON_TRY_VOID(Run(*engine, lines).go());
  if (const auto sentence = engine->fault()) return fail(ErrorCode::unavailable, *sentence);
  report_exactness(lines);
  const auto n_failed =
      std::count_if(lines.begin(), lines.end(), [](const Line& line) { return line.finished == FinishReason::error; });
  if (n_failed > 0)
    return fail(ErrorCode::internal, fmt::format("{} lines ended with a NaN among the model's logits", n_failed));
  const EngineMetrics& metrics = engine->metrics();
  print_note("KV read {:.2f} GB, saved by sharing {:.2f} GB\n", static_cast<double>(metrics.kv_bytes_requested.value()) / 1e9,
             static_cast<double>(metrics.kv_bytes_saved.value()) / 1e9);
  const Histogram::Snapshot gaps = metrics.inter_token_latency_seconds.snapshot();
  const auto n_gaps = std::accumulate(gaps.counts.begin(), gaps.counts.end(), std::int64_t{0});
  print_note("{} steps; between two tokens of an answer {:.2f} ms\n", metrics.steps.value(),
             n_gaps == 0 ? 0.0 : 1e3 * gaps.sum / static_cast<double>(n_gaps));
  return {};
}

}  // namespace

int generate_main(const GenerateOptions& options) {
  use_log_level(options.model);
  watch_interrupts();
  const int code = exit_code("baton generate", run(options));
  return was_interrupted() ? 1 : code;
}

}  // namespace baton
