/// Items, events, usage and the status of a response.
#include "server/dialects/responses/answer.h"

#include <algorithm>
#include <variant>

#include "server/answer/logprobs.h"
#include "server/dialects/responses/items.h"
#include "server/http/json_body.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;
using parsers::MessagePiece;

/// The kinds of items; arguments belong to the item of their call.
std::string_view item_type(MessagePiece::Kind kind) {
  switch (kind) {
    case MessagePiece::Kind::content: return "message";
    case MessagePiece::Kind::reasoning: return "reasoning";
    case MessagePiece::Kind::call:
    case MessagePiece::Kind::arguments: return "function_call";
  }
  return "";
}

/// The part of a message's or a reasoning's content.
Value content_part(MessagePiece::Kind kind, std::string_view text) {
  const bool is_content = kind == MessagePiece::Kind::content;
  Value part;
  part["type"] = is_content ? "output_text" : "reasoning_text";
  if (is_content) {
    part["annotations"] = Value::array();
    part["logprobs"] = Value::array();
  }
  part["text"] = std::string(text);
  return part;
}

bool has_text(MessagePiece::Kind kind) { return kind == MessagePiece::Kind::content || kind == MessagePiece::Kind::reasoning; }

void complete_item(Value& item, MessagePiece::Kind kind, const ResponseTool* tool, std::string_view text,
                   std::string_view status) {
  item["status"] = std::string(status);
  if (has_text(kind))
    item["content"] = Value::array({content_part(kind, text)});
  else
    complete_call_item(tool, text, item);
}

std::string_view status_of_call(bool has_whole_arguments) { return has_whole_arguments ? "completed" : "incomplete"; }

/// Whether a choice that has ended says all that the model wanted.
bool is_complete(const AnswerChoice& choice) { return choice.finish() == FinishReason::stop && !choice.has_broken_call(); }

/// Why it does not: what ended it.
std::string_view incomplete_reason(const AnswerChoice& choice) {
  switch (*choice.finish()) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "max_output_tokens";
    default: return "deadline";
  }
}

}  // namespace

/// A frame of the stream.
std::string ResponsesWriter::event(std::string_view type, Value members) {
  Value data;
  data["type"] = std::string(type);
  data["sequence_number"] = n_events_++;
  data.update(members);
  return "event: " + std::string(type) + "\ndata: " + json::dump(data) + "\n\n";
}

/// The members by which an event names the open item.
Value ResponsesWriter::at_item() const {
  Value members;
  members["item_id"] = output_.back()["id"];
  members["output_index"] = output_.size() - 1;
  if (has_text(kind_)) members["content_index"] = 0;
  return members;
}

Value ResponsesWriter::usage() const {
  const AnswerChoice& choice = content_.choices[0];
  const auto n_prompt = static_cast<std::int64_t>(content_.prompts[0].tokens.size());
  Value usage;
  usage["input_tokens"] = n_prompt;
  usage["input_tokens_details"]["cached_tokens"] = choice.stats().cached_tokens;
  usage["input_tokens_details"]["cache_write_tokens"] = n_prompt - choice.stats().cached_tokens;
  usage["output_tokens"] = choice.n_tokens();
  usage["output_tokens_details"]["reasoning_tokens"] = choice.n_reasoning_tokens();
  usage["total_tokens"] = n_prompt + choice.n_tokens();
  return usage;
}

/// The response with the output so far, without usage.
Value ResponsesWriter::response(std::string_view status) const {
  Value body;
  body["id"] = content_.header.id;
  body["object"] = "response";
  body["created_at"] = content_.header.created;
  body["status"] = std::string(status);
  body["completed_at"] = status == "completed" ? Value(std::max(unix_seconds(), content_.header.created)) : Value();
  body["error"] = nullptr;
  body["incomplete_details"] = nullptr;
  body["model"] = content_.header.model;
  body["output"] = output_;
  body.update(plan_.repeated);
  body["usage"] = nullptr;
  return body;
}

Value ResponsesWriter::complete_response() const {
  const AnswerChoice& choice = content_.choices[0];
  Value body = response(is_complete(choice) ? "completed" : "incomplete");
  if (!is_complete(choice)) body["incomplete_details"]["reason"] = std::string(incomplete_reason(choice));
  body["usage"] = usage();
  return body;
}

std::string ResponsesWriter::begin_frames() {
  if (std::exchange(has_begun_, true)) return {};
  Value members;
  members["response"] = response("in_progress");
  const std::string created = event("response.created", members);
  return created + event("response.in_progress", std::move(members));
}

/// The tool that a call calls; null for what is not a call, and for a plain function.
const ResponseTool* ResponsesWriter::tool_of(const MessagePiece& piece) const {
  if (piece.kind != MessagePiece::Kind::call) return nullptr;
  const auto found = plan_.tools.find(piece.text);
  return found == plan_.tools.end() ? nullptr : &found->second;
}

