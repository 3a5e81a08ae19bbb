/// Choices, usage and statistics as JSON.
#include "server/dialects/openai/frames.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/answer/logprobs.h"
#include "server/dialects/openai/dialect.h"
#include "server/http/json_body.h"

namespace baton {
namespace {

using json::Value;
using parsers::MessagePiece;
using PieceKind = MessagePiece::Kind;

constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string data_frame(const Value& body) { return "data: " + json::dump(body) + "\n\n"; }

/// The common beginning of all frames and responses.
void add_head(JsonObjectWriter& body, const AnswerHeader& header, std::string_view object) {
  body.add("id", header.id);
  body.add("object", header.is_chat ? object : "text_completion");
  body.add("created", header.created);
  body.add("model", header.model);
  body.add("system_fingerprint", header.system_fingerprint);
}

TokenId id_of(TokenId token) { return token; }
TokenId id_of(const TokenOutput& token) { return token.token; }

template <class List>
Resumable write_ids(const List& tokens, std::string& out) {
  StepSize step;
  out += '[';
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(id_of(tokens[i]));
    if (step.add(1)) co_await Resumable::pause();
  }
  out += ']';
}

Value to_json(const AnswerChoice::StopReason& reason) {
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  if (const auto* id = std::get_if<TokenId>(&reason)) return *id;
  return nullptr;
}

constexpr std::string_view kReasoningNames[] = {"reasoning_content", "reasoning"};

bool has_kind(std::span<const MessagePiece> pieces, PieceKind kind) {
  return std::ranges::any_of(pieces, [kind](const MessagePiece& piece) { return piece.kind == kind; });
}

Resumable write_joined(std::span<const MessagePiece> pieces, PieceKind kind, std::string& out) {
  out += '"';
  for (const MessagePiece& piece : pieces) {
    if (piece.kind != kind) continue;
    for (Resumable text = write_json_characters(piece.text, out); text.resume();) co_await Resumable::pause();
  }
  out += '"';
}

std::vector<const MessagePiece*> arguments_by_call(std::span<const MessagePiece> pieces) {
  std::vector<const MessagePiece*> arguments;
  for (const MessagePiece& piece : pieces)
    if (piece.kind == PieceKind::arguments) arguments.push_back(&piece);
  const auto call_of = [](const MessagePiece* piece) { return piece->call; };
  if (!std::ranges::is_sorted(arguments, {}, call_of)) std::ranges::stable_sort(arguments, {}, call_of);
  return arguments;
}

/// The text of a call of a custom tool.
std::string custom_text(std::span<const MessagePiece* const> arguments) {
  CustomInput input;
  std::string text;
  for (const MessagePiece* one : arguments) text += input.take(one->text);
  return text + input.end();
}

Resumable write_calls(std::span<const MessagePiece> pieces, const std::set<std::string>* custom, std::string& out) {
  const std::vector<const MessagePiece*> arguments = arguments_by_call(pieces);
  out += '[';
  bool is_first = true;
  for (const MessagePiece& piece : pieces) {
    if (piece.kind != PieceKind::call) continue;
    if (!std::exchange(is_first, false)) out += ',';
    JsonObjectWriter call(out);
    call.add("id", piece.id);
    const bool is_custom = custom != nullptr && custom->contains(piece.text);
    call.add("type", is_custom ? "custom" : "function");
    call.key(is_custom ? "custom" : "function");
    JsonObjectWriter function(out);
    function.add("name", piece.text);
    function.key(is_custom ? "input" : "arguments");
    out += '"';
    const auto own = std::ranges::equal_range(arguments, piece.call, {}, [](const MessagePiece* one) { return one->call; });
    const std::string input = is_custom ? custom_text(own) : std::string();
    for (Resumable text = write_json_characters(input, out); text.resume();) co_await Resumable::pause();
    for (const MessagePiece* one : own)
      if (!is_custom)
        for (Resumable text = write_json_characters(one->text, out); text.resume();) co_await Resumable::pause();
    out += '"';
    function.end();
    call.end();
  }
  out += ']';
}

}  // namespace

