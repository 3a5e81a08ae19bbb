/// Calls as JSON objects, in the envelopes of several formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parsers/call_reader.h"
#include "parsers/json_scanner.h"

namespace baton::parsers {

/// The object that a JSON string holds, as JSON text, mended; without any text an empty one. nullopt where it holds something else.
std::optional<std::string> object_in_string(const std::string& json);

/// How calls stand after a marker.
struct JsonCallStyle {
  bool is_list = false;         ///< [{...}, {...}]
  bool is_object = false;       ///< {...}
  bool is_named = false;        ///< name[ARGS]{...}, name[CALL_ID]id[ARGS]{...} or name{...}, where {...} are the arguments
  char separator = '\0';        ///< between objects that are in no list; objects may also follow each other with spaces
  std::string_view close = "";  ///< after an object or list; without it further objects may follow an object
};

/// One object {"name" or "tool_name": ..., "arguments" or "parameters": {...}, "id": ...}; other keys are ignored. The arguments are
/// written as they come if the name stands before them. They may also be a string that holds an object. All JSON is mended.
class CallObject {
 public:
  void begin();
  /// The first byte is the opening bracket.
  CallStep take(char c, CallWriter& writer);
  /// Whether nothing but the closing bracket is missing, and what it does if it comes.
  bool may_end() const { return state_ == State::after && has_arguments_ && !name_.empty(); }
  CallStep finish(CallWriter& writer);
  /// The name so far.
  std::string_view begun_name() const;

 private:
  enum class State : std::uint8_t { open, key_or_end, key, colon, value, after };
  enum class Field : std::uint8_t { name, id, arguments, other };
  static constexpr std::size_t kMaxKey = 1024;

  Field field_of(std::string_view key) const;
  CallStep take_key(char c, CallWriter& writer);
  CallStep take_value(char c, CallWriter& writer);
  bool finish_value();

  State state_ = State::open;
  Field field_ = Field::other;
  JsonScanner scanner_{JsonScanner::Form::mended};
  std::string key_;
  std::string value_;  // of name, id, and arguments that cannot be written yet
  std::string name_;
  std::string id_;
  std::string arguments_;  // an object, known before the name
  bool is_begun_ = false;  // the value has its first byte
  bool is_streamed_ = false;
  bool has_arguments_ = false;
};

class JsonCalls : public CallReader {
 public:
  explicit JsonCalls(const JsonCallStyle& style) : style_(style) {}
  void begin(std::string_view marker) override;
  CallStep take(char c, CallWriter& writer) override;
  std::string_view begun_name() const override;

 private:
  enum class State : std::uint8_t {
    before,
    object,
    in_list,
    after_in_list,
    behind,
    close,
    name,
    tag,
    id,
    before_arguments,
    arguments,  // of a style that is named
  };
  CallStep begin_object(char c, CallWriter& writer);
  CallStep take_object(char c, CallWriter& writer);
  CallStep take_list(char c, CallWriter& writer);
  CallStep take_behind(char c, CallWriter& writer);
  CallStep take_named(char c, CallWriter& writer);

  const JsonCallStyle style_;
  State state_ = State::before;
  bool is_in_list_ = false;
  bool has_calls_ = false;  // in front
  CallObject object_;
  std::size_t n_close_ = 0;  // bytes of style_.close so far
  std::string name_;
  std::string id_;
  std::string tag_;
  JsonScanner scanner_{JsonScanner::Form::mended};
};

}  // namespace baton::parsers
