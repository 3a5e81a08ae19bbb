/// Blocks, usage and the reasons of the end.
#include "server/dialects/messages/answer.h"

#include <algorithm>
#include <variant>

#include "server/dialects/messages/dialect.h"
#include "server/http/json_body.h"

namespace baton {
namespace {

using json::Value;
using parsers::MessagePiece;

constexpr std::string_view kShutdown = "shutdown";

/// A frame of a stream: its name is the type of its data.
std::string messages_event(const Value& data) {
  return "event: " + data["type"].get_ref<const std::string&>() + "\ndata: " + json::dump(data) + "\n\n";
}

Value block_event(std::string_view type, std::int32_t index) {
  Value data;
  data["type"] = std::string(type);
  data["index"] = index;
  return data;
}

/// A text block of either kind.
bool is_text_kind(MessagePiece::Kind kind) {
  return kind == MessagePiece::Kind::content || kind == MessagePiece::Kind::reasoning;
}

std::string_view stop_text(const AnswerChoice& choice) {
  const auto* text = std::get_if<std::string>(&choice.stop_reason());
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

/// Sets `stop_reason` and `stop_sequence` of a choice that has ended.
void add_stop(const AnswerChoice& choice, Value& message) {
  const std::string_view text = stop_text(choice);
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  switch (*choice.finish()) {
    case FinishReason::length: message["stop_reason"] = "max_tokens"; return;
    // The client may send the message back to let the model continue.
    case FinishReason::deadline:
    case FinishReason::abort:
    case FinishReason::error: message["stop_reason"] = "pause_turn"; return;
    case FinishReason::stop: break;
  }
  if (choice.has_complete_calls()) {
    message["stop_reason"] = "tool_use";
  } else if (!text.empty()) {
    message["stop_reason"] = "stop_sequence";
    message["stop_sequence"] = std::string(text);
  } else {
    message["stop_reason"] = "end_turn";
  }
}

/// What is said of edits that were asked for: conversations stay as they are.
Value no_edits() {
  Value none;
  none["applied_edits"] = Value::array();
  return none;
}

}  // namespace

Value MessagesWriter::usage() const {
  const AnswerChoice& choice = content_.choices[0];
  const auto n_prompt = static_cast<std::int32_t>(content_.prompts[0].tokens.size());
  const std::int32_t n_read = choice.stats().cached_tokens;
  const std::int32_t n_created = std::max(0, plan_.n_marked - n_read);
  Value usage;
  usage["input_tokens"] = n_prompt - n_read - n_created;
  usage["cache_creation_input_tokens"] = n_created;
  usage["cache_read_input_tokens"] = n_read;
  usage["output_tokens"] = choice.n_tokens();
  return usage;
}

/// The message without content.
Value MessagesWriter::start_message() const {
  Value message;
  message["id"] = content_.header.id;
  message["type"] = "message";
  message["role"] = "assistant";
  message["model"] = content_.header.model;
  message["content"] = Value::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  message["usage"] = usage();
  return message;
}

std::string MessagesWriter::begin_block(const MessagePiece& piece) {
  is_open_ = true;
  kind_ = piece.kind;
  Value data = block_event("content_block_start", n_blocks_);
  Value& block = data["content_block"];
  if (piece.kind == MessagePiece::Kind::call) {
    block["type"] = "tool_use";
    block["id"] = piece.id;
    block["name"] = piece.text;
    block["input"] = Value::object();
  } else if (piece.kind == MessagePiece::Kind::reasoning) {
    block["type"] = "thinking";
    block["thinking"] = "";
    block["signature"] = "";
  } else {
    block["type"] = "text";
    block["text"] = "";
  }
  std::string frames = messages_event(data);
  if (!std::exchange(has_pinged_, true)) frames += messages_event({{"type", "ping"}});
  return frames;
}

std::string MessagesWriter::end_block() {
  if (!std::exchange(is_open_, false)) return {};
  return messages_event(block_event("content_block_stop", n_blocks_++));
}

std::string MessagesWriter::piece_frames(const MessagePiece& piece) {
  std::string frames;
  const bool is_call = piece.kind == MessagePiece::Kind::call;
  if (!is_call && piece.text.empty()) return frames;
  const bool goes_on =
      is_open_ && !is_call && (is_text_kind(piece.kind) ? kind_ == piece.kind : kind_ == MessagePiece::Kind::call);
  if (!goes_on) {
    frames += end_block();
    frames += begin_block(piece);
  }
  if (is_call) return frames;
  Value data = block_event("content_block_delta", n_blocks_);
  Value& delta = data["delta"];
  if (piece.kind == MessagePiece::Kind::content) {
    delta["type"] = "text_delta";
    delta["text"] = piece.text;
  } else if (piece.kind == MessagePiece::Kind::reasoning) {
    delta["type"] = "thinking_delta";
    delta["thinking"] = piece.text;
  } else {
    delta["type"] = "input_json_delta";
    delta["partial_json"] = piece.text;
  }
  return frames + messages_event(data);
}

std::string MessagesWriter::choice_frames(std::size_t index, bool) {
  const AnswerChoice& choice = content_.choices[index];
  std::string frames;
  if (!std::exchange(has_begun_, true)) {
    Value data;
    data["type"] = "message_start";
    data["message"] = start_message();
    frames += messages_event(data);
  }
  for (const MessagePiece& piece : choice.pieces()) frames += piece_frames(piece);
  if (!choice.has_ended()) return frames;
  if (choice.finish() == FinishReason::abort && stop_text(choice) == kShutdown)
    return frames + error_frames(503, "the server is shutting down", {});
  if (plan_.keep) plan_.keep();
  frames += end_block();
  Value data;
  data["type"] = "message_delta";
  add_stop(choice, data["delta"]);
  data["usage"] = usage();
  if (plan_.has_context_management) data["context_management"] = no_edits();
  return frames + messages_event(data);
}

std::string MessagesWriter::last_frames() { return has_failed_ ? std::string() : messages_event({{"type", "message_stop"}}); }

std::string MessagesWriter::error_frames(int status, std::string_view message, std::string_view /*param*/) {
  has_failed_ = true;
  return messages_event(messages_error_body(status, message));
}

HttpResponse MessagesWriter::error(int status, std::string_view message, std::string_view /*param*/) {
  return messages_error_response(status, message);
}

std::size_t MessagesWriter::response_bytes() const {
  std::size_t n_bytes = 0;
  for (const MessagePiece& piece : content_.choices[0].pieces()) n_bytes += piece.text.size();
  return n_bytes;
}

namespace {

/// Appends a JSON text in steps.
Resumable write_json(std::string_view json, std::string& out) {
  constexpr std::size_t kStep = 16 << 10;
  for (; !json.empty(); json.remove_prefix(std::min(kStep, json.size()))) {
    out += json.substr(0, kStep);
    co_await Resumable::pause();
  }
}

/// Appends the block of a call, with its `arguments` as the model wrote them. An `input` is an object, so arguments that the end of
/// the answer has cut are a text with the call's name.
Resumable write_call(const MessagePiece& call, const MessagePiece* arguments, std::string& out) {
  JsonObjectWriter block(out);
  if (arguments != nullptr && arguments->is_complete) {
    block.add("type", "tool_use");
    block.add("id", call.id);
    block.add("name", call.text);
    block.key("input");
    for (Resumable input = write_json(arguments->text, out); input.resume();) co_await Resumable::pause();
  } else {
    const std::string cut = call.text + "(" + (arguments == nullptr ? std::string() : arguments->text);
    block.add("type", "text");
    block.key("text");
    for (Resumable text = write_json_string(cut, out); text.resume();) co_await Resumable::pause();
  }
  block.end();
}

/// Appends the block of a text or of reasoning.
Resumable write_text(const MessagePiece& piece, std::string& out) {
  const bool is_content = piece.kind == MessagePiece::Kind::content;
  JsonObjectWriter block(out);
  block.add("type", is_content ? "text" : "thinking");
  block.key(is_content ? "text" : "thinking");
  for (Resumable text = write_json_string(piece.text, out); text.resume();) co_await Resumable::pause();
  if (!is_content) block.add("signature", "");
  block.end();
}

}  // namespace

Resumable MessagesWriter::write_response(std::string& out) {
  const AnswerChoice& choice = content_.choices[0];
  if (plan_.keep) plan_.keep();
  JsonObjectWriter body(out);
  body.add("id", content_.header.id);
  body.add("type", "message");
  body.add("role", "assistant");
  body.add("model", content_.header.model);
  body.key("content");
  out += '[';
  bool is_first = true;
  const auto pieces = choice.pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const MessagePiece& piece = pieces[i];
    if (is_text_kind(piece.kind) ? piece.text.empty() : piece.kind != MessagePiece::Kind::call) continue;
    if (!std::exchange(is_first, false)) out += ',';
    const bool has_arguments = i + 1 < pieces.size() && pieces[i + 1].kind == MessagePiece::Kind::arguments;
    const bool is_call = piece.kind == MessagePiece::Kind::call;
    for (Resumable block = is_call ? write_call(piece, has_arguments ? &pieces[i + 1] : nullptr, out) : write_text(piece, out);
         block.resume();)
      co_await Resumable::pause();
    co_await Resumable::pause();
  }
  out += ']';
  Value end;
  add_stop(choice, end);
  body.add("stop_reason", end["stop_reason"]);
  body.add("stop_sequence", end["stop_sequence"]);
  body.add("usage", usage());
  if (plan_.has_context_management) body.add("context_management", no_edits());
  body.end();
}

}  // namespace baton
