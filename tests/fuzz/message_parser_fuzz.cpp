/// Fuzzes the parsers of answers: no cut changes what they return, arguments are the begin of a JSON text and whole if they are
/// complete, and where there is no call nothing is lost. The input is a line with the names of the tool format and of the reasoning
/// format, a byte that says how the answer is read, a byte that chooses the cuts, and the answer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

std::uint64_t hash_of(std::string_view first, std::string_view second) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::string_view text : {first, second})
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

/// `word`, if it is one of `names`; otherwise one of them, which a name that is added later leaves or replaces by itself. "": none.
std::string_view name_for(std::string_view word, std::span<const std::string_view> names) {
  std::string_view chosen;
  std::uint64_t most = 0;
  for (const std::string_view name : names) {
    if (name == word) return name;
    const std::uint64_t hash = hash_of(word, name);
    if (hash > most) chosen = name;
    most = std::max(most, hash);
  }
  return word.empty() ? "" : chosen;
}

/// Removes the part before the first `end`, or all of `rest`, and returns it.
std::string_view take_until(char end, std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto tools = fuzzed_tools();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string_view line = take_until('\n', text);
  if (text.size() < 2) return 0;
  const std::string_view tool_parser = name_for(take_until(' ', line), parsers::MessageFormat::tool_parsers());
  const std::string_view reasoning_parser = name_for(line, parsers::MessageFormat::reasoning_parsers());
  const auto format = parsers::MessageFormat::make(tool_parser, reasoning_parser, "");
  if (!format) return 0;  // parsers of two formats
  const auto options = static_cast<unsigned char>(text[0]);
  const auto cuts = static_cast<unsigned char>(text[1]);
  text.remove_prefix(2);
  const parsers::AnswerReading reading{.tools = tools,
                                       .begins_in_reasoning = (options & 0x80) != 0,
                                       .begins_in_content = (options & 0xC0) == 0x40,
                                       .demands_calls = !tool_parser.empty() && (options & 0x0F) == 0x0F,  // else refused
                                       .is_whole = (options & 0x10) != 0};
  for (const parsers::TextEnd end : {parsers::TextEnd::natural, parsers::TextEnd::cut}) {
    const auto whole = testing::parsed(format->parser(reading), {text}, end);
    check(testing::parsed(format->parser(reading), testing::cut(text, cuts), end) == whole, "a cut changes an answer");
    testing::check_pieces(whole, {.text = text,
                                  .may_reason = !reasoning_parser.empty(),
                                  .is_natural = end == parsers::TextEnd::natural,
                                  .demands_calls = reading.demands_calls,
                                  .is_whole = reading.is_whole,
                                  .is_harmony = !format->stops().empty()});
  }
  return 0;
}
