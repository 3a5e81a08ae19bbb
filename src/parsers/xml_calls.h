/// Calls as `<function=NAME><parameter=KEY>VALUE</parameter></function>`, whose values the tools' schemas give types.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "parsers/call_reader.h"
#include "parsers/tool_index.h"
#include "parsers/typed_value.h"

namespace baton::parsers {

/// One line end after `>` and one in front of `</parameter>` do not belong to the value. Strings are written as they
/// come, other values when they are complete.
class XmlCalls : public CallReader {
 public:
  static constexpr std::string_view kFunction = "<function=";

  /// `tools` may be null. `end_of_call` closes the marker that begins calls; it must outlive this.
  XmlCalls(std::shared_ptr<const ToolIndex> tools, std::string_view end_of_call)
      : tools_(std::move(tools)), end_of_call_(end_of_call) {}
  void begin(std::string_view marker) override;
  CallStep take(char c, CallWriter& writer) override;
  void end(TextEnd how, CallWriter& writer) override;
  std::string_view begun_name() const override { return name_; }

 private:
  static constexpr std::size_t kMaxName = 256;
  enum class State : std::uint8_t { before, name, body, key, value_begin, value, behind };
  CallStep take_token(char c, CallWriter& writer);
  CallStep take_name(char c, CallWriter& writer);
  CallStep take_key(char c, CallWriter& writer);
  CallStep take_value(char c, CallWriter& writer);
  void end_function(CallWriter& writer);
  CallStep fail(CallWriter& writer);

  const std::shared_ptr<const ToolIndex> tools_;
  const std::string_view end_of_call_;
  State state_ = State::before;
  std::string token_;                         // a tag, as far as it is known
  std::string name_;                          // of the function, then of the parameter
  const ArgumentKinds* arguments_ = nullptr;  // of the function; null: it is not a tool
  int n_parameters_ = 0;
  TypedValueWriter value_;
  std::string tail_;  // what may be the end of the value
};

}  // namespace baton::parsers
