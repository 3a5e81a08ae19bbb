/// Calls between tags, in a section of them: those of DeepSeek V3 and V3.1 and of Kimi K2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parsers/call_reader.h"
#include "parsers/json_scanner.h"

namespace baton::parsers {

/// CALL HEAD ARGUMENTS {...} END, where HEAD names the function, any number of times, then the end of the section.
struct SectionCallStyle {
  std::string_view call;                           ///< in front of a call
  std::string_view arguments;                      ///< between the head of a call and its arguments
  std::string_view end_of_call;                    ///< after them
  std::span<const std::string_view> section_ends;  ///< any of them
  /// The head is `functions.NAME:NUMBER`, and all of it is the id of the call. Otherwise it is NAME, or the word `function`, and
  /// NAME is a line after the tag `arguments`, in front of arguments in a fence of three backticks.
  bool is_numbered = false;
};

/// Each tag but the one in front of a call may be missing. Arguments may be a string that holds an object, and none at all are an
/// empty one.
class SectionCalls : public CallReader {
 public:
  explicit SectionCalls(const SectionCallStyle& style) : style_(style) {}
  void begin(std::string_view marker) override;
  CallStep take(char c, CallWriter& writer) override;
  void end(TextEnd how, CallWriter& writer) override;
  std::string_view begun_name() const override { return name_; }

 private:
  static constexpr std::size_t kMaxName = 256;
  static constexpr std::size_t kMaxFence = 16;
  enum class State : std::uint8_t {
    before,  // in front of the first call of a section
    head,
    head_tag,  // in front of the arguments
    after_tag,
    name,  // in a line
    before_arguments,
    fence,
    arguments,
    quoted_arguments,
    empty_arguments,  // the tag that ends a call without any
    after_call,
  };
  CallStep take_tag(char c, CallWriter& writer);
  CallStep take_head(char c);
  CallStep end_head();
  CallStep take_name(char c, CallWriter& writer);
  CallStep begin_arguments(char c, CallWriter& writer);
  CallStep take_fence(char c, CallWriter& writer);
  CallStep take_arguments(char c, CallWriter& writer);
  CallStep whole_call(std::string_view arguments, CallWriter& writer);
  CallStep end_call(CallWriter& writer);

  const SectionCallStyle style_;
  State state_ = State::before;
  std::string tag_;   // as far as it is known
  std::string name_;  // of the function; in the head the head
  std::string id_;
  std::size_t n_fence_ = 0;
  std::string quoted_;  // the parser gives calls up at CallWriter::kMaxHeld bytes; an escape has up to 6 for one of them
  JsonScanner scanner_{JsonScanner::Form::mended};
};

}  // namespace baton::parsers
