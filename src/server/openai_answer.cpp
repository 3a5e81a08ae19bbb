/// Frames and responses of chat and plain completions.
#include "server/openai_answer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "server/api_error.h"
#include "server/openai_logprobs.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kEngineError = "the model produced numbers that are not finite, or the engine stopped";
constexpr std::string_view kDone = "data: [DONE]\n\n";

Value list_of(Value element) {
  Value list = Value::array();
  list.push_back(std::move(element));
  return list;
}

std::string data_frame(const Value& body) { return "data: " + json::dump(body) + "\n\n"; }

Value token_ids(const std::vector<TokenOutput>& tokens) {
  Value list = Value::array();
  for (const TokenOutput& token : tokens) list.push_back(token.token);
  return list;
}

}  // namespace

Answer::Answer(AnswerHeader header, GenerationRequest request, std::vector<AnswerPrompt> prompts, const Tokenizer& tokenizer)
    : header_(std::move(header)), request_(std::move(request)), prompts_(std::move(prompts)), tokenizer_(tokenizer) {
  n_open_ = prompts_.size() * static_cast<std::size_t>(request_.n);
  choices_.reserve(n_open_);
  scores_.resize(prompts_.size());
  has_echoed_.assign(prompts_.size(), !request_.echoes_logprobs);
  for (std::size_t i = 0; i < n_open_; ++i) {
    AnswerPrompt& prompt = prompts_[i / static_cast<std::size_t>(request_.n)];
    StreamDecoder decoder(tokenizer, request_.stop, request_.include_stop, request_.skip_special_tokens,
                          request_.sampling.min_tokens);
    decoder.follow(prompt.tokens);
    choices_.emplace_back(std::move(decoder), prompt.echo);
  }
}

Value Answer::logprobs(Choice& choice) const {
  if (request_.sampling.n_top_logprobs < 0) return nullptr;
  if (!header_.is_chat && choice.echoed.empty()) return completion_logprobs(tokenizer_, choice.tokens, choice.text_offset);
  if (!header_.is_chat) {
    std::vector<TokenOutput> all = choice.echoed;
    all.insert(all.end(), choice.tokens.begin(), choice.tokens.end());
    return completion_logprobs(tokenizer_, all, choice.text_offset);
  }
  Value content = Value::array();
  for (const TokenOutput& token : choice.tokens) content.push_back(chat_logprob(tokenizer_, token));
  Value logprobs;
  logprobs["content"] = std::move(content);
  return logprobs;
}

/// A choice with what its current text is, whole or as a difference.
Value Answer::text_choice(Choice& choice, std::size_t index) const {
  Value body;
  body["index"] = index;
  if (header_.is_chat) {
    Value message;
    if (!request_.is_stream) message["role"] = "assistant";
    message["content"] = choice.text;
    if (!request_.is_stream) message["refusal"] = nullptr;
    body[request_.is_stream ? "delta" : "message"] = std::move(message);
  } else {
    body["text"] = choice.text;
  }
  body["logprobs"] = logprobs(choice);
  if (!header_.is_chat && request_.n_prompt_logprobs >= 0)
    body["prompt_logprobs"] =
        prompt_logprobs(tokenizer_, scores_[index / static_cast<std::size_t>(request_.n)], request_.n_prompt_logprobs);
  if (request_.wants_token_ids) {
    body["token_ids"] = token_ids(choice.tokens);
    if (!request_.is_stream && !header_.is_chat)
      body["prompt_token_ids"] = prompts_[index / static_cast<std::size_t>(request_.n)].tokens;
  }
  body["finish_reason"] = nullptr;
  body["stop_reason"] = nullptr;
  if (!request_.is_stream && choice.finish) {
    body["finish_reason"] = std::string(to_string(*choice.finish));
    body["stop_reason"] = choice.stop_reason;
  }
  return body;
}

Value Answer::usage() const {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    prompt_tokens += static_cast<std::int64_t>(prompts_[i].tokens.size());
    cached_tokens += choices_[i * static_cast<std::size_t>(request_.n)].stats.cached_tokens;
  }
  for (const Choice& choice : choices_) completion_tokens += choice.n_tokens;
  Value usage;
  usage["prompt_tokens"] = prompt_tokens;
  usage["completion_tokens"] = completion_tokens;
  usage["total_tokens"] = prompt_tokens + completion_tokens;
  usage["prompt_tokens_details"]["cached_tokens"] = cached_tokens;
  return usage;
}