Resumable write_chat_message(std::span<const MessagePiece> pieces, const std::set<std::string>* custom, std::string& out) {
  const bool has_calls = has_kind(pieces, PieceKind::call), has_reasoning = has_kind(pieces, PieceKind::reasoning);
  JsonObjectWriter message(out);
  message.add("role", "assistant");
  message.key("content");
  if ((has_calls || has_reasoning) && !has_kind(pieces, PieceKind::content)) {
    out += "null";
  } else {
    for (Resumable text = write_joined(pieces, PieceKind::content, out); text.resume();) co_await Resumable::pause();
  }
  message.add("refusal", nullptr);
  for (std::size_t i = 0; has_reasoning && i < std::size(kReasoningNames); ++i) {
    message.key(kReasoningNames[i]);
    for (Resumable text = write_joined(pieces, PieceKind::reasoning, out); text.resume();) co_await Resumable::pause();
  }
  if (has_calls) {
    message.key("tool_calls");
    for (Resumable calls = write_calls(pieces, custom, out); calls.resume();) co_await Resumable::pause();
  }
  message.end();
}

Resumable write_chat_delta(const MessagePiece& piece, bool is_custom, std::string& out) {
  JsonObjectWriter delta(out);
  switch (piece.kind) {
    case PieceKind::content:
      delta.key("content");
      for (Resumable text = write_json_string(piece.text, out); text.resume();) co_await Resumable::pause();
      break;
    case PieceKind::reasoning:
      for (std::size_t i = 0; i < std::size(kReasoningNames); ++i) {
        delta.key(kReasoningNames[i]);
        for (Resumable text = write_json_string(piece.text, out); text.resume();) co_await Resumable::pause();
      }
      break;
    case PieceKind::call:
    case PieceKind::arguments: {
      const bool is_new = piece.kind == PieceKind::call;
      delta.key("tool_calls");
      out += '[';
      JsonObjectWriter call(out);
      call.add("index", piece.call);
      if (is_new) {
        call.add("id", piece.id);
        call.add("type", is_custom ? "custom" : "function");
      }
      call.key(is_custom ? "custom" : "function");
      JsonObjectWriter function(out);
      if (is_new) function.add("name", piece.text);
      function.key(is_custom ? "input" : "arguments");
      for (Resumable text = write_json_string(is_new ? std::string_view() : piece.text, out); text.resume();)
        co_await Resumable::pause();
      function.end();
      call.end();
      out += ']';
      break;
    }
  }
  delta.end();
}

OpenaiWriter::OpenaiWriter(const AnswerContent& content, const Tokenizer& tokenizer)
    : content_(content), tokenizer_(tokenizer), written_(content.n_choices()) {}

std::unique_ptr<AnswerWriter> OpenaiWriter::make(const AnswerContent& content, const Tokenizer& tokenizer) {
  return std::make_unique<OpenaiWriter>(content, tokenizer);
}

/// Appends a choice's `logprobs`.
Resumable OpenaiWriter::write_logprobs(std::size_t index, std::string& out) {
  const AnswerChoice& choice = content_.choices[index];
  if (content_.request.sampling.n_top_logprobs < 0) {
    out += "null";
    co_return;
  }
  if (!content_.header.is_chat) {
    for (Resumable lists =
             write_completion_logprobs(tokenizer_, choice.echoed(), choice.tokens(), written_[index].text_offset, out);
         lists.resume();)
      co_await Resumable::pause();
    co_return;
  }
  StepSize step;
  out += R"({"content":[)";
  bool is_first = true;
  for (const TokenOutput& token : choice.tokens()) {
    if (!std::exchange(is_first, false)) out += ',';
    out += json::dump(chat_logprob(tokenizer_, token));
    if (step.add(1 + token.top_logprobs.size())) co_await Resumable::pause();
  }
  out += R"(],"refusal":null})";
}

/// Appends the text of a completion, the whole message of a chat, or in a stream the text or the delta of `piece`.
Resumable OpenaiWriter::write_message(std::size_t index, const MessagePiece& piece, std::string& out) const {
  const AnswerChoice& choice = content_.choices[index];
  const bool is_stream = content_.request.is_stream;
  Resumable written = !content_.header.is_chat ? write_json_string(is_stream ? piece.text : choice.text(), out)
                      : is_stream              ? write_chat_delta(piece, written_[index].custom.contains(piece.call), out)
                                  : write_chat_message(choice.pieces(), content_.request.reading.custom.get(), out);
  while (written.resume()) co_await Resumable::pause();
}

