/// Chat templates: turn a conversation into the text format that a model was trained on.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "jinja/value.h"

namespace baton {

namespace jinja {
struct Limits;
}

/// A model's chat template, in Jinja as Transformers runs it: trim_blocks, lstrip_blocks, break and continue, {%
/// generation %}, tojson without ASCII escapes, raise_exception, strftime_now. Parsed once; render() is const and may
/// run in many threads at once.
///
/// Beyond Transformers, templates may change lists and dicts (append, pop, update...) and use a filter from_json. Not
/// supported: blocks, inheritance, includes, imports, autoescape, translations. Integers have 64 bits.
class ChatTemplate {
 public:
  struct Context {
    json::Value messages;
    bool add_generation_prompt = false;
    std::map<std::string, std::string, std::less<>> role_tokens = {};  ///< bos_token, eos_token...
    json::Value tools = nullptr;                                       ///< null if there are none
    json::Value documents = nullptr;                                   ///< null if there are none
    /// The field of the last message that the model continues with ("content"); the text ends there. Empty: none.
    std::string continued_field = {};
    json::Value extra = json::Value::object();  ///< more variables (chat_template_kwargs); they win over those above
    /// The time that strftime_now shows, in local time; absent: now.
    std::optional<std::chrono::system_clock::time_point> now = std::nullopt;
    /// A longer text is an error before it is complete; 0: that of jinja::Limits.
    std::size_t max_output_bytes = 0;
    /// Asked while the template runs; true ends it: see WorkBudget.
    std::function<bool()> is_cancelled = {};
  };

  /// Errors name the line: invalid_data for what is not a template, unsupported for what Baton does not support.
  static Result<ChatTemplate> parse(std::string source);
  /// The same, with other limits of a render.
  static Result<ChatTemplate> parse(std::string source, const jinja::Limits& limits);

  /// Errors: invalid_request with the template's own message (raise_exception) or with line and construct, and with
  /// the parameter continue_final_message where the template does not write the continued field out; too_large over a
  /// limit of output, memory, work or nesting; unavailable where it was cancelled.
  Result<std::string> render(const Context& context) const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Tree;
  explicit ChatTemplate(std::unique_ptr<const Tree> tree);
  Result<std::string> render_messages(const Context& context, const json::Value& messages) const;
  std::unique_ptr<const Tree> tree_;
};

enum class TemplateTexts : bool { view, copy };
/// `json` as a value; its strings are copied into the arena, or stay views into `json`. Errors: nested deeper than
/// json::kMaxDepth.
Result<jinja::Value> template_value(jinja::Arena& arena, const json::Value& json, TemplateTexts texts);

/// The value of a JSON text: the JsonReader of every render.
Result<jinja::Value> read_template_json(jinja::Arena& arena, std::string_view text);

}  // namespace baton
