/// Loading, submitting and turning events into text.
#include "local_model.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/version.h"
#include "core/log.h"
#include "core/one_line.h"
#include "grammar/structured_outputs.h"
#include "io/json.h"
#include "load/load_engine.h"
#include "load/model_files.h"
#include "text/tokenizer/vocabulary_bytes.h"

namespace baton::python {
namespace {

/// What compiled grammars and their upkeep may take, of which the cache gets a quarter (see cache_options).
constexpr std::int64_t kGrammarBytes = std::int64_t{1} << 30;

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw LocalModelError(std::move(result.error()));
  return std::move(*result);
}
void throw_failure(Result<void> result) {
  if (!result) throw LocalModelError(std::move(result.error()));
}

ModelFiles files_of(const ModelOptions& options) {
  throw_failure(check_model_options(options));
  return value_or_throw(find_model_files(options, {}));
}

std::unique_ptr<LocalRanks> start_ranks(const RankFlags& flags, const std::string& program) {
  if (flags.tensor_parallel_size == 1) return nullptr;
  const auto hang_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * flags.rank_hang_timeout_s));
  return value_or_throw(LocalRanks::start(
      program, {.world_size = flags.tensor_parallel_size, .version = version_line(), .hang_timeout = hang_timeout}));
}

/// The options of the engine of a model with this text.
ModelOptions engine_options(ModelOptions options, const TextSide& text, const std::unique_ptr<LocalRanks>& ranks) {
  options.eos_token_ids = text.stop_ids;
  if (ranks != nullptr) options.ranks = ranks->group();
  return options;
}

}  // namespace

LocalModel::LocalModel(const EngineArguments& arguments, const std::string& program)
    : LocalModel(files_of(arguments.model), arguments, program) {}

LocalModel::LocalModel(const ModelFiles& files, const EngineArguments& arguments, const std::string& program)
    : name_(files.name),
      max_logprobs_(arguments.max_logprobs),
      spaces_(arguments.structured_outputs.spaces),
      grammar_options_(cache_options(arguments.structured_outputs, kGrammarBytes)),
      text_(value_or_throw(load_text(files, arguments.model))),
      ranks_(start_ranks(arguments.ranks, program)),
      engine_(value_or_throw(load_engine(files, engine_options(arguments.model, text_, ranks_)))) {
  engine_->start();
}

grammar::GrammarCache& LocalModel::grammars() {
  const MutexLock lock(grammars_mutex_);
  if (grammars_ == nullptr)
    grammars_ = std::make_unique<grammar::GrammarCache>(
        std::make_shared<const grammar::TokenTrie>(bytes_of_tokens(text_.tokenizer, text_.n_vocab),
                                                   engine_->info().eos_token_ids,
                                                   special_tokens_of(text_.tokenizer, text_.n_vocab)),
        grammar_options_);
  return *grammars_;
}

void LocalModel::constrain(Question& question, const std::string& structured_outputs) {
  const json::Value object = value_or_throw(json::parse(structured_outputs, "structured_outputs"));
  const auto asked = value_or_throw(grammar::read_structured_outputs(object, spaces_));
  if (!asked) return;
  auto entry = grammars().get(asked->source, {});
  if (!entry && entry.error().code == ErrorCode::unavailable) throw LocalModelError(std::move(entry.error()));
  if (!entry)
    throw LocalModelError(
        {ErrorCode::invalid_request, fmt::format("'{}': {}", asked->field, entry.error().message), asked->field});
  if (entry->compile_seconds > 0 && !entry->ignored->empty())
    log::warning("event=schema_keywords_ignored keywords={}", log_value(fmt::format("{}", fmt::join(*entry->ignored, ", "))));
  question.constraint.matcher = std::move(entry->matcher);
  question.constraint.encode = [this](std::string_view text) { return text_.tokenizer.encode_plain_behind(text); };
}

void LocalModel::check(const Question& question) const {
  const auto refuse = [](const char* param, std::string message) {
    throw LocalModelError({ErrorCode::invalid_request, std::move(message), param});
  };
  if (!question.detokenize && !question.stop.empty()) refuse("stop", "stop strings need detokenize");
  const auto check_logprobs = [&](const char* param, std::int32_t n) {
    if (n > max_logprobs_) refuse(param, fmt::format("{} is {}; max_logprobs is {}", param, n, max_logprobs_));
  };
  check_logprobs("logprobs", question.sampling.n_top_logprobs);
  check_logprobs("prompt_logprobs", question.sampling.n_prompt_logprobs);
  const auto is_empty = [](const std::string& word) { return word.find_first_not_of(' ') == word.npos; };
  if (std::ranges::any_of(question.bad_words, is_empty)) refuse("bad_words", "bad_words holds an empty word");
}