/// Appends a choice: the whole, or in a stream `piece`, with the choice's new tokens if `has_tokens`.
Resumable OpenaiWriter::write_choice(std::size_t index, const MessagePiece& piece, bool has_tokens, std::string& out) {
  const AnswerChoice& choice = content_.choices[index];
  const GenerationRequest& request = content_.request;
  const bool is_chat = content_.header.is_chat;
  const std::size_t prompt = content_.prompt_of(index);
  JsonObjectWriter body(out);
  body.add("index", index);
  body.key(!is_chat ? "text" : request.is_stream ? "delta" : "message");
  for (Resumable message = write_message(index, piece, out); message.resume();) co_await Resumable::pause();
  body.key("logprobs");
  if (has_tokens) {
    for (Resumable logprobs = write_logprobs(index, out); logprobs.resume();) co_await Resumable::pause();
  } else {
    out += "null";
  }
  if (!is_chat && request.n_prompt_logprobs >= 0) {
    body.key("prompt_logprobs");
    for (Resumable list = write_prompt_logprobs(tokenizer_, content_.scores[prompt], request.n_prompt_logprobs, out);
         list.resume();)
      co_await Resumable::pause();
  }
  if (request.wants_token_ids) {
    body.key("token_ids");
    const std::span<const TokenOutput> tokens = has_tokens ? choice.tokens() : std::span<const TokenOutput>();
    for (Resumable ids = write_ids(tokens, out); ids.resume();) co_await Resumable::pause();
    if (!request.is_stream && !is_chat) {
      body.key("prompt_token_ids");
      for (Resumable ids = write_ids(content_.prompts[prompt].tokens, out); ids.resume();) co_await Resumable::pause();
    }
  }
  const bool shows_end = !request.is_stream && choice.has_ended();
  body.add("finish_reason", shows_end ? Value(std::string(choice.finish_word())) : Value());
  body.add("stop_reason", shows_end ? to_json(choice.stop_reason()) : Value());
  body.end();
}

Value OpenaiWriter::usage() const {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t reasoning_tokens = 0;
  for (const AnswerPrompt& prompt : content_.prompts) prompt_tokens += static_cast<std::int64_t>(prompt.tokens.size());
  for (std::size_t i = 0; i < content_.choices.size(); ++i) {
    const AnswerChoice& choice = content_.choices[i];
    completion_tokens += choice.n_tokens();
    reasoning_tokens += choice.n_reasoning_tokens();
    if (i % static_cast<std::size_t>(content_.request.n) == 0) cached_tokens += choice.stats().cached_tokens;
  }
  Value usage;
  usage["prompt_tokens"] = prompt_tokens;
  usage["completion_tokens"] = completion_tokens;
  usage["total_tokens"] = prompt_tokens + completion_tokens;
  usage["prompt_tokens_details"]["cached_tokens"] = cached_tokens;
  const parsers::MessageFormat* format = content_.request.reading.format;
  if (format != nullptr && !format->reasoning_parser().empty())
    usage["completion_tokens_details"]["reasoning_tokens"] = reasoning_tokens;
  return usage;
}

