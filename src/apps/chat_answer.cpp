/// Lines, headings and arguments.
#include "apps/chat_answer.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

using parsers::MessagePiece;

/// The object that arguments are; nullopt for an incomplete one. No text is an object without members.
std::optional<json::Value> object_of(const std::string& arguments) {
  if (arguments.empty()) return json::Value::object();
  auto value = json::parse(arguments, "the arguments");
  if (!value || !value->is_object()) return std::nullopt;
  return std::move(*value);
}

/// `city="Paris", days=3`
std::string shown_arguments(const json::Value& arguments) {
  std::string shown;
  for (const auto& [name, value] : arguments.get_ref<const json::Value::object_t&>())
    shown += fmt::format("{}{}={}", shown.empty() ? "" : ", ", name, json::dump(value));
  return shown;
}

}  // namespace

/// Ends what was shown before a piece of this kind. Arguments belong to their call.
void ChatAnswer::begin(MessagePiece::Kind kind) {
  const auto before = std::exchange(shown_, kind);
  const bool is_first = !std::exchange(has_shown_, true);
  if (before == MessagePiece::Kind::call && kind != MessagePiece::Kind::call) end_call();
  if (!is_first && (before != kind || kind == MessagePiece::Kind::call)) write_("\n");
  if (kind == MessagePiece::Kind::reasoning && (is_first || before != kind)) write_("[reasoning] ");
}

void ChatAnswer::end_call() {
  Call& call = calls_.back();
  const auto arguments = object_of(call.arguments);
  call.is_complete = arguments.has_value();
  write_(arguments ? shown_arguments(*arguments) + ")" : call.arguments + " ... (the answer ended here)");
}

void ChatAnswer::take(std::span<const MessagePiece> pieces) {
  for (const MessagePiece& piece : pieces) {
    switch (piece.kind) {
      case MessagePiece::Kind::content:
      case MessagePiece::Kind::reasoning:
        if (piece.text.empty()) break;
        begin(piece.kind);
        (piece.kind == MessagePiece::Kind::content ? text_ : reasoning_) += piece.text;
        write_(piece.text);
        break;
      case MessagePiece::Kind::call:
        if (shown_ == MessagePiece::Kind::call) end_call();
        begin(piece.kind);
        calls_.push_back({piece.id, piece.text, {}});
        write_(fmt::format("[call] {}(", piece.text));
        break;
      case MessagePiece::Kind::arguments: calls_.back().arguments += piece.text; break;
    }
  }
}

void ChatAnswer::end() {
  if (shown_ == MessagePiece::Kind::call) end_call();
  write_("\n");
}

json::Value ChatAnswer::message() const {
  json::Value message{{"role", "assistant"}, {"content", text_}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  json::Value made = json::Value::array();
  for (const Call& call : calls_) {
    if (!call.is_complete) continue;
    const std::string& arguments = call.arguments.empty() ? std::string("{}") : call.arguments;
    made.push_back({{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", arguments}}}});
  }
  if (made.empty()) return message;
  if (text_.empty()) message["content"] = nullptr;
  message["tool_calls"] = std::move(made);
  return message;
}

}  // namespace baton
