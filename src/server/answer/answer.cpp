/// The states of an answer: open choices, echoes that wait, errors, and the end.
#include "server/answer/answer.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"
#include "core/one_line.h"
#include "server/http/json_body.h"

namespace baton {
namespace {

constexpr std::size_t kPieceBytes = 128 << 10;
constexpr std::string_view kNoMemory = "this server has no memory left for the answer";
constexpr std::string_view kEngineError = "the model produced numbers that are not finite, or the engine stopped";

AnswerContent make_content(AnswerHeader header, GenerationRequest request, std::vector<AnswerPrompt> prompts) {
  std::vector<std::vector<TokenOutput>> scores(prompts.size());
  return {std::move(header), std::move(request), std::move(prompts), std::move(scores), {}};
}

}  // namespace

Answer::Answer(AnswerHeader header, GenerationRequest request, std::vector<AnswerPrompt> prompts, const Tokenizer& tokenizer,
               const MakeAnswerWriter& make_writer)
    : content_(make_content(std::move(header), std::move(request), std::move(prompts))),
      has_echoed_(content_.prompts.size(), !content_.request.echoes_logprobs),
      writer_(make_writer(content_, tokenizer)) {
  // Choices keep references to the request.
  content_.choices.reserve(content_.n_choices());
  for (const AnswerPrompt& prompt : content_.prompts)
    for (std::int32_t i = 0; i < content_.request.n; ++i) content_.choices.emplace_back(content_.request, prompt, tokenizer);
  n_open_ = content_.choices.size();
}

std::string Answer::log_line() const {
  std::int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::int32_t n_preemptions = 0;
  double queue_ms = 0, first_token_ms = 0;
  std::string reasons;
  for (const AnswerPrompt& prompt : content_.prompts) prompt_tokens += static_cast<std::int64_t>(prompt.tokens.size());
  for (std::size_t i = 0; i < content_.choices.size(); ++i) {
    const AnswerChoice& choice = content_.choices[i];
    const SequenceStats& stats = choice.stats();
    if (i % static_cast<std::size_t>(content_.request.n) == 0) cached_tokens += stats.cached_tokens;
    completion_tokens += choice.n_tokens();
    n_preemptions += stats.n_preemptions;
    queue_ms = std::max(queue_ms, stats.queue_ms);
    first_token_ms = std::max(first_token_ms, stats.queue_ms + stats.prefill_ms);
    const std::string_view reason = has_failed_ ? "error" : choice.has_ended() ? choice.finish_word() : "open";
    if (reasons.find(reason) == std::string::npos) reasons += fmt::format("{}{}", reasons.empty() ? "" : "|", reason);
  }
  std::string line = fmt::format(
      "id={} sequences={} prompt_tokens={} cached_tokens={} completion_tokens={} finish_reason={} queue_ms={:.1f} "
      "first_token_ms={:.1f} preemptions={}",
      content_.header.id, content_.choices.size(), prompt_tokens, cached_tokens, completion_tokens, reasons, queue_ms,
      first_token_ms, n_preemptions);
  if (const auto& key = content_.request.prompt_cache_key) line += fmt::format(" prompt_cache_key={}", log_value(*key));
  return line;
}

/// Sequence 0 scores the prompt for all sequences, unless it was cut short.
bool Answer::waits_for_scores(std::size_t prompt) const {
  const bool is_complete = content_.scores[prompt].size() + 1 >= content_.prompts[prompt].tokens.size();
  return !is_complete && !content_.choices[prompt * static_cast<std::size_t>(content_.request.n)].has_ended();
}

/// Passes the prompt's tokens to the choices of the prompt, which show their log-probabilities.
void Answer::begin_echo(std::size_t prompt) {
  has_echoed_[prompt] = true;
  const auto echoed = std::make_shared<std::vector<TokenOutput>>();
  echoed->reserve(content_.scores[prompt].size() + 1);
  echoed->push_back({content_.prompts[prompt].tokens.front(), {}, {}});
  const auto n_top = static_cast<std::size_t>(std::max(0, content_.request.sampling.n_top_logprobs));
  for (TokenOutput score : content_.scores[prompt]) {
    if (score.top_logprobs.size() > n_top) score.top_logprobs.resize(n_top);
    echoed->push_back(std::move(score));
  }
  const auto n = static_cast<std::size_t>(content_.request.n);
  for (std::size_t i = prompt * n; i < (prompt + 1) * n; ++i) content_.choices[i].echo(echoed);
}

/// The frames for the unsent part of a choice.
std::string Answer::frames_of(std::size_t choice) {
  std::string frames = writer_->choice_frames(choice, is_done());
  content_.choices[choice].clear();
  return frames;
}

/// The error of an answer that could not continue. If its grammar is the reason, that is a mistake of the request,
/// unless it is for lack of memory or a fault of ours.
Answer::Failure Answer::failure_of(const Event& event) const {
  if (event.error == nullptr) return {500, std::string(kEngineError), {}};
  const ErrorCode code = event.error->code;
  const bool is_of_request =
      code == ErrorCode::too_large || code == ErrorCode::unsupported || code == ErrorCode::invalid_request;
  if (!is_of_request || !content_.request.grammar) return {http_status(code), event.error->message, {}};
  const std::string& field = content_.request.grammar->field;
  return {400, fmt::format("'{}': {}", field, event.error->message), field};
}

/// Ends the answer with an error. The client of a stream has had its status already and gets the error as a frame;
/// what this returns is empty otherwise, because response() is all that the client gets.
std::string Answer::end_with_error(Failure failure) {
  has_failed_ = true;
  failure_ = std::move(failure);
  n_open_ = 0;
  return is_stream() ? writer_->error_frames(failure_.status, failure_.message, failure_.param) : std::string();
}

std::string Answer::give_up() { return end_with_error({503, std::string(kNoMemory), {}}); }

Answer::Reaction Answer::take(std::size_t prompt, const Event& event) {
  const auto n = static_cast<std::size_t>(content_.request.n);
  const std::size_t index = prompt * n + static_cast<std::size_t>(event.index);
  check(index < content_.choices.size(), "an event of a sequence that was not asked for");
  AnswerChoice& choice = content_.choices[index];
  Reaction reaction;
  if (choice.has_ended() || has_failed_) return reaction;
  std::vector<TokenOutput>& scores = content_.scores[prompt];
  scores.insert(scores.end(), event.prompt_scores.begin(), event.prompt_scores.end());
  reaction.has_met_stop = choice.take(event);
  if (event.finished == FinishReason::error) {
    reaction.frames = end_with_error(failure_of(event));
    return reaction;
  }
  was_aborted_ |= event.finished == FinishReason::abort;
  if (choice.has_ended()) --n_open_;
  const bool begins_echo = !has_echoed_[prompt] && !waits_for_scores(prompt);
  if (begins_echo) begin_echo(prompt);
  if (!is_stream() || !has_echoed_[prompt]) return reaction;
  const std::size_t first = begins_echo ? prompt * n : index;
  for (std::size_t i = first; i < first + (begins_echo ? n : 1); ++i) reaction.frames += frames_of(i);
  if (is_done()) reaction.frames += writer_->last_frames();
  return reaction;
}

std::string Answer::take_nothing() {
  std::string frames;
  for (std::size_t i = 0; i < content_.choices.size(); ++i) {
    content_.choices[i].end(FinishReason::length, {});
    --n_open_;
    if (is_stream()) frames += frames_of(i);
  }
  if (is_stream()) frames += writer_->last_frames();
  return frames;
}

HttpResponse Answer::response() {
  if (has_failed_) return writer_->error(failure_.status, failure_.message, failure_.param);
  if (was_aborted_) return writer_->error(503, "the server is shutting down", {});
  std::string body;
  writer_->write_response(body).finish();
  return {200, {{"Content-Type", "application/json"}}, std::move(body)};
}

bool Answer::is_large() const {
  return !is_stream() && is_done() && !has_failed_ && !was_aborted_ && writer_->response_bytes() > kPieceBytes;
}

Answer::Piece Answer::next_piece() {
  if (!writing_) writing_.emplace(writer_->write_response(body_));
  bool goes_on = true;
  while (goes_on && body_.size() < kPieceBytes) goes_on = writing_->resume();
  return {std::exchange(body_, {}), !goes_on};
}

}  // namespace baton
