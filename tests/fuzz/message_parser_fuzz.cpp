/// Fuzzes the parsers of answers: no cut changes what they return, arguments are the begin of a JSON text and whole if they are
/// complete, and where there is no call nothing is lost. The first three bytes choose the formats, how the answer is read, and the
/// cuts; the others are the answer.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/check.h"
#include "io/json.h"
#include "parsers/message_format.h"
#include "support/message_cuts.h"
#include "support/message_pieces.h"
#include "support/tool_index.h"

namespace {

using namespace baton;

std::shared_ptr<const parsers::ToolIndex> fuzzed_tools() {
  const auto schema = json::parse(R"({"properties": {"s": {"type": "string"}, "n": {"type": ["integer", "null"]},
      "o": {"type": "object"}}})",
                                  "the schema");
  return testing::index_of({{.name = "f", .parameters = *schema}, {.name = "g"}});
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
  if (!format) return 0;  // parsers of two formats
  const std::string_view text(reinterpret_cast<const char*>(data + 3), size - 3);
  const parsers::AnswerReading reading{.tools = tools,
                                       .begins_in_reasoning = data[1] >= 0x80,
                                       .begins_in_content = data[1] >= 0x40 && data[1] < 0x80,
                                       .demands_calls = data[0] >= 0xE0,
                                       .is_whole = (data[0] & 0x10) != 0};
  for (const parsers::TextEnd end : {parsers::TextEnd::natural, parsers::TextEnd::cut}) {
    const auto whole = testing::parsed(format->parser(reading), {text}, end);
    check(testing::parsed(format->parser(reading), testing::cut(text, data[2]), end) == whole, "a cut changes an answer");
    testing::check_pieces(whole, {.text = text,
                                  .may_reason = has_reasoning,
                                  .is_natural = end == parsers::TextEnd::natural,
                                  .demands_calls = reading.demands_calls,
                                  .is_whole = reading.is_whole,
                                  .is_harmony = !format->stops().empty()});
  }
  return 0;
}
