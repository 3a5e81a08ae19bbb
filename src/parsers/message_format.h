/// How a model writes tool calls and reasoning: found from its chat template, or chosen by name.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "grammar/grammar.h"
#include "io/json.h"
#include "parsers/message_parser.h"
#include "parsers/tool_index.h"

namespace baton::parsers {

/// A function that the model may call, as far as parsers need it.
struct Tool {
  std::string name;
  json::Value parameters = {};  ///< the JSON schema of the arguments; null: any object
  bool is_strict = false;       ///< whether arguments must keep to the schema
  std::string field = {};       ///< of the request that holds the schema, for errors: "tools[1].function.parameters"
};

/// What a request demands of the answer.
struct ToolChoice {
  enum class Kind : std::uint8_t { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name = {};  ///< of named
};

/// What the grammar of an answer is made from.
struct AnswerDemand {
  std::span<const Tool> tools = {};
  ToolChoice choice = {};
  bool is_parallel = true;  ///< the answer may have several calls
  /// Of `automatic`: an answer without calls is a text of this grammar; nullopt: any text.
  std::optional<grammar::GrammarSource> content = std::nullopt;
  /// Those of markers() that are special tokens of the vocabulary. Calls are written with the tokens, and text that
  /// spells them is no marker.
  std::span<const std::string> special_tokens = {};
};

/// Where the answer to a rendered prompt begins.
struct AnswerBegin {
  bool may_reason = false;    ///< reasoning may be at its front: the prompt has not closed it already
  bool in_reasoning = false;  ///< the prompt has opened the reasoning, or the format needs no opening
  bool in_content = false;    ///< the prompt has opened content, in a format that marks where content begins
};

struct AnswerReading {
  std::shared_ptr<const ToolIndex> tools = {};  ///< null: what looks like a call is content
  bool begins_in_reasoning = false;             ///< as in AnswerBegin
  bool begins_in_content = false;               ///< likewise
  bool has_calls_first = false;                 ///< an answer that does not begin with a call is content as a whole
  bool demands_calls = false;                   ///< an answer is calls alone: other text is no content
  bool is_whole = false;    ///< it is given out in one piece: a call that has a mistake is content as a whole
  bool is_parallel = true;  ///< it may have several calls; otherwise the second one need not be whole
};

struct ToolFormat;
struct ReasoningFormat;

/// A tool format and a reasoning format. Immutable, one per model. Thread: any.
class MessageFormat {
 public:
  /// Everything is content.
  MessageFormat() = default;
  /// By the names of tool_parsers() and reasoning_parsers(). "": none. "auto": what the text of `chat_template` shows,
  /// none where it shows nothing known. Errors: invalid_request for other names, with the names that there are, and for a parser of
  /// harmony beside one of another format.
  static Result<MessageFormat> make(std::string_view tool_parser, std::string_view reasoning_parser,
                                    std::string_view chat_template);
  /// The same with "auto" twice.
  static MessageFormat from_template(std::string_view chat_template);
  /// All names, aliases included, without "auto".
  static std::vector<std::string_view> tool_parsers();
  static std::vector<std::string_view> reasoning_parsers();

  /// The first name of each; "": none.
  std::string_view tool_parser() const;
  std::string_view reasoning_parser() const;

  /// What parser() needs of a request's tools: work for the request, not for its answer. Errors: those of `budget`.
  Result<std::shared_ptr<const ToolIndex>> index(std::span<const Tool> tools, WorkBudget& budget) const;
  std::unique_ptr<MessageParser> parser(const AnswerReading& reading) const;
  AnswerBegin begin_after(std::string_view prompt) const;
  /// The texts of which one ends the reasoning (`</think>`); none without a reasoning format.
  std::span<const std::string_view> reasoning_ends() const;
  /// The grammar of an answer that may reason before it is a text of `source`, or has begun to reason in its prompt.
  /// Reasoning is any text up to the first of reasoning_ends(), with up to two line ends after it. `is_answer`: `source` is one that
  /// grammar() has made, otherwise it is of content alone. `special_tokens` as in AnswerDemand. Errors: invalid_request for a source
  /// that must be JSON and is none.
  Result<grammar::GrammarSource> behind_reasoning(const grammar::GrammarSource& source, bool is_answer,
                                                  const AnswerBegin& begin, std::span<const std::string> special_tokens) const;
  /// Those of markers() that end an answer, whatever a model's files say.
  std::span<const std::string_view> stops() const;
  /// The values of `reasoning_effort` that models of this format know; empty: any that their templates take.
  std::span<const std::string_view> efforts() const;
  /// Texts that may be special tokens of a vocabulary and that the parser must see as text.
  std::span<const std::string> markers() const { return markers_; }

  /// The grammar of an answer, without its reasoning. `required`: one call or several of any tools, exactly one if not
  /// parallel. `named`: one call of that tool. The arguments keep to the tools' schemas. `automatic`: free text and
  /// calls, where the arguments of strict tools keep to their schemas; if not parallel, the answer ends with its first
  /// call. With a grammar of content the answer is either calls alone or content. A tool without schema takes any
  /// object. nullopt where nothing is demanded: `none`, no tools, `automatic` without a format, or without a strict
  /// tool and content. Errors: invalid_request for a name that is not a tool's or that the format cannot write, and for
  /// content that is no JSON where it must be; unsupported without a tool format. Schemas are looked at when the
  /// grammar is compiled.
  Result<std::optional<grammar::GrammarSource>> grammar(const AnswerDemand& demand) const;

 private:
  bool is_harmony() const;

  const ToolFormat* tools_ = nullptr;
  const ReasoningFormat* reasoning_ = nullptr;
  std::vector<std::string> markers_;
};

}  // namespace baton::parsers
