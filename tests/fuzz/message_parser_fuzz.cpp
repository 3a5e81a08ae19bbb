/// Fuzzes the parsers of answers: no cut changes what they return, arguments are the begin of a JSON text, and where
/// there is no call nothing is lost. The first three bytes choose the formats and the cuts; the others are the answer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/json.h"
#include "parsers/json_scanner.h"
#include "parsers/message_format.h"
#include "support/message_cuts.h"

namespace {

using namespace baton;
using parsers::MessagePiece;

std::shared_ptr<const std::vector<parsers::Tool>> fuzzed_tools() {
  const auto schema = json::parse(R"({"properties": {"s": {"type": "string"}, "n": {"type": ["integer", "null"]},
      "o": {"type": "object"}}})",
                                  "the schema");
  return std::make_shared<const std::vector<parsers::Tool>>(
      std::vector<parsers::Tool>{{.name = "f", .parameters = *schema}, {.name = "g"}});
}

std::vector<std::string_view> cut(std::string_view text, std::size_t seed) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const std::size_t n_bytes = 1 + (seed >> 33) % 7;
    parts.push_back(text.substr(0, n_bytes));
    text.remove_prefix(std::min(text.size(), n_bytes));
  }
  return parts;
}

void check_pieces(const std::vector<MessagePiece>& pieces, std::string_view text, bool may_reason) {
  std::int32_t n_calls = 0;
  bool has_reasoning = false;
  std::string content;
  for (const MessagePiece& piece : pieces) {
    switch (piece.kind) {
      case MessagePiece::Kind::content: content += piece.text; break;
      case MessagePiece::Kind::reasoning:
        check(content.empty() && n_calls == 0, "reasoning behind content");
        has_reasoning = true;
        break;
      case MessagePiece::Kind::call:
        check(piece.call == n_calls++ && !piece.text.empty(), "a call out of order or without a name");
        break;
      case MessagePiece::Kind::arguments: {
        check(piece.call + 1 == n_calls, "arguments of no call");
        parsers::JsonScanner scanner;
        for (std::size_t i = 0; i < piece.text.size(); ++i) {
          const auto step = scanner.take(piece.text[i]);
          check(step == parsers::JsonScanner::Step::inside ||
                    (step == parsers::JsonScanner::Step::ends && i + 1 == piece.text.size()),
                "arguments that are no JSON");
        }
      }
    }
  }
  check(has_reasoning ? may_reason : true, "reasoning without a format");
  if (n_calls == 0 && !may_reason) check(content == text, "a text without calls has changed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  static const auto tools = fuzzed_tools();
  const auto tool_parsers = parsers::MessageFormat::tool_parsers();
  const auto reasoning_parsers = parsers::MessageFormat::reasoning_parsers();
  const std::size_t reasoning = data[1] % (2 * reasoning_parsers.size());
  const bool has_reasoning = reasoning < reasoning_parsers.size();
  const auto format = parsers::MessageFormat::make(tool_parsers[data[0] % tool_parsers.size()],
                                                   has_reasoning ? reasoning_parsers[reasoning] : "", "");
  const bool begins_in_reasoning = data[1] >= 0x80;
  const std::string_view text(reinterpret_cast<const char*>(data + 3), size - 3);
  const auto whole = testing::parsed(format->parser(tools, begins_in_reasoning), {text});
  check(testing::parsed(format->parser(tools, begins_in_reasoning), cut(text, data[2])) == whole, "a cut changes an answer");
  check_pieces(whole, text, has_reasoning);
  return 0;
}