Value Answer::stats() const {
  SequenceStats sum;
  for (const Choice& choice : choices_) {
    sum.cached_tokens += choice.stats.cached_tokens;
    sum.relayed_tokens += choice.stats.relayed_tokens;
    sum.kv_bytes_requested += choice.stats.kv_bytes_requested;
    sum.kv_bytes_saved += choice.stats.kv_bytes_saved;
    sum.largest_group = std::max(sum.largest_group, choice.stats.largest_group);
    sum.queue_ms += choice.stats.queue_ms;
    sum.prefill_ms += choice.stats.prefill_ms;
    sum.draft_tokens += choice.stats.draft_tokens;
    sum.accepted_tokens += choice.stats.accepted_tokens;
  }
  Value stats;
  stats["cached_tokens"] = sum.cached_tokens;
  stats["relayed_tokens"] = sum.relayed_tokens;
  stats["kv_bytes_requested"] = sum.kv_bytes_requested;
  stats["kv_bytes_saved"] = sum.kv_bytes_saved;
  stats["largest_group"] = sum.largest_group;
  stats["queue_ms"] = sum.queue_ms;
  stats["prefill_ms"] = sum.prefill_ms;
  stats["draft_tokens"] = sum.draft_tokens;
  stats["accepted_tokens"] = sum.accepted_tokens;
  return stats;
}

std::string Answer::log_line() const {
  std::int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::int32_t n_preemptions = 0;
  double queue_ms = 0, first_token_ms = 0;
  std::string reasons;
  for (const AnswerPrompt& prompt : prompts_) prompt_tokens += static_cast<std::int64_t>(prompt.tokens.size());
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    if (i % static_cast<std::size_t>(request_.n) == 0) cached_tokens += choice.stats.cached_tokens;
    completion_tokens += choice.n_tokens;
    n_preemptions += choice.stats.n_preemptions;
    queue_ms = std::max(queue_ms, choice.stats.queue_ms);
    first_token_ms = std::max(first_token_ms, choice.stats.queue_ms + choice.stats.prefill_ms);
    const std::string_view reason = has_failed_ ? "error" : choice.finish ? to_string(*choice.finish) : "open";
    if (reasons.find(reason) == std::string::npos) reasons += fmt::format("{}{}", reasons.empty() ? "" : "|", reason);
  }
  return fmt::format(
      "id={} sequences={} prompt_tokens={} cached_tokens={} completion_tokens={} finish_reason={} queue_ms={:.1f} "
      "first_token_ms={:.1f} preemptions={}",
      header_.id, choices_.size(), prompt_tokens, cached_tokens, completion_tokens, reasons, queue_ms, first_token_ms,
      n_preemptions);
}

/// A frame, or a response, around its choices.
std::string Answer::frame(Value choices, bool has_usage, bool has_stats) const {
  Value body;
  body["id"] = header_.id;
  body["object"] = header_.is_chat ? "chat.completion.chunk" : "text_completion";
  body["created"] = header_.created;
  body["model"] = header_.model;
  body["system_fingerprint"] = header_.system_fingerprint;
  body["choices"] = std::move(choices);
  if (has_usage || request_.include_usage) body["usage"] = has_usage ? usage() : Value();
  if (has_stats) body["baton"] = stats();
  return data_frame(body);
}

/// Whether the frames with text of a choice have everything but the text in common.
bool Answer::differs_in_text_alone() const {
  const bool has_scores = !header_.is_chat && request_.n_prompt_logprobs >= 0;
  return request_.sampling.n_top_logprobs < 0 && !has_scores && !request_.wants_token_ids && !request_.continuous_usage;
}