/// An item that has just begun.
Value ResponsesWriter::new_item(const MessagePiece& piece) const {
  if (!has_text(piece.kind)) return new_call_item(tool_of(piece), piece.text, piece.id);
  const std::string_view type = item_type(piece.kind);
  Value item;
  item["id"] = new_item_id(type);
  item["type"] = std::string(type);
  item["status"] = "in_progress";
  if (piece.kind == MessagePiece::Kind::content) {
    item["role"] = "assistant";
    item["content"] = Value::array();
  } else {
    item["summary"] = Value::array();
    item["content"] = Value::array();
  }
  return item;
}

std::string ResponsesWriter::begin_item(const MessagePiece& piece) {
  is_open_ = true;
  kind_ = piece.kind;
  has_whole_arguments_ = false;
  text_.clear();
  tool_ = tool_of(piece);
  input_ = {};
  output_.push_back(new_item(piece));
  Value members;
  members["output_index"] = output_.size() - 1;
  members["item"] = output_.back();
  std::string frames = event("response.output_item.added", std::move(members));
  if (!has_text(kind_)) return frames;
  Value part = at_item();
  part["part"] = content_part(kind_, "");
  return frames + event("response.content_part.added", std::move(part));
}

/// A piece of the text of a custom tool.
std::string ResponsesWriter::input_frames(const std::string& piece) {
  if (piece.empty()) return {};
  Value members = at_item();
  members["delta"] = piece;
  return event("response.custom_tool_call_input.delta", std::move(members));
}

/// A piece of the arguments of the open call. Calls of tools without a name are shown when they are complete.
std::string ResponsesWriter::call_frames(std::string_view piece) {
  const auto kind = tool_ == nullptr ? ResponseTool::Kind::function : tool_->kind;
  if (kind == ResponseTool::Kind::custom) return input_frames(input_.take(piece));
  if (kind != ResponseTool::Kind::function) return {};
  Value members = at_item();
  members["delta"] = std::string(piece);
  return event("response.function_call_arguments.delta", std::move(members));
}

std::string ResponsesWriter::end_call() {
  const Value& item = output_.back();
  const auto kind = tool_ == nullptr ? ResponseTool::Kind::function : tool_->kind;
  Value done = at_item();
  if (kind == ResponseTool::Kind::custom) {
    std::string frames = input_frames(input_.end());
    done["input"] = item["input"];
    return frames + event("response.custom_tool_call_input.done", std::move(done));
  }
  if (kind != ResponseTool::Kind::function) return {};
  done["name"] = item["name"];
  done["arguments"] = std::exchange(text_, {});
  return event("response.function_call_arguments.done", std::move(done));
}

std::string ResponsesWriter::end_item(std::string_view status) {
  if (!std::exchange(is_open_, false)) return {};
  Value& item = output_.back();
  if (!has_text(kind_)) status = status_of_call(has_whole_arguments_);
  complete_item(item, kind_, tool_, text_, status);
  std::string frames;
  if (has_text(kind_)) {
    Value done = at_item();
    Value part = at_item();
    part["part"] = item["content"][0];
    done["text"] = std::exchange(text_, {});
    if (kind_ == MessagePiece::Kind::content) done["logprobs"] = Value::array();
    frames = event(kind_ == MessagePiece::Kind::content ? "response.output_text.done" : "response.reasoning_text.done",
                   std::move(done));
    frames += event("response.content_part.done", std::move(part));
  } else {
    frames = end_call();
  }
  Value members;
  members["output_index"] = output_.size() - 1;
  members["item"] = item;
  return frames + event("response.output_item.done", std::move(members));
}

/// The log-probabilities that no delta has shown.
Value ResponsesWriter::take_logprobs() {
  Value list = Value::array();
  for (const TokenOutput& token : unsent_) list.push_back(chat_logprob(tokenizer_, token));
  unsent_.clear();
  return list;
}

std::string ResponsesWriter::piece_frames(const MessagePiece& piece) {
  const bool is_call = piece.kind == MessagePiece::Kind::call;
  has_whole_arguments_ |= piece.is_complete;
  if (!is_call && piece.text.empty()) return {};
  std::string frames;
  const bool goes_on = is_open_ && !is_call && item_type(piece.kind) == item_type(kind_);
  if (!goes_on) {
    frames += end_item("completed");
    frames += begin_item(piece);
  }
  if (piece.kind != MessagePiece::Kind::content) unsent_.clear();
  if (is_call) return frames;
  text_ += piece.text;
  if (!has_text(piece.kind)) return frames + call_frames(piece.text);
  const bool is_content = piece.kind == MessagePiece::Kind::content;
  Value members = at_item();
  members["delta"] = piece.text;
  if (is_content) members["logprobs"] = take_logprobs();
  return frames + event(is_content ? "response.output_text.delta" : "response.reasoning_text.delta", std::move(members));
}