Value OpenaiWriter::stats() const {
  SequenceStats sum;
  for (const AnswerChoice& choice : content_.choices) {
    const SequenceStats& own = choice.stats();
    sum.cached_tokens += own.cached_tokens;
    sum.replayed_tokens += own.replayed_tokens;
    sum.relayed_tokens += own.relayed_tokens;
    sum.kv_bytes_requested += own.kv_bytes_requested;
    sum.kv_bytes_saved += own.kv_bytes_saved;
    sum.largest_group = std::max(sum.largest_group, own.largest_group);
    sum.queue_ms += own.queue_ms;
    sum.prefill_ms += own.prefill_ms;
    sum.draft_tokens += own.draft_tokens;
    sum.accepted_tokens += own.accepted_tokens;
  }
  Value stats;
  stats["cached_tokens"] = sum.cached_tokens;
  stats["replayed_tokens"] = sum.replayed_tokens;
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

/// A frame with its choices, which are given as text.
std::string OpenaiWriter::frame(std::string_view choices, bool has_usage, bool has_stats) const {
  std::string text = "data: ";
  JsonObjectWriter body(text);
  add_head(body, content_.header, "chat.completion.chunk");
  body.key("choices");
  text += '[';
  text += choices;
  text += ']';
  if (has_usage || content_.request.include_usage) body.add("usage", has_usage ? usage() : Value());
  if (has_stats) body.add("baton", stats());
  body.end();
  text += "\n\n";
  return text;
}

/// Whether the frames with text of a choice have everything but the text in common.
bool OpenaiWriter::differs_in_text_alone() const {
  const GenerationRequest& request = content_.request;
  const bool has_scores = !content_.header.is_chat && request.n_prompt_logprobs >= 0;
  return request.sampling.n_top_logprobs < 0 && !has_scores && !request.wants_token_ids && !request.continuous_usage;
}

std::string OpenaiWriter::first_frame(std::size_t index) const {
  Value first;
  first["index"] = index;
  if (content_.header.is_chat) {
    first["delta"]["role"] = "assistant";
    first["delta"]["content"] = "";
  } else {
    first["text"] = "";
  }
  first["logprobs"] = nullptr;
  if (content_.request.wants_token_ids) first["prompt_token_ids"] = content_.prompts[content_.prompt_of(index)].tokens;
  first["finish_reason"] = nullptr;
  return frame(json::dump(first), content_.request.continuous_usage, /*has_stats=*/false);
}

/// The frame of a piece, with the choice's new tokens if `has_tokens`. Most frames by far are of content, so what those
/// of a choice have in common is written once.
std::string OpenaiWriter::piece_frame(std::size_t index, const MessagePiece& piece, bool has_tokens) {
  std::string choice;
  if (piece.kind != PieceKind::content || !differs_in_text_alone()) {
    write_choice(index, piece, has_tokens, choice).finish();
    return frame(choice, content_.request.continuous_usage, /*has_stats=*/false);
  }
  Written& written = written_[index];
  if (written.front.empty()) {
    // Its last occurrence is the text: ids and names come before, and nothing of a client's follows.
    constexpr std::string_view kWritten = "\"\\u0001\"";
    const MessagePiece short_piece{.text = "\x01"};
    write_choice(index, short_piece, has_tokens, choice).finish();
    const std::string example = frame(choice, /*has_usage=*/false, /*has_stats=*/false);
    const std::size_t at = example.rfind(kWritten);
    written.front = example.substr(0, at);
    written.back = example.substr(at + kWritten.size());
  }
  return written.front + json::dump(piece.text) + written.back;
}

/// The frames of a piece of a call of a custom tool: its name, or the part of its text that the piece completes.
std::string OpenaiWriter::custom_frames(std::size_t index, const MessagePiece& piece, bool& has_tokens) {
  if (piece.kind == PieceKind::call) return piece_frame(index, piece, std::exchange(has_tokens, false));
  MessagePiece text = piece;
  text.text = written_[index].custom[piece.call].take(piece.text);
  return text.text.empty() ? std::string() : piece_frame(index, text, std::exchange(has_tokens, false));
}

std::string OpenaiWriter::finish_frame(std::size_t index, bool has_stats) const {
  const AnswerChoice& choice = content_.choices[index];
  Value last;
  last["index"] = index;
  if (content_.header.is_chat)
    last["delta"] = Value::object();
  else
    last["text"] = "";
  last["logprobs"] = nullptr;
  last["finish_reason"] = std::string(choice.finish_word());
  last["stop_reason"] = to_json(choice.stop_reason());
  return frame(json::dump(last), content_.request.continuous_usage, has_stats);
}

std::string OpenaiWriter::choice_frames(std::size_t index, bool is_last) {
  const AnswerChoice& choice = content_.choices[index];
  const GenerationRequest& request = content_.request;
  std::string frames;
  if (!std::exchange(written_[index].has_begun, true) && (content_.header.is_chat || request.wants_token_ids))
    frames += first_frame(index);
  // Tokens belong to the first frame; where there is no text, they have one with none.
  bool has_tokens = true;
  auto& custom = written_[index].custom;
  for (const MessagePiece& piece : choice.pieces()) {
    const bool is_call = piece.kind == PieceKind::call, is_arguments = piece.kind == PieceKind::arguments;
    if (is_call && request.reading.custom && request.reading.custom->contains(piece.text)) custom[piece.call] = {};
    if (!custom.empty() && (is_call || is_arguments) && custom.contains(piece.call))
      frames += custom_frames(index, piece, has_tokens);
    else if (is_call || !piece.text.empty())
      frames += piece_frame(index, piece, std::exchange(has_tokens, false));
  }
  // What was no text of a custom tool is given as it is.
  if (choice.has_ended())
    for (auto& [call, input] : custom)
      if (MessagePiece rest{PieceKind::arguments, call, input.end(), {}}; !rest.text.empty())
        frames += piece_frame(index, rest, std::exchange(has_tokens, false));
  const bool shows_tokens = request.sampling.n_top_logprobs >= 0 || request.wants_token_ids;
  if (has_tokens && (!choice.echoed().empty() || (shows_tokens && !choice.tokens().empty())))
    frames += piece_frame(index, MessagePiece(), has_tokens);
  if (choice.has_ended()) frames += finish_frame(index, is_last && !request.include_usage && request.wants_stats);
  return frames;
}

std::string OpenaiWriter::last_frames() {
  std::string frames;
  if (content_.request.include_usage) frames += frame({}, /*has_usage=*/true, content_.request.wants_stats);
  frames += kDone;
  return frames;
}

std::string OpenaiWriter::error_frames(int status, std::string_view message, std::string_view param) {
  return data_frame(error_body(status, message, param)) + std::string(kDone);
}

std::size_t OpenaiWriter::response_bytes() const {
  constexpr std::size_t kPrompt = 100, kToken = 100, kId = 8;  // bytes of one
  const GenerationRequest& request = content_.request;
  const auto per_token = [](std::int32_t n_top) { return n_top < 0 ? 0 : kToken * (1 + static_cast<std::size_t>(n_top)); };
  const std::size_t id_bytes = request.wants_token_ids ? kId : 0;
  const std::size_t token_bytes = per_token(request.sampling.n_top_logprobs) + id_bytes;
  const std::size_t prompt_bytes =
      (request.n_prompt_logprobs < 0 ? 0 : kPrompt * (1 + static_cast<std::size_t>(request.n_prompt_logprobs))) + id_bytes;
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < content_.choices.size(); ++i) {
    const AnswerChoice& choice = content_.choices[i];
    for (const MessagePiece& piece : choice.pieces())
      n_bytes += piece.text.size() * (piece.kind == PieceKind::reasoning ? 2 : 1);
    n_bytes += (choice.echoed().size() + choice.tokens().size()) * token_bytes;
    if (!content_.header.is_chat || i == 0) n_bytes += content_.prompts[content_.prompt_of(i)].tokens.size() * prompt_bytes;
  }
  return n_bytes;
}