/// The frame of a choice's current text: most frames by far, so what they have in common is written once.
std::string Answer::text_frame(std::size_t index) {
  Choice& choice = choices_[index];
  if (!differs_in_text_alone()) return frame(list_of(text_choice(choice, index)), request_.continuous_usage, false);
  if (choice.frame_front.empty()) {
    // The last place where it stands is the text's: ids and names come before, and nothing of a client's behind.
    constexpr std::string_view kText = "\x01", kWritten = "\"\\u0001\"";
    const std::string text = std::exchange(choice.text, kText);
    const std::string example = frame(list_of(text_choice(choice, index)), /*has_usage=*/false, /*has_stats=*/false);
    const std::size_t at = example.rfind(kWritten);
    choice.frame_front = example.substr(0, at);
    choice.frame_back = example.substr(at + kWritten.size());
    choice.text = text;
  }
  return choice.frame_front + json::dump(choice.text) + choice.frame_back;
}

/// What a choice's newest event adds to a stream; takes its text and tokens.
std::string Answer::choice_frames(std::size_t index) {
  Choice& choice = choices_[index];
  std::string frames;
  if (!std::exchange(choice.has_begun, true) && (header_.is_chat || request_.wants_token_ids)) {
    Value first;
    first["index"] = index;
    if (header_.is_chat) {
      first["delta"]["role"] = "assistant";
      first["delta"]["content"] = "";
    } else {
      first["text"] = "";
    }
    first["logprobs"] = nullptr;
    if (request_.wants_token_ids) first["prompt_token_ids"] = prompts_[index / static_cast<std::size_t>(request_.n)].tokens;
    first["finish_reason"] = nullptr;
    frames += frame(list_of(std::move(first)), request_.continuous_usage, false);
  }
  const bool shows_tokens = request_.sampling.n_top_logprobs >= 0 || request_.wants_token_ids;
  if (!choice.text.empty() || !choice.echoed.empty() || (shows_tokens && !choice.tokens.empty())) frames += text_frame(index);
  choice.text.clear();
  choice.tokens.clear();
  choice.echoed.clear();
  if (!choice.finish) return frames;
  Value last;
  last["index"] = index;
  if (header_.is_chat)
    last["delta"] = Value::object();
  else
    last["text"] = "";
  last["logprobs"] = nullptr;
  last["finish_reason"] = std::string(to_string(*choice.finish));
  last["stop_reason"] = choice.stop_reason;
  const bool is_last = n_open_ == 0 && !request_.include_usage;
  frames += frame(list_of(std::move(last)), request_.continuous_usage, is_last && request_.wants_stats);
  return frames;
}

std::string Answer::last_frames() const {
  std::string frames;
  if (request_.include_usage) frames += frame(Value::array(), /*has_usage=*/true, request_.wants_stats);
  frames += kDone;
  return frames;
}

void Answer::end(Choice& choice, FinishReason reason, Value stop_reason) {
  check(!choice.finish, "a choice ends once");
  choice.finish = reason;
  choice.stop_reason = std::move(stop_reason);
  --n_open_;
}

/// Adds an event's tokens to the choice, and their text to its text, up to a stop string. The stop token has an id and
/// log-probabilities like the others; its text appears with `include_stop_str_in_output` only.
void Answer::decode(Choice& choice, const Event& event, Reaction& reaction) {
  const auto add = [&](StreamDecoder::Piece piece) {
    choice.text += piece.text;
    if (!piece.stop) return false;
    end(choice, FinishReason::stop, *piece.stop);
    return true;
  };
  for (const TokenOutput& token : event.tokens) {
    ++choice.n_tokens;
    choice.tokens.push_back(token);
    if (!add(choice.decoder.push(token.token))) continue;
    reaction.has_met_stop = !event.finished;
    return;
  }
  if (!event.finished) return;
  choice.n_tokens = event.stats.completion_tokens;
  if (event.stop_token) {
    choice.tokens.push_back(*event.stop_token);
    if (request_.include_stop && add(choice.decoder.push(event.stop_token->token))) return;
  }
  if (add(choice.decoder.finish())) return;
  // Clients know no such reason: the one nearest, and what was the matter beside it.
  if (event.finished == FinishReason::deadline) return end(choice, FinishReason::abort, "deadline");
  if (event.finished == FinishReason::abort) return end(choice, FinishReason::abort, "shutdown");
  const std::vector<TokenId>& asked = request_.sampling.stop_ids;
  const bool is_asked_for = event.stop_token && std::ranges::find(asked, event.stop_token->token) != asked.end();
  end(choice, *event.finished, is_asked_for ? Value(event.stop_token->token) : Value());
}

