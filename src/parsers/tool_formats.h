/// The formats of tool calls and reasoning, as tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "parsers/call_reader.h"
#include "parsers/reasoning_parser.h"
#include "parsers/tool_call_parser.h"

namespace baton::parsers {

/// How the arguments of a call are written.
enum class ArgumentStyle : std::uint8_t {
  json,    ///< a JSON object
  xml,     ///< `<parameter=KEY>` elements
  glm,     ///< `<arg_key>` and `<arg_value>` elements in turn
  python,  ///< keyword arguments
};

/// The texts that a grammar puts around names and arguments, as the chat template writes them:
/// open, call_begin NAME call_middle ARGUMENTS call_end, separator, call_begin ..., close. Where calls are numbered,
/// call_middle NUMBER after_number stand between NAME and ARGUMENTS.
struct CallTexts {
  std::string_view open = "";
  std::string_view call_begin = "";
  std::string_view call_middle = "";
  std::string_view after_number = "";  ///< "": calls are not numbered
  std::string_view call_end = "";
  std::string_view separator = "";
  std::string_view close = "";
  ArgumentStyle arguments = ArgumentStyle::json;
  bool is_name_quoted = true;  ///< NAME is a JSON string
};

/// One row of the table. Rows of one name read the same texts, and differ in what a grammar writes.
struct ToolFormat {
  std::string_view name;
  std::string_view alias;  ///< "": none
  CallBegin begin;
  std::span<const std::string_view> closes;  ///< markers that end calls and may be special tokens
  /// What a chat template of this format shows: all of these texts, and none of `never_shows`.
  std::vector<std::string_view> shows;
  std::vector<std::string_view> never_shows;
  CallTexts texts;
  bool (*can_write_name)(std::string_view name);
  std::unique_ptr<CallReader> (*reader)(std::shared_ptr<const ToolIndex> tools);  ///< null: of harmony
  bool is_harmony = false;                                                        ///< answers are read whole by harmony::Parser
};

struct ReasoningFormat {
  std::string_view name;
  ReasoningMarkers markers;
  std::vector<std::string_view> shows;        ///< as above
  std::vector<std::string_view> never_shows;  ///< as above
  bool is_implied;                            ///< an answer begins with reasoning even if nothing opens it
  bool is_harmony = false;                    ///< as above; there are no markers
};

/// In the order in which a template is compared with them.
std::span<const ToolFormat> tool_formats();
std::span<const ReasoningFormat> reasoning_formats();

}  // namespace baton::parsers
