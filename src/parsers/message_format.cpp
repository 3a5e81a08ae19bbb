/// The plain format: an answer is content.
#include "parsers/message_format.h"

#include <fmt/format.h>

namespace baton::parsers {

namespace {

class PlainParser : public MessageParser {
 public:
  void take(std::string_view text, std::vector<MessagePiece>& pieces) override {
    if (!text.empty()) pieces.push_back({.text = std::string(text)});
  }
  void end(std::vector<MessagePiece>& /*pieces*/) override {}
};

Result<void> check_name(std::string_view what, std::string_view name) {
  if (name.empty() || name == "auto") return {};
  return fail(ErrorCode::invalid_request, fmt::format("there is no {} '{}'; known are: auto", what, name));
}

}  // namespace

Result<MessageFormat> MessageFormat::make(std::string_view tool_parser, std::string_view reasoning_parser,
                                          std::string_view /*chat_template*/) {
  BATON_TRY_VOID(check_name("tool-call parser", tool_parser));
  BATON_TRY_VOID(check_name("reasoning parser", reasoning_parser));
  return MessageFormat();
}

MessageFormat MessageFormat::from_template(std::string_view /*chat_template*/) { return {}; }
std::vector<std::string_view> MessageFormat::tool_parsers() { return {}; }
std::vector<std::string_view> MessageFormat::reasoning_parsers() { return {}; }
std::string_view MessageFormat::tool_parser() const { return ""; }
std::string_view MessageFormat::reasoning_parser() const { return ""; }
bool MessageFormat::begins_in_reasoning(std::string_view /*prompt*/) const { return false; }
std::string_view MessageFormat::reasoning_end() const { return ""; }

std::unique_ptr<MessageParser> MessageFormat::parser(std::shared_ptr<const std::vector<Tool>> /*tools*/,
                                                     bool /*begins_in_reasoning*/) const {
  return std::make_unique<PlainParser>();
}

Result<std::optional<grammar::GrammarSource>> MessageFormat::grammar(std::span<const Tool> tools, const ToolChoice& choice,
                                                                     bool /*parallel*/) const {
  if (tools.empty() || choice.kind == ToolChoice::Kind::none || choice.kind == ToolChoice::Kind::automatic)
    return std::optional<grammar::GrammarSource>();
  return fail(ErrorCode::unsupported,
              "tool_choice demands a call, and the model's chat template shows no known format of calls; "
              "choose one by --tool-call-parser",
              "tool_choice");
}

}  // namespace baton::parsers
