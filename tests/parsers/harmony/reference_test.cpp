/// Compares answers in harmony with what openai-harmony makes of them (tools/harmony_streams.py), at every beginning and every cut.
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"
#include "parsers/golden_message.h"
#include "parsers/json_scanner.h"
#include "support/source_folder.h"

namespace baton::parsers {
namespace {

using Kind = MessagePiece::Kind;

/// A message of the reference.
struct Said {
  std::string role, channel, recipient, text;
};

/// How messages are read, in the words of harmony/parser.h.
class Expected {
 public:
  void add(const Said& said, bool is_open) {
    if (said.role != "assistant") return;
    const bool is_function = said.recipient.starts_with("functions.") && said.recipient.size() > 10;
    if (!is_function && tools()->find(said.recipient) == nullptr)
      return add_text(said.channel == "analysis" ? Kind::reasoning : Kind::content, said.text);
    const std::string name = is_function ? said.recipient.substr(10) : said.recipient;
    const std::string arguments = is_open ? begun_arguments(said.text) : whole_arguments(said.text);
    if (arguments.empty() && is_open && said.text.find_first_not_of(" \n\t") == std::string::npos) return;
    if (arguments.empty()) return add_text(Kind::content, said.text);
    pieces_.push_back({.kind = Kind::call, .call = n_calls_, .text = name});
    pieces_.push_back(
        {.kind = Kind::arguments, .call = n_calls_++, .text = arguments, .is_complete = mended_json(arguments).has_value()});
  }
  const std::vector<MessagePiece>& pieces() const { return pieces_; }

 private:
  void add_text(Kind kind, const std::string& text) {
    if (text.empty()) return;
    bool& has_text = kind == Kind::reasoning ? has_reasoning_ : has_content_;
    const std::string added = (has_text ? "\n\n" : "") + text;
    has_text = true;
    if (!pieces_.empty() && pieces_.back().kind == kind)
      pieces_.back().text += added;
    else
      pieces_.push_back({.kind = kind, .text = added});
  }
  /// "": no object.
  static std::string whole_arguments(const std::string& text) {
    if (text.find_first_not_of(" \n\t") == std::string::npos) return "{}";
    return begun_arguments(text, /*is_whole=*/true);
  }
  /// What is certain of an object. After it, and nothing of another value.
  static std::string begun_arguments(const std::string& text, bool is_whole = false) {
    const std::size_t begin = text.find_first_not_of(" \n\t");
    if (begin == std::string::npos || text[begin] != '{') return "";
    JsonScanner scanner(JsonScanner::Form::mended);
    std::string json;
    for (const char c : text.substr(begin)) {
      const JsonScanner::Step step = scanner.take(c);
      if (step == JsonScanner::Step::fault) return "";
      json += scanner.written();
      if (step == JsonScanner::Step::ends) return json;
    }
    return is_whole ? "" : json;
  }

  std::vector<MessagePiece> pieces_;
  std::int32_t n_calls_ = 0;
  bool has_content_ = false, has_reasoning_ = false;
};

/// Without spaces, which the reference joins where a header is not closed.
std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

/// Whether `pieces` begin with `expected`, and are no more where `is_all`.
bool begins_with(const std::vector<MessagePiece>& pieces, const std::vector<MessagePiece>& expected, bool is_all) {
  if (pieces.size() < expected.size() || (is_all && pieces.size() > expected.size())) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool is_last = i + 1 == expected.size() && !is_all;
    const std::string text = without_spaces(pieces[i].text), other = without_spaces(expected[i].text);
    if (pieces[i].kind != expected[i].kind || (is_last ? !text.starts_with(other) : text != other)) return false;
    if (pieces[i].is_complete != expected[i].is_complete) return false;
  }
  return true;
}

struct Counts {
  std::size_t n_answers = 0;
  std::size_t n_whole = 0;  ///< which the reference reads to their end
  std::size_t n_begins = 0;
  std::size_t n_cuts = 0;
};

void compare(const json::Value& stream, const MessageFormat& format, Counts& counts) {
  const std::string text = stream["text"];
  const auto parsed = [&](const std::vector<std::string_view>& texts, TextEnd end) {
    return testing::parsed(format.parser({.tools = tools(), .is_whole = true}), texts, end);
  };
  std::vector<Said> messages;
  for (const json::Value& said : stream["messages"])
    messages.push_back({said["role"], said["channel"], said["recipient"], said["text"]});
  for (const json::Value& begin : stream["begins"]) {
    const auto n_bytes = begin[0].get<std::size_t>();
    const auto n_open = begin[2].get<std::int64_t>();
    const std::string_view front = std::string_view(text).substr(0, n_bytes);
    Expected expected;
    for (std::size_t i = 0; i < begin[1].get<std::size_t>(); ++i) expected.add(messages[i], /*is_open=*/false);
    if (n_open >= 0) {
      Said open = messages.at(begin[1].get<std::size_t>());
      open.text.resize(static_cast<std::size_t>(n_open));
      expected.add(open, /*is_open=*/true);
    }
    // A header that is cut off is nothing, but for text without any marker.
    const bool is_all =
        n_open >= 0 || front.ends_with("<|end|>") || front.ends_with("<|return|>") || front.ends_with("<|call|>");
    const auto pieces = parsed({front}, TextEnd::cut);
    EXPECT_TRUE(begins_with(pieces, expected.pieces(), is_all))
        << "the first " << n_bytes << " bytes of: " << text << "\nread:      " << shown(pieces)
        << "\nreference: " << shown(expected.pieces());
    ++counts.n_begins;
  }
  const auto whole = parsed({text}, TextEnd::natural);
  for (std::size_t i = 0; i <= text.size(); ++i, ++counts.n_cuts)
    EXPECT_EQ(parsed({std::string_view(text).substr(0, i), std::string_view(text).substr(i)}, TextEnd::natural), whole)
        << "cut at " << i << " of: " << text;
  ++counts.n_answers;
  counts.n_whole += !stream["begins"].empty() && stream["begins"].back()[0] == text.size();
}

TEST(HarmonyReference, agrees_at_every_beginning_and_every_cut) {
  const char* asked = std::getenv("BATON_HARMONY_STREAMS");
  const std::filesystem::path file =
      asked != nullptr ? std::filesystem::path(asked) : test::source_folder() / "tests/goldens/harmony/streams.json";
  const auto streams = json::parse_file(file);
  ASSERT_TRUE(streams) << streams.error().message;
  ASSERT_FALSE(streams->empty());
  const MessageFormat format = *MessageFormat::make("openai", "openai_gptoss", "");
  Counts counts;
  for (const json::Value& stream : *streams) compare(stream, format, counts);
  fmt::print("{} answers, {} of them read to their end by the reference, {} beginnings, {} cuts\n", counts.n_answers,
             counts.n_whole, counts.n_begins, counts.n_cuts);
}

}  // namespace
}  // namespace baton::parsers