std::string ResponsesWriter::choice_frames(std::size_t index, bool) {
  const AnswerChoice& choice = content_.choices[index];
  std::string frames = begin_frames();
  if (content_.request.sampling.n_top_logprobs >= 0)
    unsent_.insert(unsent_.end(), choice.tokens().begin(), choice.tokens().end());
  for (const MessagePiece& piece : choice.pieces()) frames += piece_frames(piece);
  if (!choice.has_ended()) return frames;
  const auto* reason = std::get_if<std::string>(&choice.stop_reason());
  if (choice.finish() == FinishReason::abort && reason != nullptr && *reason == "shutdown")
    return frames + error_frames(503, "the server is shutting down", {});
  frames += end_item(is_complete(choice) ? "completed" : "incomplete");
  Value members;
  members["response"] = complete_response();
  if (plan_.keep && frames.size() <= kMaxStoredBytes) plan_.keep(json::dump(members["response"]));
  return frames + event(is_complete(choice) ? "response.completed" : "response.incomplete", std::move(members));
}

/// The codes of errors in responses are a closed list. It has one code for mistakes of requests.
std::string ResponsesWriter::error_frames(int status, std::string_view message, std::string_view /*param*/) {
  std::string frames = begin_frames();
  Value members;
  members["response"] = response("failed");
  members["response"]["error"]["code"] = status < 500 ? "invalid_prompt" : "server_error";
  members["response"]["error"]["message"] = std::string(message);
  return frames + event("response.failed", std::move(members));
}

HttpResponse ResponsesWriter::error(int status, std::string_view message, std::string_view param) {
  return error_response(status, message, param);
}

std::size_t ResponsesWriter::response_bytes() const {
  constexpr std::size_t kTokenBytes = 100;
  const AnswerChoice& choice = content_.choices[0];
  const std::int32_t n_top = content_.request.sampling.n_top_logprobs;
  std::size_t n_bytes = n_top < 0 ? 0 : choice.tokens().size() * kTokenBytes * (1 + static_cast<std::size_t>(n_top));
  for (const MessagePiece& piece : choice.pieces()) n_bytes += piece.text.size();
  return n_bytes;
}

/// Makes the items of an answer in one piece.
void ResponsesWriter::set_output_of_pieces() {
  const AnswerChoice& choice = content_.choices[0];
  const auto pieces = choice.pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const MessagePiece& piece = pieces[i];
    if (piece.kind == MessagePiece::Kind::arguments || (has_text(piece.kind) && piece.text.empty())) continue;
    Value item = new_item(piece);
    std::string_view text = piece.text, status = "completed";
    if (piece.kind == MessagePiece::Kind::call) {
      const bool has_arguments = i + 1 < pieces.size() && pieces[i + 1].kind == MessagePiece::Kind::arguments;
      text = has_arguments ? std::string_view(pieces[i + 1].text) : std::string_view();
      status = status_of_call(has_arguments && pieces[i + 1].is_complete);
    }
    complete_item(item, piece.kind, tool_of(piece), text, status);
    output_.push_back(std::move(item));
  }
  // Calls have a status of their own.
  const auto is_call = [](const Value& item) { return item["type"].get_ref<const std::string&>().ends_with("_call"); };
  if (!is_complete(choice) && !output_.empty() && !is_call(output_.back())) output_.back()["status"] = "incomplete";
}

/// Appends the output, whose messages have no log-probabilities yet.
Resumable ResponsesWriter::write_output_with_logprobs(std::string& out) {
  const std::span<const TokenOutput> tokens = content_.choices[0].tokens();
  // The reasoning comes first.
  const auto n_before = std::min(tokens.size(), static_cast<std::size_t>(content_.choices[0].n_reasoning_tokens()));
  StepSize step;
  out += '[';
  for (std::size_t i = 0; i < output_.size(); ++i) {
    if (i > 0) out += ',';
    const Value& item = output_[i];
    if (!json::is_text(item["type"], "message")) {
      out += json::dump(item);
      continue;
    }
    JsonObjectWriter members(out);
    for (const auto& [name, value] : item.get_ref<const Value::object_t&>())
      if (name != "content") members.add(name, value);
    members.key("content");
    out += '[';
    JsonObjectWriter part(out);
    for (const auto& [name, value] : item["content"][0].get_ref<const Value::object_t&>())
      if (name != "logprobs") part.add(name, value);
    part.key("logprobs");
    out += '[';
    for (std::size_t k = n_before; k < tokens.size(); ++k) {
      if (k > n_before) out += ',';
      out += json::dump(chat_logprob(tokenizer_, tokens[k]));
      if (step.add(1 + tokens[k].top_logprobs.size())) co_await Resumable::pause();
    }
    out += ']';
    part.end();
    out += ']';
    members.end();
  }
  out += ']';
}

Resumable ResponsesWriter::write_response(std::string& out) {
  set_output_of_pieces();
  const Value body = complete_response();
  if (plan_.keep && response_bytes() <= kMaxStoredBytes) plan_.keep(json::dump(body));
  const bool has_logprobs = content_.request.sampling.n_top_logprobs >= 0;
  JsonObjectWriter members(out);
  for (const auto& [name, value] : body.get_ref<const Value::object_t&>()) {
    if (name != "output" || !has_logprobs) {
      members.add(name, value);
      co_await Resumable::pause();
      continue;
    }
    members.key(name);
    for (Resumable output = write_output_with_logprobs(out); output.resume();) co_await Resumable::pause();
  }
  members.end();
}

}  // namespace baton
