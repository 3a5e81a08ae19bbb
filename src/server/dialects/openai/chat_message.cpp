/// Pieces as members of JSON objects.
#include "server/dialects/openai/chat_message.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/json_writer.h"
#include "server/request/custom_tools.h"

namespace baton {
namespace {

using parsers::MessagePiece;
using Kind = MessagePiece::Kind;

constexpr std::string_view kReasoningNames[] = {"reasoning_content", "reasoning"};

bool has_kind(std::span<const MessagePiece> pieces, Kind kind) {
  return std::ranges::any_of(pieces, [kind](const MessagePiece& piece) { return piece.kind == kind; });
}

/// Appends the joined texts of one kind as a string.
Resumable write_joined(std::span<const MessagePiece> pieces, Kind kind, std::string& out) {
  out += '"';
  for (const MessagePiece& piece : pieces) {
    if (piece.kind != kind) continue;
    for (Resumable text = write_json_characters(piece.text, out); text.resume();) co_await Resumable::pause();
  }
  out += '"';
}

/// The pieces of the arguments of all calls, by their call.
std::vector<const MessagePiece*> arguments_by_call(std::span<const MessagePiece> pieces) {
  std::vector<const MessagePiece*> arguments;
  for (const MessagePiece& piece : pieces)
    if (piece.kind == Kind::arguments) arguments.push_back(&piece);
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
    if (piece.kind != Kind::call) continue;
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
  const bool has_calls = has_kind(pieces, Kind::call), has_reasoning = has_kind(pieces, Kind::reasoning);
  JsonObjectWriter message(out);
  message.add("role", "assistant");
  message.key("content");
  if ((has_calls || has_reasoning) && !has_kind(pieces, Kind::content)) {
    out += "null";
  } else {
    for (Resumable text = write_joined(pieces, Kind::content, out); text.resume();) co_await Resumable::pause();
  }
  message.add("refusal", nullptr);
  for (std::size_t i = 0; has_reasoning && i < std::size(kReasoningNames); ++i) {
    message.key(kReasoningNames[i]);
    for (Resumable text = write_joined(pieces, Kind::reasoning, out); text.resume();) co_await Resumable::pause();
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
    case Kind::content:
      delta.key("content");
      for (Resumable text = write_json_string(piece.text, out); text.resume();) co_await Resumable::pause();
      break;
    case Kind::reasoning:
      for (std::size_t i = 0; i < std::size(kReasoningNames); ++i) {
        delta.key(kReasoningNames[i]);
        for (Resumable text = write_json_string(piece.text, out); text.resume();) co_await Resumable::pause();
      }
      break;
    case Kind::call:
    case Kind::arguments: {
      const bool is_new = piece.kind == Kind::call;
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

}  // namespace baton