std::int64_t LocalModel::submit(std::vector<TokenId> prompt, const Question& question) {
  check(question);
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = question.sampling;
  request.constraint = question.constraint;
  request.scope.salt = question.cache_salt;
  request.n_sequences = question.n;
  request.priority = question.priority;
  request.sampling.bad_words = spell_words(text_.tokenizer, question.bad_words);
  Live live;
  live.n_unfinished = static_cast<std::size_t>(std::max(0, question.n));
  const SequenceTextOptions text{.stop = question.stop,
                                 .include_stop = question.include_stop,
                                 .skip_special_tokens = question.skip_special_tokens,
                                 .min_tokens = question.sampling.min_tokens,
                                 .detokenize = question.detokenize};
  for (std::size_t i = 0; i < live.n_unfinished; ++i) live.sequences.emplace_back(text_.tokenizer, text, request.prompt);
  // Its events may come before this call has returned.
  const MutexLock lock(mutex_);
  const RequestId id = value_or_throw(engine_->submit(std::move(request)));
  live_.emplace(id, std::move(live));
  return id.value;
}

void LocalModel::cancel(std::int64_t request) { engine_->cancel(RequestId{request}); }

News LocalModel::news_of(const Event& event, Live& live) {
  SequenceText::News said = live.sequences[static_cast<std::size_t>(event.index)].take(event);
  if (said.is_ahead_of_engine) engine_->finish(event.request, event.index, FinishReason::stop);
  News news;
  news.request = event.request.value;
  news.index = event.index;
  news.text = std::move(said.text);
  news.tokens = std::move(said.tokens);
  news.stop = std::move(said.stop);
  news.stats = event.stats;
  news.prompt_scores = event.prompt_scores;
  if (!said.finished) return news;
  --live.n_unfinished;
  news.finish_reason = to_string(*said.finished);
  news.error = event.error;
  if (event.stop_token) {
    const std::vector<TokenId>& ends = engine_->info().eos_token_ids;
    if (std::ranges::find(ends, event.stop_token->token) == ends.end()) news.stop_token = event.stop_token->token;
  }
  return news;
}

std::vector<News> LocalModel::wait(std::chrono::milliseconds timeout) {
  const std::vector<Event> events = engine_->wait_events(timeout);
  std::vector<News> news;
  const MutexLock lock(mutex_);
  for (const Event& event : events) {
    const auto at = live_.find(event.request);
    if (at == live_.end() || at->second.sequences[static_cast<std::size_t>(event.index)].has_ended()) continue;
    news.push_back(news_of(event, at->second));
    if (at->second.n_unfinished == 0) live_.erase(at);
  }
  return news;
}

std::vector<TokenId> LocalModel::encode(const std::string& text, bool add_special_tokens) const {
  return text_.tokenizer.encode(text, add_special_tokens);
}

std::string LocalModel::decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const {
  return text_.tokenizer.decode(ids, skip_special_tokens);
}

std::string LocalModel::render(const std::string& messages, const std::string& tools, const std::string& variables,
                               const std::string& template_source, bool add_generation_prompt, bool continues_last) const {
  ChatTemplate::Context context{.messages = value_or_throw(json::parse(messages, "messages")),
                                .add_generation_prompt = add_generation_prompt,
                                .role_tokens = {text_.tokenizer.role_tokens().begin(), text_.tokenizer.role_tokens().end()}};
  if (!tools.empty()) context.tools = value_or_throw(json::parse(tools, "tools"));
  context.extra = value_or_throw(json::parse(variables, "chat_template_kwargs"));
  if (continues_last) context.continued_field = "content";
  if (!template_source.empty()) return value_or_throw(value_or_throw(ChatTemplate::parse(template_source)).render(context));
  const std::optional<ChatTemplate>& own = !tools.empty() && text_.tool_template ? text_.tool_template : text_.chat_template;
  if (!own)
    throw LocalModelError({ErrorCode::invalid_request, "the model has no chat template: give chat_template", "chat_template"});
  return value_or_throw(own->render(context));
}

PinInfo LocalModel::pin(std::vector<TokenId> tokens) { return value_or_throw(engine_->pin(std::move(tokens))); }

std::pair<double, double> LocalModel::kv_bytes() const {
  const EngineMetrics& metrics = engine_->metrics();
  return {static_cast<double>(metrics.kv_bytes_requested.value()), static_cast<double>(metrics.kv_bytes_saved.value())};
}

}  // namespace baton::python
