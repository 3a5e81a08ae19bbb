/// Calls as `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`, whose values the tools' schemas give types.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parsers/call_reader.h"
#include "parsers/tool_index.h"
#include "parsers/typed_value.h"

namespace baton::parsers {

/// Spaces between the tags do not count; GLM-4.5 and 4.6 write a line end there, later ones nothing.
class GlmCalls : public CallReader {
 public:
  static constexpr std::string_view kEndOfCall = "</tool_call>";

  /// `tools` may be null.
  explicit GlmCalls(std::shared_ptr<const ToolIndex> tools) : tools_(std::move(tools)) {}
  void begin(std::string_view marker) override;
  CallStep take(char c, CallWriter& writer) override;
  void end(TextEnd how, CallWriter& writer) override;
  std::string_view begun_name() const override { return state_ == State::name ? name_ : std::string_view(); }

 private:
  static constexpr std::size_t kMaxName = 256;
  enum class State : std::uint8_t { name, body, key, before_value, value };
  CallStep take_name(char c, CallWriter& writer);
  CallStep take_tag(char c, CallWriter& writer);
  CallStep take_key(char c, CallWriter& writer);
  CallStep take_value(char c, CallWriter& writer);
  CallStep fail(CallWriter& writer);

  const std::shared_ptr<const ToolIndex> tools_;
  State state_ = State::name;
  std::string name_;                          // of the function, then of the argument
  std::string tag_;                           // as far as it is known; in a key or value what may be its end
  const ArgumentKinds* arguments_ = nullptr;  // of the function; null: it is not a tool
  int n_arguments_ = 0;
  TypedValueWriter value_;
};

}  // namespace baton::parsers