/// Sequence 0 scores the prompt for all; one that was cut off does so no more.
bool Answer::waits_for_scores(std::size_t prompt) const {
  const bool is_complete = scores_[prompt].size() + 1 >= prompts_[prompt].tokens.size();
  return !is_complete && !choices_[prompt * static_cast<std::size_t>(request_.n)].finish;
}

/// Gives each choice of a prompt the prompt's tokens, to show their log-probabilities.
void Answer::begin_echo(std::size_t prompt) {
  has_echoed_[prompt] = true;
  const auto n = static_cast<std::size_t>(request_.n);
  for (std::size_t i = prompt * n; i < (prompt + 1) * n; ++i) {
    Choice& choice = choices_[i];
    choice.echoed.push_back({prompts_[prompt].tokens.at(0), {}, {}});
    for (TokenOutput score : scores_[prompt]) {
      const auto n_top = static_cast<std::size_t>(std::max(0, request_.sampling.n_top_logprobs));
      if (score.top_logprobs.size() > n_top) score.top_logprobs.resize(n_top);
      choice.echoed.push_back(std::move(score));
    }
  }
}

/// Ends the answer with an error. The client of a stream has had its status already and gets the error as a frame; what this
/// returns is empty otherwise, because response() is all that the client gets.
std::string Answer::end_with_error() {
  has_failed_ = true;
  n_open_ = 0;
  if (!request_.is_stream) return {};
  return data_frame(error_body(500, kEngineError, {})) + std::string(kDone);
}

Answer::Reaction Answer::take(std::size_t prompt, const Event& event) {
  const std::size_t index = prompt * static_cast<std::size_t>(request_.n) + static_cast<std::size_t>(event.index);
  check(index < choices_.size(), "an event of a sequence that was not asked for");
  Choice& choice = choices_[index];
  Reaction reaction;
  if (choice.finish || has_failed_) return reaction;
  choice.stats = event.stats;
  scores_[prompt].insert(scores_[prompt].end(), event.prompt_scores.begin(), event.prompt_scores.end());
  if (event.finished == FinishReason::error) {
    reaction.frames = end_with_error();
    return reaction;
  }
  was_aborted_ |= event.finished == FinishReason::abort;
  decode(choice, event, reaction);
  const bool begins_echo = !has_echoed_[prompt] && !waits_for_scores(prompt);
  if (begins_echo) begin_echo(prompt);
  if (!request_.is_stream || !has_echoed_[prompt]) return reaction;
  const auto n = static_cast<std::size_t>(request_.n);
  const std::size_t first = begins_echo ? prompt * n : index;
  for (std::size_t i = first; i < first + (begins_echo ? n : 1); ++i) reaction.frames += choice_frames(i);
  if (is_done()) reaction.frames += last_frames();
  return reaction;
}

std::string Answer::take_nothing() {
  std::string frames;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    end(choices_[i], FinishReason::length, nullptr);
    if (request_.is_stream) frames += choice_frames(i);
  }
  if (request_.is_stream) frames += last_frames();
  return frames;
}

HttpResponse Answer::response() {
  if (has_failed_) return error_response(500, kEngineError, {});
  if (was_aborted_) return error_response(503, "the server is shutting down", {});
  Value body;
  body["id"] = header_.id;
  body["object"] = header_.is_chat ? "chat.completion" : "text_completion";
  body["created"] = header_.created;
  body["model"] = header_.model;
  body["system_fingerprint"] = header_.system_fingerprint;
  Value& choices = body["choices"] = Value::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(text_choice(choices_[i], i));
  body["usage"] = usage();
  if (request_.n_prompt_logprobs >= 0 && header_.is_chat)
    body["prompt_logprobs"] = prompt_logprobs(tokenizer_, scores_[0], request_.n_prompt_logprobs);
  if (request_.wants_token_ids && header_.is_chat) body["prompt_token_ids"] = prompts_[0].tokens;
  if (request_.wants_stats) body["baton"] = stats();
  return {200, {{"Content-Type", "application/json"}}, json::dump(body)};
}

}  // namespace baton