HttpResponse OpenaiWriter::error(int status, std::string_view message, std::string_view param) {
  return error_response(status, message, param);
}

Resumable OpenaiWriter::write_response(std::string& out) {
  static const MessagePiece kNoPiece;
  const GenerationRequest& request = content_.request;
  JsonObjectWriter body(out);
  add_head(body, content_.header, "chat.completion");
  body.key("choices");
  out += '[';
  for (std::size_t i = 0; i < content_.choices.size(); ++i) {
    if (i > 0) out += ',';
    for (Resumable choice = write_choice(i, kNoPiece, /*has_tokens=*/true, out); choice.resume();) co_await Resumable::pause();
    co_await Resumable::pause();
  }
  out += ']';
  body.add("usage", usage());
  if (request.n_prompt_logprobs >= 0 && content_.header.is_chat) {
    body.key("prompt_logprobs");
    for (Resumable list = write_prompt_logprobs(tokenizer_, content_.scores[0], request.n_prompt_logprobs, out); list.resume();)
      co_await Resumable::pause();
  }
  if (request.wants_token_ids && content_.header.is_chat) {
    body.key("prompt_token_ids");
    for (Resumable ids = write_ids(content_.prompts[0].tokens, out); ids.resume();) co_await Resumable::pause();
  }
  if (request.wants_stats) body.add("baton", stats());
  body.end();
}

MakeAnswerWriter openai_writer(const ModelAndPrefix& /*target*/, const Request& /*request*/) { return OpenaiWriter::make; }

Result<std::optional<ConversationCall>> read_chat_call(const json::Value& body, const ReadContext& context) {
  BATON_TRY(ChatRequest chat, parse_chat_request(body, context.model.defaults, context.bounds));
  context.log_unknown_fields(chat.generation.unknown_fields);
  return std::optional(ConversationCall{std::move(chat), openai_writer});
}

}  // namespace baton
